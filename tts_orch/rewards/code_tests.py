"""A reward model that runs a problem's tests: the score of a program is the share that it passes.

Where the tests of a problem are those that grade it too, this chooses by the reference answer; give a run that is to be
measured tests of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import Solution, StepScores
from tts_orch.sandbox.isolation import Isolation, isolation
from tts_orch.sandbox.limits import DEFAULT_LIMITS, Limits
from tts_orch.tasks.code.extraction import extract_program
from tts_orch.tasks.code.problem_tests import code_tests
from tts_orch.tasks.code.running import run_tests
from tts_orch.tasks.thinking import after_any_thinking

__all__ = ["CodeTestsModel", "load"]


class CodeTestsModel:
    """A `RewardModel` of programs: one score a solution, as many programs at once as there are cores.

    Args:
        limits: of each run of a program.
        threads: programs run at once; all cores if not given.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, threads: int | None = None) -> None:
        self._limits = limits
        self._threads = threads or os.cpu_count() or 1

    @property
    def isolation(self) -> Isolation:
        """What programs are kept from on this system."""
        return isolation()

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the share of passed tests; 0 for an output without a program, none for a problem without tests."""
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(self._score, solutions))

    def _score(self, solution: Solution) -> StepScores:
        tests = code_tests(solution.problem)
        if tests is None:
            return StepScores(failure="the problem has no tests")
        program = extract_program(solution.problem, after_any_thinking(solution.text))
        return StepScores((run_tests(tests, program, self._limits).share if program else 0.0,))


def load(config: RewardConfig) -> CodeTestsModel:
    """Return the model; it has nothing to load.

    Raises:
        RunError: no program can be run on this system.
    """
    isolation()
    return CodeTestsModel(threads=config.threads)
