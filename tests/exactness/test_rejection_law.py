"""Rejection mode keeps the law: joint laws against exact enumeration, greedy equality, processors, independence.

The statistical tests are on fixed seeds; a correct decoder would fail each with probability 1e-3 on another set of seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import AdversarialDrafter, RandomDrafter
from tests.exactness.joint_law import ERROR_RATE, Law, joint_law, p_value, sample
from tests.exactness.processor_matrix import PROCESSOR_MATRIX
from tests.exactness.reference import Outcome, decode_plainly, processed_row
from tests.exactness.sampling_drafter import SamplingDrafter, Slot, Table, constant_table, empty_table, random_table
from tests.toys import EOS_ID, VOCABULARY_SIZE, toy_llama
from tts_orch.config import DrafterName, DraftingConfig, UntrainedName
from tts_orch.engine.laws import TrajectoryLaw
from tts_orch.engine.rejection import verify_by_rejection
from tts_orch.engine.sibling_trials import judge_children
from tts_orch.engine.verification import Walk
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import DecodeRequest, SamplingParams

_PROMPT = prompt(12)
_LIKELY = (20, 35, 50, 65, 80)
"""All that is ever drawn, so that drafts in different places can be the same."""
_DRAFTED_IDS = (*_LIKELY, 90)
_LAW = SamplingParams(temperature=0.9, top_k=5, max_new_tokens=3, logit_bias=tuple((token, 40.0) for token in _LIKELY))
_TWO_TOKEN_LAW = SamplingParams(temperature=20.0, top_k=2, max_new_tokens=3, logit_bias=((20, 40.0), (35, 40.0)))
"""Two tokens, about as likely."""
_UNEVEN_TABLE = constant_table(VOCABULARY_SIZE, _DRAFTED_IDS, (0.3, 0.01, 0.2, 0.2, 0.2, 0.09))
"""Far from the residual law of the two: noise that had drawn a rejected draft would tilt what replaces it."""
_ALL_PROCESSORS = SamplingParams(
    temperature=0.8,
    top_k=5,
    top_p=0.97,
    min_p=0.02,
    repetition_penalty=1.2,
    presence_penalty=0.4,
    frequency_penalty=0.3,
    min_new_tokens=3,
    max_new_tokens=3,
    logit_bias=tuple((token, 3.0) for token in _LIKELY),
)


def _drafter(name: DrafterName) -> Drafter | None:
    config = DraftingConfig(drafter=name, verification="rejection")
    return make_drafter(config, vocabulary_size=VOCABULARY_SIZE)


@cache
def _joint(law: SamplingParams) -> Law:
    return joint_law(_PROMPT, law)


def _fit(
    law: SamplingParams, slots: Sequence[Slot], n: int = 2000, table: Table | None = None, **habits: bool
) -> float:
    joint = _joint(law)
    drafter = SamplingDrafter(table or random_table(VOCABULARY_SIZE, _DRAFTED_IDS), slots, **habits)
    return p_value(sample(drafter, _PROMPT, law, ["scope"] * n), joint)


@pytest.mark.parametrize(
    "slots",
    [
        ("drawn", "drawn", "drawn"),
        ("fixed", "fixed"),
        ("other", "fixed", "drawn"),
    ],
)
def test_three_tokens_have_the_enumerated_law(slots: Sequence[Slot]) -> None:
    assert len(_joint(_LAW)) == 5**3
    assert _fit(_LAW, slots) > ERROR_RATE


def test_three_tokens_have_the_enumerated_law_with_every_processor() -> None:
    assert _fit(_ALL_PROCESSORS, ("drawn", "fixed", "drawn")) > ERROR_RATE


def test_three_tokens_have_the_enumerated_law_with_stand() -> None:
    """Penalties and biases are unknown to its laws, so that there is something to reject."""
    drafter = _drafter("stand")
    assert drafter is not None
    samples = sample(drafter, _PROMPT, _ALL_PROCESSORS, ["scope"] * 2000, max_nodes=3)
    assert p_value(samples, _joint(_ALL_PROCESSORS)) > ERROR_RATE


def test_laws_are_those_of_the_draw_though_the_table_has_changed() -> None:
    assert _fit(_LAW, ("drawn", "drawn"), shifts=True) > ERROR_RATE


def test_the_test_sees_laws_read_again_after_the_draw() -> None:
    assert _fit(_LAW, ("drawn", "drawn"), 500, shifts=True, is_careless=True) < ERROR_RATE


def test_the_test_sees_drafts_of_two_steps_with_one_noise() -> None:
    assert _fit(_LAW, ("drawn",), 3000, repeats_noise=True) < ERROR_RATE


def test_tokens_instead_of_rejected_drafts_have_the_enumerated_law() -> None:
    assert _fit(_TWO_TOKEN_LAW, ("drawn",), table=_UNEVEN_TABLE) > ERROR_RATE


def test_the_test_sees_coins_and_drafts_from_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token that replaces a draft is drawn from the stream of the coins."""
    for module in ("decoder", "drafter_link"):
        monkeypatch.setattr(f"tts_orch.engine.{module}.stream_seed", lambda seed, attempt, purpose: seed)
    assert _fit(_TWO_TOKEN_LAW, ("drawn",), table=_UNEVEN_TABLE) < ERROR_RATE


