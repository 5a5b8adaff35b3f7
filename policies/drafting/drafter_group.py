"""Several drafters that all follow the same trajectories: what each of them is told, whoever of them drafts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.composed_features import columns_of, union_of_layers
from tts_orch.policies.drafting.draft_tree import Drafter, Features, TrajectoryId, TrajectoryStart

__all__ = ["DrafterGroup"]


class DrafterGroup:
    """The part of a `Drafter` made of others in which nobody chooses between them.

    Args:
        members: by name, at least one.

    Attributes:
        members: the same.
    """

    def __init__(self, members: Mapping[str, Drafter]) -> None:
        self.members = dict(members)
        self._layers = union_of_layers([member.feature_layers for member in self.members.values()])

    @property
    def learns_from_rejected(self) -> bool:
        """Whether a member does."""
        return any(member.learns_from_rejected for member in self.members.values())

    @property
    def learns_prompt_laws(self) -> bool:
        """Whether a member does; the others get the laws too, which say no less than the text."""
        return any(member.learns_prompt_laws for member in self.members.values())

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """What any member wants, each layer once."""
        return self._layers

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        for member in self.members.values():
            member.start(start)

    def observe_prompt(
        self, trajectory: TrajectoryId, start: int, law_ids: NDArray[np.int32], law_probs: NDArray[np.float32]
    ) -> None:
        """Tell the members what follows positions of a prefill."""
        for member in self.members.values():
            member.observe_prompt(trajectory, start, law_ids, law_probs)

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Hand each member its columns."""
        for member in self.members.values():
            if member.feature_layers:
                member.observe_features(trajectory, start, columns_of(features, self._layers, member.feature_layers))

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory."""
        for member in self.members.values():
            member.close(trajectory)

    def close_scope(self, scope: str) -> None:
        """Drop the statistics of a scope."""
        for member in self.members.values():
            member.close_scope(scope)
