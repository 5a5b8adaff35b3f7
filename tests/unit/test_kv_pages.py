"""The tensors of keys and values: what is written is found again after copies and moves, in every layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tts_orch.engine.kv_pages import KVPages

KV_HEADS, HEAD_DIMS = [3, 1], [20, 64]
LAYOUTS: list[dict[str, Any]] = [
    {"layout": "canonical"},
    {"layout": "plain"},
    {"layout": "plain", "dtype": torch.bfloat16},
]


def _int32(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


def _stored(kv: KVPages, layer: int, page: int, offset: int) -> tuple[Tensor, Tensor]:
    if kv.layout == "canonical":
        return kv.keys[layer][page, :, :, offset], kv.values[layer][page, :, offset]
    return kv.keys[layer][page, offset], kv.values[layer][page, offset]


def _filled(options: dict[str, Any]) -> tuple[KVPages, list[tuple[Tensor, Tensor]]]:
    """Pages in which rows 0, 1, 2 stand at (page 2, 63), (page 0, 0), (page 2, 5), and the rows of each layer."""
    kv = KVPages(2, KV_HEADS, HEAD_DIMS, 5, **options)
    generator = torch.Generator().manual_seed(0)
    rows = []
    for layer, (heads, head_dim) in enumerate(zip(KV_HEADS, HEAD_DIMS, strict=True)):
        key, value = torch.randn(2, 3, heads, head_dim, generator=generator).to(kv.dtype)
        kv.write(layer, key, value, _int32(2, 0, 2), _int32(63, 0, 5))
        rows.append((key, value))
    return kv, rows


def _assert_row(kv: KVPages, rows: list[tuple[Tensor, Tensor]], row: int, page: int, offset: int) -> None:
    for layer, (key, value) in enumerate(rows):
        stored_key, stored_value = _stored(kv, layer, page, offset)
        assert torch.equal(stored_key, key[row])
        assert torch.equal(stored_value, value[row])


@pytest.mark.parametrize("options", LAYOUTS)
def test_rows_are_found_where_they_were_written_and_nowhere_else(options: dict[str, Any]) -> None:
    kv, rows = _filled(options)
    for row, place in enumerate([(2, 63), (0, 0), (2, 5)]):
        _assert_row(kv, rows, row, *place)
    written = sum(2 * 3 * heads * head_dim for heads, head_dim in zip(KV_HEADS, HEAD_DIMS, strict=True))
    assert sum(int(tensor.count_nonzero()) for tensor in (*kv.keys, *kv.values)) == written


@pytest.mark.parametrize("options", LAYOUTS)
def test_copied_pages_are_equal_and_independent(options: dict[str, Any]) -> None:
    kv, rows = _filled(options)
    kv.copy_pages(_int32(2, 0), _int32(4, 1))
    for row, place in enumerate([(4, 63), (1, 0), (4, 5)]):
        _assert_row(kv, rows, row, *place)
    for layer, (key, value) in enumerate(rows):
        kv.write(layer, key[:1], value[:1], _int32(2), _int32(5))
    _assert_row(kv, rows, 2, 4, 5)


@pytest.mark.parametrize("options", LAYOUTS)
def test_moved_positions_arrive_in_every_layer(options: dict[str, Any]) -> None:
    kv, rows = _filled(options)
    kv.move(_int32(2, 0, 2), _int32(63, 0, 5), _int32(3, 3, 1), _int32(0, 1, 62))
    for row, place in enumerate([(3, 0), (3, 1), (1, 62)]):
        _assert_row(kv, rows, row, *place)


@pytest.mark.parametrize("options", LAYOUTS)
def test_bytes_per_page_is_what_a_page_takes(options: dict[str, Any]) -> None:
    kv = KVPages(2, KV_HEADS, HEAD_DIMS, 5, **options)
    total = sum(tensor.numel() * tensor.element_size() for tensor in (*kv.keys, *kv.values))
    assert kv.bytes_per_page * kv.n_pages == total


def test_impossible_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        KVPages(2, KV_HEADS, HEAD_DIMS, 5, layout="canonical", dtype=torch.float64)
    with pytest.raises(ValueError, match="layers"):
        KVPages(3, KV_HEADS, HEAD_DIMS, 5)


def test_features_are_copied_and_moved_like_keys() -> None:
    kv = KVPages(2, KV_HEADS, HEAD_DIMS, 5, feature_layers=(0, -1), hidden_size=3)
    rows = torch.arange(18.0).view(3, 6)
    kv.write_features(rows, _int32(2, 0, 2), _int32(63, 0, 5))
    kv.copy_pages(_int32(2), _int32(4))
    kv.move(_int32(4, 0), _int32(63, 0), _int32(1, 1), _int32(0, 1))
    assert torch.equal(kv.read_features([0, 2], 127, 128), rows[:1])
    assert torch.equal(kv.read_features([4], 5, 6), rows[2:])
    assert torch.equal(kv.read_features([3, 1], 64, 66), rows[:2])
    assert kv.read_features([3, 1], 66, 66).shape == (0, 6)
    tensors = (*kv.keys, *kv.values, kv.features)
    assert kv.bytes_per_page * kv.n_pages == sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_pages_without_features_have_none_to_read() -> None:
    with pytest.raises(ValueError, match="no features"):
        KVPages(2, KV_HEADS, HEAD_DIMS, 5).read_features([0], 0, 1)
