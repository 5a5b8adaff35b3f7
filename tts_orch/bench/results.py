"""The folder of a benchmark: a JSON file for each part that is done, all of them together, tables, plots."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from re import fullmatch

from tts_orch.atomic_file import write_atomically
from tts_orch.bench.merging import merged
from tts_orch.bench.plan import ALTERNATING, PARTS, BenchPlan, Part
from tts_orch.json_lines import JsonObject

__all__ = ["ResultFolder"]


class ResultFolder:
    """Keeps the results of parts, so that they can run on different days.

    Args:
        path: the folder; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in (self.parts, self.recordings, self.trees):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def parts(self) -> Path:
        """Folder of the parts' results."""
        return self.path / "parts"

    @property
    def recordings(self) -> Path:
        """Folder of recorded trajectories."""
        return self.path / "recordings"

    @property
    def trees(self) -> Path:
        """Folder of the trees that are compared."""
        return self.path / "trees"

    def recording(self, plan: BenchPlan, workload: str, temperature: float) -> Path:
        """Return the file of a workload's recording; another size is another file."""
        if workload == ALTERNATING:
            sizes = (plan.alternating_problems, plan.alternating_trajectories, plan.alternating_tokens)
        else:
            trajectories = plan.trajectories if temperature > 0 else 1
            sizes = (plan.problems_per_workload, trajectories, plan.max_new_tokens)
        return self.recordings / f"{_file_name(workload)}-T{temperature:g}-{'x'.join(map(str, sizes))}-s{plan.seed}.npz"

    def write_part(self, part: Part, result: JsonObject, made: JsonObject) -> None:
        """Keep what a part found, its rows in place of the same ones of earlier runs; `made` says where, when and with what."""
        write_atomically(self.parts / f"{part}.json", _json(merged(self.read().get(part, {}), result, made)))

    def read(self) -> dict[Part, JsonObject]:
        """Return the results of all parts that are done."""
        return {part: json.loads(path.read_text()) for part in PARTS if (path := self.parts / f"{part}.json").is_file()}

    def write_all(self, tables: str) -> None:
        """Write all results as one file, and the tables."""
        write_atomically(self.path / "results.json", _json(dict(self.read())))
        write_atomically(self.path / "tables.md", tables)


def _file_name(workload: str) -> str:
    """Return a name of its own for every workload; those that are no plain names are told apart by a digest."""
    if fullmatch(r"[\w-]+", workload):
        return workload
    digest = hashlib.blake2b(workload.encode(), digest_size=4).hexdigest()
    return f"{Path(workload).name.split('.')[0]}-{digest}"


def _json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
