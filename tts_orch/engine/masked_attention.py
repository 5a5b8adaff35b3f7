"""Attention over plain pages by matrix products and an explicit mask: any device, any dtype.

Entries with a similar number of rows and keys are gathered and padded together. What is gathered and masked follows
from the `PackedBatch` alone, so it is worked out once a pass and used in every layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.packing import PAGE, PackedBatch

__all__ = ["attend_masked"]

_GROWTH = 1.5  # entries share a gather when the longest has at most so many times the rows or keys of the shortest


@dataclass(frozen=True, slots=True)
class _Gather:
    """Entries that are attended together, `B` of them, padded to `Q` rows and `K` keys.

    Attributes:
        rows: `[B, Q]` row of the pass; padding repeats a row.
        page, offset: `[B, K]` where the keys lie.
        distance: `[B, Q, K]` the row's position minus the key's; negative where the row does not see the key.
        real: `[N]` flat places in `[B, Q]` that are no padding, and
        target: `[N]` their rows.
    """

    rows: Tensor
    page: Tensor
    offset: Tensor
    distance: Tensor
    real: Tensor
    target: Tensor
    masks: dict[int, Tensor] = field(default_factory=dict)

    def mask(self, window: int) -> Tensor:
        """`[B, 1, Q, K]` which keys a row sees."""
        if window not in self.masks:
            self.masks[window] = ((self.distance >= 0) & (self.distance < window))[:, None]
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class _Plan:
    packed: PackedBatch
    gathers: list[_Gather]


_plans: WeakKeyDictionary[KVPages, _Plan] = WeakKeyDictionary()


def attend_masked(
    query: Tensor, packed: PackedBatch, kv: KVPages, layer: int, scaling: float, softcap: float | None, window: int
) -> Tensor:
    """Attend from `query` `[R, heads, head_dim]` to the pages of one layer; the result has the same shape."""
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    for gather in _plan(packed, kv).gathers:
        keys = kv.keys[layer][gather.page, gather.offset].transpose(1, 2)  # [B, kv_heads, K, head_dim]
        values = kv.values[layer][gather.page, gather.offset].transpose(1, 2)
        queries = query[gather.rows].transpose(1, 2)  # [B, heads, Q, head_dim]
        mask = gather.mask(window)
        if softcap is None:
            result = scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, scale=scaling, enable_gqa=queries.shape[1] != keys.shape[1]
            )
        else:
            result = _capped(queries, keys, values, mask, scaling, softcap)
        output[gather.target] = result.transpose(1, 2).flatten(0, 1)[gather.real]
    return output


def _capped(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float, softcap: float) -> Tensor:
    """Attention with soft-capped scores (arXiv 2408.00118), which the fused kernels do not offer."""
    grouped = queries.unflatten(1, (keys.shape[1], -1))  # [B, kv_heads, group, Q, head_dim]
    scores = softcap * torch.tanh(grouped @ keys[:, :, None].transpose(-1, -2) * (scaling / softcap))
    weights = scores.masked_fill(~mask[:, :, None], float("-inf")).softmax(-1)
    return (weights @ values[:, :, None]).flatten(1, 2)


def _plan(packed: PackedBatch, kv: KVPages) -> _Plan:
    plan = _plans.get(kv)
    if plan is None or plan.packed is not packed:
        plan = _plans[kv] = _Plan(packed, [_gather(packed, group, kv.device) for group in _groups(packed)])
    return plan


def _groups(packed: PackedBatch) -> list[list[int]]:
    """Entries that waste little when padded to a common size."""
    n_rows = np.diff(packed.entry_start)
    n_pages = (packed.page_table >= 0).sum(axis=1)
    groups: list[list[int]] = []
    for entry in np.lexsort((n_pages, n_rows)).tolist():
        if groups:
            first = groups[-1][0]
            pages = [int(n_pages[other]) for other in (*groups[-1], entry)]
            if n_rows[entry] <= _GROWTH * n_rows[first] and max(pages) <= _GROWTH * min(pages) + 1:
                groups[-1].append(entry)
                continue
        groups.append([entry])
    return groups


def _entry_keys(packed: PackedBatch, entry: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Page and offset `[K]` of the keys of an entry, and how far back each row sees them `[Q, K]` (-1: not at all)."""
    first, last = int(packed.entry_start[entry]), int(packed.entry_start[entry + 1])
    limit = packed.limit[first:last].astype(np.int64)
    positions = packed.positions[first:last].astype(np.int64)
    committed = np.arange(int(limit.max()))
    begin, end = packed.ancestor_start[first], packed.ancestor_start[last]
    slots = packed.ancestor_page[begin:end].astype(np.int64) * PAGE + packed.ancestor_offset[begin:end]
    drafts, which = np.unique(slots, return_inverse=True)
    distance = np.full((last - first, len(committed) + len(drafts)), -1, dtype=np.int64)
    seen = committed[None] < limit[:, None]
    distance[:, : len(committed)] = np.where(seen, positions[:, None] - committed[None], -1)
    n_ancestors = np.diff(packed.ancestor_start[first : last + 1])
    row = np.repeat(np.arange(last - first), n_ancestors)
    place = np.arange(len(slots)) - (packed.ancestor_start[first:last] - begin)[row]  # among the row's ancestors
    distance[row, len(committed) + which] = positions[row] - (limit[row] + place)
    page = np.concatenate((packed.page_table[entry, committed // PAGE], drafts // PAGE))
    return page, np.concatenate((committed % PAGE, drafts % PAGE)), distance


def _gather(packed: PackedBatch, entries: list[int], device: torch.device) -> _Gather:
    keys = [_entry_keys(packed, entry) for entry in entries]
    n_queries = max(distance.shape[0] for _, _, distance in keys)
    n_keys = max(distance.shape[1] for _, _, distance in keys)
    rows = np.zeros((len(entries), n_queries), dtype=np.int64)
    page, offset = np.zeros((len(entries), n_keys), dtype=np.int64), np.zeros((len(entries), n_keys), dtype=np.int64)
    distance = np.full((len(entries), n_queries, n_keys), -1, dtype=np.int64)
    distance[:, :, 0] = 0  # padding rows see one key: their softmax stays finite
    real = np.zeros((len(entries), n_queries), dtype=bool)
    for i, (entry, (pages, offsets, distances)) in enumerate(zip(entries, keys, strict=True)):
        q, k = distances.shape
        first = int(packed.entry_start[entry])
        rows[i, :q], rows[i, q:] = np.arange(first, first + q), first
        page[i, :k], page[i, k:] = pages, pages[0]
        offset[i, :k] = offsets
        distance[i, :q] = -1
        distance[i, :q, :k] = distances
        real[i, :q] = True
    flat = np.flatnonzero(real)
    return _Gather(
        rows=torch.from_numpy(rows).to(device),
        page=torch.from_numpy(page).to(device),
        offset=torch.from_numpy(offset).to(device),
        distance=torch.from_numpy(distance).to(device),
        real=torch.from_numpy(flat).to(device),
        target=torch.from_numpy(rows.reshape(-1)[flat]).to(device),
    )
