"""The actor that hosts one reward model, and the driver's handle to it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tts_orch.actors._remote import SHORT_SPIN, Remote, remote
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import RewardModel as HostedModel
from tts_orch.rewards.base import Solution, StepScores
from tts_orch.rewards.registry import identity_of, resolved

__all__ = ["RayRewardModel", "RewardDescription", "RewardModel", "RewardModelCore", "RewardModelFactory"]

RewardModelFactory: TypeAlias = Callable[[RewardConfig], HostedModel]
"""Loads a reward model from its settings."""

_PLACE_WITHIN_S: Final = 120.0
_LOAD_WITHIN_S: Final = 1800.0  # weights may have to be fetched


@dataclass(frozen=True, slots=True)
class RewardDescription:
    """What a driver must know of a reward model.

    Attributes:
        worker: host and process id.
        kind: how it is prompted and read.
        identity: hash of its weights, or the name of a function; equal identities give equal scores.
    """

    worker: str
    kind: str
    identity: str


class RewardModelCore:
    """Hosts a reward model.

    Args:
        config: its settings.
        make_model: loads it.
    """

    def __init__(self, config: RewardConfig, make_model: RewardModelFactory) -> None:
        self._config = config
        self._make_model = make_model

    def load(self) -> RewardDescription:
        """Load the model; called once, before everything else.

        Raises:
            ConfigError: impossible settings.
            TargetError: the model cannot be found or read, or is of another kind.
        """
        config = resolved(self._config)
        self._model = self._make_model(config)
        return RewardDescription(f"{socket.gethostname()}:{os.getpid()}", config.kind, identity_of(config))

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the scores of each solution; see `rewards.base.RewardModel`."""
        return self._model.score(solutions)


RewardModel = remote(RewardModelCore, runtime_env={"env_vars": SHORT_SPIN})


@dataclass(frozen=True, slots=True)
class RayRewardModel:
    """A loaded reward model in an actor."""

    actor: Remote[RewardModelCore]
    description: RewardDescription
    timeout_s: float

    @classmethod
    async def start(
        cls, resources: Mapping[str, float], config: RewardConfig, make_model: RewardModelFactory
    ) -> RayRewardModel:
        """Place an actor and load its model.

        Raises:
            ClusterError: it found no place, or did not load, in time.
            ConfigError: impossible settings.
            TargetError: the model cannot be found or read, or is of another kind.
            WorkerLostError: it died while loading.
        """
        actor = await RewardModel.create(_PLACE_WITHIN_S, resources, config, make_model)
        description = await actor.load(_LOAD_WITHIN_S, "the reward model did not load", RewardModelCore.load)
        return cls(actor, description, config.timeout_s)

    async def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the scores of each solution.

        Raises:
            TimeoutError: no reply in time.
            WorkerLostError: the actor is gone.
        """
        return await self.actor.call(self.timeout_s, RewardModelCore.score, solutions)

    def kill(self) -> None:
        """End it at once."""
        self.actor.kill()
