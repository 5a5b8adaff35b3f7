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

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.calibration import Calibration
from tts_orch.policies.drafting.draft_size import Seconds
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth, SlotSource, VerifiedStep
from tts_orch.policies.drafting.paying_nodes import paying_nodes

__all__ = ["NodeBudget"]

_MARGIN: Final = 1.2
"""How much more than its time's worth a node must promise: the best of many guesses is guessed too high, and drafting itself
takes time. In replays nodes between 1 and 1.3 gained nothing at 8 trajectories and 1 % at one."""
_PROBE_EVERY: Final = 32
"""Passes between those that verify more than pays, so that a rate learned too low can recover."""
_MEMORY: Final = 1 / 64
"""Weight of the newest pass in the average speed-up."""
_MEMORY_OF_SIZE: Final = 1 / 10
"""The same for the number of nodes."""
_MOST_NODES: Final = 512
"""Draft nodes of a pass that are considered at all."""
_RISE: Final = 2
"""Times the nodes of the pass before, and one for each trajectory, that a pass may verify: rates that a few nodes taught are
tried on twice as many first. Trajectories of one problem begin alike, and what all of them accept is one success, not sixteen."""


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
        self._n_passes, self._newest = 0, 0  # nodes of the newest pass
        self._tokens, self._time = 1.0, 1.0  # averages, both against plain decoding of the same trajectories
        self._pass_time = 1.0
        self._largest, self._n_nodes = float(max_nodes), float(max_nodes)  # averages: of a tree, of a pass

    @property
    def speedup(self) -> float:
        """Tokens a second against plain decoding of the same trajectories by the measured cost curve, at least 1."""
        return max(1.0, self._tokens / self._time)

    def draft(self, source: SlotSource, rooms: NDArray[np.int64], other_rows: int, n_roots: int) -> list[DraftTree]:
        """Return the trees of the nodes that pay (`DraftSize`)."""
        self._n_passes += 1
        growth = self._growth(rooms, other_rows + len(rooms), n_roots)
        grow_while_paying = getattr(source, "grow_while_paying", None)  # RankedSlots; isinstance is slow with protocols
        if grow_while_paying is not None:
            trees = grow_while_paying(growth)
        else:
            n_wanted = min(self._max_nodes, 2 * int(self._largest) + 4)
            grown = source.grow([n_wanted] * len(rooms))
            trees = [tree.subtree(tree.depth <= room) for tree, room in zip(grown, rooms, strict=True)]
            trees = paying_nodes(trees, growth)
        n_nodes = [tree.n_nodes - 1 for tree in trees]
        self._largest += _MEMORY_OF_SIZE * (max(n_nodes) - self._largest)
        self._newest = sum(n_nodes)
        self._n_nodes += _MEMORY_OF_SIZE * (self._newest - self._n_nodes)
        added = growth.seconds[growth.other_rows + self._newest] - growth.seconds[growth.other_rows]
        self._pass_time = 1.0 + float(added) / self._plain_seconds(n_roots)
        return trees

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn from the verified trees of one pass."""
        self.calibration.observe(steps)
        tokens = sum(len(step.committed) for step in steps) / len(steps)
        self._tokens += _MEMORY * (tokens - self._tokens)
        self._time += _MEMORY * (self._pass_time - self._time)

    def _growth(self, rooms: NDArray[np.int64], other_rows: int, n_roots: int) -> Growth:
        """Return the terms of this pass; what others' rows cost is spent anyway and makes time no cheaper."""
        price = _MARGIN * self.speedup * n_roots / self._plain_seconds(n_roots)
        most = min(_MOST_NODES, _RISE * (self._newest + n_roots))
        if self._n_passes % _PROBE_EVERY == 0:
            price, most = 0.0, min(most, int(2 * self._n_nodes) + 2)
        rows = other_rows + min(most, self._max_nodes * len(rooms))
        return Growth(
            rates=self.calibration.rates,
            seconds=self._seconds(np.maximum(1.0, np.arange(rows + 1, dtype=np.float64))),
            other_rows=other_rows,
            tokens_per_second=price,
            max_nodes=np.full(len(rooms), self._max_nodes, np.int64),
            max_depth=rooms,
        )

    def _plain_seconds(self, n_roots: int) -> float:
        return float(self._seconds(np.array([n_roots], np.float64))[0])