def test_coins_and_drafts_come_from_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tossed: set[int] = set()

    def watched(walks: Sequence[Walk], logits: torch.Tensor) -> None:
        tossed.update(walk.seed for walk in walks)
        verify_by_rejection(walks, logits)

    monkeypatch.setattr("tts_orch.engine.decoder.verify_by_rejection", watched)
    drafter = SamplingDrafter(random_table(VOCABULARY_SIZE, _DRAFTED_IDS), ("drawn",))
    requests = [request(str(i), _PROMPT, _LAW, seed=i) for i in range(5)]
    decode(new_decoder(toy_target(), drafter, verification="rejection"), requests)
    drawn = {told.start.seed for told in drafter.told.values()}
    assert len(tossed | drawn | set(range(5))) == 3 * 5


def test_no_drawn_tree_is_dropped_where_memory_is_short() -> None:
    """The drafter itself objects to a second tree before the first one was verified."""
    law = replace(_LAW, max_new_tokens=80)
    requests = [request(str(i), prompt(50 + i), law) for i in range(4)]
    drafter = SamplingDrafter(random_table(VOCABULARY_SIZE, _DRAFTED_IDS), ("drawn", "drawn"))
    decoder = new_decoder(toy_target(), drafter, n_pages=5, verification="rejection")
    outcomes = decode(decoder, requests)
    assert decoder.statistics()["preemptions"] > 1
    assert all(len(outcome.tokens) == 80 for outcome in outcomes.values())


@pytest.mark.parametrize("name", ["double", "stand"])
def test_pairs_with_a_shared_table_are_independent(name: str) -> None:
    """The second sample of a pair drafts from what the first one taught; the pair's law must be the product law."""
    law = SamplingParams(temperature=1.0, top_k=3, max_new_tokens=2, logit_bias=((EOS_ID, -1e9),))
    prompt_ids, scopes = prompt(8), [f"pair-{i}" for i in range(2000)]
    double = SamplingDrafter(empty_table(VOCABULARY_SIZE), ("drawn", "drawn"), learns=True)
    drafter = double if name == "double" else _drafter("stand")
    assert drafter is not None
    samples = sample(drafter, prompt_ids, law, scopes + scopes, max_nodes=3)
    pairs = [first + second for first, second in zip(samples[:2000], samples[2000:], strict=True)]
    single = joint_law(prompt_ids, law)
    product = {a + b: single[a] * single[b] for a, b in itertools.product(single, single)}
    assert p_value(pairs, product) > ERROR_RATE


@pytest.mark.parametrize("drafts", [True, False])
def test_attempts_draw_afresh(drafts: bool) -> None:
    """One attempt is a pure function of its seed; the next one shares neither coins nor drafts with it."""

    law = replace(_LAW, temperature=5.0, max_new_tokens=8)

    def run(attempt: int) -> tuple[list[list[int]], list[int]]:
        drafter = SamplingDrafter(random_table(VOCABULARY_SIZE, _DRAFTED_IDS), ("drawn", "fixed"))
        decoder = new_decoder(toy_target(), drafter, verification="rejection")
        requests = [
            replace(request(str(i), _PROMPT, law, seed=i), attempt=attempt, use_drafts=drafts) for i in range(40)
        ]
        outcomes = decode(decoder, requests)
        return [outcome.tokens for outcome in outcomes.values()], [told.start.seed for told in drafter.told.values()]

    first, second = run(0), run(1)
    assert run(0) == first
    assert not any(one == other for one, other in zip(first[0], second[0], strict=True))
    assert not set(first[1]) & ({*second[1], *range(40)})


