"""The tree walk of the keyed mode: which draft nodes are what the target would have drawn anyway.

At every node the target draws the one token that its law and the position's noise fix (Gumbel-max). If a child holds
that token the walk goes on there, else the token is committed and the walk ends. Only nodes on the path are judged, so
the work is one row of the law a committed token, whatever the size of the tree.

Source: arXiv 2408.07978 (coupled drafting); one-hot recursive rejection is the same rule, arXiv 2402.12374.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tts_orch.engine.laws import TrajectoryLaw, draw, process
from tts_orch.policies.drafting.draft_tree import DraftTree

__all__ = ["Walk", "verify"]


@dataclass(slots=True)
class Walk:
    """The walk through one trajectory's tree.

    Attributes:
        tree: what was drafted.
        law: the trajectory's sampling law with its committed history.
        seed: trajectory seed.
        position: absolute position of the root.
        first_row: row of the root in the logits; the tree's rows follow in order.
        verify_step: verify steps of the trajectory before this one.
        nodes: nodes visited, root first; `nodes[1:]` were accepted.
        tokens: tokens drawn at them; the last is -1 if its law gave none.
    """

    tree: DraftTree
    law: TrajectoryLaw
    seed: int
    position: int
    first_row: int
    verify_step: int = 0
    nodes: list[int] = field(default_factory=lambda: [0])
    tokens: list[int] = field(default_factory=list)

    @property
    def row(self) -> int:
        """Logits row of the node the walk stands at."""
        return self.first_row + self.nodes[-1]

    def descend(self, token: int) -> bool:
        """Take the token drawn at the current node, -1 for none, and return whether a child holds it."""
        self.tokens.append(token)
        for child in self.tree.children[self.nodes[-1]]:
            if self.tree.token[child] == token:
                self.nodes.append(child)
                return True
        return False


def verify(walks: Sequence[Walk], logits: torch.Tensor) -> None:
    """Walk all trees, level by level.

    Args:
        walks: one a trajectory; their `nodes` and `tokens` are filled in.
        logits: `[L, V]` raw logits; row `first_row + node` is the law after that node.
    """
    active = list(walks)
    while active:
        rows = torch.tensor([walk.row for walk in active], device=logits.device)
        processed = process(logits[rows], [walk.law for walk in active], [walk.tokens for walk in active])
        seeds = np.array([walk.seed for walk in active], np.uint64)
        positions = np.array([walk.position + len(walk.nodes) for walk in active], np.int64)
        greedy = np.array([walk.law.is_greedy for walk in active])
        drawn = draw(processed, seeds, positions, greedy)
        active = [walk for walk, token in zip(active, drawn.tolist(), strict=True) if walk.descend(token)]
