"""Which size of a draft vocabulary is chosen: by looking at each, and by a sampler that is held against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.vocabulary.draft_flops import DraftFlops, draft_flops
from tts_orch.vocabulary.ranked_tokens import count_tokens, rank_tokens
from tts_orch.vocabulary.size_objective import SizeObjective, size_objective
from tts_orch.vocabulary.size_search import search_size

LLAMA_8B = HeadConfig(
    architecture="eagle3",
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128_256,
    feature_layers=(2, 16, 29),
)

counts = st.lists(st.integers(0, 50), min_size=2, max_size=120).filter(any).map(np.array)
shares = st.floats(0, 1)


def test_a_published_head_has_the_published_operations() -> None:
    flops = draft_flops(LLAMA_8B)
    found = (flops.projection, flops.attention, flops.mlp, flops.vocabulary_row * 128_256, flops.total(128_256))
    assert [round(one / 1e5) / 10 for one in found] == [100.7, 134.2, 352.3, 1050.7, 1637.9]


def test_hidden_states_of_a_wider_target_are_projected_from_its_width() -> None:
    head = replace(LLAMA_8B, hidden_size=2048, target_hidden_size=4096)
    assert draft_flops(head).projection == 2 * 3 * 4096 * 2048


def test_heads_of_eagle_2_project_embedding_and_feature_and_attend_to_one_width() -> None:
    head = HeadConfig(
        hidden_size=8, intermediate_size=12, num_attention_heads=4, num_key_value_heads=2, head_dim=3, vocab_size=9
    )
    assert draft_flops(head) == DraftFlops(2 * 16 * 8, 2 * 8 * 12 + 2 * 2 * 8 * 6 + 2 * 12 * 8, 6 * 8 * 12, 2 * 8)


@given(counts=counts, kept=st.sets(st.integers(0, 1)), others=counts)
def test_what_is_kept_comes_first_and_coverage_only_grows(
    counts: NDArray[np.int64], kept: set[int], others: NDArray[np.int64]
) -> None:
    ranked = rank_tokens(counts, kept)
    assert sorted(ranked.order) == list(range(len(counts)))
    assert set(ranked.order[: ranked.n_kept].tolist()) == kept
    assert (np.diff(counts[ranked.order[ranked.n_kept :]]) <= 0).all()
    assert (np.diff(ranked.coverage) >= 0).all()
    assert ranked.coverage[-1] == 1
    other_counts = np.resize(others, len(counts)) + 1
    size = max(ranked.n_kept, 1)
    vocabulary = ranked.vocabulary(size)
    assert kept <= set(vocabulary.ids.tolist())
    assert ranked.coverage_of(other_counts)[size] == other_counts[vocabulary.ids].sum() / other_counts.sum()


@given(counts=counts, kept=st.sets(st.integers(0, 1)), alpha=shares, least=shares, row=st.integers(1, 9))
def test_the_scan_finds_the_best_size(
    counts: NDArray[np.int64], kept: set[int], alpha: float, least: float, row: int
) -> None:
    objective = size_objective(rank_tokens(counts, kept), DraftFlops(5, 6, 7, row), alpha, least)
    size = objective.best_size()
    assert objective.smallest == max(min(50, len(counts)), len(kept))
    assert objective.largest == len(counts)
    assert objective.coverage[size] >= least
    values = [_worth(counts, kept, alpha, least, row, one) for one in range(objective.smallest, len(counts) + 1)]
    assert values[size - objective.smallest] == pytest.approx(max(values))


def _worth(counts: NDArray[np.int64], kept: set[int], alpha: float, least: float, row: int, size: int) -> float:
    """Return the value of a size by its definition."""
    best = [*sorted(kept), *sorted(set(range(len(counts))) - kept, key=lambda i: (-counts[i], i))][:size]
    coverage = counts[best].sum() / counts.sum()
    saving = 1 - (18 + row * size) / (18 + row * len(counts))
    return float(alpha * coverage + (1 - alpha) * saving) if coverage >= least else -1.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("exponent", "least"), [(1.0, 0.9), (1.3, 0.5), (1.1, 0.95)])
def test_the_sampler_comes_within_one_percent(exponent: float, least: float, seed: int) -> None:
    objective = _zipf(exponent, least, seed)
    size, best = search_size(objective, trials=100, seed=42), objective.best_size()
    assert objective.coverage[size] >= least
    assert objective.value(best) * 0.99 <= objective.value(size) <= objective.value(best)
    assert size == search_size(objective, trials=100, seed=42)


def _zipf(exponent: float, least: float, seed: int) -> SizeObjective:
    law = np.arange(1, 128_257) ** -exponent
    drawn = np.random.default_rng(seed).multinomial(2_000_000, law / law.sum())
    return size_objective(rank_tokens(drawn, range(40)), draft_flops(LLAMA_8B), 0.5, least)


def test_what_cannot_be_covered_gets_the_largest_size() -> None:
    even = np.ones(60_000, np.int64)
    objective = size_objective(rank_tokens(even, []), DraftFlops(1, 1, 1, 1), 0.5, 0.9)
    assert not objective.is_reachable
    assert objective.best_size() == search_size(objective, trials=5, seed=42) == 50_000


def test_more_kept_tokens_than_the_smallest_size_are_all_in() -> None:
    objective = size_objective(rank_tokens(np.arange(100), range(70)), DraftFlops(1, 1, 1, 1), 0.0, 0.0)
    assert objective.best_size() == search_size(objective, trials=30, seed=42) == 70


@settings(max_examples=20)
@given(texts=st.lists(st.lists(st.integers(0, 9), min_size=1), max_size=5))
def test_tokens_are_counted(texts: list[list[int]]) -> None:
    found = count_tokens((np.array(text, np.int32) for text in texts), 12)
    assert found.tolist() == [sum(text.count(i) for text in texts) for i in range(12)]
