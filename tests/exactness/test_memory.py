"""Memory decides who runs when, never what comes out: preemption, sharing, forks, cancellation, chunks of the prefill."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.exactness.decoding import decode, n_free_pages, new_decoder, prompt, request, resumed, take, toy_target
from tests.exactness.drafters import AdversarialDrafter, RandomDrafter
from tests.exactness.reference import Outcome, decode_plainly
from tests.exactness.stand_drafter import new_stand
from tests.toys import EOS_ID, VOCABULARY_SIZE, toy_llama
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.packing import PAGE, PackedBatch
from tts_orch.errors import ProblemError
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.records import DecodeRequest, FinishReason, SamplingParams

_LAW = SamplingParams(temperature=0.8, max_new_tokens=50, logit_bias=((EOS_ID, -3.0),))
_DRAFTERS = ("none", "stand", "random", "adversarial")


def _requests(*lengths: int, n: int = 1, law: SamplingParams = _LAW) -> list[DecodeRequest]:
    return [request(f"{length}-{i}", prompt(length), law) for length in lengths for i in range(n)]


@cache
def _alone(name: str, length: int, law: SamplingParams) -> Outcome:
    """Return what a trajectory gives by itself, without drafts and with all the memory it wants."""
    one = request(name, prompt(length), law)
    return decode(new_decoder(toy_target(), max_batch=1, prefill_chunk=1024), [one])[name]


def _expected(requests: Sequence[DecodeRequest]) -> dict[str, Outcome]:
    return {one.candidate_id: _alone(one.candidate_id, one.prompt_length, one.law) for one in requests}


def _drafter(name: str, requests: Sequence[DecodeRequest]) -> Drafter | None:
    if name == "random":
        return RandomDrafter(VOCABULARY_SIZE, (EOS_ID,))
    if name == "adversarial":
        expected = _expected(requests)
        whole = {one.candidate_id: [*one.token_ids.tolist(), *expected[one.candidate_id].tokens] for one in requests}
        return AdversarialDrafter(whole, VOCABULARY_SIZE)
    return new_stand() if name == "stand" else None


@dataclass
class _Watched:
    """A target that lets no pass write where somebody else may read."""

    target: Any
    decoder: Decoder | None = None
    n_passes: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def forward(self, batch: PackedBatch, pages: KVPages) -> torch.Tensor:
        assert self.decoder is not None
        slots = self.decoder._admission._slots
        writers: dict[int, set[int]] = {}
        for entry, (first, end) in enumerate(zip(batch.entry_start[:-1], batch.entry_start[1:], strict=True)):
            for page in set(batch.write_page[first:end].tolist()):
                writers.setdefault(page, set()).add(entry)
                assert page not in slots._cached, "a pass writes to a shared page"
                assert slots._users[page] == 1, "a pass writes to a page with other readers, or with none"
            read = batch.page_table[entry][batch.page_table[entry] >= 0]
            assert (slots._users[read] > 0).all(), "a pass reads a page that was given back"
        assert all(len(entries) == 1 for entries in writers.values())
        self.n_passes += 1
        return self.target.forward(batch, pages)  # type: ignore[no-any-return]


def _watched_decoder(drafter: Drafter | None, **settings: Any) -> Decoder:
    watched = _Watched(toy_target())
    decoder = watched.decoder = new_decoder(watched, drafter, **settings)  # type: ignore[arg-type]
    return decoder


def _check(decoder: Decoder, outcomes: dict[str, Outcome], requests: Sequence[DecodeRequest]) -> None:
    for name, expected in _expected(requests).items():
        assert (outcomes[name].tokens, outcomes[name].reason) == (expected.tokens, expected.reason), name
    assert n_free_pages(decoder) == decoder._admission._slots.n_pages, "pages were lost"


def test_the_yardstick_is_plain_decoding() -> None:
    one = _requests(65)[0]
    plain = decode_plainly(toy_llama(), one, (EOS_ID,), toy_target().decode)
    assert _alone("65-0", 65, _LAW).tokens == plain.tokens
    assert len(plain.tokens) == 50


@pytest.mark.parametrize("drafter", _DRAFTERS)
@pytest.mark.parametrize("n_pages", [5, 7])
def test_preemption(drafter: str, n_pages: int) -> None:
    requests = _requests(10, 30, 60, n=2, law=replace(_LAW, max_new_tokens=70))
    decoder = _watched_decoder(_drafter(drafter, requests), n_pages=n_pages, max_batch=9)
    _check(decoder, decode(decoder, requests), requests)
    assert decoder.statistics()["preemptions"] >= 1


@pytest.mark.parametrize("n_pages", [6, 64])
@pytest.mark.parametrize("drafter", _DRAFTERS)
def test_samples_of_one_prompt_share_its_prefill(drafter: str, n_pages: int) -> None:
    requests = [
        DecodeRequest(f"130-{i}", prompt(130), 130, request(f"130-{i}", prompt(130), _LAW).seed, _LAW) for i in range(5)
    ]
    decoder = _watched_decoder(_drafter(drafter, requests), n_pages=n_pages, max_batch=5)
    _check(decoder, decode(decoder, requests), requests)
    if n_pages == 64:
        assert decoder.counters.prefill_tokens == 129
        assert decoder.statistics()["cached_tokens"] == 4 * 129


@pytest.mark.parametrize("length", [1, 2, PAGE - 1, PAGE, PAGE + 1, PAGE + 2, 2 * PAGE, 2 * PAGE + 1])
def test_page_boundaries(length: int) -> None:
    law = replace(_LAW, max_new_tokens=PAGE + 3 if length <= 2 else 8)  # to the next boundary, and over it
    requests = _requests(length, n=2, law=law)
    decoder = _watched_decoder(_drafter("stand", requests))
    _check(decoder, decode(decoder, requests), requests)


@pytest.mark.parametrize("chunk", [1, 3, 64, 1000])
def test_prefill_chunks(chunk: int) -> None:
    requests = _requests(1, 63, 64, 65, 128, law=replace(_LAW, max_new_tokens=20))
    decoder = _watched_decoder(_drafter("stand", requests), prefill_chunk=chunk)
    _check(decoder, decode(decoder, requests), requests)
    longest = 63 + 64 + 65 + 128 - 4
    assert decoder.counters.prefill_tokens <= longest


@pytest.mark.parametrize("n_pages", [7, 64])
@pytest.mark.parametrize("drafter", _DRAFTERS)
def test_cancellation_disturbs_nobody(drafter: str, n_pages: int) -> None:
    requests = _requests(20, 64, 90, n=2)
    random = np.random.default_rng(n_pages)
    victims = {one.candidate_id: int(random.integers(0, 25)) for one in requests[::2]}
    decoder = _watched_decoder(_drafter(drafter, requests), n_pages=n_pages, max_batch=5)

    def cancel(step: int) -> None:
        for name, when in victims.items():
            if when == step:
                decoder.cancel(name)
        decoder.cancel("nobody")

    outcomes = decode(decoder, requests, before_step=cancel)
    for name, expected in _expected(requests).items():
        n = len(outcomes[name].tokens)
        assert outcomes[name].tokens == expected.tokens[:n]
        if outcomes[name].reason is not FinishReason.CANCELLED:
            assert (n, outcomes[name].reason) == (len(expected.tokens), expected.reason)
    cancelled = [one for one in requests if outcomes[one.candidate_id].reason is FinishReason.CANCELLED]
    assert cancelled
    assert {one.candidate_id for one in cancelled} <= set(victims)
    again = decode(decoder, cancelled)
    _check(decoder, outcomes | again, requests)


@pytest.mark.parametrize("n_pages", [6, 64])
@pytest.mark.parametrize("cut", [1, 17, PAGE - 20, PAGE - 19])
def test_forks_go_on_from_any_committed_token(cut: int, n_pages: int) -> None:
    """Children continue a parent's first tokens with seeds of their own, while the parent still runs."""
    parent = _requests(20)[0]
    kept = np.concatenate([parent.token_ids, np.array(_alone("20-0", 20, _LAW).tokens[:cut], np.int32)])
    children = [
        DecodeRequest(f"child-{i}", kept, 20, seed=100 + i, law=_LAW, statistics_from=len(kept) - 1) for i in range(3)
    ]
    expected = {
        one.candidate_id: decode(new_decoder(toy_target()), [one])[one.candidate_id] for one in [parent, *children]
    }
    decoder = _watched_decoder(new_stand(), n_pages=n_pages)
    outcomes = {one.candidate_id: Outcome() for one in [parent, *children]}
    starts = {one.candidate_id: len(one.token_ids) for one in [parent, *children]}
    decoder.submit(parent)
    while len(outcomes[parent.candidate_id].tokens) <= cut:
        take(decoder.step(), outcomes, starts)
    for child in children:
        decoder.submit(child)
    while not decoder.is_idle:
        take(decoder.step(), outcomes, starts)
    for name, outcome in outcomes.items():
        assert (outcome.tokens, outcome.reason) == (expected[name].tokens, expected[name].reason)
    if n_pages == 64:
        assert decoder.statistics()["cached_tokens"] == 19 + 2 * (20 + cut - 1)  # one child computes for all
    assert n_free_pages(decoder) == n_pages


