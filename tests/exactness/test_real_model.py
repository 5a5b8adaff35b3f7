"""The demo model in float32: tokens and log-probabilities are the same bits whatever happens around a trajectory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.exactness.compositions import compose
from tests.exactness.decoding import decode, decode_with_abort, n_free_pages, new_decoder
from tests.exactness.reference import Outcome
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.target_facts import target_facts
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.demo_model import CACHE_NAME
from tts_orch.engine.model_cache import cache_folder
from tts_orch.engine.target import Target, load_target
from tts_orch.engine.threads import set_threads
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import DecodeRequest, SamplingParams
from tts_orch.replay.teacher_forcing import forced_features
from tts_orch.seeds import trajectory_seed
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

_QUESTIONS = (
    "Tom has 3 boxes with 12 pens each. He gives 7 pens away. How many pens does he have? Think step by step.",
    "Write the numbers from 1 to 20, then write the numbers from 1 to 20 again: 1, 2, 3, 4, 5,",
    "Hi",
)
_LAWS = (
    SamplingParams(temperature=0.7, top_p=0.95, max_new_tokens=12),
    SamplingParams(temperature=0.0, max_new_tokens=12),
    SamplingParams(temperature=1.0, repetition_penalty=1.2, stop_strings=(". ",), max_new_tokens=12),
)
_LONG = 70
"""Tokens of the longest prompt: more than a page."""


@pytest.fixture(scope="module")
def target() -> Target:
    is_required = os.environ.get("CI") or os.environ.get("TTS_ORCH_REQUIRE_MODEL")
    if not (cache_folder() / CACHE_NAME).is_dir() and not is_required:
        pytest.skip("the demo model is not there; `make model` fetches it, `make test` does so too")
    return load_target(EngineConfig(target="smollm2", threads=1))


@pytest.fixture(scope="module")
def requests(target: Target) -> list[DecodeRequest]:
    """Eight trajectories: three prompts, laws in turn."""
    texts = [f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question in _QUESTIONS]
    assert target.tokenizer is not None
    ids = [np.array(target.tokenizer(text)["input_ids"], np.int32) for text in texts]
    ids[1] = np.tile(ids[1], 3)[:_LONG]
    return [
        DecodeRequest(str(i), ids[i % 3], len(ids[i % 3]), trajectory_seed(0, "real", (i,)), _LAWS[i // 3], f"{i % 3}")
        for i in range(8)
    ]


@pytest.fixture(scope="module")
def expected(target: Target, requests: list[DecodeRequest]) -> dict[str, Outcome]:
    set_threads(1)
    return decode(new_decoder(target, max_batch=1), requests)


def _decoder(target: Target, name: str = "none", **settings: object) -> Decoder:
    return new_decoder(
        target, make_drafter(DraftingConfig(drafter=name), vocabulary_size=target.vocab_size), **settings
    )  # type: ignore[arg-type]


def test_promise_holds_on_this_machine(target: Target) -> None:
    assert target.numerics == "bitwise"


def test_trajectories_are_worth_comparing(expected: dict[str, Outcome]) -> None:
    assert sum(len(outcome.tokens) for outcome in expected.values()) > 60
    assert len({tuple(outcome.tokens[:8]) for outcome in expected.values()}) >= 6


Run = Callable[[Target, list[DecodeRequest]], dict[str, Outcome]]

_RUNS: dict[str, Run] = {
    "batch of 3": lambda target, requests: decode(_decoder(target, max_batch=3), requests),
    "batch of 8": lambda target, requests: decode(_decoder(target, max_batch=8), requests),
    "stand alone": lambda target, requests: decode(_decoder(target, "stand", max_batch=1, max_nodes=5), requests),
    "stand, batch of 8": lambda target, requests: decode(
        _decoder(target, "stand", max_batch=8, max_nodes=24), requests
    ),
    "prompt lookup, batch of 3": lambda target, requests: decode(
        _decoder(target, "prompt_lookup", max_batch=3), requests
    ),
    "prefill in small chunks": lambda target, requests: decode(
        _decoder(target, "stand", max_batch=8, prefill_chunk=7), requests
    ),
    "little memory": lambda target, requests: decode(_decoder(target, "stand", max_batch=8, n_pages=6), requests),
    "abort and resume": lambda target, requests: decode_with_abort(
        lambda: _decoder(target, "stand", max_batch=8), requests, abort_after=5
    ),
}


@pytest.mark.parametrize("name", _RUNS)
def test_bits_are_the_same(
    name: str, target: Target, requests: list[DecodeRequest], expected: dict[str, Outcome]
) -> None:
    assert _RUNS[name](target, requests) == expected


def test_two_threads_give_the_same_bits(
    target: Target, requests: list[DecodeRequest], expected: dict[str, Outcome]
) -> None:
    """Few tokens: where cores are scarce, a second thread makes every pass slower."""
    set_threads(2)
    n = 4
    short = [replace(one, law=replace(one.law, max_new_tokens=n)) for one in requests[:3]]
    outcomes = decode(_decoder(target, "stand", max_batch=3), short)
    assert [len(outcomes[one.candidate_id].tokens) for one in short] == [n] * 3
    for name, outcome in outcomes.items():
        assert len(expected[name].tokens) == len(expected[name].log_probs) >= n
        assert outcome.tokens == expected[name].tokens[:n]
        assert outcome.log_probs == expected[name].log_probs[:n]


def _fitted_head(target: Target, requests: list[DecodeRequest], expected: dict[str, Outcome]) -> EagleHead:
    """Return a head, linear in what it reads, whose drafts are nearly all right: it is fitted to these very outputs."""
    facts = target_facts(target)
    read, wanted = [], []
    for one in requests:
        output = np.array(expected[one.candidate_id].tokens, np.int32)
        tokens = torch.from_numpy(np.concatenate([one.token_ids, output]))
        features = forced_features(target, one.token_ids, output, (-1,))
        first = len(one.token_ids) - 2  # reads the prompt's last token, and predicts the feature of it
        read.append(torch.cat([facts.embedding[tokens[1:-1]], features[:-1]], dim=-1)[first:])
        wanted.append(features[first + 1 :])
    head = EagleHead(HeadConfig.for_target(facts.config, target_weights_id=facts.weights_id))
    with torch.no_grad():
        for weight in head.parameters():
            weight.zero_()
        weights = torch.linalg.lstsq(torch.cat(read).double(), torch.cat(wanted).double(), driver="gelsd").solution
        head.fc.weight.copy_(weights.T)
    return head


@pytest.mark.parametrize("is_merged", [False, True])
def test_heads_with_few_tokens_give_the_same_bits(
    is_merged: bool, target: Target, requests: list[DecodeRequest], expected: dict[str, Outcome]
) -> None:
    """A head that cannot propose every third token of the outputs, alone; and two of different ones beside STAND."""
    set_threads(1)
    head, facts = _fitted_head(target, requests, expected), target_facts(target)
    ids = np.unique(np.concatenate([outcome.tokens for outcome in expected.values()]))
    config = DraftingConfig(draft_depth=3, draft_width=2)
    heads: list[Drafter] = [
        NeuralDrafter(head_network(trimmed_head(head, DraftVocabulary(some, target.vocab_size)), facts), config)
        for some in (np.delete(ids, np.s_[::3]), ids[::2])
    ]
    stand = make_drafter(DraftingConfig(), vocabulary_size=target.vocab_size)
    assert stand is not None
    drafter = compose({"a": heads[0], "b": heads[1], "stand": stand}, "merged") if is_merged else heads[0]
    decoder = new_decoder(target, drafter, max_batch=3, node_budget=False, max_nodes=6)
    assert decode(decoder, requests) == expected
    assert decoder.counters.accepted_nodes > 20, "drafts hardly took part"


def test_pages_come_back(target: Target, requests: list[DecodeRequest]) -> None:
    decoder = _decoder(target, "stand")
    decode(decoder, requests[:2])
    assert n_free_pages(decoder) == 64
