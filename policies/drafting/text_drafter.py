"""What drafters that read nothing but token text share: a model of each trajectory's text, told what was committed.

They are deterministic: what they propose follows from committed tokens alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import (
    DraftTree,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
    WithoutFeatures,
)
from tts_orch.records import FloatArray, IntArray

__all__ = ["TextDrafter", "TextModel"]


class TextModel(Protocol):
    """What is known of one trajectory's text."""

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        ...

    def draft(self, n_nodes: int) -> DraftTree:
        """Return a tree on the last token with at most `n_nodes` nodes below it."""
        ...


class TextDrafter(WithoutFeatures, ABC):
    """A `Drafter` that asks one `TextModel` a trajectory."""

    learns_from_rejected = False
    learns_prompt_laws = False

    def __init__(self) -> None:
        self._models: dict[TrajectoryId, TextModel] = {}

    @property
    @abstractmethod
    def priors(self) -> NDArray[np.float64]:
        """`[kinds]` acceptance rates to begin with."""

    @abstractmethod
    def model(self, start: TrajectoryStart) -> TextModel:
        """Return the model of a new trajectory, still without its text."""

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        model = self._models[start.trajectory] = self.model(start)
        model.append(start.token_ids.tolist())

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        """Return the slots of these trajectories at their committed positions."""
        return _Slots([self._models[trajectory] for trajectory in trajectories])

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Do nothing: only tokens count here."""

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Append the committed tokens."""
        for step in steps:
            self._models[step.trajectory].append(step.committed.tolist())

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory."""
        self._models.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Do nothing, unless trajectories share something."""


@dataclass(frozen=True, slots=True)
class _Slots:
    models: Sequence[TextModel]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root."""
        return [model.draft(n) for model, n in zip(self.models, n_nodes, strict=True)]
