"""The journal of a run: every finished candidate, its scores, and every search step, so that nothing is done twice.

It knows candidates and where they belong, not what a run is. Candidates and scores stay on disk and are read back when
asked for; memory holds only where each line begins.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final, TypeAlias

from tts_orch.errors import RunFolderError
from tts_orch.json_lines import JsonLinesFile, JsonObject, json_line, read_json_lines
from tts_orch.records import Candidate, FinishReason
from tts_orch.records import Path as SearchPath
from tts_orch.rewards.base import StepScores

__all__ = ["Journal", "count_finished", "read_candidates", "read_finished"]

CandidateKey: TypeAlias = tuple[str, SearchPath, int]

_CANDIDATES: Final = "candidates.jsonl"
_FIELDS: Final = tuple(field.name for field in fields(Candidate))


def count_finished(folder: Path) -> Counter[str]:
    """Return how many candidates of each problem a folder has, without opening it for writing; steps are none.

    Raises:
        RunFolderError: a line is damaged.
    """
    return Counter(candidate.problem_id for candidate in read_finished(folder) if not candidate.can_continue)


def read_candidates(folder: Path) -> Iterator[Candidate]:
    """Yield every candidate of a folder, failed ones too, in the order of its lines, without opening it for writing.

    Raises:
        RunFolderError: a line is damaged.
    """
    return (candidate for candidate, _ in _read(folder / _CANDIDATES))


def read_finished(folder: Path) -> list[Candidate]:
    """Return every candidate of a folder that came to an end, a step's end too, without opening it for writing.

    Raises:
        RunFolderError: a line is damaged.
    """
    last = {_key(candidate): candidate for candidate, _ in _read(folder / _CANDIDATES) if candidate.is_complete}
    return list(last.values())


class Journal:
    """`candidates.jsonl`, `scores.jsonl` and `steps.jsonl` of a run folder, open for reading and appending.

    Args:
        folder: an existing folder; the files are made when they are missing.

    Attributes:
        n_finished: candidates that came to an end, a step's end too, by problem id.

    Raises:
        RunFolderError: a line is damaged.
        OSError: a file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._candidates = JsonLinesFile(folder / _CANDIDATES)
        self._scores = JsonLinesFile(folder / "scores.jsonl")
        self._steps = JsonLinesFile(folder / "steps.jsonl")
        self._finished = _finished(self._candidates.path)
        self.n_finished = _by_problem(self._finished)
        self._scored = {str(line.values.get("of")): line.offset for line in read_json_lines(self._scores.path)}
        self._kept = {_digest(json_line(line.values)) for line in read_json_lines(self._steps.path)}

    def finished(self, problem_id: str, path: SearchPath, seed: int) -> Candidate | None:
        """Return the candidate if it came to an end; None for a failed one too, which is to be done again."""
        offset = self._finished.get((problem_id, path, seed))
        return None if offset is None else _from_json(self._candidates.read(offset))

    def record(self, candidate: Candidate) -> None:
        """Append a candidate. A cancelled one, or one that is here as it is, leaves no line.

        Raises:
            RunError: the line cannot be written.
        """
        key = _key(candidate)
        if candidate.finish_reason is FinishReason.CANCELLED or self.finished(*key) == candidate:
            return
        offset = self._candidates.append(_to_json(candidate))
        if candidate.is_complete:
            self.n_finished[candidate.problem_id] += key not in self._finished
            self._finished[key] = offset

    def scores(self, candidate: Candidate) -> StepScores | None:
        """Return the scores of the candidate with these very tokens, None where there are none."""
        offset = self._scored.get(_score_key(candidate))
        if offset is None:
            return None
        line = self._scores.read(offset)
        return StepScores(tuple(line["scores"]), line["n_tokens"], line["n_tokens_whole"])

    def record_scores(self, candidate: Candidate, scores: StepScores) -> None:
        """Append a candidate's scores; where there are none it is to be scored again, and leaves no line.

        Raises:
            RunError: the line cannot be written.
        """
        if not scores.scores:
            return
        key = _score_key(candidate)
        place = {"problem_id": candidate.problem_id, "path": candidate.path, "of": key}
        read = {"n_tokens": scores.n_tokens, "n_tokens_whole": scores.n_tokens_whole}
        self._scored[key] = self._scores.append({**place, "scores": scores.scores, **read})

    def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate] = ()) -> None:
        """Append a search step: what was kept and what was dropped. A repeated step leaves no line.

        Raises:
            RunError: the line cannot be written.
        """
        if not kept and not dropped:
            return
        step = {
            "problem_id": (*kept, *dropped)[0].problem_id,
            "kept": [_in_step(candidate) for candidate in kept],
            "dropped": [_in_step(candidate) for candidate in dropped],
        }
        digest = _digest(json_line(step))
        if digest not in self._kept:
            self._steps.append(step)
            self._kept.add(digest)

    def sync(self) -> None:
        """Force what was written to the disk."""
        for file in self._files:
            file.sync()

    def close(self) -> None:
        """Force what was written to the disk and close the files."""
        for file in self._files:
            file.close()

    @property
    def _files(self) -> tuple[JsonLinesFile, ...]:
        return self._candidates, self._scores, self._steps


def _key(candidate: Candidate) -> CandidateKey:
    return candidate.problem_id, candidate.path, candidate.seed


def _score_key(candidate: Candidate) -> str:
    return _digest(repr((*_key(candidate), candidate.token_ids))).hex()


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _in_step(candidate: Candidate) -> JsonObject:
    """Return what a line on a search step says of a candidate; the rest is in its own line."""
    return {
        "path": candidate.path,
        "parent": candidate.parent,
        "step_scores": candidate.step_scores,
        "n_new": candidate.n_new,
        "finish_reason": candidate.finish_reason,
    }


def _to_json(candidate: Candidate) -> JsonObject:
    values = {name: getattr(candidate, name) for name in _FIELDS}
    return {**values, "n_tokens": candidate.n_tokens, "tau": candidate.tau}


def _from_json(values: JsonObject) -> Candidate:
    known = {name: values[name] for name in _FIELDS if name in values}
    for name in ("path", "token_ids", "step_scores", "parent"):
        known[name] = tuple(known.get(name, ()))
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
