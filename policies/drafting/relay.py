"""`Relay`: stands between a decoder and a drafter and hears everything; what it does with that is up to its subclasses.

What not every drafter can do is no part of `Drafter`, and a decoder asks `innermost` for it: to rest by itself, to be asked ahead
of time, to count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import (
    Drafter,
    Features,
    SlotSource,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.records import FloatArray, IntArray

__all__ = ["Relay", "innermost"]


class Relay:
    """A `Drafter` that passes everything on to another one.

    Args:
        drafter: who drafts.

    Attributes:
        drafter: as given.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter

    @property
    def priors(self) -> NDArray[np.float64]:
        """Those of the drafter."""
        return self.drafter.priors

    @property
    def learns_from_rejected(self) -> bool:
        """Whether the drafter does."""
        return self.drafter.learns_from_rejected

    @property
    def learns_prompt_laws(self) -> bool:
        """Whether the drafter does."""
        return self.drafter.learns_prompt_laws

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Those of the drafter."""
        return self.drafter.feature_layers

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        self.drafter.start(start)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
        """Return the drafter's slots."""
        return self.drafter.slots(trajectories)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Pass on what follows the tokens of a prompt."""
        self.drafter.observe_prompt(trajectory, start, law_ids, law_probs)

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Pass on the features of committed positions."""
        self.drafter.observe_features(trajectory, start, features)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Pass on the verify steps of a pass."""
        self.drafter.observe(steps)

    def close(self, trajectory: TrajectoryId) -> None:
        """End a trajectory."""
        self.drafter.close(trajectory)

    def close_scope(self, scope: str) -> None:
        """Close a scope."""
        self.drafter.close_scope(scope)


def innermost(drafter: Drafter) -> Drafter:
    """Return who drafts behind all relays."""
    while isinstance(drafter, Relay):
        drafter = drafter.drafter
    return drafter
