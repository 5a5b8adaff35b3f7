"""The target model: a transformers causal LM that computes packed passes over our pages of keys and values.

Modelling code stays transformers'; only its attention, and for bit-stable numerics its linears and activations, are
exchanged. At load a probe compares packed trees with the stock forward and, for `bitwise`, with themselves in other
batches; what cannot be served is refused in one line.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from tts_orch.config import EngineConfig
from tts_orch.engine import attention, stable
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.model_files import locate, weights_id
from tts_orch.engine.model_options import context_limit, device_named, dtype_named, end_ids
from tts_orch.engine.packing import PAGE, Entry, PackedBatch, pack
from tts_orch.engine.probe import fingerprint, is_bit_stable, matches_stock, probe_tokens
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.errors import TargetError, first_line
from tts_orch.policies.drafting.draft_tree import DraftTree

__all__ = ["Target", "load_target"]

logger = logging.getLogger(__name__)


class Target:
    """A loaded target model.

    Args:
        model: a causal LM on its device, in evaluation mode.
        tokenizer: its tokenizer; without one there are no stop strings and the head's rows are the vocabulary.
        numerics: `bitwise` or `fast`; `bitwise` falls back to `fast` with a warning where the probe does not hold.
        name: how messages call it.
        weights_id: identity of its weights, part of every statistics scope.
        max_context: positions to serve, the model's own limit if not given.

    Attributes:
        numerics: what is really promised.
        fingerprint: digest of the probe's logits; equal fingerprints draw equal tokens from equal seeds.
        vocab_size: columns of the logits that are real tokens.
        context_limit: positions the model can read, whatever is served.
        n_layers, hidden_size: how many layers it has, and how wide their hidden states are.

    Raises:
        TargetError: the model's attention or state cannot be served.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        numerics: str = "fast",
        name: str = "the target model",
        weights_id: str = "",
        max_context: int | None = None,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name = name
        self.weights_id = weights_id
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self.numerics = numerics
        try:
            self._read_sizes()
            self._adopt()
            self.fingerprint = fingerprint(self)
        except TargetError:
            raise
        except Exception as error:  # whatever modelling code raises when it is not what we take it for
            raise TargetError(
                f"{name}: cannot be served ({first_line(error)}); choose a causal language model with plain attention"
            ) from error
        self.max_context = min(max_context or self.context_limit, self.context_limit)
        self.eos_ids = end_ids(getattr(model, "generation_config", None), model.config, tokenizer)

    def bytes_per_page(self, feature_layers: Sequence[int] = ()) -> int:
        """Return the memory of one page of keys and values over all layers, with the features of some."""
        width = 2 * self._kv_heads * self._head_dim * self.n_layers + len(feature_layers) * self.hidden_size
        return width * PAGE * self.dtype.itemsize

    def new_pages(self, n_pages: int, feature_layers: Sequence[int] = ()) -> KVPages:
        """Return `n_pages` empty pages in the layout of this target's attention, with room for the features of some layers.

        Raises:
            TargetError: there is no such layer.
        """
        unknown = [layer for layer in feature_layers if not -1 <= layer < self.n_layers]
        if unknown:
            raise TargetError(
                f"{self.name}: no hidden states of layer {unknown[0]}, only 0 (embeddings) to {self.n_layers - 1} and -1 "
                f"(what the LM head reads); use a drafter that was trained for this target"
            )
        return KVPages(
            self.n_layers,
            [self._kv_heads] * self.n_layers,
            [self._head_dim] * self.n_layers,
            n_pages,
            layout="canonical" if self.numerics == "bitwise" else "plain",
            dtype=self.dtype,
            device=self.device,
            feature_layers=feature_layers,
            hidden_size=self.hidden_size,
        )

    @torch.inference_mode()
    def forward(self, batch: PackedBatch, pages: KVPages) -> torch.Tensor:
        """Compute one packed pass; its keys and values go to the pages, and the features that these keep.

        Returns:
            `[L, V]` logits of `batch.logit_rows`, vocabulary padding cut.
        """
        rows = batch.logit_rows if len(batch.logit_rows) else np.zeros(1, np.int64)
        output = self.model(
            input_ids=self._tensor(batch.token_ids)[None],
            position_ids=self._tensor(batch.positions)[None],
            use_cache=False,
            output_hidden_states=bool(pages.feature_layers),
            logits_to_keep=self._tensor(rows),
            packed=batch,
            kv=pages,
        )
        if pages.feature_layers:
            features = torch.cat([output.hidden_states[layer][0] for layer in pages.feature_layers], dim=-1)
            pages.write_features(features, batch.write_page, batch.write_offset)
        logits: torch.Tensor = output.logits[0, : len(batch.logit_rows), : self.vocab_size]
        return logits

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, special tokens left out; nothing without a tokenizer."""
        if self.tokenizer is None:
            return ""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def measure_cost(self, max_batch: int, context: int = 256) -> CostModel:
        """Time passes of growing size, drafts spread over up to `max_batch` trajectories of `context` positions."""
        context = max(1, min(context, self.max_context, self.context_limit - PAGE))
        deepest = min(PAGE, self.context_limit - context)
        n_pages = -(-context // PAGE) + 1
        n_places = min(max_batch, 8)
        pages = self.new_pages(n_places * (n_pages + 1))

        def run(n_rows: int) -> float:
            batch = pack(_example_entries(n_rows, max_batch, context, deepest, n_pages, n_places))
            started = time.perf_counter()
            self.forward(batch, pages)
            self.synchronise()
            return time.perf_counter() - started

        return CostModel.measure(run, max_rows=max(64, 3 * max_batch))

    def synchronise(self) -> None:
        """Wait until the device has done what it was given; CPUs are always done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _read_sizes(self) -> None:
        text = self.model.config.get_text_config()
        self.n_layers: int = text.num_hidden_layers
        self.hidden_size: int = text.hidden_size
        self._kv_heads: int = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        self._head_dim: int = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        self.vocab_size: int = self.model.get_output_embeddings().weight.shape[0]
        if self.tokenizer is not None:
            self.vocab_size = min(self.vocab_size, len(self.tokenizer))
        self.context_limit = context_limit(text)

    def _adopt(self) -> None:
        """Exchange attention and, for `bitwise`, linears and activations; refuse what comes out different."""
        tokens = probe_tokens(self.vocab_size, self.context_limit)
        with torch.inference_mode():
            stock = self.model(input_ids=self._tensor(tokens)[None], use_cache=False).logits[0, :, : self.vocab_size]
        stock = stock.clone()
        attention.register()
        self.model.set_attn_implementation(attention.NAME)
        if self.numerics == "bitwise":
            unstable = stable.stabilise(self.model)
            if unstable:
                logger.warning("%s: no bit-stable kernel for %s; numerics: fast", self.name, unstable)
                self._fall_back()
            elif not is_bit_stable(self, tokens):
                logger.warning("%s: its forward is not bit-stable on this machine; numerics: fast", self.name)
                self._fall_back()
        if not matches_stock(self, tokens, stock):
            raise TargetError(
                f"{self.name}: its packed forward differs from the model's own, so its attention or state cannot be "
                f"served; choose another target"
            )

    def _fall_back(self) -> None:
        self.numerics = "fast"
        set_threads(n_threads())  # `stabilise` left torch one

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, np.int64)).to(self.device)


