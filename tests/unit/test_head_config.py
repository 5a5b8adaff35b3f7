"""Draft heads as wide as a layer of their target, whatever its architecture calls that."""

from __future__ import annotations

import pytest
import torch
from transformers import BloomConfig, FalconConfig, GPT2Config, GPTNeoConfig, LlamaConfig, OPTConfig, PreTrainedConfig

from tts_orch.drafters.draft_heads import new_head
from tts_orch.drafters.head_config import HeadConfig

_GPT2 = GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)
_GPT_NEO = {"vocab_size": 97, "hidden_size": 32, "num_heads": 4, "num_layers": 2, "attention_types": [[["global"], 2]]}
_OPT = OPTConfig(
    vocab_size=97, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48, num_attention_heads=4, num_hidden_layers=2
)
_LLAMA = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}


@pytest.mark.parametrize("architecture", ["eagle", "eagle3"])
@pytest.mark.parametrize(
    ("target", "width", "activation"),
    [
        (_GPT2, 128, "gelu_new"),
        (GPT2Config(vocab_size=97, n_embd=32, n_head=4, n_layer=2, n_inner=40), 40, "gelu_new"),
        (GPTNeoConfig(**_GPT_NEO), 128, "gelu_new"),
        (_OPT, 48, "relu"),
        (LlamaConfig(**_LLAMA, num_key_value_heads=2, num_hidden_layers=2), 48, "silu"),
        (BloomConfig(vocab_size=97, hidden_size=32, n_head=4, n_layer=2), 128, "silu"),
        (FalconConfig(vocab_size=97, hidden_size=32, num_attention_heads=4, num_hidden_layers=2), 128, "gelu"),
    ],
    ids=lambda value: getattr(value, "model_type", str(value)),
)
def test_every_target_that_is_served_gives_a_shape(
    target: PreTrainedConfig, width: int, activation: str, architecture: str
) -> None:
    config = HeadConfig.for_target(target, architecture=architecture)
    assert (config.hidden_size, config.num_attention_heads, config.head_dim, config.vocab_size) == (32, 4, 8, 97)
    assert (config.intermediate_size, config.hidden_act) == (width, activation)
    assert config.num_key_value_heads == (2 if target.model_type == "llama" else 4)
    head = new_head(config)
    features = torch.zeros(1, 2, 32 * len(config.feature_layers))
    project = getattr(head, "project", lambda states: states)
    predicted, _ = head(torch.zeros(1, 2, 32), project(features), torch.arange(2)[None])
    assert predicted.shape == (1, 2, 32)
