"""The engine's sampling law against transformers' own logits processors, on every node's own history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import RandomDrafter
from tests.exactness.processor_matrix import PROCESSOR_MATRIX
from tests.exactness.reference import decode_plainly, processed_row
from tests.strategies import sampling_params
from tests.toys import EOS_ID, VOCABULARY_SIZE, toy_llama
from tts_orch.engine.laws import TrajectoryLaw, process
from tts_orch.records import SamplingParams

_PROMPT = (5, 9, 9, 30, 41)
_STOP_IDS = (EOS_ID, 7)
_HISTORIES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((9, 12), ()),
    ((9, 12), (12, 50, 9)),
    ((), (30,)),
)
"""Committed output and draft tokens above a node."""


def _logits(seed: int, spread: float = 2.0) -> torch.Tensor:
    return spread * torch.randn(VOCABULARY_SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _law(params: SamplingParams, output: Sequence[int]) -> TrajectoryLaw:
    law = TrajectoryLaw(params, (*_STOP_IDS, *params.stop_ids), _PROMPT, VOCABULARY_SIZE)
    law.commit(output)
    return law


_TOLERANCE = 1e-6
"""transformers adds biases in float32."""


def _check(row: torch.Tensor, logits: torch.Tensor, params: SamplingParams, history: Sequence[int]) -> None:
    stop_ids = (*_STOP_IDS, *params.stop_ids)
    expected = processed_row(logits, [*_PROMPT, *history], len(_PROMPT), params, stop_ids)
    if params.temperature == 0:
        assert int(row.argmax()) == int(expected.argmax())
        assert int((row > -torch.inf).sum()) == 1
    else:
        assert torch.equal(row > -torch.inf, expected > -torch.inf)
        torch.testing.assert_close(row.softmax(-1), expected.softmax(-1), rtol=_TOLERANCE, atol=_TOLERANCE)


def test_matrix_of_processors_at_tree_nodes() -> None:
    """All combinations in one call each, every row with another law and another history."""
    laws, paths, rows = [], [], []
    for params in PROCESSOR_MATRIX:
        for output, path in _HISTORIES:
            laws.append(_law(params, output))
            paths.append(path)
            rows.append((params, (*output, *path)))
    logits = torch.stack([_logits(i) for i in range(len(rows))])
    processed = process(logits, laws, paths)
    for row, raw, (params, history) in zip(processed, logits, rows, strict=True):
        _check(row, raw, params, history)


@settings(max_examples=150, deadline=None)
@given(
    params=sampling_params(VOCABULARY_SIZE),
    output=st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=6),
    path=st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=6),
    seed=st.integers(0, 2**16),
    spread=st.sampled_from([0.1, 2.0, 10.0]),
)
def test_any_law_at_any_node(
    params: SamplingParams, output: list[int], path: list[int], seed: int, spread: float
) -> None:
    logits = _logits(seed, spread)
    row = process(logits[None], [_law(params, output)], [path])[0]
    _check(row, logits, params, [*output, *path])


def test_float32_rows_follow_the_same_law() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, repetition_penalty=1.2)
    logits = _logits(0)
    row = process(logits.float()[None], [_law(params, [9])], [[12]])[0]
    expected = processed_row(logits.float(), [*_PROMPT, 9, 12], len(_PROMPT), params, _STOP_IDS)
    assert row.dtype == torch.float32
    torch.testing.assert_close(row.softmax(-1), expected.softmax(-1), rtol=1e-5, atol=1e-7)


def test_raw_logits_are_left_alone() -> None:
    """Log-probabilities and statistics are read from them afterwards."""
    logits = _logits(1)[None]
    before = logits.clone()
    params = SamplingParams(temperature=0.5, top_k=3, presence_penalty=1.0, logit_bias=((4, 1.0),), min_new_tokens=3)
    process(logits, [_law(params, [9])], [[4]])
    assert torch.equal(logits, before)


@pytest.mark.parametrize("case", range(8))
def test_random_laws_through_trees_of_the_decoder(case: int) -> None:
    """The decoder's own use of the laws: history of the node, position in the output, one law a trajectory."""
    random = np.random.default_rng(case)
    laws = [
        SamplingParams(
            temperature=float(random.choice([0.0, 0.7, 1.3])),
            top_k=int(random.choice([0, 6])),
            top_p=float(random.choice([1.0, 0.8])),
            min_p=float(random.choice([0.0, 0.05])),
            repetition_penalty=float(random.choice([1.0, 1.5])),
            presence_penalty=float(random.choice([0.0, 1.0])),
            frequency_penalty=float(random.choice([0.0, 0.8])),
            min_new_tokens=int(random.choice([0, 8])),
            max_new_tokens=14,
            logit_bias=((EOS_ID, 2.0),),
        )
        for _ in range(4)
    ]
    requests = [request(f"{case}-{i}", prompt(6 + i), law) for i, law in enumerate(laws)]
    drafter = RandomDrafter(12, (EOS_ID,), seed=case)
    outcomes = decode(new_decoder(toy_target(), drafter, max_nodes=40), requests)
    for one in requests:
        expected = decode_plainly(toy_llama(), one, (EOS_ID,), toy_target().decode)
        assert (outcomes[one.candidate_id].tokens, outcomes[one.candidate_id].reason) == (
            expected.tokens,
            expected.reason,
        )
