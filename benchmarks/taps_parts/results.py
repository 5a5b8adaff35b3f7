"""What a result was measured with: none is measured twice, and no table mixes what was measured with something else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tts_orch.engine.model_cache import file_digest
from tts_orch.errors import ConfigError, RunFolderError
from tts_orch.json_lines import JsonObject, read_json_lines

__all__ = ["comparable", "digests", "identity", "read_results"]

_IDENTITY: Final = ("loss", "workload", "temperature", "row", "settings", "heads", "compared")


def digests(heads: Path, names: Sequence[str]) -> dict[str, str]:
    """Return which weights heads have now, by name.

    Raises:
        ConfigError: a head is missing.
    """
    files = {name: heads / name / "model.safetensors" for name in names}
    for file in files.values():
        if not file.is_file():
            raise ConfigError(f"{file}: no head there; train it, or leave it out (--rows, --ways)")
    return {name: file_digest(file)[:8] for name, file in files.items()}


def identity(result: Mapping[str, Any]) -> str:
    """Return what two results have in common only if one of them is superfluous."""
    return json.dumps([result.get(name) for name in _IDENTITY], sort_keys=True)


def read_results(path: Path) -> list[JsonObject]:
    """Return all results of a file, the oldest first.

    Raises:
        RunFolderError: one of them does not say what it was measured with.
    """
    results = [line.values for line in read_json_lines(path)]
    if not all({"settings", "heads"} <= result.keys() for result in results):
        raise RunFolderError(f"{path}: some results do not say which heads they are of; take another --out")
    return results


def comparable(results: Sequence[JsonObject]) -> Iterator[tuple[list[JsonObject], int]]:
    """Yield what may stand in one table, and how many results are left out of it since a head has other weights by now."""
    groups: dict[str, list[JsonObject]] = {}
    for result in results:
        kind = json.dumps([result["loss"], result["temperature"], result["settings"]], sort_keys=True)
        groups.setdefault(kind, []).append(result)
    for group in groups.values():
        newest = {name: digest for result in group for name, digest in result["heads"].items()}
        current = [result for result in group if result["heads"].items() <= newest.items()]
        yield current, len(group) - len(current)
