"""A reward model that is a Python function of the user's."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Final

from tts_orch.errors import ConfigError, first_line
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import DEFAULT_DELIMITERS, ScoreFunction, Solution, StepScores
from tts_orch.rewards.steps import split_steps

__all__ = ["FunctionModel", "load", "names_function"]

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:\w+")


class FunctionModel:
    """A `RewardModel` that calls a function for one solution after the other; what it raises is that solution's failure.

    Args:
        function: problem and steps to a probability for each step, or one for all of them.
        delimiters: texts that end a step.
    """

    def __init__(self, function: ScoreFunction, delimiters: Sequence[str] = DEFAULT_DELIMITERS) -> None:
        self._function = function
        self._delimiters = delimiters

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the scores of each solution; see `RewardModel`."""
        return [self._score(solution) for solution in solutions]

    def _score(self, solution: Solution) -> StepScores:
        steps = split_steps(solution.text, self._delimiters)
        if not steps:
            return StepScores(failure="there is no step")
        try:
            scores = list(self._function(solution.problem, steps))
            if len(scores) not in (1, len(steps)):
                return StepScores(failure=f"the function gave {len(scores)} scores for {len(steps)} steps")
            return StepScores.checked(scores)
        except Exception as error:  # the user's code may raise anything
            return StepScores(failure=f"the function failed: {first_line(error)}")


def names_function(model: str) -> bool:
    """Whether a model's name is one of a function, `package.module:function`."""
    return _FUNCTION.fullmatch(model) is not None


def load(config: RewardConfig) -> FunctionModel:
    """Import `package.module:function`.

    Raises:
        ConfigError: there is no such function.
    """
    module, _, name = (config.model or "").partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything
        raise ConfigError(
            f"reward.model: {config.model} cannot be imported ({first_line(error)}); give package.module:function"
        ) from None
    return FunctionModel(function, config.delimiters or DEFAULT_DELIMITERS)
