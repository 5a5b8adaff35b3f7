"""What the journal of a run has of its searches: the candidates, and what each search step decided on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tts_orch.errors import RunFolderError
from tts_orch.journal import read_candidates
from tts_orch.json_lines import JsonObject, read_json_lines
from tts_orch.records import Candidate
from tts_orch.records import Path as SearchPath

__all__ = ["Decision", "RecordedSearch", "read_searches"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a search step decided on a candidate.

    Attributes:
        path: of the candidate.
        parent: path of the candidate that it continues.
        step_scores: what it was judged by.
        n_new: tokens that were sampled for it.
        finish_reason: why it ended.
        is_kept: whether the search went on from it, or ended with it.
    """

    path: SearchPath
    parent: SearchPath
    step_scores: tuple[float, ...]
    n_new: int
    finish_reason: str
    is_kept: bool


@dataclass(frozen=True, slots=True)
class RecordedSearch:
    """What the journal has of one problem.

    Attributes:
        candidates: by path.
        decisions: by path, the last one of each; empty where the method does not search by steps.
    """

    candidates: Mapping[SearchPath, Candidate]
    decisions: Mapping[SearchPath, Decision]


def read_searches(folder: Path, problem_ids: Collection[str]) -> dict[str, RecordedSearch]:
    """Return what a run folder has of some problems.

    Raises:
        RunFolderError: a line is damaged.
    """
    candidates: dict[str, dict[SearchPath, Candidate]] = {problem_id: {} for problem_id in problem_ids}
    for candidate in read_candidates(folder):
        if candidate.problem_id in candidates:
            candidates[candidate.problem_id][candidate.path] = candidate
    decisions: dict[str, dict[SearchPath, Decision]] = {problem_id: {} for problem_id in problem_ids}
    for problem_id, decision in _read_decisions(folder / "steps.jsonl"):
        if problem_id in decisions:
            decisions[problem_id][decision.path] = decision
    return {key: RecordedSearch(candidates[key], decisions[key]) for key in candidates}


def _read_decisions(path: Path) -> Iterator[tuple[str, Decision]]:
    for line in read_json_lines(path):
        try:
            decisions = [(line.values["problem_id"], decision) for decision in _decisions(line.values)]
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{path}:{line.number}: not a search step ({error!r}); delete the line") from None
        yield from decisions


def _decisions(step: JsonObject) -> Iterator[Decision]:
    yield from (_decision(values, is_kept=True) for values in step["kept"])
    yield from (_decision(values, is_kept=False) for values in step["dropped"])


def _decision(values: JsonObject, *, is_kept: bool) -> Decision:
    return Decision(
        path=tuple(map(int, values["path"])),
        parent=tuple(map(int, values["parent"])),
        step_scores=tuple(map(float, values["step_scores"])),
        n_new=int(values["n_new"]),
        finish_reason=str(values["finish_reason"]),
        is_kept=is_kept,
    )
