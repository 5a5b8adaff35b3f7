"""The driver's side of a reward model: what problems want scored, equal texts once, and counted."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import ray

from tts_orch.actors._reward_queue import RewardHost, RewardQueue
from tts_orch.actors.reward_model import RayRewardModel, RewardDescription, RewardModelFactory
from tts_orch.records import Candidate, Problem
from tts_orch.reward_config import WITHOUT_MODEL, RewardConfig
from tts_orch.rewards.base import DEFAULT_DELIMITERS, ScoreFunction, Solution, StepScores
from tts_orch.rewards.callable import FunctionModel
from tts_orch.rewards.registry import load_reward_model

__all__ = ["RewardClient", "may_use_gpu", "start_reward"]

logger = logging.getLogger(__name__)

_PASSES_A_CALL: Final = 2  # of a full batch: others wait no longer for their turn


class RewardClient:
    """Scores candidates of many problems with one reward model; all methods belong to one event loop.

    Args:
        start_host: starts a reward model and waits for it, within a deadline of its own.
        batch: solutions that the reward model reads in one pass.

    Attributes:
        description: what the reward model is, once it was started.
    """

    description: RewardDescription

    def __init__(self, start_host: Callable[[], Awaitable[RewardHost]], batch: int) -> None:
        self._queue = RewardQueue(start_host, _PASSES_A_CALL * batch)
        self._counts: defaultdict[str, float] = defaultdict(float)

    async def start(self) -> None:
        """Start the reward model.

        Raises:
            ClusterError: it found no place, or did not load, in time.
            ConfigError: impossible settings.
            TargetError: the model cannot be found or read, or is of another kind.
        """
        self.description = await self._queue.start()

    async def score(
        self, problem: Problem, candidates: Sequence[Candidate], deadline: asyncio.Event | None = None
    ) -> list[StepScores]:
        """Score candidates of a problem, equal texts once; cancelling the caller drops what has not been sent.

        Args:
            problem: what they solve.
            candidates: may come more than once.
            deadline: once it is set, what is not scored has a failure instead.

        Returns:
            Scores of each candidate; where the text came before, they took no tokens.

        Raises:
            ClusterError: the reward model was lost too often.
        """
        texts = list(dict.fromkeys(candidate.text for candidate in candidates))
        solutions = [Solution(problem, text) for text in texts]
        answers = dict(zip(texts, await self._queue.score(solutions, deadline), strict=True))
        self._count(problem, list(answers.values()))
        found = []
        for candidate in candidates:
            found.append(answers[candidate.text])
            answers[candidate.text] = replace(found[-1], n_tokens=0, n_tokens_whole=0)
        return found

    def statistics(self) -> dict[str, float]:
        """Return counts of texts, of those without a score, of tokens, and the seconds that the model worked."""
        return {**self._counts, "reward_seconds": self._queue.seconds}

    async def close(self) -> None:
        """End the reward model; what waits is cancelled."""
        await self._queue.close()

    def _count(self, problem: Problem, answers: Sequence[StepScores]) -> None:
        self._counts["reward_texts"] += len(answers)
        self._counts["reward_tokens"] += sum(scores.n_tokens for scores in answers)
        self._counts["reward_tokens_whole"] += sum(scores.n_tokens_whole for scores in answers)
        for failure in (scores.failure for scores in answers if scores.failure):
            self._counts["reward_unscored"] += 1
            n_unscored = self._counts["reward_unscored"]
            if math.log10(n_unscored).is_integer():  # the first one, the tenth, the hundredth
                logger.warning("problem %s: no score (%s); so far %g have none", problem.id, failure, n_unscored)


async def start_reward(
    reward: RewardConfig | ScoreFunction, *, target: str, make_model: RewardModelFactory = load_reward_model
) -> RewardClient:
    """Start a reward model on the cluster.

    Args:
        reward: its settings, or a function of the user's.
        target: the target model, which judges where the settings name no judge.
        make_model: loads it in the actor.

    Raises:
        ClusterError: it found no place, or did not load, in time.
        ConfigError: impossible settings.
        TargetError: the model cannot be found or read, or is of another kind.
    """
    if isinstance(reward, RewardConfig):
        config = reward
    else:
        name = getattr(reward, "__qualname__", type(reward).__qualname__)
        config, make_model = RewardConfig(kind="callable", model=name), functools.partial(_function_model, reward)
    if config.kind == "judge" and config.model is None:
        config = config.model_copy(update={"model": target})
    start_host = functools.partial(RayRewardModel.start, _resources(config), config, make_model)
    client = RewardClient(start_host, config.batch)
    await client.start()
    return client


def may_use_gpu(reward: RewardConfig | ScoreFunction | None) -> bool:
    """Whether a reward model runs on a GPU if there is one for it."""
    return isinstance(reward, RewardConfig) and reward.kind not in WITHOUT_MODEL and reward.device != "cpu"


def _function_model(function: ScoreFunction, config: RewardConfig) -> FunctionModel:
    return FunctionModel(function, config.delimiters or DEFAULT_DELIMITERS)


def _resources(config: RewardConfig) -> dict[str, float]:
    """Ask for a GPU where one is left; CPUs are shared with the verifiers, which wait while a score is awaited."""
    has_gpu = config.device == "auto" and may_use_gpu(config) and ray.available_resources().get("GPU", 0) >= 1
    return {"num_cpus": 0, "num_gpus": 1} if has_gpu or config.device.startswith("cuda") else {"num_cpus": 0}
