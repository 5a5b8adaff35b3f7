"""Prompt lookup: copy what followed the last few tokens where they first stood in the trajectory's own text.

Source: arXiv 2304.04487 (copying from a reference text) in the widespread form for prompts: match lengths 3, 2, 1,
earliest occurrence with a full continuation of 10 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart
from tts_orch.policies.drafting.text_drafter import TextDrafter

__all__ = ["LookupText", "PromptLookup"]


class LookupText:
    """A text with the first place of each of its n-grams; appending a token costs a few dictionary insertions.

    Args:
        max_match: longest n-gram that is looked up.
        n_tokens: tokens a continuation must have; the longest draft.
    """

    def __init__(self, max_match: int, n_tokens: int) -> None:
        self.tokens: list[int] = []
        self._n_tokens = n_tokens
        # For each length: n-gram -> where its first continuation starts.
        self._continuation: list[dict[tuple[int, ...], int]] = [{} for _ in range(max_match)]

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        for token in token_ids:
            self.tokens.append(token)
            end = len(self.tokens)
            for n, continuation in enumerate(self._continuation[:end], start=1):
                continuation.setdefault(tuple(self.tokens[end - n :]), end)

    def draft(self, n_nodes: int) -> DraftTree:
        """Return the chain that followed the longest match, 0 nodes without one."""
        start, match_length = self.find()
        n_drafted = min(n_nodes, self._n_tokens) if match_length else 0
        drafted = self.tokens[start : start + n_drafted]
        return DraftTree.chain(self.tokens[-1], drafted, source=match_length, kind=match_length)

    def find(self) -> tuple[int, int]:
        """Find what followed the longest match with a full continuation.

        Later occurrences have shorter continuations, so the earliest one of each n-gram decides.

        Returns:
            Where the continuation starts, and the match length; 0 and 0 for no match.
        """
        for n in range(min(len(self._continuation), len(self.tokens)), 0, -1):
            start = self._continuation[n - 1][tuple(self.tokens[-n:])]
            if start + self._n_tokens <= len(self.tokens):
                return start, n
        return 0, 0


class PromptLookup(TextDrafter):
    """A `Drafter` of one chain a trajectory; `source` is the match length, and so is `kind`.

    Args:
        max_match: longest n-gram that is looked up; shorter ones follow.
        n_tokens: tokens a continuation must have; the longest draft.
    """

    def __init__(self, max_match: int = 3, n_tokens: int = 10) -> None:
        super().__init__()
        self._max_match = max_match
        self._n_tokens = n_tokens

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with, by match length: longer matches are right more often."""
        return 1 - 0.75 / np.arange(1, self._max_match + 2)

    def model(self, start: TrajectoryStart) -> LookupText:
        """Return an empty text."""
        return LookupText(self._max_match, self._n_tokens)
