"""What a drafter learns: the law of every verified position once, whatever happened to the trajectory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.exactness.decoding import decode, new_decoder, prompt, resumed, take, toy_target
from tests.exactness.drafters import CheckingDrafter, OracleDrafter
from tests.exactness.reference import Outcome
from tests.exactness.stand_drafter import new_stand
from tests.toys import EOS_ID, toy_llama
from tts_orch.engine.decoder import Decoder
from tts_orch.policies.drafting.context_delta import KEPT, ORDERS, PROBABILITY_ONE
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.law_rows import TEXT_SHARE
from tts_orch.policies.drafting.ngram_entries import LEAST_SHARE
from tts_orch.policies.drafting.ngram_kernels import SUMS, context_key, entry_span, find_entry
from tts_orch.records import DecodeRequest, SamplingParams

_LAW = SamplingParams(temperature=0.8, max_new_tokens=24, logit_bias=((EOS_ID, -5.0),))

Positions = Counter[tuple[int, ...]]
"""Laws learned, by the tokens they come after."""


def _new_decoder(drafter: Drafter, **settings: int) -> Decoder:
    """Return one whose drafter always learns: with a node budget that may rest, on a busy machine."""
    return new_decoder(toy_target(), drafter, node_budget=False, **settings)


def _learned(drafter: CheckingDrafter) -> Positions:
    """Return after which tokens laws were learned, and how often each."""
    learned: Positions = Counter()
    for told in drafter.told.values():
        learned.update(tuple(told.tokens[: row + 1]) for row in told.prompt_rows)
        end = len(told.start.token_ids)
        for step in told.steps:
            learned.update(tuple(told.tokens[: end + i]) for i in range(len(step.committed)))
            end += len(step.committed)
    return learned


def _verified(requests: Sequence[DecodeRequest], outcomes: dict[str, Outcome], first_output: int = 0) -> Positions:
    """Return what must be learned: prompt positions once, output positions once a trajectory.

    Args:
        first_output: output positions before this one are somebody else's.
    """
    wanted: Positions = Counter()
    prompts = {tuple(one.token_ids[: one.prompt_length].tolist()) for one in requests}
    for ids in prompts:
        wanted.update(ids[:n] for n in range(1, len(ids)))
    for one in requests:
        tokens = (*one.token_ids[: one.prompt_length].tolist(), *outcomes[one.candidate_id].tokens)
        wanted.update(tokens[:n] for n in range(one.prompt_length + first_output, len(tokens)))
    return wanted


def _oracle(requests: Sequence[DecodeRequest], block: int = 5) -> OracleDrafter:
    outcomes = decode(new_decoder(toy_target()), requests)
    whole = {one.candidate_id: [*one.token_ids.tolist(), *outcomes[one.candidate_id].tokens] for one in requests}
    return OracleDrafter(whole, block)


def _requests(length: int, n: int, scope: str = "scope") -> list[DecodeRequest]:
    return [
        DecodeRequest(f"{scope}-{length}-{i}", prompt(length), length, seed=7 * i + length, law=_LAW, scope=scope)
        for i in range(n)
    ]


@pytest.mark.parametrize("chunk", [1, 7, 256])
@pytest.mark.parametrize("length", [1, 2, 30, 70])
@pytest.mark.parametrize("prompt_laws", [True, False])
def test_every_position_counts_once(length: int, chunk: int, prompt_laws: bool) -> None:
    requests = _requests(length, n=3)
    drafter = _oracle(requests)
    drafter.learns_prompt_laws = prompt_laws
    outcomes = decode(_new_decoder(drafter, prefill_chunk=chunk), requests)
    assert _learned(drafter) == _verified(requests, outcomes)


def test_preemption_counts_nothing_twice() -> None:
    """The older trajectory takes the younger one's pages, so that all its positions are computed again."""
    older, younger = _requests(30, n=1)[0], _requests(60, n=1)[0]
    requests = [
        replace(older, law=replace(_LAW, max_new_tokens=260)),
        replace(younger, law=replace(_LAW, max_new_tokens=200)),
    ]
    drafter = _oracle(requests, block=1)
    decoder = _new_decoder(drafter, n_pages=7)
    outcomes = decode(decoder, requests)
    assert decoder.statistics()["preemptions"] == 1
    assert decoder.counters.prefill_tokens > 29 + 59, "nothing had to be computed again"
    assert _learned(drafter) == _verified(requests, outcomes)


def test_positions_received_before_a_resume_are_somebody_elses() -> None:
    requests = _requests(20, n=2)
    first, second = _oracle(requests), _oracle(requests)
    decoder = _new_decoder(first)
    outcomes = {one.candidate_id: Outcome() for one in requests}
    for one in requests:
        decoder.submit(one)
    while len(outcomes[requests[0].candidate_id].tokens) < 9:
        take(decoder.step(), outcomes, {one.candidate_id: 20 for one in requests})
    later = [resumed(one, outcomes[one.candidate_id]) for one in requests]
    for name, outcome in decode(_new_decoder(second), later).items():
        outcomes[name].tokens += outcome.tokens
    assert _learned(first) + _learned(second) == _verified(requests, outcomes)


