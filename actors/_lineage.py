"""What the candidates of a problem consist of: the tokens that were generated for each, and the candidate it goes on from."""

from __future__ import annotations

from collections.abc import Iterable

from tts_orch.records import Candidate, Path

__all__ = ["Lineage"]


class Lineage:
    """The candidates of one problem, by path."""

    def __init__(self) -> None:
        self._candidates: dict[Path, Candidate] = {}

    def add(self, candidate: Candidate) -> None:
        """Remember a candidate."""
        self._candidates[candidate.path] = candidate

    def of(self, candidate: Candidate) -> list[Candidate]:
        """Return what a candidate consists of: those that it goes on from, the first one first, and itself."""
        parts: dict[Path, Candidate] = {}
        part: Candidate | None = candidate
        while part is not None and part.path not in parts:
            parts[part.path] = part
            part = self._candidates.get(part.parent)
        return list(parts.values())[::-1]

    def n_tokens(self, candidates: Iterable[Candidate]) -> int:
        """Return how many tokens were generated for candidates and for all that they go on from, each of these once.

        What a policy wrote into a candidate was not generated and does not count.
        """
        counted: dict[Path, int] = {}
        for candidate in candidates:
            counted |= {part.path: part.n_new for part in self.of(candidate)}
        return sum(counted.values())
