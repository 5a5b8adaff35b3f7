"""Neural drafters change the speed alone: tokens in keyed mode, the law in rejection mode.

The statistical tests are on fixed seeds; a correct decoder would fail each with probability 1e-3 on another set of seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM, PreTrainedModel

from tests.exactness.decoding import decode, decode_with_abort, new_decoder, prompt, request, toy_target
from tests.exactness.joint_law import ERROR_RATE, joint_law, p_value, sample
from tests.neural_toys import HEAD_KINDS, noisy_toy, toy_head, toy_network, trained_network
from tests.toys import EOS_ID, VOCABULARY_SIZE, toy_tokenizer
from tts_orch.config import DraftingConfig
from tts_orch.drafters.causal_lm import CausalLM
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.target_facts import target_facts
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_file import default_tree
from tts_orch.policies.routing.registry import make_routing
from tts_orch.records import DecodeRequest, SamplingParams

_KINDS = ("random head", "language model", *HEAD_KINDS)
_UNLIKE_KINDS = ("language model", "head", "trimmed eagle3")
_LEAST_ACCEPTED = {"random head": 2, "trimmed head": 2, "trimmed eagle3": 2}
_TEMPERATURES = (0.0, 0.8)


def _drafter(kind: str, **settings: object) -> NeuralDrafter:
    facts = target_facts(toy_target())
    if kind in HEAD_KINDS:
        network = trained_network(facts, **HEAD_KINDS[kind])
    else:
        network = toy_network("head" if kind == "random head" else "lm", facts)
    return NeuralDrafter(network, DraftingConfig(**{"draft_depth": 3, "draft_width": 4, **settings}))


@cache
def _requests(temperature: float, n_new: int = 20) -> list[DecodeRequest]:
    """Prompts of uneven length, two of them the same."""
    law = SamplingParams(temperature=temperature, max_new_tokens=n_new, logit_bias=((EOS_ID, -3.0),))
    lengths = (1, 2, 17, 40, 64, 71)
    return [*(request(f"{n}", prompt(n), law) for n in lengths), request("again", prompt(40), law)]


@cache
def _expected(temperature: float, n_new: int = 20) -> dict[str, list[int]]:
    outcomes = decode(new_decoder(toy_target()), _requests(temperature, n_new))
    return {name: outcome.tokens for name, outcome in outcomes.items()}


def _check(decoder: Decoder, temperature: float, n_new: int = 20) -> None:
    outcomes = decode(decoder, _requests(temperature, n_new))
    assert {name: outcome.tokens for name, outcome in outcomes.items()} == _expected(temperature, n_new)


@pytest.mark.parametrize(
    ("kind", "max_batch", "node_budget", "temperature"),
    [
        *((kind, 8, False, 0.8) for kind in _KINDS),
        *((kind, *case) for kind in _UNLIKE_KINDS for case in ((1, True, 0.8), (3, False, 0.0), (8, True, 0.0))),
    ],
)
def test_tokens_are_those_of_plain_decoding(kind: str, max_batch: int, node_budget: bool, temperature: float) -> None:
    decoder = new_decoder(toy_target(), _drafter(kind), max_batch=max_batch, node_budget=node_budget)
    _check(decoder, temperature)
    assert decoder.counters.accepted_nodes > _LEAST_ACCEPTED.get(kind, 15), "drafts hardly took part"


@pytest.mark.parametrize("kind", _UNLIKE_KINDS)
def test_preempted_trajectories_keep_their_tokens(kind: str) -> None:
    decoder = new_decoder(toy_target(), _drafter(kind), n_pages=5, max_batch=6)
    _check(decoder, 0.8, n_new=60)
    assert decoder.statistics()["preemptions"] >= 1


@pytest.mark.parametrize("kind", _UNLIKE_KINDS)
def test_trajectories_go_on_elsewhere_with_the_same_tokens(kind: str) -> None:
    outcomes = decode_with_abort(lambda: new_decoder(toy_target(), _drafter(kind)), _requests(0.8), abort_after=6)
    assert {name: outcome.tokens for name, outcome in outcomes.items()} == _expected(0.8)


@pytest.mark.parametrize("kind", _UNLIKE_KINDS)
def test_forks_of_a_trajectory_keep_their_tokens(kind: str) -> None:
    """Two generations of requests, the second one on prefixes of the first, as in searches over steps."""
    law = SamplingParams(temperature=0.8, max_new_tokens=40, logit_bias=((EOS_ID, -3.0),))
    text = np.concatenate([prompt(40), np.array(_expected(0.8)["40"][:18], np.int32)])
    forks = [request(f"fork {i}", text[: len(text) - i], law) for i in (0, 0, 3)]
    forks = [DecodeRequest(f"{i}", one.token_ids, 40, i, law, "scope") for i, one in enumerate(forks)]
    decoder = new_decoder(toy_target(), _drafter(kind))
    decode(decoder, _requests(0.8))
    drafted, plain = decode(decoder, forks), decode(new_decoder(toy_target()), forks)
    assert {name: outcome.tokens for name, outcome in drafted.items()} == {
        name: outcome.tokens for name, outcome in plain.items()
    }


def _gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY_SIZE, n_positions=128, n_embd=32, n_layer=3, n_head=4))


def _opt() -> PreTrainedModel:
    shape = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_attention_heads": 4}
    return OPTForCausalLM(
        OPTConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=128, num_hidden_layers=3, **shape)
    )


@pytest.mark.parametrize("architecture", ["eagle", "eagle3"])
@pytest.mark.parametrize("make", [_gpt2, _opt])
def test_targets_with_learned_positions_have_heads(make: Callable[[], PreTrainedModel], architecture: str) -> None:
    """They name their MLP in ways of their own, and share the embedding with the LM head."""
    torch.manual_seed(0)
    target = Target(make().double(), toy_tokenizer(), name="toy")
    facts = target_facts(target)
    network = head_network(toy_head(facts, architecture=architecture), facts)
    drafter = NeuralDrafter(network, DraftingConfig(draft_depth=3, draft_width=4))
    decoder = new_decoder(target, drafter, node_budget=False)
    drafted, plain = decode(decoder, _requests(0.8)), decode(new_decoder(target), _requests(0.8))
    assert {name: outcome.tokens for name, outcome in drafted.items()} == {
        name: outcome.tokens for name, outcome in plain.items()
    }
    assert decoder.counters.accepted_nodes > 2


def test_keyed_candidates_are_accepted_more_often() -> None:
    """The point of the noise: candidates that the verifier is going to draw."""
    shares = []
    for sampling in ("stochastic", "deterministic"):
        network = CausalLM(noisy_toy(0.05), VOCABULARY_SIZE)
        drafter = NeuralDrafter(network, DraftingConfig(draft_depth=3, draft_width=4, draft_sampling=sampling))
        decoder = new_decoder(toy_target(), drafter, max_nodes=4, node_budget=False)
        _check(decoder, 0.8)
        shares.append(decoder.counters.accepted_nodes / decoder.counters.verify_steps)
    assert shares[0] > 1.4 * shares[1] > 0.4


def _composition(routing: str, verification: str) -> ComposedDrafter:
    """An n-gram table, a trained head and a language model."""
    config = DraftingConfig(draft_sampling="deterministic" if verification == "rejection" else "stochastic")
    members: dict[str, Drafter] = {
        "stand": Stand(config, default_tree(), vocabulary_size=VOCABULARY_SIZE),
        "head": _drafter("head"),
        "lm": _drafter("language model"),
    }
    return ComposedDrafter(members, make_routing(config.model_copy(update={"routing": routing}), list(members)))


@pytest.mark.parametrize("temperature", _TEMPERATURES)
@pytest.mark.parametrize("routing", ["merged", "expected_tokens"])
def test_compositions_with_neural_members_keep_the_tokens(routing: str, temperature: float) -> None:
    decoder = new_decoder(toy_target(), _composition(routing, "keyed"))
    _check(decoder, temperature)
    assert decoder.counters.accepted_nodes > 15


# Rejection.

_LAW = SamplingParams(temperature=0.7, top_k=4, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),))


@pytest.mark.parametrize("drafter", ["head", "eagle3", "language model", "merged"])
def test_three_tokens_have_the_enumerated_law(drafter: str) -> None:
    """`sample` asserts that drafts took part."""
    made = _composition("merged", "rejection") if drafter == "merged" else _drafter(drafter, draft_width=8)
    prompt_ids = prompt(12, seed=3)
    samples = sample(made, prompt_ids, _LAW, ["scope"] * 1000, node_budget=drafter == "language model")
    assert p_value(samples, joint_law(prompt_ids, _LAW)) > ERROR_RATE


@pytest.mark.parametrize("max_batch", [1, 8])
@pytest.mark.parametrize("kind", _UNLIKE_KINDS)
def test_greedy_tokens_equal_plain_decoding_under_rejection(kind: str, max_batch: int) -> None:
    decoder = new_decoder(toy_target(), _drafter(kind), max_batch=max_batch, verification="rejection")
    _check(decoder, 0.0)
    assert decoder.counters.accepted_nodes > 0
