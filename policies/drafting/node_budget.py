"""Which draft nodes are worth verifying: nodes of all trajectories compete for the rows of one pass.

A node promises the probability that it gets accepted: the product, along its path, of the acceptance rates of the kinds of
its nodes. It pays if that is more than the tokens that plain or speculative decoding yields, at the speed this batch runs
at, in the time that the node adds to the pass. Where rows are nearly free many nodes pay, where they are dear few or none.

Rates are calibrated online; see `Calibration`. In keyed verification a choice may look at the drawn tokens, since what is
emitted does not depend on what was drafted. In rejection verification it must not (non-anticipation, arXiv 2402.12374), and
the drafter grows its trees slot by slot (`RankedSlots`).

Source: the criterion of Sequoia (arXiv 2402.12374, section 4.2), per node and with measured rates; the exchange rate between
tokens and time is that of renewal theory: the long-run ratio is largest where each step maximises tokens - rate x seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.calibration import Calibration
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth, RankedSlots, SlotSource, VerifiedStep

__all__ = ["NodeBudget"]

Seconds: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_PROBE_EVERY: Final = 32
"""Passes between those that verify more than pays, so that a rate learned too low can recover."""
_MEMORY: Final = 1 / 64
"""Weight of the newest pass in the average speed-up."""
_MOST_ROWS: Final = 512
"""Draft rows of a pass that are considered at all."""


class NodeBudget:
    """A `DraftSize`: as many nodes as pay.

    Args:
        priors: acceptance rates of the drafter's kinds of nodes to begin with.
        seconds: cost of passes by their rows.
        max_nodes: most nodes of one trajectory.
    """

    def __init__(self, priors: NDArray[np.float64], seconds: Seconds, max_nodes: int) -> None:
        self.calibration = Calibration(priors)
        self._seconds = seconds
        self._max_nodes = max_nodes
        self._n_passes = 0
        self._tokens, self._time = 1.0, 1.0  # averages, both against plain decoding of the same trajectories
        self._pass_time = 1.0
        self._n_recent = float(max_nodes)

    @property
    def speedup(self) -> float:
        """Tokens a second against plain decoding of the same trajectories by the measured cost curve, at least 1."""
        return max(1.0, self._tokens / self._time)

    def draft(self, source: SlotSource, rooms: NDArray[np.int64], other_rows: int) -> list[DraftTree]:
        """Return the trees of the nodes that pay; `other_rows` are those besides these trajectories' roots."""
        self._n_passes += 1
        growth = self._growth(rooms, other_rows + len(rooms))
        if isinstance(source, RankedSlots):
            trees = source.grow_while_paying(growth)
        else:
            n_wanted = min(self._max_nodes, 2 * int(self._n_recent) + 4)
            trees = [
                tree.subtree(tree.depth <= room)
                for tree, room in zip(source.grow([n_wanted] * len(rooms)), rooms, strict=True)
            ]
            trees = self._choose(trees, growth)
        n_nodes = sum(tree.n_nodes - 1 for tree in trees)
        plain = growth.seconds[growth.other_rows]
        self._pass_time = float(growth.seconds[min(growth.other_rows + n_nodes, len(growth.seconds) - 1)] / plain)
        self._n_recent += 0.1 * (max(tree.n_nodes - 1 for tree in trees) - self._n_recent)
        return trees

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn from the verified trees of one pass."""
        self.calibration.observe(steps)
        tokens = sum(len(step.committed) for step in steps) / len(steps)
        self._tokens += _MEMORY * (tokens - self._tokens)
        self._time += _MEMORY * (self._pass_time - self._time)

    def _growth(self, rooms: NDArray[np.int64], other_rows: int) -> Growth:
        rows = other_rows + min(_MOST_ROWS, self._max_nodes * len(rooms))
        seconds = self._seconds(np.maximum(1.0, np.arange(rows + 1, dtype=np.float64)))
        rate, max_nodes = self.speedup * len(rooms) / float(seconds[other_rows]), self._max_nodes
        if self._n_passes % _PROBE_EVERY == 0:
            rate, max_nodes = 0.0, min(max_nodes, int(2 * self._n_recent) + 1)
        return Growth(
            rates=self.calibration.rates,
            seconds=seconds,
            other_rows=other_rows,
            tokens_per_second=rate,
            max_nodes=np.full(len(rooms), max_nodes, np.int64),
            max_depth=rooms,
        )

    def _choose(self, trees: Sequence[DraftTree], growth: Growth) -> list[DraftTree]:
        """Cut deterministic trees down to the nodes that pay."""
        worths = [_worths(tree, growth.rates) for tree in trees]
        flat = np.concatenate([worth[1:] for worth in worths])
        order = np.argsort(-flat, kind="stable")[
            : len(growth.seconds) - 1 - growth.other_rows
        ]  # of equals parents first
        added = (
            growth.seconds[growth.other_rows : growth.other_rows + len(order) + 1] - growth.seconds[growth.other_rows]
        )
        gains = np.concatenate([[0.0], np.cumsum(flat[order])]) - growth.tokens_per_second * added
        is_kept = np.zeros(len(flat), bool)
        is_kept[order[: int(np.argmax(gains))]] = True
        ends = np.cumsum([tree.n_nodes - 1 for tree in trees])[:-1]
        return [
            tree.subtree(np.concatenate([[True], kept]))
            for tree, kept in zip(trees, np.split(is_kept, ends), strict=True)
        ]


def _worths(tree: DraftTree, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability that each node gets accepted, 1 for the root."""
    own = rates[tree.kind]
    worths = np.ones(tree.n_nodes)
    for node, parent in enumerate(tree.parent.tolist()[1:], start=1):
        worths[node] = worths[parent] * own[node]
    return worths
