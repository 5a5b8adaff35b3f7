"""Prompt lookup: copy what followed the last few tokens where they first stood in the trajectory's own text.

Source: arXiv 2304.04487 (copying from a reference text) in the widespread form for prompts: match lengths 3, 2, 1,
earliest occurrence with a full continuation of 10 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, TrajectoryStart, VerifiedStep
from tts_orch.records import FloatArray, IntArray

__all__ = ["LookupText", "PromptLookup"]


class LookupText:
    """A text with the first place of each of its n-grams; appending a token costs a few dictionary insertions.

    Args:
        max_match: longest n-gram that is looked up.
    """

    def __init__(self, max_match: int) -> None:
        self.tokens: list[int] = []
        # For each length: n-gram -> where its first continuation starts.
        self._continuation: list[dict[tuple[int, ...], int]] = [{} for _ in range(max_match)]

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        for token in token_ids:
            self.tokens.append(token)
            end = len(self.tokens)
            for n, continuation in enumerate(self._continuation[:end], start=1):
                continuation.setdefault(tuple(self.tokens[end - n :]), end)

    def find(self, n_tokens: int) -> tuple[int, int]:
        """Find what followed the longest match that `n_tokens` tokens follow.

        Later occurrences have shorter continuations, so the earliest one of each n-gram decides.

        Returns:
            Where the continuation starts, and the match length; 0 and 0 for no match.
        """
        for n in range(min(len(self._continuation), len(self.tokens)), 0, -1):
            start = self._continuation[n - 1][tuple(self.tokens[-n:])]
            if start + n_tokens <= len(self.tokens):
                return start, n
        return 0, 0


class PromptLookup:
    """A `Drafter` of one chain a trajectory; nodes are deterministic and `source` is the match length.

    Args:
        max_match: longest n-gram that is looked up; shorter ones follow.
        n_tokens: tokens a continuation must have; the longest draft.
    """

    def __init__(self, max_match: int = 3, n_tokens: int = 10) -> None:
        self._max_match = max_match
        self._n_tokens = n_tokens
        self._texts: dict[TrajectoryId, LookupText] = {}

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        text = self._texts[start.trajectory] = LookupText(self._max_match)
        text.append(start.token_ids.tolist())

    def fork(self, source: TrajectoryId, target: TrajectoryStart) -> None:
        """Begin a trajectory; its tokens say all there is to know about its source."""
        self.start(target)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        """Return the slots of these trajectories at their committed positions."""
        return _Slots([self._texts[trajectory] for trajectory in trajectories], self._n_tokens)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Do nothing: only tokens count here."""

    def observe(self, step: VerifiedStep) -> None:
        """Append the committed tokens."""
        self._texts[step.trajectory].append(step.committed.tolist())

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory."""
        self._texts.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Do nothing: trajectories share no statistics."""


@dataclass(frozen=True, slots=True)
class _Slots:
    texts: Sequence[LookupText]
    n_tokens: int

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one chain a trajectory with at most `n_nodes[i]` nodes below the root."""
        return [self._grow(text, n) for text, n in zip(self.texts, n_nodes, strict=True)]

    def _grow(self, text: LookupText, n_nodes: int) -> DraftTree:
        start, match_length = text.find(self.n_tokens)
        n_drafted = min(n_nodes, self.n_tokens) if match_length else 0
        return DraftTree.chain(text.tokens[-1], text.tokens[start : start + n_drafted], source=match_length)
