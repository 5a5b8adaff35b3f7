"""Checks of this machine: Python, packages, the cache, a GPU that torch cannot use."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from tts_orch.doctor.finding import Finding, failure, ok, warning
from tts_orch.engine.model_cache import cache_folder

__all__ = ["check_installation"]

_PACKAGE: Final = "tts-orch"
_NAMED: Final = ("ray", "torch", "transformers", "numba")
_ROOM_BYTES: Final = 2 * 2**30  # for the demo model and a compiled cache


def check_installation() -> Iterator[Finding]:
    """Yield what there is to say about this machine, without loading torch or Ray."""
    yield ok(
        "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    )
    yield _packages()
    yield _torch()
    yield _cache(cache_folder())


def _packages() -> Finding:
    wanted = [Requirement(line) for line in requires(_PACKAGE) or ()]
    faults = [fault for one in wanted if not one.marker or one.marker.evaluate({"extra": ""}) if (fault := _fault(one))]
    if faults:
        return failure("packages", f"{'; '.join(faults)}; run `make install`, or pip install -U {_PACKAGE}")
    return ok("packages", f"{_PACKAGE} {version(_PACKAGE)}, {', '.join(f'{name} {version(name)}' for name in _NAMED)}")


def _fault(requirement: Requirement) -> str | None:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement.name} {installed} is not {requirement.specifier}"


def _torch() -> Finding:
    installed = version("torch")
    has_gpu = Path("/proc/driver/nvidia/version").exists()
    if has_gpu and "+cpu" in installed:
        return warning(
            "device", f"a GPU that torch {installed} cannot use; reinstall with -c deploy/constraints.gpu.txt"
        )
    return ok("device", "an NVIDIA GPU" if has_gpu else "no GPU; targets are computed on the CPU")


def _cache(folder: Path) -> Finding:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK):
        return failure("cache", f"{folder} cannot be written; set TTS_ORCH_CACHE to a folder that can")
    free = shutil.disk_usage(existing).free
    if free < _ROOM_BYTES:
        return warning("cache", f"{folder} has {free / 2**30:.1f} GiB left; make room, or set TTS_ORCH_CACHE elsewhere")
    return ok("cache", f"{folder}, {free / 2**30:.0f} GiB free")
