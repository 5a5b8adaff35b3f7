"""Planted search problems: trees whose right way is known, and reward models that see it well, badly or upside down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts_orch.method_config import MethodConfig
from tts_orch.policies.search import find_policy
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.seeds import noise_words, stream_seed
from tts_orch.testing import FakeSearchContext, FakeStep

Reward = Callable[[Candidate], list[float]]

N_WRONG = 3
"""Ways to go wrong at each step."""


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) that is fixed by seed and position."""
    return float(noise_words(seed, position, np.zeros(1, np.int64))[0] / 2.0**32)


@dataclass(frozen=True)
class PlantedTree:
    """Solutions of `depth` steps of a token: 0 is right, others are wrong, and a solution is right where every step is.

    A wrong solution has its wrong steps for an answer. The most probable step is right where `p_right` is over a half.
    """

    depth: int
    p_right: float

    def __call__(self, output: tuple[int, ...], seed: int | None) -> FakeStep:
        u = 0.5 if seed is None else uniform(seed, len(output))
        token = 0 if u < self.p_right else 1 + int((u - self.p_right) / (1 - self.p_right) * N_WRONG)
        solution = (*output, token)
        if len(solution) < self.depth:
            return FakeStep((token,), f"{token}\n\n")
        return FakeStep((token,), str(token), FinishReason.EOS, answer=answer_of(solution))


def answer_of(solution: Sequence[int]) -> str:
    return "".join(map(str, filter(None, solution))) or "right"


def perfect(candidate: Candidate) -> list[float]:
    """Know of every step whether the solution is still right."""
    return [float(not any(candidate.token_ids[: n + 1])) for n in range(candidate.n_tokens)]


def noisy(candidate: Candidate) -> list[float]:
    """Say 0.3 more of what is still right, under noise with a range of 0.6 that is fixed by problem and tokens."""
    seeds = [
        stream_seed(0, n, f"{candidate.problem_id} {candidate.token_ids[: n + 1]}") for n in range(candidate.n_tokens)
    ]
    return [0.05 + 0.3 * score + 0.6 * uniform(seed, 0) for score, seed in zip(perfect(candidate), seeds, strict=True)]


def adversarial(candidate: Candidate) -> list[float]:
    """Say the opposite of what is right."""
    return [1 - score for score in perfect(candidate)]


def search(context: FakeSearchContext, method: MethodConfig, problem_id: str = "problem") -> SearchResult:
    """Search a problem in a fake context."""

    async def run() -> SearchResult:
        return await find_policy(method)(Problem(id=problem_id, prompt="?"), context, method)

    return asyncio.run(run())


def accuracy(tree: PlantedTree, reward: Reward, method: MethodConfig, n_problems: int, **settings: Any) -> float:
    """Return the share of problems answered right, each with the tokens of n whole solutions at most."""
    n_right = 0
    for number in range(n_problems):
        context = FakeSearchContext(tree, step_scores=reward, **settings)
        n_right += search(context, method, str(number)).answer == "right"
        assert context.generated_tokens <= method.n * tree.depth
    return n_right / n_problems
