"""Drafting what a target said, all trajectories together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from torch import Tensor

from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import Drafter, VerifiedStep
from tts_orch.replay.recording import Recording
from tts_orch.replay.replayer import replay

__all__ = ["replayed"]

_TOGETHER: Final = 16
"""Trajectories: a head drafts for so many at hardly more than for one."""


def replayed(
    recording: Recording, drafter: Drafter, n_nodes: int, states: Mapping[str, Tensor]
) -> Iterator[VerifiedStep]:
    """Yield every verify step, one after the other.

    Args:
        recording: what the target said.
        drafter: who drafts.
        n_nodes: draft nodes of a step.
        states: the target's hidden states that the drafter reads, by the name of a trajectory.
    """
    passes = replay(
        recording,
        drafter,
        FixedSize(n_nodes),
        lockstep=_TOGETHER,
        order="together",
        features=lambda one: states[one.name],
    )
    return chain.from_iterable(passes)
