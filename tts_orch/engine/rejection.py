"""The tree walk of the rejection mode: recursive rejection sampling, which keeps the target's law but not its tokens.

At every node the children are tried in draw order, each with a coin of its own. The walk goes on at the first one that
is accepted; where none is, the token comes from the residual law and the walk ends. Coins and the residual's noise belong
to one (trajectory, attempt, verify step, node): nothing that a drafter may have learned from is used again.

Source: arXiv 2402.12374, algorithm of the verifier; the rule at a node is `sibling_trials`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
import torch
from numpy.typing import NDArray

from tts_orch.engine.laws import draw, process
from tts_orch.engine.sibling_trials import judge_children
from tts_orch.engine.verification import Walk
from tts_orch.policies.drafting.draft_tree import DRAFTS_A_STEP
from tts_orch.policies.drafting.gumbel import coins

__all__ = ["verify_by_rejection"]


def verify_by_rejection(walks: Sequence[Walk], logits: torch.Tensor) -> None:
    """Walk all trees, level by level.

    Args:
        walks: one a trajectory, with seeds for coins alone; their `nodes` and `tokens` are filled in.
        logits: `[L, V]` raw logits; row `first_row + node` is the law after that node.
    """
    active = list(walks)
    while active:
        rows = torch.tensor([walk.row for walk in active], device=logits.device)
        weights = process(logits[rows], [walk.law for walk in active], [walk.tokens for walk in active])
        acceptances = judge_children([(walk.tree, walk.nodes[-1]) for walk in active], weights)
        goes_on = [_accept(walk, chances) for walk, chances in zip(active, acceptances, strict=True)]
        ends = ~np.array(goes_on)
        _draw_last(list(compress(active, ends)), weights[torch.from_numpy(ends).to(weights.device)])
        active = list(compress(active, goes_on))


def _accept(walk: Walk, acceptances: NDArray[np.float64]) -> bool:
    """Toss for the children of the walk's node, go to the first that is accepted, and return whether one was."""
    is_accepted = coins(walk.seed, _position(walk), len(acceptances)) < acceptances
    if not is_accepted.any():
        return False
    child = walk.tree.children[walk.nodes[-1]][int(is_accepted.argmax())]
    walk.nodes.append(child)
    walk.tokens.append(int(walk.tree.token[child]))
    return True


def _draw_last(walks: Sequence[Walk], weights: torch.Tensor) -> None:
    """Draw the tokens of walks that end, one from each row `[R, V]` of log-weights."""
    seeds = np.array([walk.seed for walk in walks], np.uint64)
    positions = np.array([_position(walk) for walk in walks], np.int64)
    greedy = np.array([walk.law.is_greedy for walk in walks], bool)
    for walk, token in zip(walks, draw(weights, seeds, positions, greedy).tolist(), strict=True):
        walk.tokens.append(token)


def _position(walk: Walk) -> int:
    """Return where the randomness of the walk's node stands in the trajectory's stream of coins."""
    return walk.verify_step * DRAFTS_A_STEP + walk.nodes[-1]
