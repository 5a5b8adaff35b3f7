"""The verify steps of one pass laid end to end, for compiled loops over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.records import IntArray

__all__ = ["JoinedSteps", "join_steps"]


class JoinedSteps(NamedTuple):
    """Columns over the nodes of all trees, and where each step's part ends.

    Attributes:
        token: `[n]`.
        parent: `[n]` numbers within a tree.
        kind: `[n]`.
        n_nodes: `[b]` nodes of each tree.
        accepted: `[a]` numbers within a tree.
        n_accepted: `[b]`.
        committed: `[c]` tokens.
        n_committed: `[b]`.
    """

    token: IntArray
    parent: IntArray
    kind: IntArray
    n_nodes: NDArray[np.int64]
    accepted: IntArray
    n_accepted: NDArray[np.int64]
    committed: IntArray
    n_committed: NDArray[np.int64]


def join_steps(steps: Sequence[VerifiedStep]) -> JoinedSteps:
    """Lay steps end to end."""
    return JoinedSteps(
        token=np.concatenate([step.tree.token for step in steps]),
        parent=np.concatenate([step.tree.parent for step in steps]),
        kind=np.concatenate([step.tree.kind for step in steps]),
        n_nodes=np.array([len(step.tree.token) for step in steps], np.int64),
        accepted=np.concatenate([step.accepted for step in steps]).astype(np.int32, copy=False),
        n_accepted=np.array([len(step.accepted) for step in steps], np.int64),
        committed=np.concatenate([step.committed for step in steps]).astype(np.int32, copy=False),
        n_committed=np.array([len(step.committed) for step in steps], np.int64),
    )
