"""A trajectory ends at the right token wherever in an accepted block that is, and nothing after it was ever generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import OracleDrafter, Told
from tests.exactness.reference import Outcome, decode_plainly
from tests.toys import EOS_ID, toy_llama
from tts_orch.engine.decoder import Decoder
from tts_orch.records import ConfidenceCut, DecodeRequest, FinishReason, SamplingParams, StepRule

_BLOCK = 5
"""Draft nodes a step: every step commits six tokens, the bonus token included."""
_N_ENDS = 2 * (_BLOCK + 1)
_N_FREE = _N_ENDS + 12
_FIRST_TEXT_ID = 8
_PLACES = range(_N_ENDS)
"""Every index of the first two blocks."""
_LAWS: dict[str, dict[str, object]] = {
    "keyed": {"temperature": 3.0},
    "rejection": {"temperature": 1e-6, "presence_penalty": 1e3},
}
"""Tokens rarely repeat, and are the same with every coin: rejection mode replays nothing else."""

pytestmark = pytest.mark.parametrize("mode", _LAWS)


def _law(mode: str, **ending: object) -> SamplingParams:
    settings = {**_LAWS[mode], "max_new_tokens": _N_FREE, "logit_bias": ((EOS_ID, -1e9),), **ending}
    return SamplingParams(**settings)  # type: ignore[arg-type]


def _request(mode: str, seed: int, step: StepRule | None = None, **ending: object) -> DecodeRequest:
    return replace(request("cut", prompt(10, seed), _law(mode, **ending), seed=seed), step=step)


def _spanning(tokens: Sequence[int], place: int) -> str:
    """Return a text that begins in the token before `place` and ends inside the token there."""
    text = toy_target().decode
    return (text(tokens[place - 1 : place])[-1] if place else "") + text(tokens[place : place + 1])[0]


def _is_clear(tokens: Sequence[int]) -> bool:
    """Whether every token and every text of `_spanning` first appears at its own place."""
    first = tokens[:_N_ENDS]
    if min(first) < _FIRST_TEXT_ID or len(set(first)) < _N_ENDS:
        return False
    text = toy_target().decode
    return all(_spanning(tokens, place) not in text(tokens[:place]) for place in _PLACES)


@cache
def _free_run(mode: str) -> tuple[int, list[int]]:
    """Return a seed and the tokens it gives when nothing ends the trajectory."""
    model = toy_llama()
    for seed in range(2000):
        start = decode_plainly(model, _request(mode, seed, max_new_tokens=_N_ENDS), (EOS_ID,), toy_target().decode)
        if _is_clear(start.tokens):
            return seed, decode_plainly(model, _request(mode, seed), (EOS_ID,), toy_target().decode).tokens
    raise AssertionError("no seed gives different tokens at all places")


def _run(mode: str, step: StepRule | None = None, **ending: object) -> tuple[Decoder, Outcome, Told]:
    seed, free = _free_run(mode)
    one = _request(mode, seed, step, **ending)
    drafter = OracleDrafter({"cut": [*one.token_ids.tolist(), *free]}, block=_BLOCK)
    decoder = new_decoder(toy_target(), drafter, max_nodes=_BLOCK, verification=mode, node_budget=False)
    outcome = decode(decoder, [one])["cut"]
    return decoder, outcome, drafter.told["cut"]


def _prompt(mode: str) -> list[int]:
    return _request(mode, _free_run(mode)[0]).token_ids.tolist()


def _check(mode: str, place: int, reason: FinishReason, step: StepRule | None = None, **ending: object) -> Decoder:
    decoder, outcome, told = _run(mode, step, **ending)
    kept = _free_run(mode)[1][: place + 1]
    assert (outcome.tokens, outcome.reason) == (kept, reason)
    assert len(outcome.log_probs) == len(outcome.confidences) == len(outcome.self_certainties) == len(kept)
    assert told.tokens == [*_prompt(mode), *kept], "the drafter learned of tokens after the end"
    assert told.is_closed
    counters, n_steps = decoder.counters, -(-(place + 1) // (_BLOCK + 1))
    assert (counters.committed_tokens, counters.verify_steps) == (len(kept), n_steps)
    assert counters.accepted_nodes == sum(len(step.accepted) for step in told.steps) <= len(kept)
    return decoder


@pytest.mark.parametrize("place", _PLACES)
def test_stop_id(mode: str, place: int) -> None:
    _check(mode, place, FinishReason.EOS, stop_ids=(_free_run(mode)[1][place],))


@pytest.mark.parametrize("place", _PLACES)
def test_eos_of_the_target(mode: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_target(), "eos_ids", (_free_run(mode)[1][place],))
    _check(mode, place, FinishReason.EOS)


@pytest.mark.parametrize("place", _PLACES)
def test_stop_string_that_ends_inside_a_token(mode: str, place: int) -> None:
    _check(mode, place, FinishReason.STOP_STRING, stop_strings=("\x00", _spanning(_free_run(mode)[1], place)))


@pytest.mark.parametrize("place", _PLACES)
def test_length_limit(mode: str, place: int) -> None:
    _check(mode, place, FinishReason.LENGTH, max_new_tokens=place + 1)
    told = _run(mode, max_new_tokens=place + 1)[2]
    positions = np.cumsum([0, *(len(step.committed) for step in told.steps)])
    for committed, step in zip(positions, told.steps, strict=False):
        assert committed + step.tree.depth.max() <= place, "drafts that could never be committed"


@pytest.mark.parametrize("place", _PLACES)
def test_context_limit(mode: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_target(), "max_context", 10 + place + 1)
    _check(mode, place, FinishReason.LENGTH)


@pytest.mark.parametrize("place", _PLACES)
def test_first_rule_wins(mode: str, place: int) -> None:
    """A stop string and a stop id close behind each other; with a limit beyond both."""
    free = _free_run(mode)[1]
    ending = {"stop_strings": (_spanning(free, place + 1),), "stop_ids": (free[place],), "max_new_tokens": place + 3}
    _check(mode, place, FinishReason.EOS, **ending)


def test_minimum_length_moves_the_end(mode: str) -> None:
    """Stop ids are banned below the minimum, so the law itself changes there, and only there."""
    seed, free = _free_run(mode)
    banned = free[3]
    one = _request(mode, seed, stop_ids=(banned,), min_new_tokens=8)
    expected = decode_plainly(toy_llama(), one, (EOS_ID,), toy_target().decode)
    assert expected.tokens[:3] == free[:3]
    assert expected.tokens[3] != banned
    _, outcome, _ = _run(mode, stop_ids=(banned,), min_new_tokens=8)
    assert (outcome.tokens, outcome.reason) == (expected.tokens, expected.reason)


@pytest.mark.parametrize("place", _PLACES)
def test_step_delimiter_that_ends_inside_a_token(mode: str, place: int) -> None:
    _check(mode, place, FinishReason.STEP, StepRule(("\x00", _spanning(_free_run(mode)[1], place))))


@pytest.mark.parametrize("place", _PLACES[2:])
def test_a_delimiter_that_comes_too_early_ends_nothing(mode: str, place: int) -> None:
    delimiters = tuple(_spanning(_free_run(mode)[1], at) for at in (place - 2, place))
    _check(mode, place, FinishReason.STEP, StepRule(delimiters, min_tokens=place))


@pytest.mark.parametrize("place", _PLACES)
def test_longest_step(mode: str, place: int) -> None:
    rule = StepRule((), max_tokens=place + 1)
    _check(mode, place, FinishReason.STEP_LENGTH, rule)
    told = _run(mode, rule)[2]
    positions = np.cumsum([0, *(len(step.committed) for step in told.steps)])
    for committed, step in zip(positions, told.steps, strict=False):
        assert committed + step.tree.depth.max() <= place, "drafts that could never be committed"


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_lost_confidence(mode: str, window: int) -> None:
    """Whichever mean is the lowest so far, a threshold just above it cuts there."""
    means = np.convolve(_run(mode)[1].confidences[:_N_ENDS], np.ones(window) / window, "valid")
    lowest = [place for place in range(len(means)) if means[place] < min(means[:place], default=np.inf) - 1e-4]
    for place in lowest:
        rule = StepRule((), confidence=ConfidenceCut(window, float(means[place]) + 1e-5))
        _check(mode, place + window - 1, FinishReason.LOW_CONFIDENCE, rule)
    assert any((place + window) % (_BLOCK + 1) for place in lowest), "every cut was at the end of a block"


@pytest.mark.parametrize("place", _PLACES)
def test_ends_of_a_solution_come_before_ends_of_a_step(mode: str, place: int) -> None:
    free = _free_run(mode)[1]
    rule = StepRule((_spanning(free, place),), confidence=ConfidenceCut(place + 1, 1e9))
    _check(mode, place, FinishReason.EOS, rule, stop_ids=(free[place],))
    _check(mode, place, FinishReason.STOP_STRING, rule, stop_strings=rule.delimiters)
    _check(mode, place, FinishReason.LENGTH, rule, max_new_tokens=place + 1)


@pytest.mark.parametrize("place", _PLACES)
def test_what_follows_a_step_needs_no_prefill(mode: str, place: int) -> None:
    seed, free = _free_run(mode)
    decoder = _check(mode, place, FinishReason.STEP_LENGTH, StepRule((), max_tokens=place + 1))
    before = decoder.counters.prefill_tokens
    one = _request(mode, seed)
    prefix = np.concatenate([one.token_ids, np.array(free[: place + 1], np.int32)])
    children = [replace(one, candidate_id=f"child {i}", token_ids=prefix, use_drafts=False) for i in range(3)]
    for outcome in decode(decoder, children).values():
        assert outcome.tokens == free[place + 1 :]
    assert decoder.counters.prefill_tokens == before
