"""Attention over pages: right against float64, and in the canonical layout the same bits however a row is computed."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from tts_orch.engine import attention
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.packing import PAGE, Entry, PackedBatch, pack
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.errors import TargetError
from tts_orch.policies.drafting.draft_tree import DraftTree

SHAPES = [(9, 3, 64), (4, 4, 16), (2, 1, 80), (3, 1, 20), (4, 2, 128)]
VARIANTS: list[dict[str, Any]] = [{}, {"sliding_window": 70}, {"sliding_window": 5, "softcap": 3.0}]
LENGTH = 150


@dataclass(frozen=True)
class Vectors:
    """Queries `[n, heads, head_dim]`, keys and values `[n, kv_heads, head_dim]` of a sequence."""

    query: Tensor
    key: Tensor
    value: Tensor

    @classmethod
    def draw(cls, n: int, shape: tuple[int, int, int], seed: int, dtype: torch.dtype = torch.float32) -> Vectors:
        heads, kv_heads, head_dim = shape
        generator = torch.Generator().manual_seed(seed)
        sizes = [(n, heads, head_dim), (n, kv_heads, head_dim), (n, kv_heads, head_dim)]
        return cls(*(torch.randn(size, generator=generator, dtype=dtype) for size in sizes))

    def take(self, rows: Any) -> Vectors:
        return Vectors(self.query[rows], self.key[rows], self.value[rows])


def _join(parts: list[Vectors]) -> Vectors:
    return Vectors(*(torch.cat([getattr(part, name) for part in parts]) for name in ("query", "key", "value")))


def _pages(shape: tuple[int, int, int], n_pages: int = 12, **options: Any) -> KVPages:
    return KVPages(2, [shape[1]] * 2, [shape[2]] * 2, n_pages, **options)


def _attend(vectors: Vectors, packed: PackedBatch, kv: KVPages, **options: Any) -> Tensor:
    attention.register()
    batch = [tensor.transpose(0, 1)[None] for tensor in (vectors.query, vectors.key, vectors.value)]
    function = AttentionInterface()[attention.NAME]
    layer = SimpleNamespace(layer_idx=1)
    output, weights = function(layer, *batch, None, scaling=None, packed=packed, kv=kv, **options)
    assert weights is None
    return output[0]


def _committed(start: int, n: int, pages: list[int]) -> Entry:
    return Entry(np.zeros(n, np.int32), start, pages)


def _in_chunks(vectors: Vectors, sizes: list[int], kv: KVPages, **options: Any) -> Tensor:
    pages, start, outputs = [4, 0, 7], 0, []
    for size in sizes:
        packed = pack([_committed(start, size, pages)])
        outputs.append(_attend(vectors.take(slice(start, start + size)), packed, kv, **options))
        start += size
    return torch.cat(outputs)


def _comb(depth: int) -> DraftTree:
    """A path of odd nodes, each with a wrong sibling after it."""
    node = np.arange(2 * depth + 1)
    level = (node + 1) // 2
    parent = np.where(level > 1, 2 * level - 3, 0)
    parent[0] = -1
    columns = [column.astype(np.int32) for column in (node * 0, parent, level, (node + 1) % 2)]
    zeros = np.zeros(len(node), np.int32)
    return DraftTree(*columns, zeros.astype(np.float32), source=zeros, kind=zeros)


def _in_trees(vectors: Vectors, shape: tuple[int, int, int], kv: KVPages, first: int, **options: Any) -> Tensor:
    """Rows from `first` as paths of trees with wrong branches, beside another sequence; accepted paths are moved."""
    rng = np.random.default_rng(first)
    n, dtype = len(vectors.query), vectors.query.dtype
    pages, drafts, others = [4, 0, 7], [9, 2], [1, 3]
    side = Vectors.draw(100, shape, 7, dtype)
    packed = pack([_committed(0, 90, others), _committed(0, first, pages)])
    _attend(_join([side.take(slice(90)), vectors.take(slice(first))]), packed, kv, **options)
    outputs, position = [], first
    while position < n:
        depth = min(int(rng.integers(0, 40)), n - position - 1)
        tree = _comb(depth)
        on_path = [0, *range(1, tree.n_nodes, 2)]
        mine = Vectors.draw(tree.n_nodes, shape, position, dtype)
        for name in ("query", "key", "value"):
            getattr(mine, name)[on_path] = getattr(vectors, name)[position : position + depth + 1]
        entries = [_committed(90, 3, others), Entry(np.zeros(1, np.int32), position, pages, tree, drafts)]
        output = _attend(_join([side.take(slice(90, 93)), mine]), pack(entries), kv, **options)[3:]
        outputs.append(output[on_path])
        slots, target = np.arange(0, 2 * depth, 2, dtype=np.int32), np.arange(position + 1, position + depth + 1)
        place = (np.array(drafts)[slots // PAGE], slots % PAGE, np.array(pages)[target // PAGE], target % PAGE)
        kv.move(*(array.astype(np.int32) for array in place))
        position += depth + 1
    return torch.cat(outputs)


def _reference(
    vectors: Vectors, sliding_window: int | None = None, softcap: float | None = None
) -> NDArray[np.float64]:
    query, key, value = (tensor.double().numpy() for tensor in (vectors.query, vectors.key, vectors.value))
    group = query.shape[1] // key.shape[1]
    scores = np.einsum("qhd,khd->hqk", query, key.repeat(group, axis=1)) / np.sqrt(query.shape[2])
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    back = np.arange(len(query))[:, None] - np.arange(len(query))[None]
    hidden = (back < 0) | (back >= (sliding_window or len(query)))
    weights = np.exp(np.where(hidden, -np.inf, scores - scores.max(axis=-1, keepdims=True)))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(axis=-1, keepdims=True), value.repeat(group, axis=1))


@pytest.fixture(autouse=True)
def _restore_threads() -> Any:
    before = n_threads()
    yield
    set_threads(before)


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_canonical_attention_is_right_and_its_bits_depend_on_the_row_alone(
    shape: tuple[int, int, int], options: dict[str, Any]
) -> None:
    vectors = Vectors.draw(LENGTH, shape, 1)
    set_threads(1)
    whole = _in_chunks(vectors, [LENGTH], _pages(shape), **options)
    assert np.abs(whole.numpy() - _reference(vectors, **options)).max() < 2e-6
    assert torch.equal(_in_chunks(vectors, [1] * LENGTH, _pages(shape), **options), whole)
    set_threads(2)
    assert torch.equal(_in_chunks(vectors, [LENGTH], _pages(shape), **options), whole)
    assert torch.equal(_in_chunks(vectors, [5, 60, 2, 1, 33, 49], _pages(shape), **options), whole)
    assert torch.equal(_in_trees(vectors, shape, _pages(shape), 20, **options), whole[20:])


def test_bits_do_not_depend_on_what_unused_places_of_the_pages_hold() -> None:
    shape = SHAPES[0]
    vectors = Vectors.draw(LENGTH, shape, 1)
    dirty = _pages(shape)
    dirty.pages[:] = np.nan
    assert torch.equal(_in_chunks(vectors, [100, 50], dirty), _in_chunks(vectors, [LENGTH], _pages(shape)))


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_masked_attention_equals_float64_reference(shape: tuple[int, int, int], options: dict[str, Any]) -> None:
    vectors = Vectors.draw(LENGTH, shape, 1, torch.float64)
    reference = _reference(vectors, **options)
    plain = {"layout": "plain", "dtype": torch.float64}
    chunks = _in_chunks(vectors, [5, 60, 2, 1, 33, 49], _pages(shape, **plain), **options)
    assert np.abs(chunks.numpy() - reference).max() < 1e-12
    trees = _in_trees(vectors, shape, _pages(shape, **plain), 20, **options)
    assert np.abs(trees.numpy() - reference[20:]).max() < 1e-12


def test_masked_attention_pads_entries_of_unlike_size_rightly() -> None:
    shape = (4, 2, 16)
    sequences = [Vectors.draw(n, shape, n, torch.float64) for n in (70, 3, 64, 1, 2, 130)]
    kv = _pages(shape, 20, layout="plain", dtype=torch.float64)
    entries = [_committed(0, len(s.query), [3 * i, 3 * i + 1, 3 * i + 2]) for i, s in enumerate(sequences)]
    output = _attend(_join(sequences), pack(entries), kv)
    expected = np.concatenate([_reference(sequence) for sequence in sequences])
    assert np.abs(output.numpy() - expected).max() < 1e-12


@pytest.mark.parametrize("argument", ["s_aux", "position_bias"])
def test_attention_arguments_that_are_not_served_are_refused(argument: str) -> None:
    vectors = Vectors.draw(3, (2, 1, 16), 1)
    with pytest.raises(TargetError, match=argument):
        _attend(vectors, pack([_committed(0, 3, [0])]), _pages((2, 1, 16)), **{argument: torch.zeros(2)})


def test_no_mask_is_built() -> None:
    attention.register()
    assert AttentionMaskInterface()[attention.NAME](batch_size=1, q_length=3) is None
