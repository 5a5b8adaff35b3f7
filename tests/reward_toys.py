"""Toy reward models built in code, saved in the layouts that published checkpoints have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Model,
)

from tests.toys import toy_tokenizer
from tts_orch.engine.model_files import weights_id
from tts_orch.records import Problem
from tts_orch.rewards.process_head import HeadConfig, ProcessHead, write_head

PROBLEM: Final = Problem("p", "what is 10 + 11?")
STEPS: Final = ("we see 10 + 11 is near 20.", "the answer\nis 21", "so it is 21.")

_TEMPLATE: Final = (
    "{% for message in messages %}<bos>{{ message['role'] }}\n{{ message['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}"
)
_MARKS: Final = (AddedToken("<extra_0>", special=True), AddedToken("ки", lstrip=True), "Yes", "No")


def reward_tokenizer() -> PreTrainedTokenizerFast:
    """Return the toy tokenizer with a chat template, marks of published reward models, and words of a judge."""
    tokenizer = toy_tokenizer()
    tokenizer.add_tokens(list(_MARKS))
    tokenizer.pad_token = "<eos>"
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer, as models of the Qwen family need it."""
    merges = [("Ċ", "Ċ"), (".", "Ċ"), ("Ġ", "a"), ("Ġ", "i"), ("t", "h"), ("th", "e"), ("1", "0")]
    tokens = ["<unk>", "<bos>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<eos>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=_TEMPLATE, **special)
    fast.add_tokens([_MARKS[0]])
    return fast


def shape(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 512,
        "pad_token_id": 2,
        **changes,
    }


def save_qwen_math_prm(folder: Path) -> Path:
    """Qwen2.5-Math-PRM: decoder and a head of two layers."""
    torch.manual_seed(1)
    backbone = Qwen2Model(Qwen2Config(**shape(initializer_range=0.3)))
    head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    return _save_parts(folder, backbone, {"score": head}, "Qwen2ForProcessRewardModel")


def save_skywork_prm(folder: Path) -> Path:
    """Skywork-o1-Open-PRM: a causal language model and a value head."""
    torch.manual_seed(2)
    backbone = Qwen2Model(Qwen2Config(**shape(initializer_range=0.3, bos_token_id=1)))
    parts = {"v_head.summary": nn.Linear(32, 1), "lm_head": nn.Linear(32, backbone.config.vocab_size, bias=False)}
    return _save_parts(folder, backbone, parts, "Qwen2ForPrmModel")


def save_rlhflow_prm(folder: Path) -> Path:
    torch.manual_seed(3)
    return _save(folder, LlamaForCausalLM(LlamaConfig(**shape(initializer_range=0.3))))


def save_math_shepherd(folder: Path) -> Path:
    torch.manual_seed(4)
    return _save(folder, MistralForCausalLM(MistralConfig(**shape(initializer_range=0.3, sliding_window=None))))


def save_classifier(folder: Path) -> Path:
    torch.manual_seed(5)
    config = LlamaConfig(**shape(initializer_range=0.3), num_labels=1)
    return _save(folder, LlamaForSequenceClassification(config))


def save_encoder_classifier(folder: Path) -> Path:
    torch.manual_seed(6)
    size = shape(initializer_range=0.3)
    size.pop("num_key_value_heads")
    return _save(folder, BertForSequenceClassification(BertConfig(**size, num_labels=2)))


def save_trained_head(folder: Path, layer: int = -2) -> Path:
    """A head of `tts-orch reward train` on the first of two layers, and its base model in a folder beside it."""
    base = save_rlhflow_prm(folder.with_name(f"{folder.name}-base"))
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    head = ProcessHead(n_inputs=32, width=8)
    head.mean.normal_()
    config = HeadConfig(
        base_model=str(base),
        base_weights=weights_id(base),
        dtype="float32",
        template="chat",
        delimiters=("\n\n",),
        layer=layer,
        kind="mlp",
        width=8,
        hidden_size=32,
    )
    write_head(folder, config, head)
    return folder


SAVED: Final[Mapping[str, Callable[[Path], Path]]] = {
    "qwen_math_prm": save_qwen_math_prm,
    "rlhflow_prm": save_rlhflow_prm,
    "skywork_prm": save_skywork_prm,
    "math_shepherd": save_math_shepherd,
    "judge": save_rlhflow_prm,
    "trained_head": save_trained_head,
}
"""Models that score steps, by kind."""


def _save(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    reward_tokenizer().save_pretrained(folder)
    return folder


def _save_parts(folder: Path, backbone: Qwen2Model, parts: Mapping[str, nn.Module], architecture: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    modules = {"model": backbone, **parts}
    tensors = {f"{name}.{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    config = {**backbone.config.to_dict(), "architectures": [architecture]}
    (folder / "config.json").write_text(json.dumps(config))
    byte_tokenizer().save_pretrained(folder)
    return folder
