"""torch's noise against NumPy's integers and numba's choices."""

import numpy as np
import pytest
import torch

from tts_orch.engine import noise, row_kernels
from tts_orch.policies.drafting import gumbel
from tts_orch.seeds import noise_words

CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)
SEEDS = np.append(RANDOM.integers(0, 2**64, 6, dtype=np.uint64), np.array([0, 2**64 - 1], np.uint64))
POSITIONS = np.append(RANDOM.integers(0, 2**20, 6), [0, 2**32 - 1])


@pytest.mark.parametrize("plane", [0, 1])
def test_words_are_the_contract_words(plane: int) -> None:
    words = noise.word_rows(SEEDS, POSITIONS, 1003, plane, CPU).numpy()
    for row, seed, position in zip(words, SEEDS, POSITIONS, strict=True):
        np.testing.assert_array_equal(row, noise_words(int(seed), int(position), np.arange(1003), plane))


def test_noise_is_numbas_to_the_last_bits() -> None:
    rows = noise.gumbel_rows(SEEDS, POSITIONS, 301, CPU).numpy()
    for row, seed, position in zip(rows, SEEDS, POSITIONS, strict=True):
        np.testing.assert_allclose(row, gumbel.gumbel(int(seed), int(position), np.arange(301)), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("chunk", [1, 1000, 1 << 23])
def test_three_implementations_draw_the_same_tokens(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_CHUNK", chunk)
    logits = torch.randn(8, 517, generator=torch.Generator().manual_seed(0)) * 3
    logits[:, ::3] = -torch.inf
    logits[5] = -torch.inf
    drawn = noise.keyed_argmax(logits, SEEDS, POSITIONS)
    assert drawn[5] == -1
    np.testing.assert_array_equal(drawn, gumbel.keyed_argmax(logits.numpy(), SEEDS, POSITIONS))
    np.testing.assert_array_equal(drawn, row_kernels.keyed_argmax(logits.numpy(), SEEDS, POSITIONS))
