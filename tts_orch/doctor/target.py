"""Checks of the target model: whether its files are here. Nothing is loaded or fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tts_orch.doctor.finding import Finding, ok, warning
from tts_orch.engine.demo_model import CACHE_NAME
from tts_orch.engine.model_cache import cache_folder
from tts_orch.engine.model_files import DEMO_TARGET, hub_snapshot, locate, weight_files
from tts_orch.errors import TargetError

__all__ = ["check_target"]


def check_target(target: str) -> Iterator[Finding]:
    """Yield whether a target can be loaded on this machine.

    Raises:
        TargetError: there is no such model; the message says what to do.
    """
    if target == DEMO_TARGET and not (cache_folder() / CACHE_NAME).is_dir():
        yield warning("target", f"{target} is not here yet; the first run fetches it, or `make model`")
        return
    if target.endswith(".gguf") and Path(target).is_file():
        yield ok(
            "target", f"{target}, {Path(target).stat().st_size / 2**30:.1f} GiB, is converted when it is first used"
        )
        return
    location = locate(target)
    try:
        folder = location if isinstance(location, Path) else hub_snapshot(location)
    except TargetError:
        yield warning("target", f"{target} is fetched from the hub on every node; where that cannot be, give a folder")
        return
    yield _files(target, folder)


def _files(target: str, folder: Path) -> Finding:
    size = sum(file.stat().st_size for file in weight_files(folder))
    kind = json.loads((folder / "config.json").read_text()).get("model_type", "unknown")
    return ok("target", f"{target}: {kind}, {size / 2**30:.1f} GiB of weights in {folder}")
