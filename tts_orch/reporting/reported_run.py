"""What a run folder has for its report; the folder may be in use.

As in the run itself, only results of its latest n count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tts_orch.config import RunConfig
from tts_orch.errors import ProblemError, RunFolderError
from tts_orch.json_lines import JsonObject
from tts_orch.manifest import Manifest
from tts_orch.records import Problem
from tts_orch.results import ProblemResult
from tts_orch.run_folder import read_identity, read_results, read_summary, results_of
from tts_orch.summary import DecodingTime, summarise
from tts_orch.tasks.problems import read_problems

__all__ = ["ReportedRun", "read_runs"]


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run with at least one finished problem.

    Attributes:
        label: its name in the report, of this run alone.
        folder: the run folder.
        config: settings of the latest run in it.
        manifest: what it belongs to.
        results: of the finished problems, in order.
        summary: the run in numbers, computed from the results.
        problems: by id, those whose text is still the one that was solved; none when the file is gone.
    """

    label: str
    folder: Path
    config: RunConfig
    manifest: Manifest
    results: Sequence[ProblemResult]
    summary: JsonObject
    problems: Mapping[str, Problem]

    @property
    def graded(self) -> list[ProblemResult]:
        """The results that can be right or wrong."""
        return [result for result in self.results if result.correct is not None]


def read_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """Read run folders.

    Raises:
        UserError: one is no run folder, is damaged, or has no finished problem.
    """
    return [_read(folder, label) for folder, label in zip(folders, _labels(folders), strict=True)]


def _labels(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with as many folders above them as it takes to tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts))):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _read(folder: Path, label: str) -> ReportedRun:
    manifest, config = read_identity(folder)
    problem_ids = (problem_id for problem_id, _ in manifest.problems)
    results = results_of(read_results(folder), problem_ids, config.method.n)
    if not results:
        raise RunFolderError(f"{folder}: no problem is finished yet with the n of its config.yaml; let the run go on")
    earlier = read_summary(folder)
    time = DecodingTime(earlier.get("wall_time_s", 0.0), earlier.get("decoded_tokens", 0))
    summary = {**earlier, **summarise(results, len(manifest.problems), time)}
    return ReportedRun(label, folder, config, manifest, results, summary, _problems(config, manifest))


def _problems(config: RunConfig, manifest: Manifest) -> dict[str, Problem]:
    try:
        problems = read_problems(config.problems)
    except ProblemError:
        return {}
    digests = dict(Manifest.of(config, problems).problems)
    unchanged = {problem_id for problem_id, digest in manifest.problems if digests.get(problem_id) == digest}
    return {problem.id: problem for problem in problems if problem.id in unchanged}
