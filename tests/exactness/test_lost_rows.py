"""A row that is no law ends its own trajectory in one line and disturbs nobody."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch

from tests.exactness.decoding import decode, n_free_pages, new_decoder, prompt, request, take, toy_target
from tests.exactness.drafters import AdversarialDrafter
from tests.exactness.reference import Outcome
from tests.exactness.stand_drafter import new_stand
from tests.toys import VOCABULARY_SIZE
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.packing import PackedBatch
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.records import DecodeRequest, FinishReason, SamplingParams

_VICTIM = "70"
_LENGTHS = (5, 17, 30, 70)
"""Prompt lengths; positions from 60 on belong to the last trajectory alone."""
_N_NEW = 20
_FAULTS = {"nan": math.nan, "one nan": math.nan, "-inf": -math.inf, "inf": math.inf}


@dataclass
class _Faulty:
    """A target whose logits at one position are no numbers."""

    target: Any
    position: int
    fault: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def forward(self, batch: PackedBatch, pages: KVPages) -> torch.Tensor:
        logits: torch.Tensor = self.target.forward(batch, pages).clone()
        is_hit = torch.from_numpy(batch.positions[batch.logit_rows] == self.position - 1)
        ids = slice(7, 8) if self.fault == "one nan" else slice(None)
        logits[is_hit, ids] = _FAULTS[self.fault]
        return logits


@cache
def _requests(temperature: float) -> list[DecodeRequest]:
    law = SamplingParams(temperature=temperature, top_p=0.95, max_new_tokens=_N_NEW, min_new_tokens=_N_NEW)
    return [request(str(length), prompt(length), law) for length in _LENGTHS]


@cache
def _expected(temperature: float) -> dict[str, Outcome]:
    return decode(new_decoder(toy_target()), _requests(temperature))


def _drafter(name: str, temperature: float) -> Drafter | None:
    if name == "adversarial":
        expected = _expected(temperature)
        whole = {
            one.candidate_id: [*one.token_ids.tolist(), *expected[one.candidate_id].tokens]
            for one in _requests(temperature)
        }
        return AdversarialDrafter(whole, VOCABULARY_SIZE)
    return new_stand() if name == "stand" else None


def _run(
    requests: Sequence[DecodeRequest], drafter: Drafter | None, position: int = 0, fault: str = "nan"
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Return the outcomes, and the messages of those that have one; all pages must have come back."""
    decoder = new_decoder(_Faulty(toy_target(), position, fault), drafter)  # type: ignore[arg-type]
    for one in requests:
        decoder.submit(one)
    outcomes = {one.candidate_id: Outcome() for one in requests}
    starts = {one.candidate_id: len(one.token_ids) for one in requests}
    messages = {}
    while not decoder.is_idle:
        chunks = decoder.step()
        take(chunks, outcomes, starts)
        messages |= {chunk.candidate_id: chunk.message for chunk in chunks if chunk.message}
    assert n_free_pages(decoder) == 64
    return outcomes, messages


def _ends(outcomes: dict[str, Outcome]) -> dict[str, tuple[list[int], FinishReason | None]]:
    return {name: (outcome.tokens, outcome.reason) for name, outcome in outcomes.items()}


@pytest.mark.parametrize(("fault", "temperature"), zip(_FAULTS, itertools.cycle((0.0, 0.8)), strict=False))
@pytest.mark.parametrize("drafter", ["none", "stand", "adversarial"])
@pytest.mark.parametrize("n_before", [0, 6])
def test_a_row_without_numbers_ends_its_trajectory_alone(
    fault: str, drafter: str, temperature: float, n_before: int
) -> None:
    requests, expected = _requests(temperature), _expected(temperature)
    position = int(_VICTIM) + n_before
    outcomes, messages = _run(requests, _drafter(drafter, temperature), position, fault)
    lost = outcomes.pop(_VICTIM)
    assert (lost.tokens, lost.reason) == (expected[_VICTIM].tokens[:n_before], FinishReason.ERROR)
    assert list(messages) == [_VICTIM]
    assert messages[_VICTIM].startswith(f"the target's logits at position {position} are not numbers")
    assert "\n" not in messages[_VICTIM]
    assert _ends(outcomes) == {name: _ends(expected)[name] for name in outcomes}


def test_a_prompt_row_without_numbers_is_not_learned() -> None:
    """Nothing is drawn there, so the trajectory goes on."""
    outcomes, messages = _run(_requests(0.8), _drafter("stand", 0.8), position=65)
    assert not messages
    assert _ends(outcomes) == _ends(_expected(0.8))


def test_a_law_that_excludes_every_token_ends_its_trajectory_alone() -> None:
    requests = list(_requests(0.8))
    nothing = tuple((token, -math.inf) for token in range(VOCABULARY_SIZE))
    requests[0] = replace(requests[0], law=replace(requests[0].law, logit_bias=nothing, min_new_tokens=0))
    outcomes, messages = _run(requests, _drafter("stand", 0.8))
    assert list(messages) == [requests[0].candidate_id]
    assert "excludes every token" in messages[requests[0].candidate_id]
    assert outcomes.pop(requests[0].candidate_id).tokens == []
    assert _ends(outcomes) == {name: _ends(_expected(0.8))[name] for name in outcomes}
