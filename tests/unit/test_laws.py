"""The sampling law against transformers' processors, row by row; what a row gives must not depend on its neighbours."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import logits_process as oracle

from tts_orch.engine.laws import TrajectoryLaw, draw, process
from tts_orch.errors import ConfigError
from tts_orch.records import SamplingParams

INF = float("inf")


def law_of(
    params: SamplingParams,
    *,
    n_vocabulary: int,
    stop_ids: Sequence[int] = (),
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> TrajectoryLaw:
    law = TrajectoryLaw(params, stop_ids, prompt, n_vocabulary)
    law.commit(output)
    return law


def random_logits(n_rows: int, n_vocabulary: int, *, seed: int = 0, scale: float = 3.0) -> Tensor:
    return torch.randn(n_rows, n_vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


def expected_law(
    logits: Tensor, params: SamplingParams, stop_ids: Sequence[int], prompt: Sequence[int], output: Sequence[int]
) -> Tensor:
    """The law of one row `[V]` by transformers' processors; presence and frequency written out."""
    scores, ids = logits[None], torch.tensor([[*prompt, *output]])
    if params.logit_bias:
        scores = oracle.SequenceBiasLogitsProcessor([[[i], b] for i, b in params.logit_bias])(ids, scores)
    scores = oracle.RepetitionPenaltyLogitsProcessor(params.repetition_penalty)(ids, scores)
    for token_id, count in Counter(output).items():
        scores[0, token_id] -= params.frequency_penalty * count + params.presence_penalty
    processors = [
        oracle.MinNewTokensLengthLogitsProcessor(len(prompt), params.min_new_tokens, list(stop_ids)),
        oracle.TemperatureLogitsWarper(params.temperature),
    ]
    if params.top_k:
        processors.append(oracle.TopKLogitsWarper(params.top_k))
    processors.append(oracle.TopPLogitsWarper(params.top_p))
    processors.append(oracle.MinPLogitsWarper(params.min_p))
    return oracle.LogitsProcessorList(processors)(ids, scores)[0]


@st.composite
def laws(draw_value: st.DrawFn) -> SamplingParams:
    one_of = lambda *values: draw_value(st.sampled_from(values))  # noqa: E731
    return SamplingParams(
        temperature=one_of(0.3, 0.7, 1.0, 1.7),
        top_k=one_of(0, 1, 5, 70, 500),
        top_p=one_of(0.05, 0.8, 0.95, 1.0),
        min_p=one_of(0.0, 0.02, 0.3),
        repetition_penalty=one_of(1.0, 1.3, 0.8),
        presence_penalty=one_of(0.0, 0.7, -0.5),
        frequency_penalty=one_of(0.0, 0.4),
        min_new_tokens=one_of(0, 4, 6),
        logit_bias=one_of((), ((3, 2.5), (8, -INF))),
    )


@settings(deadline=None, max_examples=100)
@given(params=laws(), seed=st.integers(0, 10**6), n_path=st.integers(0, 3), scale=st.sampled_from([0.5, 4.0]))
def test_the_law_is_that_of_transformers(params: SamplingParams, seed: int, n_path: int, scale: float) -> None:
    n_vocabulary, stop_ids = 200, (0, 7)
    random = np.random.default_rng(seed)
    prompt, output, path = (random.integers(0, 30, n).tolist() for n in (9, 3, n_path))
    logits = random_logits(1, n_vocabulary, seed=seed, scale=scale).double()
    before = logits.clone()
    law = law_of(params, n_vocabulary=n_vocabulary, stop_ids=stop_ids, prompt=prompt, output=output)
    processed = process(logits, [law], [path])
    assert torch.equal(logits, before)
    torch.testing.assert_close(processed[0], expected_law(before[0], params, stop_ids, prompt, [*output, *path]))


def test_committed_tokens_and_a_path_weigh_the_same() -> None:
    params = SamplingParams(repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, min_new_tokens=3)
    logits = random_logits(1, 40)
    ends = [
        process(
            logits,
            [law_of(params, n_vocabulary=40, stop_ids=[1], prompt=[5, 9], output=[2, 5, 2, 11][:n])],
            [[2, 5, 2, 11][n:]],
        )
        for n in range(5)
    ]
    assert all(torch.equal(end, ends[0]) for end in ends)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_half_precision_is_judged_in_float32(dtype: torch.dtype) -> None:
    logits = random_logits(3, 50).to(dtype)
    laws_of_rows = [law_of(SamplingParams(temperature=0.7), n_vocabulary=50)] * 3
    processed = process(logits, laws_of_rows, [[]] * 3)
    assert processed.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(processed.double(), logits.double() / 0.7, atol=1e-5, rtol=1e-6)


