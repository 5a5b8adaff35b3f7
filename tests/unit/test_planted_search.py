"""Searches in planted trees: worth their tokens with a good reward, and nothing lost, doubled or left to chance with any."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planted import PlantedTree, accuracy, adversarial, noisy, perfect, search, uniform
from tts_orch.config import DVTS, BeamSearch, BestOfN, MajorityVote, ParticleFiltering, Rebase
from tts_orch.method_config import MethodConfig, StepwiseMethod
from tts_orch.policies.search import find_policy
from tts_orch.records import Candidate, FinishReason, Path, Problem, SearchResult
from tts_orch.seeds import stream_seed
from tts_orch.testing import FakeSearchContext, FakeStep

TREE = PlantedTree(depth=5, p_right=0.5)
N_PROBLEMS = 40
SEARCHES: list[StepwiseMethod] = [BeamSearch(n=16), DVTS(n=16), ParticleFiltering(n=16), Rebase(n=16)]


def name_of(method: Any) -> str:
    return str(method.name)


def test_best_of_n_beats_a_single_sample() -> None:
    """A sample is right in 0.5^5 = 0.03 of the problems, one of 16 in 0.40.

    7 and more of 40 have p < 1e-3 with the one, fewer than 7 and more than 28 with the other.
    """
    assert accuracy(TREE, perfect, BestOfN(n=1), N_PROBLEMS) <= 6 / 40
    assert 7 / 40 <= accuracy(TREE, perfect, BestOfN(n=16), N_PROBLEMS) <= 28 / 40


@pytest.mark.parametrize("method", SEARCHES, ids=name_of)
def test_a_search_with_a_perfect_reward_beats_best_of_n_by_far(method: MethodConfig) -> None:
    """Every search finds the way in more than 0.95; best of 16 tells right from wrong and has 35 of 40 with p < 1e-9."""
    assert accuracy(TREE, perfect, method, N_PROBLEMS) >= 35 / 40


@pytest.mark.parametrize("method", SEARCHES, ids=name_of)
def test_a_search_with_a_noisy_reward_beats_a_single_sample(method: MethodConfig) -> None:
    """A single sample, right in 0.03, has 8 of 40 with p < 1e-4."""
    assert accuracy(TREE, noisy, method, N_PROBLEMS) >= 8 / 40


@pytest.mark.parametrize("method", SEARCHES, ids=name_of)
def test_an_adversarial_reward_leads_a_search_astray(method: MethodConfig) -> None:
    assert accuracy(PlantedTree(depth=5, p_right=0.9), adversarial, method, 10) == 0


def test_an_adversarial_reward_does_not_touch_the_majority() -> None:
    """The right solution has 0.59, every other answer less than 0.04."""
    assert accuracy(PlantedTree(depth=5, p_right=0.9), adversarial, MajorityVote(n=16), 10) == 1


@pytest.mark.parametrize("method", [BestOfN(n=16), *SEARCHES], ids=name_of)
def test_methods_are_compared_at_equal_generated_tokens(method: MethodConfig) -> None:
    context = FakeSearchContext(TREE, step_scores=perfect)
    search(context, method)
    assert context.generated_tokens == 16 * TREE.depth


@pytest.mark.parametrize("method", SEARCHES, ids=name_of)
def test_a_search_stands_a_tenth_of_its_steps_failing(method: MethodConfig) -> None:
    """With a chance of more than 0.9 of each problem, fewer than 16 of 20 have p < 0.05; the seeds are fixed."""
    fails = WildTree(salt=7).fails
    assert accuracy(TREE, perfect, method, 20, fails=fails) >= 16 / 20


def test_votes_need_no_reward_model() -> None:
    context = FakeSearchContext(PlantedTree(depth=3, p_right=0.9))
    assert search(context, MajorityVote(n=8)).answer == "right"
    assert context.scored == []


@dataclass(frozen=True)
class WildTree:
    """Steps of one to three tokens out of a few, that end a solution now and then, with or without an answer."""

    salt: int

    def __call__(self, output: tuple[int, ...], seed: int | None) -> FakeStep:
        noise = stream_seed(seed or 0, self.salt, str(output))
        token_ids = tuple(int(3 * uniform(noise, n)) for n in range(1 + int(3 * uniform(noise, 9))))
        text = "".join(map(str, token_ids))
        if uniform(noise, 10) < 0.6 and len(output) < 30:
            return FakeStep(token_ids, text)
        reason = FinishReason.LENGTH if uniform(noise, 11) < 0.2 else FinishReason.EOS
        return FakeStep(token_ids, text, reason, [None, "a", "b", "c"][token_ids[-1]])

    def reward(self, candidate: Candidate) -> list[float]:
        """Score coarsely, so that ties are common; now and then not at all."""
        noise = stream_seed(self.salt, 0, str(candidate.token_ids))
        if uniform(noise, 0) < 0.05:
            return []
        return [round(4 * uniform(noise, n)) / 4 for n in range(1 + len(candidate.token_ids) // 3)]

    def fails(self, path: Path) -> bool:
        return uniform(stream_seed(self.salt, 1, str(path)), 0) < 0.1


def methods() -> st.SearchStrategy[StepwiseMethod]:
    n = st.sampled_from([1, 2, 4, 8])
    common = {
        "max_steps": st.integers(1, 4),
        "choice": st.sampled_from(["maximum", "weighted", "majority", "borda"]),
        "aggregation": st.sampled_from(["last", "min", "prod", "mean"]),
    }
    widths = n.flatmap(lambda n: st.tuples(st.just(n), st.sampled_from([m for m in (1, 2, 4) if n % m == 0])))
    emit = st.sampled_from(["winner", "finished_siblings", "all_siblings"])
    return st.one_of(
        st.builds(ParticleFiltering, n=n, **common),
        st.builds(Rebase, n=n, **common),
        st.builds(lambda width, **rest: BeamSearch(n=width[0], beam_width=width[1], **rest), widths, **common),
        st.builds(
            lambda width, **rest: DVTS(n=width[0], beam_width=width[1], **rest),
            widths,
            emit=emit,
            lookahead=st.integers(0, 2),
            **common,
        ),
    )


def run(method: StepwiseMethod, tree: WildTree, **rest: Any) -> tuple[SearchResult, FakeSearchContext]:
    context = FakeSearchContext(tree, step_scores=tree.reward, fails=tree.fails, **rest)
    return search(context, method), context


def is_looked_ahead(path: Path, method: StepwiseMethod) -> bool:
    return isinstance(method, DVTS) and method.beam_width in path[1:]


SALTS = st.integers(0, 1 << 30)


@settings(max_examples=60, deadline=None)
@given(methods(), SALTS)
def test_nothing_is_lost_or_doubled(method: StepwiseMethod, salt: int) -> None:
    result, context = run(method, WildTree(salt))
    expanded = [path for path in context.finished if not is_looked_ahead(path, method)]
    assert Counter(chain(*context.kept, *context.dropped)) == Counter(expanded), "each is kept or dropped, once"
    assert max(Counter(expanded).values()) == 1
    paths = [candidate.path for candidate in result.candidates]
    assert paths == sorted(set(paths))
    assert set(paths) <= set(expanded)
    assert not context.cancelled


@settings(max_examples=60, deadline=None)
@given(methods(), SALTS)
def test_only_scored_solutions_win(method: StepwiseMethod, salt: int) -> None:
    result, _ = run(method, WildTree(salt))
    by_path = {candidate.path: candidate for candidate in result.candidates}
    if result.chosen is None:
        assert result.answer is None
        return
    chosen = by_path[result.chosen]
    assert chosen.is_solution
    assert chosen.answer == result.answer
    assert chosen.step_scores or method.choice == "majority"


@settings(max_examples=60, deadline=None)
@given(methods(), SALTS)
def test_every_step_goes_on_from_a_kept_one(method: StepwiseMethod, salt: int) -> None:
    result, context = run(method, WildTree(salt))
    kept = set(chain(*context.kept))
    finals = [candidate for candidate in result.candidates if candidate.is_complete]
    assert all(candidate.parent in kept for candidate in finals if candidate.n_before)
    assert all(candidate.parent == () for candidate in finals if not candidate.n_before)
    if not isinstance(method, DVTS):
        depths = Counter(path[0] for path in context.finished)
        assert all(width <= method.n for width in depths.values())


@settings(max_examples=25, deadline=None)
@given(methods(), SALTS, SALTS)
def test_the_order_of_arrival_changes_nothing(method: StepwiseMethod, salt: int, order: int) -> None:
    def delay(path: Path) -> float:
        return 0.002 * uniform(stream_seed(order, 0, str(path)), 0)

    at_once, steady = run(method, WildTree(salt))
    late, shuffled = run(method, WildTree(salt), delays=delay)
    assert late == at_once
    assert sorted(shuffled.kept) == sorted(steady.kept)


@settings(max_examples=40, deadline=None)
@given(methods(), SALTS, st.integers(1, 40))
def test_a_spent_budget_leaves_the_solutions_found_until_then(
    method: StepwiseMethod, salt: int, token_budget: int
) -> None:
    result, context = run(method, WildTree(salt), token_budget=token_budget)
    assert context.generated_tokens <= token_budget + 33
    solutions = [candidate for candidate in result.candidates if candidate.is_solution and candidate.step_scores]
    if any(candidate.answer is not None for candidate in solutions):
        assert result.answer is not None


@pytest.mark.parametrize("method", SEARCHES, ids=name_of)
def test_cancelling_a_search_cancels_every_step_of_it(method: MethodConfig) -> None:
    async def cancel_early() -> FakeSearchContext:
        context = FakeSearchContext(TREE, step_scores=perfect, delays=lambda path: 60.0 if path[-1] else 0.0)
        work = asyncio.create_task(find_policy(method)(Problem(id="p", prompt="?"), context, method))
        await asyncio.sleep(0.02)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return context

    context = asyncio.run(cancel_early())
    assert len(context.finished) + len(context.cancelled) == 16
    assert context.cancelled
