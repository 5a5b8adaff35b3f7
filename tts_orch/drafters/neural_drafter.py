"""A trained network as a `Drafter`: dynamic trees on every trajectory, all of a pass drafted in one batch.

Trees are deterministic, or chosen with the noise of a keyed verifier, so they suit either verification. Nothing is learned but
rates and times. Memory: keys and values of every live trajectory and of a few that others may begin like.

Source: EAGLE-2, arXiv 2406.16858.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from tts_orch.config import DraftingConfig
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.drafted_text import DraftedText
from tts_orch.drafters.kept_keys import SharedPrefixes
from tts_orch.drafters.level_seconds import LevelSeconds
from tts_orch.drafters.neural_slots import NeuralSlots
from tts_orch.policies.drafting.draft_tree import (
    Features,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.policies.drafting.law_candidates import candidate_priors
from tts_orch.records import FloatArray, IntArray

__all__ = ["NeuralDrafter"]

_SHARED_TEXTS: Final = 16


class NeuralDrafter:
    """A `Drafter`.

    Args:
        network: proposes tokens.
        config: depth and width of trees, and how candidates are chosen.
    """

    learns_from_rejected = False
    learns_prompt_laws = False

    def __init__(self, network: HeadNetwork, config: DraftingConfig) -> None:
        self._network = network
        self._config = config
        self._texts: dict[TrajectoryId, DraftedText] = {}
        self._shared = SharedPrefixes(_SHARED_TEXTS)
        self._seconds = LevelSeconds()
        self._priors = candidate_priors()

    @property
    def priors(self) -> NDArray[np.float64]:
        """`[groups, kinds of a group]` acceptance rates to begin with."""
        return self._priors

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Hidden states of the target that the network reads."""
        return self._network.feature_layers

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        self._texts[start.trajectory] = DraftedText(start, self._network)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> NeuralSlots:
        """Return the slots of these trajectories at their committed positions."""
        texts = [self._texts[trajectory] for trajectory in trajectories]
        return NeuralSlots(self._network, self._config, self._shared, self._seconds, self._priors.ravel(), texts)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Do nothing: a network learns in training alone."""

    @torch.inference_mode()
    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Keep the features of committed positions until a draft reads them."""
        own = features.to(self._network.device, self._network.dtype)  # a pool may have others than the target
        self._texts[trajectory].take_features(start, own)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Append the committed tokens."""
        for step in steps:
            self._texts[step.trajectory].tokens.append(step.committed)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; some go on from it, so its rows are remembered for a while."""
        text = self._texts.pop(trajectory, None)
        if text is not None:
            self._remember(text)

    def close_scope(self, scope: str) -> None:
        """Do nothing: there are no statistics."""

    def _remember(self, text: DraftedText) -> None:
        if text.keys.n_rows:
            n_tokens = text.keys.n_rows + self._network.first_token
            self._shared.remember(text.tokens.tokens[:n_tokens], text.keys)
