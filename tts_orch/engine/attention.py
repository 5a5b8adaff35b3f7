"""The one attention function that transformers' modelling code calls: writes the rows' keys and values, then attends.

`model(..., packed=PackedBatch, kv=KVPages)` hands both down to every layer. The layout of the pages chooses the
implementation: canonical pages the bit-stable kernel, plain pages scaled dot product attention with an explicit mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from tts_orch.engine.canonical_attention import attend
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.masked_attention import attend_masked
from tts_orch.engine.packing import PackedBatch
from tts_orch.engine.parallel import team
from tts_orch.engine.threads import n_threads
from tts_orch.errors import TargetError

__all__ = ["NAME", "register"]

NAME = "tts_orch"

_EVERYTHING = 2**31 - 1
_HARMLESS = frozenset({"position_ids", "is_causal", "use_cache", "cache_position", "output_attentions",
                       "output_hidden_states", "return_dict", "output_router_logits", "num_items_in_batch"})  # fmt: skip


def register() -> None:
    """Make `attn_implementation="tts_orch"` known to transformers; the model's own masks are not built."""
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """What a row sees is in the `PackedBatch`."""


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    packed: PackedBatch,
    kv: KVPages,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer. Query `[1, heads, R, head_dim]`, result `[1, R, heads, head_dim]`.

    Raises:
        TargetError: the model asks for attention that is not served.
    """
    _refuse_unknown(module, attention_mask, dropout, others)
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = sliding_window or _EVERYTHING
    rows = query[0].transpose(0, 1)  # [R, heads, head_dim]
    kv.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1), packed.write_page, packed.write_offset)
    if kv.layout == "plain":
        return attend_masked(rows, packed, kv, layer, scale, softcap, window)[None], None
    output = attend(
        team(),
        n_threads(),
        rows.contiguous().numpy(),
        key.shape[1],
        kv.pages,
        kv.layer_start(layer),
        scale,
        softcap or 0.0,
        window,
        packed.entry_start,
        packed.positions,
        packed.page_table,
        packed.limit,
        packed.ancestor_start,
        packed.ancestor_page,
        packed.ancestor_offset,
    )
    return torch.from_numpy(output)[None], None


def _refuse_unknown(module: nn.Module, mask: Tensor | None, dropout: float, others: dict[str, Any]) -> None:
    """Refuse what would change the result unseen."""
    given = [name for name, value in others.items() if value is not None and name not in _HARMLESS]
    if mask is not None:
        given.append("attention_mask")
    if dropout:
        given.append("dropout")
    if given:
        raise TargetError(
            f"{type(module).__name__}: attention with {', '.join(given)} is not served; choose another target model"
        )
