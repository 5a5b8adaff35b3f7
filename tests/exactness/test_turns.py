"""Halves that are verified in turn while a drafter works elsewhere: the same tokens, and drafts that were ready in time."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import AdversarialDrafter, CheckingDrafter, Continuations
from tests.exactness.joint_law import ERROR_RATE, joint_law, p_value
from tests.toys import EOS_ID, VOCABULARY_SIZE
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.packing import PackedBatch
from tts_orch.policies.drafting.draft_tree import DraftTree, SlotSource, TrajectoryId, VerifiedStep
from tts_orch.records import DecodeRequest, SamplingParams

_LAW = SamplingParams(temperature=0.8, max_new_tokens=30, logit_bias=((EOS_ID, -3.0),))
_N_NODES = 12

logger = logging.getLogger(__name__)


class FarDrafter(AdversarialDrafter):
    """Draws trees in a thread of its own, one request after the other.

    Args:
        continuations: what a plain run gave.
        seconds: what a request takes for each trajectory.
    """

    def __init__(self, continuations: Continuations, seconds: float = 0.0) -> None:
        super().__init__(continuations, VOCABULARY_SIZE)
        self._thread = ThreadPoolExecutor(1)
        self._seconds = seconds
        self._pending: dict[TrajectoryId, Future[DraftTree]] = {}
        self.events: list[tuple[str, tuple[TrajectoryId, ...]]] = []

    def request(self, trajectories: Sequence[TrajectoryId]) -> None:
        super().slots(trajectories)  # checks what was told
        assert not set(trajectories) & set(self._pending), "asked twice"
        self.events.append(("asked", tuple(trajectories)))
        work = self._thread.submit(time.sleep, self._seconds * len(trajectories))
        for name in trajectories:
            tokens = list(self.told[name].tokens)
            self._pending[name] = self._thread.submit(self._drawn, work, name, tokens)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
        unasked = [name for name in trajectories if name not in self._pending]
        if unasked:
            self.request(unasked)
        return super().slots(trajectories)

    def _drawn(self, work: Future[None], name: TrajectoryId, tokens: list[int]) -> DraftTree:
        work.result()
        return super().tree(name, tokens, _N_NODES)

    def tree(self, trajectory: TrajectoryId, tokens: list[int], n_nodes: int) -> DraftTree:
        tree = self._pending.pop(trajectory).result()
        return tree.subtree(np.arange(tree.n_nodes) <= n_nodes)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        self.events.append(("verified", tuple(step.trajectory for step in steps)))
        for step in steps:
            self._pending.pop(step.trajectory, None)  # void where drafting rested
        super().observe(steps)

    def close(self, trajectory: TrajectoryId) -> None:
        self._pending.pop(trajectory, None)
        super().close(trajectory)


@dataclass
class _Slow:
    """A target that takes some time more for each trajectory of a pass."""

    target: Any
    seconds: float

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def forward(self, batch: PackedBatch, pages: KVPages) -> torch.Tensor:
        time.sleep(self.seconds * (len(batch.entry_start) - 1))
        return self.target.forward(batch, pages)  # type: ignore[no-any-return]


def _requests(n: int = 7) -> list[DecodeRequest]:
    return [request(str(i), prompt(5 + 9 * i), _LAW) for i in range(n)]


def _truth(requests: Sequence[DecodeRequest]) -> dict[TrajectoryId, list[int]]:
    outcomes = decode(new_decoder(toy_target()), requests)
    return {one.candidate_id: [*one.token_ids.tolist(), *outcomes[one.candidate_id].tokens] for one in requests}


def _overlapping(drafter: CheckingDrafter, target: Any = None, **settings: object) -> Decoder:
    """Return a decoder whose trajectories take turns; settings would ask for a pool."""
    decoder = new_decoder(target or toy_target(), drafter, **settings)
    decoder._overlaps = True
    return decoder


def _whole(requests: Sequence[DecodeRequest], decoder: Decoder, **options: Any) -> dict[TrajectoryId, list[int]]:
    outcomes = decode(decoder, requests, **options)
    return {one.candidate_id: [*one.token_ids.tolist(), *outcomes[one.candidate_id].tokens] for one in requests}


@pytest.mark.parametrize("n_requests", [1, 2, 7])
@pytest.mark.parametrize(
    "settings", [{}, {"n_pages": 5, "max_batch": 9}, {"max_batch": 8, "node_budget": False}], ids=str
)
def test_tokens_are_the_same_in_turns(n_requests: int, settings: dict[str, Any]) -> None:
    requests = _requests(n_requests)
    truth = _truth(requests)
    drafter = FarDrafter(truth)
    decoder = _overlapping(drafter, **settings)
    assert _whole(requests, decoder) == truth
    assert decoder.counters.accepted_nodes >= 20
    assert all(told.is_closed for told in drafter.told.values())


def test_one_half_is_asked_for_before_the_other_is_verified() -> None:
    law = SamplingParams(temperature=0.8, max_new_tokens=30, logit_bias=((EOS_ID, -1e9),))
    requests = [request(str(i), prompt(10), law) for i in range(4)]
    drafter = FarDrafter(_truth(requests))
    decode(_overlapping(drafter), requests)
    first, second = ("0", "1"), ("2", "3")
    assert drafter.events[:7] == [
        ("asked", first),
        ("asked", second),
        ("verified", first),
        ("asked", first),
        ("verified", second),
        ("asked", second),
        ("verified", first),
    ]


def test_drafters_that_are_not_asynchronous_take_no_turns() -> None:
    requests = _requests(4)
    truth = _truth(requests)
    decoders = [_overlapping(AdversarialDrafter(truth, VOCABULARY_SIZE)) for _ in range(2)]
    decoders[1]._overlaps = False
    assert [_whole(requests, decoder) for decoder in decoders] == [truth, truth]
    assert decoders[0].counters.passes == decoders[1].counters.passes


def test_resting_makes_what_was_asked_for_void() -> None:
    class Rests:
        affords_learning = True

        def __init__(self) -> None:
            self._passes = cycle([True, True, False, False, True])
            self.affords_drafts = True

        def book(self, *_: object) -> None:
            self.affords_drafts = next(self._passes)

    requests = _requests()
    truth = _truth(requests)
    decoder = _overlapping(FarDrafter(truth), max_batch=8)
    assert decoder._link is not None
    decoder._link.balance = Rests()  # type: ignore[assignment]
    assert _whole(requests, decoder) == truth


@pytest.mark.parametrize("step", [4, 5, 6, 7])
def test_cancelled_while_drafts_are_on_their_way(step: int) -> None:
    requests = _requests(4)
    truth = _truth(requests)
    decoder = _overlapping(FarDrafter(truth))
    whole = _whole(requests, decoder, before_step=lambda now: decoder.cancel("1") if now == step else None)
    cancelled = whole.pop("1")
    assert cancelled == truth.pop("1")[: len(cancelled)]
    assert whole == truth


def test_rejection_keeps_the_law_in_turns() -> None:
    law = SamplingParams(temperature=1.0, top_k=5, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),))
    prompt_ids = prompt(10)
    requests = [request(str(i), prompt_ids, law, seed=i) for i in range(2000)]
    truth = {one.candidate_id: [*prompt_ids.tolist(), 20, 35, 50] for one in requests}
    decoder = _overlapping(FarDrafter(truth), n_pages=160, max_batch=32, node_budget=False, verification="rejection")
    outcomes = decode(decoder, requests)
    samples = [tuple(outcomes[one.candidate_id].tokens) for one in requests]
    assert p_value(samples, joint_law(prompt_ids, law)) > ERROR_RATE


def test_time_of_drafting_is_hidden() -> None:
    """Shown (`--log-level INFO -o log_cli=true`), not asserted: a trajectory takes as long in a pass as its drafts."""
    requests = _requests(8)
    truth = _truth(requests)
    for overlaps in (False, True):
        decoder = _overlapping(FarDrafter(truth, 0.004), _Slow(toy_target(), 0.004), max_batch=8)
        decoder._overlaps = overlaps
        assert _whole(requests, decoder) == truth
        counters = decoder.counters
        logger.info("overlap %s: passes %.2f s, drafts %.2f s", overlaps, counters.forward_s, counters.draft_s)
