"""The features that a drafter is told are the stock model's hidden states, wherever the decoder has them from.

That none is left out, told twice or told of the root is checked by `CheckingDrafter`, here and in all tests that use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import CheckingDrafter, Continuations, OracleDrafter, RandomDrafter
from tests.toys import EOS_ID, TOY_MODELS, VOCABULARY_SIZE, toy_llama
from tts_orch.engine.packing import PAGE, Entry, pack
from tts_orch.engine.target import Target
from tts_orch.records import DecodeRequest, SamplingParams, StepRule
from tts_orch.replay.teacher_forcing import forced_features

_LAW = SamplingParams(temperature=0.8, max_new_tokens=50, logit_bias=((EOS_ID, -5.0),))


def _requests(*lengths: int, n: int = 2) -> list[DecodeRequest]:
    return [request(f"{length}-{i}", prompt(length), _LAW) for length in lengths for i in range(n)]


def _truth(requests: Sequence[DecodeRequest], target: Target) -> Continuations:
    outcomes = decode(new_decoder(target), requests)
    return {one.candidate_id: [*one.token_ids.tolist(), *outcomes[one.candidate_id].tokens] for one in requests}


def _oracle(requests: Sequence[DecodeRequest], target: Target) -> OracleDrafter:
    return OracleDrafter(_truth(requests, target), block=4)


def _check(drafter: CheckingDrafter, architecture: str = "llama") -> None:
    """Compare all that was told with one stock forward a trajectory."""
    stock = TOY_MODELS[architecture]()
    assert drafter.told
    for told in drafter.told.values():
        assert len(told.features) >= len(told.start.token_ids) - 1
        if told.features:
            tokens = torch.tensor([told.tokens[: len(told.features)]])
            states = stock(input_ids=tokens, output_hidden_states=True).hidden_states
            expected = torch.cat([states[layer][0] for layer in drafter.feature_layers], dim=-1)
            torch.testing.assert_close(torch.stack(told.features), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", sorted(TOY_MODELS))
@pytest.mark.parametrize("drafts", ["accepted", "rejected"])
def test_prompts_and_committed_drafts(architecture: str, drafts: str) -> None:
    target, requests = toy_target(architecture), _requests(1, 2, 30, PAGE, 70)
    oracle = _oracle(requests, target)
    drafter = oracle if drafts == "accepted" else RandomDrafter(VOCABULARY_SIZE, (EOS_ID,))
    decoder = new_decoder(target, drafter, prefill_chunk=7)
    decode(decoder, requests)
    assert (decoder.counters.accepted_nodes > 200) == (drafts == "accepted")
    _check(drafter, architecture)


def test_preempted_and_computed_again() -> None:
    requests = _requests(10, 30, 60, n=3)
    drafter = _oracle(requests, toy_target())
    decoder = new_decoder(toy_target(), drafter, n_pages=5, max_batch=9)
    decode(decoder, requests)
    assert decoder.statistics()["preemptions"] >= 1
    _check(drafter)


@pytest.mark.parametrize("n_cut", [1, PAGE - 20, PAGE - 19, 49])
def test_cached_prefixes_and_forks(n_cut: int) -> None:
    """Children go on from tokens that a parent committed as drafts; what was computed for it is not computed again."""
    parent = request("parent", prompt(20), _LAW)
    truth = _truth([parent], toy_target())
    begun = np.array(truth["parent"][: 20 + n_cut], np.int32)
    children = [replace(parent, candidate_id=f"child-{i}", token_ids=begun, seed=i) for i in range(3)]
    drafter = OracleDrafter({**truth, **{child.candidate_id: () for child in children}}, block=4)
    decoder = new_decoder(toy_target(), drafter)
    decode(decoder, [parent])
    computed = decoder.counters.prefill_tokens
    decode(decoder, children)
    assert decoder.counters.prefill_tokens == computed
    _check(drafter)


def test_step_by_step() -> None:
    """Each step of a search is a request of its own that begins where the last one ended."""
    drafter = RandomDrafter(VOCABULARY_SIZE, (EOS_ID,))
    decoder = new_decoder(toy_target(), drafter)
    token_ids, rule = prompt(20), StepRule((), max_tokens=7)
    for step in range(5):
        requests = [
            replace(request(f"{step}-{i}", token_ids, _LAW, seed=i), prompt_length=20, step=rule) for i in range(3)
        ]
        outcomes = decode(decoder, requests)
        token_ids = np.concatenate([token_ids, np.array(outcomes[f"{step}-1"].tokens, np.int32)])
    assert len(token_ids) == 20 + 5 * 7
    _check(drafter)


def test_what_was_missed_at_rest_is_told_at_once() -> None:
    class Rests:
        """Affords drafts in every fourth pass."""

        affords_learning = True

        def __init__(self) -> None:
            self._passes = cycle([False, False, False, True])
            self.affords_drafts = False

        def book(self, *_: object) -> None:
            self.affords_drafts = next(self._passes)

    requests = _requests(20, 64)
    drafter = _oracle(requests, toy_target())
    decoder = new_decoder(toy_target(), drafter)
    assert decoder._link is not None
    decoder._link.balance = Rests()  # type: ignore[assignment]
    decode(decoder, requests)
    assert decoder.counters.draft_nodes > 0
    _check(drafter)


def test_who_takes_no_drafts_is_told_nothing() -> None:
    drafter = CheckingDrafter()
    plain, drafting = _requests(20)
    decode(new_decoder(toy_target(), drafter), [replace(plain, use_drafts=False), drafting])
    assert list(drafter.told) == [drafting.candidate_id]
    _check(drafter)


@pytest.mark.parametrize("length", [1, 30, 300])
def test_features_of_a_replay_are_those_of_decoding(length: int) -> None:
    """More tokens than one pass takes, and a prompt without positions of its own."""
    requests = _requests(length, n=1)
    drafter = _oracle(requests, toy_target())
    decode(new_decoder(toy_target(), drafter), requests)
    (told,) = drafter.told.values()
    layers, output = drafter.feature_layers, np.array(told.tokens[length:], np.int32)
    features = forced_features(toy_target(), told.start.token_ids, output, layers)
    assert features.shape == (len(told.tokens) - 1, 3 * toy_target().hidden_size)
    torch.testing.assert_close(torch.stack(told.features), features[: len(told.features)], rtol=1e-5, atol=1e-5)


def test_bitwise_features_are_those_of_one_prefill() -> None:
    target = Target(toy_llama(torch.float32), numerics="bitwise")
    requests = _requests(10, 30, 60)
    drafter = _oracle(requests, target)
    decoder = new_decoder(target, drafter, n_pages=5, prefill_chunk=7)
    decode(decoder, requests)
    assert decoder.statistics()["preemptions"] >= 1
    pages = target.new_pages(3, drafter.feature_layers)
    for told in drafter.told.values():
        n = len(told.features)
        target.forward(pack([Entry(np.array(told.tokens[:n], np.int32), 0, [0, 1, 2])]), pages)
        assert torch.equal(torch.stack(told.features), pages.read_features([0, 1, 2], 0, n))
