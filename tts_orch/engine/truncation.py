"""Top-k, top-p and min-p as prefixes of a row in descending order.

Whatever a truncation keeps is a prefix of the ids ordered by falling weight, equals by id. Mostly the first few dozen
decide, so a whole row is sorted only where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from tts_orch.engine.row_kernels import top_rows

__all__ = ["descending", "truncate"]

_WIDTHS: Final = (64, 256, 1024)


def descending(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest weights of every row `[R, V]` and their ids, largest first, equals by id."""
    if weights.device.type == "cpu" and k <= _WIDTHS[-1]:
        values, ids = top_rows(weights.contiguous().numpy(), k)
        return torch.from_numpy(values), torch.from_numpy(ids).long()
    ordered = weights.sort(dim=1, descending=True, stable=True)
    return ordered.values[:, :k], ordered.indices[:, :k]


def truncate(weights: Tensor, *, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Set to -inf whatever the truncations cut off.

    Args:
        weights: `[R, V]` log-weights.
        top_k: keep the k largest and all equals of the last; 0 keeps all.
        top_p: then keep the shortest prefix with at least this share of the mass; 1 keeps all.
        min_p: then keep what has at least this share of the largest probability; 0 keeps all.

    Returns:
        `[R, V]`; `weights` itself where nothing is cut off.
    """
    if top_k == 0 and top_p == 1 and min_p == 0:
        return weights
    n_vocabulary = weights.shape[1]
    top_k = min(top_k, n_vocabulary)
    widths = [width for width in _WIDTHS if top_k < width < n_vocabulary and weights.device.type == "cpu"]
    probabilities = weights.softmax(dim=1) if top_p < 1 else None
    return _keep_prefix(weights, probabilities, top_k, top_p, min_p, [*widths, n_vocabulary])


def _keep_prefix(
    weights: Tensor, probabilities: Tensor | None, top_k: int, top_p: float, min_p: float, widths: Sequence[int]
) -> Tensor:
    """Keep what is within the first `widths[0]` ids; go on with the next width where the prefix may be longer."""
    values, ids = descending(weights, widths[0])
    is_kept = values > -math.inf
    if top_k:
        is_kept &= values >= values[:, top_k - 1, None]
    has_more_equals = is_kept[:, -1].clone()  # of the last of the top k: their mass is not all here
    if probabilities is not None:
        mass = torch.where(is_kept, probabilities.gather(1, ids), 0.0).cumsum(dim=1)
        is_kept[:, 1:] &= mass[:, :-1] < top_p * (mass[:, -1:] if top_k else 1.0)
    if min_p:
        is_kept &= values >= values[:, :1] + math.log(min_p)
    is_short = has_more_equals if top_k else is_kept[:, -1]
    kept = torch.full_like(weights, -math.inf).scatter_(1, ids, values.masked_fill(~is_kept, -math.inf))
    short = is_short.nonzero()[:, 0]
    if len(widths) > 1 and len(short):
        rest = None if probabilities is None else probabilities[short]
        kept[short] = _keep_prefix(weights[short], rest, top_k, top_p, min_p, widths[1:])
    return kept
