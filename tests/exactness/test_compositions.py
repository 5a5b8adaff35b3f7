"""Several drafters as one change the speed alone: tokens in keyed mode, the law in rejection mode.

The statistical tests are on fixed seeds; a correct decoder would fail each with probability 1e-3 on another set of seeds.
"""

from __future__ import annotations

from functools import cache
from typing import get_args

import pytest

from tests.exactness.compositions import compose, new_composition
from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import AdversarialDrafter, RandomDrafter
from tests.exactness.joint_law import ERROR_RATE, joint_law, p_value, sample
from tests.toys import EOS_ID, VOCABULARY_SIZE
from tts_orch.drafting_config import RoutingName
from tts_orch.engine.decoder import Decoder
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.records import DecodeRequest, SamplingParams

_ROUTINGS: tuple[RoutingName, ...] = get_args(RoutingName)


@cache
def _requests(temperature: float, n_new: int = 24) -> list[DecodeRequest]:
    law = SamplingParams(temperature=temperature, max_new_tokens=n_new, logit_bias=((EOS_ID, -3.0),))
    return [request(f"{n_tokens}", prompt(n_tokens), law) for n_tokens in (1, 17, 40, 64, 71)]


@cache
def _expected(temperature: float, n_new: int = 24) -> dict[str, list[int]]:
    outcomes = decode(new_decoder(toy_target()), _requests(temperature, n_new))
    return {name: outcome.tokens for name, outcome in outcomes.items()}


def _check(decoder: Decoder, temperature: float, n_new: int = 24) -> None:
    outcomes = decode(decoder, _requests(temperature, n_new))
    assert {name: outcome.tokens for name, outcome in outcomes.items()} == _expected(temperature, n_new)


@pytest.mark.parametrize(
    ("routing", "max_batch", "node_budget", "temperature"),
    [
        *((routing, *case) for routing in _ROUTINGS for case in ((3, True, 0.8), (8, False, 0.0))),
        *((routing, 1, True, 0.8) for routing in ("first_steps", "expected_tokens")),
        *((routing, 8, False, 0.8) for routing in ("merged", "expected_tokens")),
    ],
)
def test_tokens_are_those_of_plain_decoding(
    routing: RoutingName, max_batch: int, node_budget: bool, temperature: float
) -> None:
    drafter = new_composition(routing)
    decoder = new_decoder(toy_target(), drafter, max_batch=max_batch, node_budget=node_budget)
    _check(decoder, temperature)
    assert decoder.counters.accepted_nodes > 5, "drafts hardly took part"


@pytest.mark.parametrize("node_budget", [False, True])
@pytest.mark.parametrize("routing", ["first_steps", "merged", "expected_tokens"])
def test_compositions_of_compositions_keep_the_tokens(routing: RoutingName, node_budget: bool) -> None:
    decoder = new_decoder(toy_target(), new_composition(routing, is_nested=True), node_budget=node_budget)
    _check(decoder, 0.8)
    assert decoder.counters.accepted_nodes > 5


@pytest.mark.parametrize("routing", ["first_steps", "merged", "expected_tokens"])
def test_preempted_trajectories_keep_their_tokens(routing: RoutingName) -> None:
    decoder = new_decoder(toy_target(), new_composition(routing), n_pages=5, max_batch=6)
    _check(decoder, 0.8, n_new=60)
    assert decoder.statistics()["preemptions"] >= 1


def _misleading(temperature: float) -> ComposedDrafter:
    """Right, wrong and random trees that often share prefixes: what a faulty union would get wrong."""
    texts = {
        one.candidate_id: [*one.token_ids.tolist(), *_expected(temperature)[one.candidate_id]]
        for one in _requests(temperature)
    }
    members = {
        "adversarial": AdversarialDrafter(texts, VOCABULARY_SIZE),
        "other": AdversarialDrafter(texts, VOCABULARY_SIZE),
        "random": RandomDrafter(VOCABULARY_SIZE, (EOS_ID, 11, 12)),
        "lookup": PromptLookup(),
    }
    return compose(members, "merged")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("max_batch", [1, 8])
def test_misleading_members_cost_no_token(max_batch: int, temperature: float) -> None:
    decoder = new_decoder(toy_target(), _misleading(temperature), max_batch=max_batch, max_nodes=24, node_budget=False)
    _check(decoder, temperature)
    assert decoder.counters.accepted_nodes > 30


def test_members_with_and_without_laws_take_part() -> None:
    drafter = new_composition("merged")
    decoder = new_decoder(toy_target(), drafter)
    decode(decoder, _requests(0.8))
    tallies = {member: tally for (_, member), tally in drafter.take_report().tallies.items()}
    assert min(tally.steps for tally in tallies.values()) > 20
    assert min(tallies["stand"].accepted, tallies["recycling"].accepted) > 8
    counts = drafter.statistics()
    assert sum(n for name, n in counts.items() if "drafted" in name) == decoder.counters.draft_nodes
    assert sum(n for name, n in counts.items() if "accepted" in name) == decoder.counters.accepted_nodes
    assert counts["nodes_accepted_by_recycling"] > 1


# Rejection.

_LAW = SamplingParams(temperature=0.7, top_k=4, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),))


@pytest.mark.parametrize(
    ("routing", "is_nested", "node_budget"),
    [("merged", False, False), ("concatenated", True, True), ("expected_tokens", False, True)],
)
def test_three_tokens_have_the_enumerated_law(routing: RoutingName, is_nested: bool, node_budget: bool) -> None:
    drafter = new_composition(routing, is_keyed=False, is_nested=is_nested)
    prompt_ids = prompt(12)
    samples = sample(drafter, prompt_ids, _LAW, ["scope"] * 800, max_nodes=5, node_budget=node_budget)
    assert p_value(samples, joint_law(prompt_ids, _LAW)) > ERROR_RATE


@pytest.mark.parametrize("routing", ["confidence", "concatenated", "expected_tokens"])
def test_greedy_tokens_are_those_of_plain_decoding_by_rejection_too(routing: RoutingName) -> None:
    drafter = new_composition(routing, is_keyed=False)
    decoder = new_decoder(toy_target(), drafter, max_batch=8, verification="rejection")
    _check(decoder, 0.0)
    assert decoder.counters.accepted_nodes > 5


def test_members_that_draw_are_refused_by_rejection() -> None:
    """Whatever a routing did with drawn drafts would tilt the law."""
    drafter = new_composition("merged")
    decoder = new_decoder(toy_target(), drafter, verification="rejection")
    with pytest.raises(ValueError, match="deterministically"):
        decode(decoder, _requests(0.8))
