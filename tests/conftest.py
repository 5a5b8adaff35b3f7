"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Before anything imports Ray or torch, which read them once.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # before torch: see actors/target_verifier.py
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ.pop("RAY_ADDRESS", None)
if "PYTEST_XDIST_WORKER" in os.environ:  # one process of several that test, which share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("patient", settings(deadline=None))  # how long an example takes is up to what runs beside it
settings.load_profile("patient")

_STARTING_SERVERS = ("tests/cluster/", "tests/integration/", "tests/multihost/", "tests/store/")
"""Folders whose tests start clusters and servers of statistics: never two of them at a time."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Hand whole files to the processes, and all that start servers to one of them; those of most tests come first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "servers" if nodeid.startswith(_STARTING_SERVERS) else nodeid.partition("::")[0]

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Run a local Ray of two CPUs, with a home of its own so that it leaves no token behind."""
    import ray

    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # unix sockets need a short path
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(folder))
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=80 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(folder / "ray"),
        )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