@pytest.mark.parametrize("prompt_laws", [True, False])
def test_forks_of_one_prompt_teach_their_own_tokens(prompt_laws: bool) -> None:
    """Prefixes that nobody has counted yet: the prompt counts once, what they do not share counts for each."""
    first, second = (
        DecodeRequest(f"fork-{n}", np.concatenate([prompt(20), prompt(n)]), 20, n, _LAW, "scope") for n in (11, 5)
    )
    drafter = CheckingDrafter()
    drafter.learns_prompt_laws = prompt_laws
    decoder = _new_decoder(drafter)
    decode(decoder, [first])
    outcomes = decode(decoder, [second])
    tokens = (*second.token_ids.tolist(), *outcomes["fork-5"].tokens)
    learned = _learned(drafter)
    assert all(learned[tokens[:n]] == 1 for n in range(1, 20))
    assert prompt_laws or learned[tokens[:20]] == 2  # what follows the prompt is each one's own
    assert all(learned[tokens[:n]] == 1 for n in range(21, len(tokens)))


def test_each_scope_learns_its_prompts() -> None:
    """The second scope finds the keys of the prompt computed; what it recomputes of the laws it may learn, but once."""
    drafter = CheckingDrafter()
    decoder = _new_decoder(drafter)
    requests = _requests(20, 2, "first") + _requests(20, 2, "second")
    outcomes = decode(decoder, requests)
    learned, wanted = _learned(drafter), _verified(requests, outcomes)
    outputs = {context for context in wanted if len(context) >= 20}
    assert all(learned[context] == wanted[context] for context in outputs)
    assert all(1 <= learned[context] <= 2 for context in set(wanted) - outputs)
    assert set(learned) == set(wanted)


def test_each_scope_learns_the_text_of_its_prompts() -> None:
    drafter = CheckingDrafter()
    drafter.learns_prompt_laws = False
    decoder = _new_decoder(drafter)
    requests = _requests(20, 2, "first") + _requests(20, 2, "second")
    outcomes = decode(decoder, requests)
    learned = _learned(drafter)
    assert all(learned[tuple(prompt(20)[:n].tolist())] == 2 for n in range(1, 20))
    assert set(learned) == set(_verified(requests, outcomes))


def test_text_costs_no_row_of_the_head() -> None:
    """A prompt that is learned by its text has no logits, one that is learned by its laws has them."""
    for prompt_laws in (True, False):
        drafter = CheckingDrafter()
        drafter.learns_prompt_laws = prompt_laws
        decoder = _new_decoder(drafter)
        decoder.submit(_requests(20, 1)[0])
        (plan,) = [decoder._admission.admit(), decoder._plan()][1]
        assert plan.entry.first_logit == (0 if prompt_laws else 19)


def test_plain_requests_teach_nothing() -> None:
    drafter = CheckingDrafter()
    requests = [replace(_requests(20, 2)[0], use_drafts=False)]
    decode(_new_decoder(drafter), requests)
    assert not drafter.told


def test_a_cancelled_trajectory_keeps_what_it_taught() -> None:
    requests = _requests(20, n=2)
    drafter = CheckingDrafter()
    decoder = _new_decoder(drafter)
    victim = requests[0].candidate_id
    outcomes = decode(decoder, requests, before_step=lambda step: decoder.cancel(victim) if step == 6 else None)
    assert len(outcomes[victim].tokens) == 5
    assert drafter.told[victim].is_closed
    assert _learned(drafter) == _verified(requests, outcomes)


def test_closing_a_scope_reaches_the_drafter() -> None:
    drafter = CheckingDrafter()
    decoder = _new_decoder(drafter)
    decode(decoder, _requests(20, 1))
    decoder.close_scope("scope")
    assert drafter.closed_scopes == ["scope"]


def _context_keys(tokens: Sequence[int]) -> list[int]:
    """Return the keys of all contexts that end with the last token."""
    keys, key = [], np.uint64(0)
    for order, token in enumerate(tokens[: -ORDERS - 1 : -1], start=1):
        key = np.uint64(context_key(key, token, order))
        keys.append(int(key))
    return keys


@pytest.mark.parametrize("prefill", ["laws", "text"])
def test_table_holds_the_sum_of_the_laws_after_every_context(prefill: str) -> None:
    """STAND's table after known commits: counts are exact, sums are those of the stock model's laws up to rounding."""
    requests = _requests(30, n=3)
    drafter = new_stand(update_from_rejected=False, update_from_prefill=prefill)
    decoder = _new_decoder(drafter)
    outcomes = decode(decoder, requests)
    counts: Counter[int] = Counter()
    mass: Counter[int] = Counter()
    laws = _raw_laws(requests, outcomes)
    for context, n_times in _verified(requests, outcomes).items():
        for key in _context_keys(context):
            counts[key] += n_times
            mass[key] += n_times * (TEXT_SHARE if prefill == "text" and len(context) < 30 else laws[context])
    columns, salt = drafter.table.columns, drafter.table.open("scope")
    assert drafter.table.size == len(counts)
    for key, n_times in counts.items():
        entry = find_entry(columns, np.uint64(key) ^ salt)
        count, start, n_ids = entry_span(columns, entry)
        assert count == n_times
        if n_ids < KEPT:  # nothing was dropped but ids whose share is not worth keeping
            lost = mass[key] * PROBABILITY_ONE - float(columns[SUMS][start : start + n_ids].sum())
            assert -20 * n_times <= lost <= 20 * n_times * LEAST_SHARE


def _raw_laws(requests: Sequence[DecodeRequest], outcomes: dict[str, Outcome]) -> dict[tuple[int, ...], float]:
    """Return the mass of the 20 most probable tokens after every context, by the stock model."""
    model, laws = toy_llama(), {}
    for one in requests:
        tokens = [*one.token_ids.tolist(), *outcomes[one.candidate_id].tokens]
        probabilities = model(torch.tensor([tokens])).logits[0].softmax(-1)
        top = probabilities.sort(descending=True).values[:, :20].sum(-1)
        laws |= {tuple(tokens[: n + 1]): float(top[n]) for n in range(len(tokens))}
    return laws
