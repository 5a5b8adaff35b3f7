"""Heads that propose few tokens, each others, change the speed alone: what none of them can propose is decoded as often as ever.

The statistical tests are on fixed seeds; a correct decoder would fail each with probability 1e-3 on another set of seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import get_args

import pytest
import torch

from tests.exactness.compositions import compose
from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.joint_law import ERROR_RATE, Law, joint_law, p_value, sample
from tests.neural_toys import trained_network
from tests.pooled import LocalTransport, pooled
from tests.toys import EOS_ID, toy_llama, toy_tokenizer
from tts_orch.config import DraftingConfig
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.pool_host import PoolHost
from tts_orch.drafters.target_facts import target_facts
from tts_orch.drafting_config import RoutingName
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.records import DecodeRequest, SamplingParams

_ROUTINGS: tuple[RoutingName, ...] = get_args(RoutingName)
_LOW, _MIDDLE = range(3, 50), range(30, 75)
"""Two vocabularies that share some tokens; 75 to 96 are in neither."""


def _head(architecture: str, ids: Sequence[int] | None, target: Target | None = None) -> NeuralDrafter:
    facts = target_facts(target or toy_target())
    network = trained_network(facts, architecture, ids)
    return NeuralDrafter(network, DraftingConfig(draft_depth=3, draft_width=4))


def _heads() -> dict[str, Drafter]:
    """Return heads of both architectures, which read different hidden states."""
    return {"low": _head("eagle", _LOW), "middle": _head("eagle3", _MIDDLE)}


@cache
def _requests(temperature: float, n_new: int = 24) -> list[DecodeRequest]:
    law = SamplingParams(temperature=temperature, max_new_tokens=n_new, logit_bias=((EOS_ID, -3.0),))
    return [request(f"{n}", prompt(n), law) for n in (1, 17, 40, 64, 71)]


@cache
def _expected(temperature: float) -> dict[str, list[int]]:
    outcomes = decode(new_decoder(toy_target()), _requests(temperature))
    return {name: outcome.tokens for name, outcome in outcomes.items()}


def _check(decoder: Decoder, temperature: float) -> None:
    outcomes = decode(decoder, _requests(temperature))
    assert {name: outcome.tokens for name, outcome in outcomes.items()} == _expected(temperature)
    assert decoder.counters.accepted_nodes > 8, "drafts hardly took part"


@pytest.mark.parametrize(
    ("routing", "temperature"), [*((name, 0.8) for name in _ROUTINGS), ("merged", 0.0), ("expected_tokens", 0.0)]
)
def test_heads_of_different_vocabularies_keep_the_tokens(routing: RoutingName, temperature: float) -> None:
    drafter = compose(_heads(), routing)
    assert drafter.feature_layers == (-1, 0, 1)
    _check(new_decoder(toy_target(), drafter, max_batch=8, node_budget=False), temperature)


@pytest.mark.parametrize("routing", ["confidence", "merged", "concatenated", "expected_tokens"])
def test_greedy_tokens_are_kept_by_rejection_too(routing: RoutingName) -> None:
    settings = {"max_batch": 8, "verification": "rejection", "node_budget": False}
    _check(new_decoder(toy_target(), compose(_heads(), routing), **settings), 0.0)


@pytest.mark.parametrize(("routing", "overlap"), [*zip(_ROUTINGS, itertools.cycle((False, True)), strict=False)])
def test_pooled_heads_keep_the_tokens_under_every_routing(routing: RoutingName, overlap: bool) -> None:
    """A reply in five is lost."""
    transport = LocalTransport(PoolHost(_heads()), lambda number: number % 5 == 0)
    members: dict[str, Drafter] = {name: pooled(transport, name) for name in ("low", "middle")}
    settings = {"drafters": dict.fromkeys(members, "."), "drafter_placement": "pooled", "draft_overlap": overlap}
    drafter = compose({**members, "lookup": PromptLookup()}, routing)
    decoder = new_decoder(toy_target(), drafter, node_budget=False, **settings)
    _check(decoder, 0.8)
    assert len(transport.requests) > 10


def test_merged_trees_hold_tokens_of_every_vocabulary() -> None:
    drafter = compose(_heads(), "merged")
    decode(new_decoder(toy_target(), drafter, node_budget=False), _requests(0.8))
    counts = drafter.statistics()
    assert min(counts[f"nodes_accepted_by_{name}"] for name in ("low", "middle")) > 3


def test_bit_stable_targets_keep_the_tokens() -> None:
    threads = n_threads()
    target = Target(toy_llama(torch.float32), toy_tokenizer(), numerics="bitwise", name="bitwise")
    try:
        plain = decode(new_decoder(target), _requests(0.8))
        for drafter in (_head("eagle", _LOW, target), _head("eagle3", _MIDDLE, target)):
            decoder = new_decoder(target, drafter, node_budget=False)
            assert decode(decoder, _requests(0.8)) == plain
            assert decoder.counters.accepted_nodes > 5
    finally:
        set_threads(threads)


# What no vocabulary has.


def _outside(outcomes: Mapping[str, Sequence[int]], ids: set[int]) -> int:
    return sum(token not in ids for tokens in outcomes.values() for token in tokens)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("verification", ["keyed", "rejection"])
def test_tokens_of_no_vocabulary_are_decoded(verification: str, temperature: float) -> None:
    decoder = new_decoder(toy_target(), compose(_heads(), "merged"), node_budget=False, verification=verification)
    outcomes = {name: outcome.tokens for name, outcome in decode(decoder, _requests(temperature)).items()}
    assert decoder.counters.accepted_nodes > 8
    assert _outside(outcomes, {*_LOW, *_MIDDLE}) > 10


_LAW = SamplingParams(temperature=0.7, top_k=4, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),))


@cache
def _joint() -> Law:
    return joint_law(prompt(12, seed=3), _LAW)


@pytest.mark.parametrize("architecture", ["eagle", "eagle3", "merged"])
def test_three_tokens_have_the_enumerated_law(architecture: str) -> None:
    """A good part of what the law draws lies outside of the vocabularies."""
    tokens = sorted({token for output in _joint() for token in output})
    most, some = [token for i, token in enumerate(tokens) if i % 4], tokens[1::4]
    if architecture == "merged":
        drafter: Drafter = compose({"a": _head("eagle", tokens[::2]), "b": _head("eagle3", some)}, "merged")
    else:
        drafter = _head(architecture, most)
    samples = sample(drafter, prompt(12, seed=3), _LAW, ["scope"] * 800)
    known = {*tokens[::2], *some} if architecture == "merged" else set(most)
    assert _outside(dict(enumerate(samples)), known) > 100  # type: ignore[arg-type]
    assert p_value(samples, _joint()) > ERROR_RATE
