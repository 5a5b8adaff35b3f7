"""Reads a causal language model's next-token law as a choice between two words."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from tts_orch.errors import TargetError
from tts_orch.rewards.prefix_scorer import Readout
from tts_orch.rewards.segments import Tokenizer

__all__ = ["word_id", "word_readout"]


def word_readout(model: PreTrainedModel, yes: tuple[int, ...], no: tuple[int, ...]) -> Readout:
    """Return the head that gives the probability of the tokens `yes` among those and the tokens `no`."""
    head: Any = model.get_output_embeddings()
    words = [*yes, *no]
    weight, bias = head.weight[words], None if head.bias is None else head.bias[words]
    soft_cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)

    def probabilities(hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.nn.functional.linear(hidden, weight, bias).float()
        if soft_cap:
            logits = soft_cap * torch.tanh(logits / soft_cap)
        law: torch.Tensor = logits.softmax(-1)
        return law[:, : len(yes)].sum(-1).clamp(max=1.0)

    return probabilities


def word_id(tokenizer: Tokenizer, word: str, name: str) -> int:
    """Return the token that a word is.

    Raises:
        TargetError: the tokenizer takes more than one for it.
    """
    token_ids = tokenizer.encode(word, add_special_tokens=False)
    if not token_ids or tokenizer.decode(token_ids[:-1]).strip():
        raise TargetError(f"{name}: its tokenizer has no token for {word!r}; give another model or kind")
    return int(token_ids[-1])
