"""All checks in the order in which they explain each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tts_orch.doctor.authentication import check_authentication
from tts_orch.doctor.cluster import check_cluster
from tts_orch.doctor.drafters import check_drafters
from tts_orch.doctor.finding import Finding, stopping_at_errors
from tts_orch.doctor.installation import check_installation
from tts_orch.doctor.store import check_store
from tts_orch.doctor.target import check_target

__all__ = ["check_all"]


def check_all(target: str, drafters: Mapping[str, Path], store: str, address: str | None) -> Iterator[Finding]:
    """Yield findings on this machine, then on the cluster, each as soon as there is one; takes about ten seconds.

    Args:
        target: the target model.
        drafters: folders of trained drafters, by name.
        store: URL of the statistics store.
        address: Ray cluster, or the http address that takes its jobs; None starts a Ray of our own for the while.
    """
    yield from check_installation()
    yield from stopping_at_errors("target", lambda: check_target(target))
    yield from check_drafters(drafters, target)
    yield from stopping_at_errors("store", lambda: check_store(store))
    yield from check_authentication(address)
    yield from stopping_at_errors("cluster", lambda: check_cluster(address, store, target))
