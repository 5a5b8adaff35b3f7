"""Statistics of raw laws against their definitions; their bits must not depend on batch and threads."""

from dataclasses import astuple

import numpy as np
import pytest
import torch

from tts_orch.engine import row_kernels
from tts_orch.engine.laws import raw_statistics


def some_logits(n_rows: int, n_vocabulary: int) -> torch.Tensor:
    logits = torch.randn(n_rows, n_vocabulary, generator=torch.Generator().manual_seed(n_vocabulary)) * 4
    logits[0] = logits[0].round() * 20
    return logits - 30


@pytest.mark.parametrize("n_vocabulary", [5, 20, 257, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_statistics_are_what_they_claim(n_vocabulary: int, dtype: torch.dtype) -> None:
    logits = some_logits(4, n_vocabulary).to(dtype)
    statistics = raw_statistics(logits, k=20)
    k, exact = min(20, n_vocabulary), logits.double()
    log_p = exact.log_softmax(dim=1).numpy()
    top_ids = np.argsort(-exact.numpy(), axis=1, kind="stable")[:, :k]
    top = np.take_along_axis(log_p, top_ids, axis=1)
    np.testing.assert_array_equal(statistics.top_ids, top_ids)
    np.testing.assert_allclose(statistics.top_log_probs, top, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(statistics.log_normaliser, exact.logsumexp(dim=1), rtol=1e-6)
    np.testing.assert_allclose(statistics.confidences, -top.mean(axis=1), rtol=1e-5)
    divergence = (-np.log(n_vocabulary) - log_p).mean(axis=1)
    np.testing.assert_allclose(statistics.self_certainties, divergence, rtol=1e-5)
    assert statistics.top_ids.dtype == np.int32
    assert statistics.top_log_probs.dtype == statistics.confidences.dtype == np.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bits_are_the_rows_own(dtype: torch.dtype) -> None:
    logits, before = some_logits(5, 30_001).to(dtype), torch.get_num_threads()
    torch.set_num_threads(2)
    together = astuple(raw_statistics(logits))
    torch.set_num_threads(1)
    alone = [astuple(raw_statistics(logits[row : row + 1])) for row in range(5)]
    torch.set_num_threads(before)
    for name, column in enumerate(together):
        np.testing.assert_array_equal(column, np.concatenate([row[name] for row in alone]))


def test_columns_cut_off_do_not_count() -> None:
    logits = some_logits(3, 300)
    padded = torch.cat((logits, torch.full((3, 20), 99.0)), dim=1)
    for cut, whole in zip(astuple(raw_statistics(padded[:, :300])), astuple(raw_statistics(logits)), strict=True):
        np.testing.assert_array_equal(cut, whole)


@pytest.mark.parametrize("k", [1, 20, 64, 300])
def test_top_rows_breaks_ties_by_id(k: int) -> None:
    logits = np.random.default_rng(k).integers(0, 40, (3, 1000)).astype(np.float32)
    logits[2] = 0
    values, ids = row_kernels.top_rows(logits, k)
    np.testing.assert_array_equal(ids, np.argsort(-logits, axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(values, np.take_along_axis(logits, ids, axis=1))