def test_equal_continuations_computed_side_by_side() -> None:
    """Two prompts with a common first page, prefilled in the same passes, and greedy twins that write the same pages."""
    law = SamplingParams(temperature=0.0, max_new_tokens=80)
    first = prompt(100)
    second = first.copy()
    second[-1] = (second[-1] + 1) % VOCABULARY_SIZE
    requests = [
        request(f"{name}-{i}", ids, law) for name, ids in (("first", first), ("second", second)) for i in range(2)
    ]
    alone = {one.candidate_id: decode(new_decoder(toy_target()), [one])[one.candidate_id] for one in requests}
    for n_pages in (6, 12):
        decoder = _watched_decoder(new_stand(), n_pages=n_pages)
        outcomes = decode(decoder, requests)
        assert {name: outcome.tokens for name, outcome in outcomes.items()} == {
            name: outcome.tokens for name, outcome in alone.items()
        }
        assert n_free_pages(decoder) == n_pages


@pytest.mark.parametrize("n_steps", range(3, 9))
def test_a_longer_twin_reads_what_a_shorter_one_left(n_steps: int) -> None:
    """The keys of a trajectory's last token are never computed, whatever drafts stood beside it; nobody may find them."""
    law = SamplingParams(temperature=0.0, max_new_tokens=30)
    longer = decode(new_decoder(toy_target()), [request("longer", prompt(20), law)])["longer"]
    decoder = _watched_decoder(RandomDrafter(VOCABULARY_SIZE, (EOS_ID,)))
    shorter = request("shorter", prompt(20), law)
    left = decode(decoder, [shorter], lambda step: decoder.cancel("shorter") if step == n_steps else None)["shorter"]
    received = longer.tokens[: len(left.tokens) + 2]
    outcome = decode(decoder, [resumed(request("twin", prompt(20), law), Outcome(received))])["twin"]
    assert decoder.statistics()["cached_tokens"] == 20 + len(left.tokens) - 1
    assert outcome.tokens == longer.tokens[len(received) :]
    assert outcome.log_probs == pytest.approx(longer.log_probs[len(received) :], abs=1e-6)


