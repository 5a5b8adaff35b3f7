"""Toy targets built in code: small models of several architectures and a tokenizer, for tests of exactness.

Their laws are neither flat nor one-hot, so that drafts are sometimes accepted and sometimes not; their weights are a pure
function of the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

VOCABULARY_SIZE: Final = 97
BOS_ID: Final = 1
EOS_ID: Final = 2

_SPECIAL_TOKENS: Final = ("<unk>", "<bos>", "<eos>")
_BYTE_TOKENS: Final = ("<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>")  # an e with an acute accent, the euro sign
_CHARACTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDE \n.,:;?!+-*/=()'\"\\{}$#<>%_"
_MERGES: Final = (
    *(("\n", "\n"), (".", "\n"), ("\n", "1"), ("t", "h"), ("th", "e"), (" ", "the"), ("a", "n"), ("i", "n")),
    *(("in", "g"), ("e", "r"), ("o", "n"), (" ", "a"), (" ", "="), (" ", "+"), (" ", "1"), ("1", "0"), ("s", " ")),
    *(("#", "#"), ("##", "##"), ("b", "o"), ("bo", "x"), ("\\", "box")),
)

_SHAPE: Final = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": None,
    "attn_implementation": "eager",  # the reference; SDPA has no soft cap
}


def toy_llama(dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """Grouped-query attention, rotary positions, an output layer of its own."""
    return _with_random_weights(LlamaForCausalLM, LlamaConfig(**_SHAPE, tie_word_embeddings=False), dtype, seed)


def toy_qwen2(dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """Biases on queries, keys and values; three layers; embeddings shared with the output layer."""
    config = Qwen2Config(**_SHAPE | {"num_hidden_layers": 3, "tie_word_embeddings": True})
    return _with_random_weights(Qwen2ForCausalLM, config, dtype, seed)


def toy_mistral(dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """A sliding window of 8 positions in every layer."""
    config = MistralConfig(**_SHAPE, sliding_window=8, tie_word_embeddings=False)
    return _with_random_weights(MistralForCausalLM, config, dtype, seed)


def toy_gemma2(dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """Soft caps, a window in every other layer, heads that are wider than hidden size / heads."""
    config = Gemma2Config(
        **_SHAPE,
        head_dim=12,
        query_pre_attn_scalar=12,
        sliding_window=8,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=6.0,
        tie_word_embeddings=True,
    )
    return _with_random_weights(Gemma2ForCausalLM, config, dtype, seed)


TOY_MODELS: Final[dict[str, Callable[..., PreTrainedModel]]] = {
    "gemma2": toy_gemma2,
    "llama": toy_llama,
    "mistral": toy_mistral,
    "qwen2": toy_qwen2,
}


def toy_tokenizer() -> PreTrainedTokenizerFast:
    r"""Return a character tokenizer with 22 merges, in which "\n\n" may span two tokens (".\n" then "\n")."""
    merged = [left + right for left, right in _MERGES]
    vocabulary = {token: i for i, token in enumerate([*_SPECIAL_TOKENS, *_BYTE_TOKENS, *_CHARACTERS, *merged])}
    tokenizer = Tokenizer(BPE(vocabulary, list(_MERGES), unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def save_toy(folder: Path, model: PreTrainedModel | None = None) -> Path:
    """Write a toy model (float32 Llama if none is given) with the toy tokenizer: a target for whole-program tests."""
    (model or toy_llama(torch.float32)).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


def _with_random_weights(
    architecture: type[PreTrainedModel], config: PretrainedConfig, dtype: torch.dtype, seed: int
) -> PreTrainedModel:
    """Build a model whose logits have a standard deviation of about 2: an entropy of 2 to 3 nats of the 4.6 possible."""
    model = architecture(config).to(torch.float64).eval()
    generator = torch.Generator().manual_seed(seed)
    logit_spread = 2.0 / math.sqrt(config.hidden_size)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            if weight.dim() == 1:
                weight.add_(0.1 * noise)  # norms near their start, biases near zero
            elif "embed" in name or "lm_head" in name:
                weight.copy_(logit_spread * noise)
            else:
                weight.copy_(1.5 / math.sqrt(weight.shape[1]) * noise)
    return model.requires_grad_(False).to(dtype)