MIXED = (
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=0.6, top_p=0.95),
    SamplingParams(temperature=1.0, top_p=0.999),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.6, top_k=20, top_p=0.9, min_p=0.01),
    SamplingParams(temperature=0.9, repetition_penalty=1.1, min_new_tokens=5),
)


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("params", [MIXED, MIXED[:1], MIXED[1:2], MIXED[2:3], MIXED[3:4]])
def test_a_row_does_not_depend_on_its_neighbours(params: Sequence[SamplingParams]) -> None:
    n_rows, n_vocabulary = 6, 20_001
    logits = random_logits(n_rows, n_vocabulary)
    logits[1] = logits[1].round()
    laws_of_rows = [
        law_of(
            params[row % len(params)], n_vocabulary=n_vocabulary, stop_ids=[2], prompt=range(50), output=range(40, 43)
        )
        for row in range(n_rows)
    ]
    paths = [[7, 41]] * n_rows
    together = process(logits, laws_of_rows, paths)
    torch.set_num_threads(1)
    for row in range(n_rows):
        alone = process(logits[row : row + 1], laws_of_rows[row : row + 1], paths[:1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.9999, 0.99999999])
def test_top_p_of_flat_and_peaked_rows_is_the_shortest_prefix(top_p: float) -> None:
    n_vocabulary = 3000
    logits = torch.stack([random_logits(1, n_vocabulary, scale=scale)[0] for scale in (0.01, 1.0, 3.0, 9.0)]).double()
    law = law_of(SamplingParams(top_p=top_p), n_vocabulary=n_vocabulary)
    kept = process(logits, [law] * 4, [[]] * 4) > -INF
    ordered, order = logits.softmax(dim=1).sort(dim=1, descending=True)
    expected = torch.zeros_like(kept).scatter(1, order, (ordered.cumsum(dim=1) - ordered) < top_p)
    assert torch.equal(kept, expected)


def test_equals_of_the_last_kept_token() -> None:
    n_vocabulary = 500
    logits = torch.zeros(1, n_vocabulary)
    kept = {
        name: (process(logits, [law_of(params, n_vocabulary=n_vocabulary)], [[]])[0] > -INF).nonzero()[:, 0].tolist()
        for name, params in {
            "top_k": SamplingParams(top_k=3),
            "top_p": SamplingParams(top_p=0.5),
            "min_p": SamplingParams(min_p=0.9),
            "both": SamplingParams(top_k=3, top_p=0.4),
            "greedy": SamplingParams(temperature=0),
        }.items()
    }
    assert kept["top_k"] == kept["min_p"] == list(range(n_vocabulary))
    assert kept["top_p"] == list(range(250))
    assert kept["both"] == list(range(200))
    assert kept["greedy"] == [0]


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("n_rows", [1, 5])
def test_greedy_takes_the_lowest_of_equals(n_rows: int) -> None:
    logits = random_logits(n_rows, 49_152)
    lowest = np.arange(n_rows) * 3000 + 17
    for row, token_id in enumerate(lowest):
        logits[row, [token_id, token_id + 1, token_id + 20_000]] = 99.0
    processed = process(logits, [law_of(SamplingParams(temperature=0), n_vocabulary=49_152)] * n_rows, [[]] * n_rows)
    seeds, positions = np.arange(n_rows, dtype=np.uint64), np.zeros(n_rows, np.int64)
    for greedy in (True, False):
        assert draw(processed, seeds, positions, np.full(n_rows, greedy)).tolist() == lowest.tolist()


def test_greedy_and_sampled_rows_in_one_call() -> None:
    logits = random_logits(6, 300)
    seeds, positions = np.arange(6, dtype=np.uint64), np.arange(6)
    greedy = np.array([True, False] * 3)
    sampled = draw(logits, seeds, positions, np.zeros(6, bool))
    assert draw(logits, seeds, positions, greedy).tolist() == np.where(greedy, logits.argmax(1), sampled).tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("value", [torch.nan, -INF])
def test_a_row_without_numbers_gives_no_token(temperature: float, value: float) -> None:
    law = law_of(SamplingParams(temperature=temperature), n_vocabulary=9)
    logits = random_logits(3, 9)
    seeds, positions, greedy = np.arange(3, dtype=np.uint64), np.arange(3), np.full(3, law.is_greedy)
    before = draw(process(logits, [law] * 3, [[]] * 3), seeds, positions, greedy)
    logits[1] = value
    after = draw(process(logits, [law] * 3, [[]] * 3), seeds, positions, greedy)
    assert before.min() >= 0
    assert after.tolist() == [before[0], -1, before[2]]


def test_a_bias_on_a_missing_token_is_the_users_mistake() -> None:
    with pytest.raises(ConfigError, match="no token 50; the target's vocabulary has 50 tokens"):
        TrajectoryLaw(SamplingParams(logit_bias=((50, 1.0),)), [], [], 50)


def test_ids_beyond_the_vocabulary_do_no_harm() -> None:
    law = law_of(
        SamplingParams(repetition_penalty=2.0, min_new_tokens=1), n_vocabulary=8, stop_ids=[3, 99], prompt=[99]
    )
    processed = process(torch.ones(1, 8), [law], [[]])
    assert processed[0].tolist() == [1, 1, 1, -INF, 1, 1, 1, 1]
