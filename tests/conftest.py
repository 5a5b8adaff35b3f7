"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports Ray or torch, which read them once.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # before torch: see actors/target_verifier.py
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ.pop("RAY_ADDRESS", None)


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