def _example_entries(
    n_rows: int, max_batch: int, context: int, deepest: int, n_pages: int, n_places: int
) -> list[Entry]:
    n_entries = min(n_rows, max_batch)
    sizes = [n_rows // n_entries + (i < n_rows % n_entries) for i in range(n_entries)]
    entries = []
    for i, size in enumerate(sizes):
        first = (i % n_places) * (n_pages + 1)
        tree = DraftTree.chain(1, [1] * min(size - 1, deepest))
        places = list(range(first, first + n_pages))
        entries.append(Entry(np.ones(1, np.int32), context - 1, places, tree, [first + n_pages]))
    return entries


def load_target(config: EngineConfig) -> Target:
    """Load the model that `config` names, from the demo, a folder, a GGUF file or the hub.

    Raises:
        ConfigError: there is no such device.
        TargetError: it cannot be found, read or served.
    """
    device = device_named(config.device)
    place = locate(config.target)
    dtype = dtype_named(config.dtype, device)
    if device.type == "cpu":
        set_threads(config.threads or os.cpu_count() or 1)
    try:
        options = {"trust_remote_code": config.trust_remote_code}
        architecture = AutoConfig.from_pretrained(place, **options)
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        model = AutoModelForCausalLM.from_pretrained(place, config=architecture, dtype=dtype, **options)
        model = torch.nn.Module.to(model, device)  # the model's own `to` hides its types
    except Exception as error:  # each file format and architecture has its own ways to fail
        raise TargetError(
            f"{config.target}: cannot load the target model ({first_line(error)}); give `smollm2`, a local "
            f"folder, a .gguf file or a hub id"
        ) from None
    stable_wanted = device.type == "cpu" and dtype == torch.float32
    numerics = ("bitwise" if stable_wanted else "fast") if config.numerics == "auto" else config.numerics
    if numerics == "bitwise" and not stable_wanted:
        raise TargetError(f"numerics: `bitwise` needs a CPU and float32, not {device} and {dtype}; use `fast`")
    return Target(
        model,
        tokenizer,
        numerics=numerics,
        name=config.target,
        weights_id=weights_id(place),
        max_context=config.max_context,
    )