def test_urgent_requests_go_first() -> None:
    requests = [replace(one, priority=priority) for priority, one in enumerate(_requests(5, n=3))][::-1]
    decoder = new_decoder(toy_target(), max_batch=1)
    ended: list[str] = []
    for one in requests:
        decoder.submit(one)
    while not decoder.is_idle:
        ended += [chunk.candidate_id for chunk in decoder.step() if chunk.finish_reason is not None]
    assert ended == ["5-0", "5-1", "5-2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.zeros(0, np.int32), "prompt_length": 0}, "empty"),
        ({"token_ids": np.zeros(2000, np.int32), "prompt_length": 2000}, "at most 1024"),
        ({"law": SamplingParams(max_new_tokens=900)}, "kv_memory_gib"),
        ({"token_ids": np.ones(100, np.int32), "prompt_length": 10}, "max_new_tokens"),
        ({"token_ids": np.array([5, 97], np.int32), "prompt_length": 2}, "no token 97, only 0 to 96"),
        ({"token_ids": np.array([-1, 5], np.int32), "prompt_length": 2}, "no token -1"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    decoder = new_decoder(toy_target(), n_pages=8)
    with pytest.raises(ProblemError, match=message) as caught:
        decoder.submit(replace(_requests(10)[0], **change))
    assert "\n" not in str(caught.value)
    assert decoder.is_idle


@pytest.mark.parametrize("n_steps", [0, 2])
def test_a_live_id_is_not_given_twice(n_steps: int) -> None:
    """Waiting or running; once it has ended it may come again."""
    one = _requests(10)[0]
    decoder = new_decoder(toy_target())
    decoder.submit(one)
    for _ in range(n_steps):
        decoder.step()
    with pytest.raises(ProblemError, match=r"^10-0: .* id of its own$"):
        decoder.submit(one)
    while not decoder.is_idle:
        decoder.step()
    assert decode(decoder, [one])["10-0"].tokens == _expected([one])["10-0"].tokens


def test_plain_decoding_keeps_no_room_for_drafts() -> None:
    """Two pages hold the trajectory; the four that its drafts would need are not there."""
    one = _requests(70)[0]
    outcome = decode(new_decoder(toy_target(), None, n_pages=3, max_nodes=255), [one])["70-0"]
    assert outcome.tokens == _expected([one])["70-0"].tokens
    with pytest.raises(ProblemError, match="kv_memory_gib"):
        new_decoder(toy_target(), new_stand(), n_pages=3, max_nodes=255).submit(one)


@dataclass
class _Slow:
    """A target whose device is still busy when `forward` returns."""

    target: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def synchronise(self) -> None:
        time.sleep(0.05)


def test_a_pass_lasts_until_the_device_is_done() -> None:
    decoder = new_decoder(_Slow(toy_target()))  # type: ignore[arg-type]
    decode(decoder, _requests(2, law=replace(_LAW, max_new_tokens=2)))
    assert decoder.counters.forward_s >= 0.05 * decoder.counters.passes > 0
