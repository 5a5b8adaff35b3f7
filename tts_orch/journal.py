"""The journal of a run: every finished candidate and search step, so that nothing is done twice.

It knows candidates and where they belong, not what a run is. Candidates stay on disk and are read back when asked for;
memory holds only where each one's line begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final, TypeAlias

from tts_orch.errors import RunFolderError
from tts_orch.json_lines import JsonLinesFile, JsonObject, read_json_lines
from tts_orch.records import Candidate, FinishReason
from tts_orch.records import Path as SearchPath

__all__ = ["Journal", "count_finished", "read_finished"]

CandidateKey: TypeAlias = tuple[str, SearchPath, int]

_CANDIDATES: Final = "candidates.jsonl"
_FIELDS: Final = tuple(field.name for field in fields(Candidate))


def count_finished(folder: Path) -> Counter[str]:
    """Return how many candidates of each problem a folder has, without opening it for writing.

    Raises:
        RunFolderError: a line is damaged.
    """
    return _by_problem(_finished(folder / _CANDIDATES))


def read_finished(folder: Path) -> list[Candidate]:
    """Return every candidate of a folder that came to an end, without opening it for writing.

    Raises:
        RunFolderError: a line is damaged.
    """
    last = {_key(candidate): candidate for candidate, _ in _read(folder / _CANDIDATES) if candidate.is_complete}
    return list(last.values())


class Journal:
    """`candidates.jsonl` and `steps.jsonl` of a run folder, open for reading and appending.

    Args:
        folder: an existing folder; the files are made when they are missing.

    Attributes:
        n_finished: candidates that came to an end, by problem id.

    Raises:
        RunFolderError: a line is damaged.
        OSError: a file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._candidates = JsonLinesFile(folder / _CANDIDATES)
        self._steps = JsonLinesFile(folder / "steps.jsonl")
        self._finished = _finished(self._candidates.path)
        self.n_finished = _by_problem(self._finished)
        self._kept = {_step_key(line.values) for line in read_json_lines(self._steps.path)}

    def finished(self, problem_id: str, path: SearchPath, seed: int) -> Candidate | None:
        """Return the candidate if it came to an end; None for a failed one too, which is to be done again."""
        offset = self._finished.get((problem_id, path, seed))
        return None if offset is None else _from_json(self._candidates.read(offset))

    def record(self, candidate: Candidate) -> None:
        """Append a candidate. A cancelled one, or one that came to an end here before, leaves no line.

        Raises:
            RunError: the line cannot be written.
        """
        if candidate.finish_reason is FinishReason.CANCELLED or _key(candidate) in self._finished:
            return
        offset = self._candidates.append(_to_json(candidate))
        if candidate.is_complete:
            self._finished[_key(candidate)] = offset
            self.n_finished[candidate.problem_id] += 1

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """Append a search step: these candidates were kept, their siblings dropped. A repeated step leaves no line.

        Raises:
            RunError: the line cannot be written.
        """
        if not candidates:
            return
        step = {"problem_id": candidates[0].problem_id, "kept": [list(candidate.path) for candidate in candidates]}
        if _step_key(step) not in self._kept:
            self._steps.append(step)
            self._kept.add(_step_key(step))

    def sync(self) -> None:
        """Force what was written to the disk."""
        self._candidates.sync()
        self._steps.sync()

    def close(self) -> None:
        """Force what was written to the disk and close the files."""
        self._candidates.close()
        self._steps.close()


def _key(candidate: Candidate) -> CandidateKey:
    return candidate.problem_id, candidate.path, candidate.seed


def _step_key(step: JsonObject) -> str:
    return f"{step.get('problem_id')} {step.get('kept')}"


def _to_json(candidate: Candidate) -> JsonObject:
    values = {name: getattr(candidate, name) for name in _FIELDS}
    return {**values, "n_tokens": candidate.n_tokens, "tau": candidate.tau}


def _from_json(values: JsonObject) -> Candidate:
    known = {name: values[name] for name in _FIELDS}
    for name in ("path", "token_ids", "step_scores"):
        known[name] = tuple(known[name])
    return Candidate(**{**known, "finish_reason": FinishReason(known["finish_reason"])})


def _finished(path: Path) -> dict[CandidateKey, int]:
    """Return at which byte each candidate that came to an end has its last line."""
    return {_key(candidate): offset for candidate, offset in _read(path) if candidate.is_complete}


def _by_problem(finished: Iterable[CandidateKey]) -> Counter[str]:
    return Counter(problem_id for problem_id, _, _ in finished)


def _read(path: Path) -> Iterator[tuple[Candidate, int]]:
    for line in read_json_lines(path):
        try:
            candidate = _from_json(line.values)
        except (KeyError, TypeError, ValueError) as error:
            place = f"{path}:{line.number}"
            raise RunFolderError(
                f"{place}: not a candidate ({error!r}); delete the line to have it done again"
            ) from None
        yield candidate, line.offset