# Greedy decoding.

_GREEDY = SamplingParams(temperature=0.0, max_new_tokens=16)
_EXTRAS: tuple[dict[str, object], ...] = (
    {},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.5, "frequency_penalty": 0.3, "stop_ids": (11, 12, 13)},
    {"logit_bias": ((EOS_ID, 3.0), (20, -4.0)), "min_new_tokens": 6},
)


@cache
def _greedy() -> list[tuple[DecodeRequest, Outcome]]:
    requests = [
        request(str(i), prompt(n_tokens), replace(_GREEDY, **_EXTRAS[i % 4]))  # type: ignore[arg-type]
        for i, n_tokens in enumerate((1, 2, 5, 9, 17, 30, 64, 71))
    ]
    model, target = toy_llama(), toy_target()
    return [(one, decode_plainly(model, one, (EOS_ID,), target.decode)) for one in requests]


def _greedy_drafter(name: str) -> Drafter | None:
    if name == "random":
        return RandomDrafter(VOCABULARY_SIZE, (EOS_ID, 11, 12))
    if name == "adversarial":
        whole = {one.candidate_id: [*one.token_ids.tolist(), *outcome.tokens] for one, outcome in _greedy()}
        return AdversarialDrafter(whole, VOCABULARY_SIZE)
    if name == "sampling":
        return SamplingDrafter(empty_table(VOCABULARY_SIZE), ("drawn", "fixed", "drawn"), learns=True)
    return _drafter(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_batch", [1, 3, 8])
@pytest.mark.parametrize("name", ["none", *get_args(UntrainedName), "random", "adversarial", "sampling"])
def test_greedy_tokens_equal_plain_decoding(name: str, max_batch: int) -> None:
    drafter = _greedy_drafter(name)
    decoder = new_decoder(toy_target(), drafter, max_batch=max_batch, verification="rejection")
    outcomes = decode(decoder, [one for one, _ in _greedy()])
    for one, expected in _greedy():
        outcome = outcomes[one.candidate_id]
        assert (outcome.tokens, outcome.reason) == (expected.tokens, expected.reason), one.candidate_id
        assert outcome.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


# Processors.

_COMMITTED = [9, 12]
_DRAFTED = [12, 50, 9]


def _matrix_walk(case: int) -> Walk:
    """Return the walk of a case of the matrix along a chain, after two committed tokens."""
    law = TrajectoryLaw(PROCESSOR_MATRIX[case], (EOS_ID,), _PROMPT.tolist(), VOCABULARY_SIZE)
    law.commit(_COMMITTED)
    return Walk(DraftTree.chain(_COMMITTED[-1], _DRAFTED), law, case, len(_PROMPT) + 1, 4 * case)


def test_children_are_judged_by_transformers_own_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """All combinations at once, at every node of a chain, each on the node's own history."""
    walks = [_matrix_walk(case) for case in range(len(PROCESSOR_MATRIX))]
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4 * len(walks), VOCABULARY_SIZE, generator=generator, dtype=torch.float64)
    logits[:, EOS_ID] += 4
    for node, token in enumerate(_DRAFTED):
        logits[node::4, token] += 14
    judged: list[int] = []

    def checked(nodes: Sequence[tuple[DraftTree, int]], weights: torch.Tensor) -> list[NDArray[np.float64]]:
        for (tree, node), row in zip(nodes, weights, strict=True):
            (walk,) = (walk for walk in walks if walk.tree is tree)
            history = [*_PROMPT.tolist(), *_COMMITTED, *_DRAFTED[:node]]
            wanted = processed_row(logits[walk.first_row + node], history, len(_PROMPT), walk.law.params, (EOS_ID,))
            if walk.law.is_greedy:
                wanted = torch.full_like(wanted, -torch.inf).index_fill(0, wanted.argmax(), 0.0)
            torch.testing.assert_close(row.softmax(-1), wanted.softmax(-1), rtol=1e-6, atol=1e-6)
            judged.append(node)
        return judge_children(nodes, weights)

    monkeypatch.setattr("tts_orch.engine.rejection.judge_children", checked)
    verify_by_rejection(walks, logits)
    assert min(np.bincount(judged, minlength=4)) > len(walks) / 2
