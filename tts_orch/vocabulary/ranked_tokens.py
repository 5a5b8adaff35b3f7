"""Tokens in the order in which draft vocabularies take them, and how much of a text each vocabulary covers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["RankedTokens", "count_tokens", "rank_tokens"]


def count_tokens(texts: Iterable[NDArray[np.integer]], vocab_size: int) -> NDArray[np.int64]:
    """Return how often each token of the target stands in some texts, `[vocab_size]`."""
    counts = np.zeros(vocab_size, np.int64)
    for token_ids in texts:
        counts += np.bincount(token_ids, minlength=vocab_size)
    return counts


@dataclass(frozen=True, eq=False)
class RankedTokens:
    """All tokens of a target; a draft vocabulary of size `k` has the first `k`.

    Attributes:
        order: `[V]` tokens, those that are always kept first.
        counts: `[V]` how often each token, by its id, was found.
        n_kept: how many are always kept.
    """

    order: NDArray[np.int64]
    counts: NDArray[np.int64]
    n_kept: int

    @cached_property
    def coverage(self) -> NDArray[np.float64]:
        """`[V + 1]` share of the counted tokens that the first 0, 1, ..., V tokens are."""
        return self.coverage_of(self.counts)

    def coverage_of(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return `[V + 1]` the same share of other texts, with these counts `[V]`; some token must have been counted."""
        found = np.concatenate([[0], np.cumsum(counts[self.order])])
        return np.asarray(found / found[-1])

    def vocabulary(self, size: int) -> DraftVocabulary:
        """Return the draft vocabulary of a size."""
        return DraftVocabulary(np.sort(self.order[:size]), len(self.order))


def rank_tokens(counts: NDArray[np.int64], kept: Collection[int]) -> RankedTokens:
    """Rank tokens: kept ones first, then the most frequent, and of equally frequent ones the lowest id.

    Args:
        counts: `[V]`, not all zero.
        kept: ids that every draft vocabulary has.
    """
    is_kept = np.zeros(len(counts), bool)
    is_kept[list(kept)] = True
    order = np.lexsort((np.arange(len(counts)), -counts, ~is_kept))
    return RankedTokens(order, counts, int(is_kept.sum()))
