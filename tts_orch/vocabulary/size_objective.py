"""What a size of the draft vocabulary is worth: coverage against the operations that it saves (arXiv 2603.05210)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.vocabulary.draft_flops import DraftFlops
from tts_orch.vocabulary.ranked_tokens import RankedTokens

__all__ = ["SizeObjective", "size_objective"]

_SMALLEST: Final = 50
_LARGEST: Final = 50_000  # both of the source, clipped to what the target and the kept tokens allow
_VIOLATED: Final = -1.0


@dataclass(frozen=True, slots=True, eq=False)
class SizeObjective:
    """Utility by size.

    Attributes:
        coverage: `[V + 1]` share of the counted tokens that sizes 0, 1, ..., V cover.
        saving: `[V + 1]` share of the operations of drafting a token that they save.
        alpha: weight of coverage; the rest is that of saving.
        min_coverage: what a size must cover.
        smallest: size to be chosen,
        largest: and the largest one.
    """

    coverage: NDArray[np.float64]
    saving: NDArray[np.float64]
    alpha: float
    min_coverage: float
    smallest: int
    largest: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        """All sizes that may be chosen."""
        return np.arange(self.smallest, self.largest + 1)

    @property
    def is_reachable(self) -> bool:
        """Whether any of them covers enough."""
        return bool(self.coverage[self.largest] >= self.min_coverage)

    def utility(self, size: int) -> float:
        """Return what a size is worth, whatever it covers."""
        return float(self.alpha * self.coverage[size] + (1 - self.alpha) * self.saving[size])

    def value(self, size: int) -> float:
        """Return the utility of a size that covers enough, -1 of another one."""
        return self.utility(size) if self.coverage[size] >= self.min_coverage else _VIOLATED

    def best_size(self) -> int:
        """Return the best size of all, the smallest of several, by looking at each; the largest where none covers enough."""
        if not self.is_reachable:
            return self.largest
        utility = self.alpha * self.coverage[self.sizes] + (1 - self.alpha) * self.saving[self.sizes]
        is_enough = self.coverage[self.sizes] >= self.min_coverage
        return self.smallest + int(np.argmax(np.where(is_enough, utility, _VIOLATED)))

    def spread_sizes(self, n: int) -> list[int]:
        """Return about `n` rising sizes, from the smallest that covers enough up to all tokens, the best one among them."""
        whole = len(self.coverage) - 1
        first = max(self.smallest, int(np.searchsorted(self.coverage, self.min_coverage)))
        spread = np.geomspace(first, whole, n - 1).round().astype(int)
        return sorted({*spread.tolist(), self.best_size(), whole})


def size_objective(ranked: RankedTokens, flops: DraftFlops, alpha: float, min_coverage: float) -> SizeObjective:
    """Return the objective of a target's ranked tokens and a head's operations."""
    vocab_size = len(ranked.order)
    smallest = max(min(_SMALLEST, vocab_size), ranked.n_kept)
    return SizeObjective(
        coverage=ranked.coverage,
        saving=1 - flops.total(np.arange(vocab_size + 1)) / flops.total(vocab_size),
        alpha=alpha,
        min_coverage=min_coverage,
        smallest=smallest,
        largest=max(min(_LARGEST, vocab_size), smallest),
    )
