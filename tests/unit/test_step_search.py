"""DVTS, beam search, particle filtering and REBASE against scripted steps and published numbers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.planted import PlantedTree, perfect, search
from tts_orch.config import DVTS, BeamSearch, BestOfN, MajorityVote, ParticleFiltering, Rebase
from tts_orch.errors import ConfigError
from tts_orch.method_config import MethodConfig, OwnMethod, StepwiseMethod
from tts_orch.policies.search import SEARCH_POLICIES, find_policy, registry
from tts_orch.policies.search.particle_filtering import draw_particles, odds_weights
from tts_orch.policies.search.rebase import balanced_widths
from tts_orch.records import Candidate, FinishReason, Path, Prefix
from tts_orch.testing import FakeSearchContext, FakeStep

Script = dict[Path, tuple[FakeStep, float]]


def step(token: int, score: float, text: str | None = None, answer: str | None = None) -> tuple[FakeStep, float]:
    return FakeStep((token,), f"{token}\n\n" if text is None else text, FinishReason.STEP, answer), score


def end(token: int, score: float, answer: str | None) -> tuple[FakeStep, float]:
    return FakeStep((token,), str(token), FinishReason.EOS, answer), score


def failure() -> tuple[FakeStep, float]:
    return FakeStep((9,), "failed", FinishReason.ERROR, "trap"), 1.0


def scripted(script: Script) -> FakeSearchContext:
    return FakeSearchContext(
        {path: entry for path, (entry, _) in script.items()},
        step_scores={path: [score] for path, (_, score) in script.items()},
    )


TWO_SUBTREES: Script = {
    (0, 0): step(1, 0.3),
    (0, 1): step(2, 0.4),
    (0, 1, 0): end(3, 0.5, "a"),
    (0, 1, 1): end(4, 0.6, "b"),
    (1, 0): step(5, 0.2),
    (1, 1): step(6, 0.2),
    (1, 0, 0): end(7, 0.9, "c"),
    (1, 0, 1): step(8, 0.8, answer="d"),
}


def test_dvts_goes_on_from_the_best_step_of_each_subtree_and_the_first_of_equals() -> None:
    context = scripted(TWO_SUBTREES)
    result = search(context, DVTS(n=4, beam_width=2))
    assert sorted(context.kept) == [[(0, 1)], [(0, 1, 1)], [(1, 0)], [(1, 0, 0)]]
    assert sorted(context.dropped) == [[(0, 0)], [(0, 1, 0)], [(1, 0, 1)], [(1, 1)]]
    assert (result.answer, result.chosen) == ("c", (1, 0, 0))
    assert [candidate.path for candidate in result.candidates] == [(0, 1, 1), (1, 0, 0)]
    best = result.candidates[1]
    assert (best.token_ids, best.text, best.parent, best.n_before) == ((5, 7), "5\n\n7", (1, 0), 1)
    assert best.step_scores == (0.9,)


@pytest.mark.parametrize(
    ("emit", "paths", "votes"),
    [
        ("winner", [(0, 1, 1), (1, 0, 0)], {"b": 1, "c": 1}),
        ("finished_siblings", [(0, 1, 0), (0, 1, 1), (1, 0, 0)], {"a": 1, "b": 1, "c": 1}),
        ("all_siblings", [(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)], {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_what_a_subtree_emits_is_chosen_and_unfinished_siblings_never_vote(
    emit: Any, paths: list[Path], votes: dict[str, float]
) -> None:
    context = scripted(TWO_SUBTREES)
    result = search(context, DVTS(n=4, beam_width=2, emit=emit, choice="majority"))
    assert [candidate.path for candidate in result.candidates] == paths
    assert result.votes == votes
    assert sorted(path for paths in context.kept for path in paths) == sorted([(0, 1), (1, 0), *paths])


def test_a_subtree_goes_on_with_the_siblings_that_did_not_fail_and_ends_alone_when_all_did() -> None:
    context = scripted(
        {
            (0, 0): failure(),
            (0, 1): step(2, 0.0),
            (0, 1, 0): end(3, 0.0, "a"),
            (0, 1, 1): failure(),
            (1, 0): failure(),
            (1, 1): failure(),
        }
    )
    result = search(context, DVTS(n=4, beam_width=2))
    assert (result.answer, result.chosen) == ("a", (0, 1, 0))
    assert [candidate.finish_reason for candidate in result.candidates] == [FinishReason.EOS, FinishReason.ERROR]
    assert [path for paths in context.scored for path in paths] == [(0, 1), (0, 1, 0)]


@pytest.mark.parametrize(
    ("text", "answer", "ends"),
    [
        ("so \\boxed{\\frac{1}{2}}\n\n", "\\frac{1}{2}", True),
        ("so \\boxed{ 5 } and\n\n", "5", True),
        ("we will put it in \\boxed{}\n\n", None, False),
        ("we will put 5 in \\boxed{", "5", False),
        ("x = 5\n\n", "5", False),
        ("<think> \\boxed{52} </think> or is it 5\n\n", "5", False),
        ("<think> \\boxed{5}\n\n", None, False),
    ],
)
def test_a_solution_ends_with_the_step_that_has_its_answer_in_a_box(text: str, answer: str | None, ends: bool) -> None:
    more = {(0, 0, 0): end(2, 0.5, "later")}
    context = scripted({(0, 0): step(1, 0.5, text, answer), **({} if ends else more)})
    result = search(context, DVTS(n=1, beam_width=1))
    assert result.answer == (answer if ends else "later")
    assert result.candidates[0].finish_reason is (FinishReason.ANSWER_FOUND if ends else FinishReason.EOS)


def test_equal_siblings_are_scored_once() -> None:
    context = scripted({(0, 0): end(1, 0.2, "a"), (0, 1): end(1, 0.9, "a"), (0, 2): end(2, 0.1, "b")})
    result = search(context, DVTS(n=3, beam_width=3, emit="all_siblings"))
    assert context.scored == [[(0, 0), (0, 2)]]
    assert [candidate.step_scores for candidate in result.candidates] == [(0.2,), (0.2,), (0.1,)]


def test_what_cannot_be_scored_never_wins() -> None:
    context = FakeSearchContext(
        {(0, 0): FakeStep((1,), "1", FinishReason.EOS, "a"), (1, 0): FakeStep((2,), "2", FinishReason.EOS, "b")},
        step_scores={(0, 0): [], (1, 0): [0.0]},
    )
    for choice in ("maximum", "weighted", "borda"):
        assert search(context, DVTS(n=2, beam_width=1, choice=choice, aggregation="prod")).answer == "b"


@dataclass(frozen=True)
class Trap:
    """The first step 1 looks better, and greedily leads to a dead end; step 2 leads to the answer."""

    def __call__(self, output: tuple[int, ...], seed: int | None) -> FakeStep:
        if len(output) == 3:
            return FakeStep((5,), "5", FinishReason.EOS, "right" if output[0] == 2 else "wrong")
        if output:
            return FakeStep((0,) if output[0] == 1 else (4,), "next\n\n")
        return FakeStep((1 + (seed or 0) % 2,), "first\n\n")

    def reward(self, candidate: Candidate) -> list[float]:
        return [{1: 0.6, 2: 0.5, 0: 0.1, 4: 0.7, 5: 0.9}[token] for token in candidate.token_ids]


def test_looking_ahead_is_greedy_and_for_scoring_alone() -> None:
    tree = Trap()
    blind, ahead = (FakeSearchContext(tree, step_scores=tree.reward) for _ in range(2))
    assert search(blind, DVTS(n=8, beam_width=8)).answer == "wrong"
    result = search(ahead, DVTS(n=8, beam_width=8, lookahead=1))
    assert result.answer == "right"
    [chosen] = result.candidates
    assert chosen.token_ids == (2, 4, 4, 5), "what was looked at is not gone on from"
    assert 8 not in chosen.path
    looked = [path for path in ahead.finished if 8 in path]
    assert len([path for path in looked if len(path) == 4]) == 2, "equal siblings are looked ahead from once"
    assert not {path for paths in ahead.kept + ahead.dropped for path in paths} & set(looked)


def test_beams_that_end_are_held_and_take_a_place() -> None:
    context = scripted(
        {
            (0, 0, 0): step(1, 0.9),
            (0, 0, 1): end(2, 0.1, "early"),
            (0, 0, 2): step(3, 0.8),
            (0, 0, 3): step(4, 0.7),
            (1, 0, 0): step(5, 0.2),
            (1, 0, 1): end(6, 0.3, "a"),
            (1, 1, 0): step(7, 0.4),
            (2, 0, 0): end(8, 0.5, "a"),
            (2, 0, 1): end(9, 0.6, "b"),
        }
    )
    result = search(context, BeamSearch(n=4, beam_width=2))
    assert context.kept == [[(0, 0, 0), (0, 0, 1), (0, 0, 2)], [(1, 0, 1), (1, 1, 0)], [(2, 0, 0), (2, 0, 1)]]
    assert context.dropped == [[(0, 0, 3)], [(1, 0, 0)], []]
    assert [candidate.path for candidate in result.candidates] == [(0, 0, 1), (1, 0, 1), (2, 0, 0), (2, 0, 1)]
    assert [candidate.step_scores for candidate in result.candidates] == [(0.1,), (0.3,), (0.5,), (0.6,)]
    assert result.candidates[-1].token_ids == (3, 7, 9)
    assert (result.answer, result.chosen) == ("b", (2, 0, 1))


def test_a_beam_whose_siblings_fail_fills_the_width_again() -> None:
    script = {(0, 0, i): failure() for i in range(1, 4)}
    script |= {(0, 0, 0): step(1, 0.5), (1, 0, 0): step(2, 0.5), (1, 0, 1): step(3, 0.5)}
    script |= {(2, slot, i): end(4, 0.5, "a") for slot in range(2) for i in range(2)}
    result = search(scripted(script), BeamSearch(n=4, beam_width=2))
    assert [candidate.path for candidate in result.candidates] == [(2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)]


def test_beams_that_only_fail_have_no_answer() -> None:
    result = search(scripted({(0, 0, i): failure() for i in range(2)}), BeamSearch(n=2, beam_width=2))
    assert (result.answer, len(result.candidates)) == (None, 2)


def test_particles_are_drawn_by_their_odds() -> None:
    """Source: the weights are [9, 4, 1, 1/9] over their sum."""
    assert odds_weights([0.9, 0.8, 0.5, 0.1], 1.0) == pytest.approx([0.6378, 0.2835, 0.0709, 0.0079], abs=5e-5)
    assert odds_weights([1.0, 0.0], 1.0) == pytest.approx([1, 0], abs=1e-6)
    assert odds_weights([0.9, 0.5], 2.0) == pytest.approx([0.75, 0.25])


def test_draws_have_the_law_of_the_weights_and_are_fixed_by_their_seed() -> None:
    """Of 8000 draws each count is within five standard deviations of its mean: p < 1e-5 for all."""
    weights = odds_weights([0.9, 0.8, 0.5, 0.1], 1.0)
    counts = sum(draw_particles(weights, 16, seed) for seed in range(500))
    assert np.all(np.abs(counts - 8000 * weights) <= 5 * np.sqrt(8000 * weights * (1 - weights)))
    assert draw_particles(weights, 16, 3).tolist() == draw_particles(weights, 16, 3).tolist()
    assert draw_particles(weights, 16, 3).sum() == 16


def test_a_particle_drawn_often_has_as_many_next_steps_and_a_failed_one_none() -> None:
    script = {(0, 0, 0): step(1, 1.0), (0, 0, 1): failure(), (0, 0, 2): step(2, 0.0), (0, 0, 3): step(3, 0.0)}
    script |= {(1, 0, i): end(4 + i, 0.1 * i, str(i)) for i in range(4)}
    context = scripted(script)
    result = search(context, ParticleFiltering(n=4))
    assert context.kept == [[(0, 0, 0)], [(1, 0, i) for i in range(4)]]
    assert (result.answer, len(result.candidates)) == ("3", 4)


def test_a_spent_budget_loses_no_solution_by_a_draw() -> None:
    context = FakeSearchContext(
        {(0, 0, 0): end(1, 0.1, "a")[0], (0, 0, 1): step(2, 0.9)[0]},
        step_scores={(0, 0, 0): [0.1], (0, 0, 1): [0.999999]},
        token_budget=2,
    )
    result = search(context, ParticleFiltering(n=3))  # the third one is cancelled
    assert (result.answer, [candidate.path for candidate in result.candidates]) == ("a", [(0, 0, 0)])


def test_a_solution_that_could_not_be_scored_is_held_outside_the_draw() -> None:
    steps = {(0, 0, 0): end(1, 0.5, "a"), (0, 0, 1): step(2, 0.9), (1, 0, 0): end(3, 0.8, "b"), (1, 0, 1): failure()}
    context = FakeSearchContext(
        {path: entry for path, (entry, _) in steps.items()},
        step_scores={(0, 0, 0): [], (0, 0, 1): [0.9], (1, 0, 0): [0.8]},
    )
    result = search(context, ParticleFiltering(n=2))
    assert result.answer == "b"
    assert [candidate.path for candidate in result.candidates] == [(0, 0, 0), (1, 0, 0)]


def test_solutions_are_particles_too_drawn_or_lost() -> None:
    held = scripted({(0, 0, 0): end(1, 1.0, "a"), (0, 0, 1): step(2, 0.0), (0, 0, 2): end(3, 0.0, "b")})
    result = search(held, ParticleFiltering(n=3))
    assert held.kept == [[(0, 0, 0)]]
    assert [candidate.path for candidate in result.candidates] == [(0, 0, 0)], "held once, though drawn three times"
    lost = scripted(
        {(0, 0, 0): step(1, 1.0), (0, 0, 1): end(2, 0.0, "a"), **{(1, 0, i): end(3, 0.5, "b") for i in (0, 1)}}
    )
    assert search(lost, ParticleFiltering(n=2, choice="majority")).votes == {"b": 2.0}


@pytest.mark.parametrize(
    ("scores", "width", "widths"),
    [
        ([0.9, 0.8, 0.5, 0.1], 16, [10, 5, 1, 0]),
        ([0.9] * 4, 16, [4, 4, 4, 4]),
        ([0.7, 0.6, 0.55], 4, [2, 2, 0]),
        ([0.7, 0.6], 0, [0, 0]),
        ([], 4, []),
    ],
)
def test_rebase_shares_the_width_out_in_favour_of_the_best(scores: list[float], width: int, widths: list[int]) -> None:
    assert balanced_widths(scores, width, 0.2) == widths


def test_rebase_gives_better_steps_more_children_and_solutions_a_place() -> None:
    script = {(0, 0, 0): step(1, 0.5), (0, 0, 1): end(2, 0.4, "a"), (0, 0, 2): step(3, 0.9), (0, 0, 3): step(4, 0.1)}
    script |= {(1, 0, 0): end(5, 0.3, "b"), (1, 0, 1): end(6, 0.3, "b"), (1, 0, 2): end(7, 0.3, "c")}
    context = scripted(script)
    result = search(context, Rebase(n=4))
    assert context.kept[0] == [(0, 0, 1), (0, 0, 2)]
    assert result.candidates[-1].parent == (0, 0, 2)
    assert result.votes == pytest.approx({"b": 0.6, "a": 0.4, "c": 0.3})


@pytest.mark.parametrize("method", [BeamSearch(n=4, max_steps=2), DVTS(n=4, max_steps=2)])
def test_the_last_step_is_sampled_to_the_end_of_the_solution(method: MethodConfig) -> None:
    context = FakeSearchContext(PlantedTree(depth=5, p_right=0.9), step_scores=perfect)
    result = search(context, method)
    assert {candidate.n_tokens for candidate in result.candidates} == {5}
    assert len(context.finished) == 8


@pytest.mark.parametrize("method", [BeamSearch(n=4), DVTS(n=4), ParticleFiltering(n=4), Rebase(n=4)])
def test_search_without_a_reward_model_says_what_is_missing(method: MethodConfig) -> None:
    with pytest.raises(ConfigError, match=f"{method.name}: needs a reward model"):
        search(FakeSearchContext({}), method)


@pytest.mark.parametrize("method", [BestOfN(n=4, choice="weighted"), MajorityVote(n=4, choice="weighted")])
def test_votes_are_not_weighted_by_self_certainty(method: MethodConfig) -> None:
    with pytest.raises(ConfigError, match="choice: weighted needs a reward model"):
        search(FakeSearchContext({}), method)


@pytest.mark.parametrize("kind", [BeamSearch, DVTS])
def test_n_is_a_multiple_of_the_beam_width(kind: Callable[..., MethodConfig]) -> None:
    for n in (3, 2):
        with pytest.raises(ConfigError, match="not a multiple of beam_width 4"):
            kind(n=n, beam_width=4)


class _Entry:
    def __init__(self, name: str, policy: object) -> None:
        self.name = name
        self._policy = policy

    def load(self) -> object:
        if isinstance(self._policy, Exception):
            raise self._policy
        return self._policy


def test_policies_are_found_by_name_and_those_of_others_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mine(problem: object, context: object, config: object) -> None: ...

    entries = [_Entry("mine", mine), _Entry("broken", ImportError("no module named that"))]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == "tts_orch.search_policies" else [])
    assert find_policy(DVTS()) is SEARCH_POLICIES["dvts"]
    assert find_policy(OwnMethod(policy="mine")) is mine
    with pytest.raises(ConfigError, match=r"yours is no entry point .*installed: broken, mine"):
        find_policy(OwnMethod(policy="yours"))
    with pytest.raises(ConfigError, match="broken cannot be imported"):
        find_policy(OwnMethod(policy="broken"))


def test_every_method_has_a_policy() -> None:
    names: Mapping[str, object] = SEARCH_POLICIES
    assert {"beam_search", "best_of_n", "dvts", "majority_vote", "particle_filtering", "rebase"} <= set(names)


@pytest.mark.parametrize("kind", [DVTS, BeamSearch, ParticleFiltering, Rebase])
def test_what_ran_out_of_tokens_without_an_answer_is_not_gone_on_from(kind: type[StepwiseMethod]) -> None:
    first, second = ((0, 0), (0, 1)) if kind is DVTS else ((0, 0, 0), (0, 0, 1))
    guess = FakeStep((1,), "1", FinishReason.LENGTH, "trap")
    children = {(0, 1, 0), (0, 1, 1)} if kind is DVTS else {(1, 0, 0), (1, 0, 1)}
    script = {first: guess, second: FakeStep((2,), "2\n\n")}
    context = GuessingContext(
        script | dict.fromkeys(children, FakeStep((3,), "3", FinishReason.EOS, "a")),
        step_scores=lambda candidate: [0.999 if candidate.token_ids == (1,) else 0.5],
    )
    result = search(context, kind(n=2, beam_width=2) if kind in (DVTS, BeamSearch) else kind(n=2))
    assert result.answer == "a"
    assert all(candidate.token_ids == (2, 3) for candidate in result.candidates)


class GuessingContext(FakeSearchContext):
    """A context in which what ran out of tokens only guessed its answer."""

    async def sample(self, prefixes: Sequence[Prefix], **settings: Any) -> AsyncGenerator[Candidate, None]:  # type: ignore[override]
        async with aclosing(super().sample(prefixes, **settings)) as stream:
            async for candidate in stream:
                yield replace(candidate, answer_is_fallback=candidate.finish_reason is FinishReason.LENGTH)
