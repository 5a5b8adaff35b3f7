"""The frozen target: its features, and what of its laws the losses need.

For a target whose logits are `W h`, the cross-entropy of a law `p` against the law of a predicted feature `f` is
`logsumexp(W f) - (sum_x p(x) W_x) . f`: of `p` one vector is enough, exactly. So laws over the whole vocabulary are computed
once, and a training step computes the logits of the predictions alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from tts_orch.errors import TargetError
from tts_orch.records import IntArray
from tts_orch.training.base_model import BaseFiles

__all__ = ["N_TOP", "FrozenTarget", "Laws", "laws_of", "load_frozen_target"]

N_TOP: Final = 10
"""K of HASS's distillation (arXiv 2408.15766)."""

_ROWS: Final = 128  # of logits at a time: what fits the caches of a CPU
_SEQUENCES: Final = 8  # in a pass


class Laws(NamedTuple):
    """What the losses need of laws at n positions.

    Attributes:
        expected: `[n, d]` mean row of the LM head under the law, `[n, 0]` where nobody asked for it.
        top_ids: `[n, N_TOP]` most probable tokens, the most probable first; fewer where the vocabulary is smaller.
        top_probs: `[n, N_TOP]` float32 probabilities of these.
    """

    expected: Tensor
    top_ids: Tensor
    top_probs: Tensor


class FrozenTarget:
    """A target in evaluation mode.

    Args:
        model: a causal language model on its device.
        vocab_size: rows of its LM head that are real tokens.
        name: how messages call it.

    Attributes:
        embedding: `[V, d]` input embeddings.
        output: `[vocab_size, d]` rows of the LM head.

    Raises:
        TargetError: its logits are more than a matrix times the last hidden state.
    """

    def __init__(self, model: Any, vocab_size: int, name: str) -> None:
        self._model = model
        self.embedding: Tensor = model.get_input_embeddings().weight.detach()
        self.output: Tensor = model.get_output_embeddings().weight.detach()[:vocab_size]
        self._check(name)

    @torch.inference_mode()
    def features(self, sequences: Sequence[IntArray], layers: Sequence[int]) -> list[Tensor]:
        """Return hidden states of all positions of every sequence but the last, `[n - 1, len(layers) * d]`.

        Args:
            sequences: token ids.
            layers: which hidden states, in this order, see `Drafter.feature_layers`.
        """
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        found: dict[int, Tensor] = {}
        for first in range(0, len(order), _SEQUENCES):
            group = order[first : first + _SEQUENCES]
            states = self._hidden([sequences[i][:-1] for i in group], layers)
            found.update((i, states[row, : len(sequences[i]) - 1]) for row, i in enumerate(group))
        return [found[i] for i in range(len(sequences))]

    def _hidden(self, sequences: Sequence[IntArray], layers: Sequence[int]) -> Tensor:
        """Run the layers; what pads shorter sequences stands behind them, where no row of theirs can see it."""
        padded = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.long)
        for row, tokens in zip(padded, sequences, strict=True):
            row[: len(tokens)] = torch.from_numpy(tokens)
        read = self._model.base_model(
            padded.to(self.output.device),
            use_cache=False,
            output_hidden_states=any(layer != -1 for layer in layers),
        )
        return torch.cat([read.last_hidden_state if n == -1 else read.hidden_states[n] for n in layers], dim=-1)

    @torch.inference_mode()
    def _check(self, name: str) -> None:
        token_ids = torch.arange(min(16, len(self.output)), device=self.output.device)[None]
        states = self._model.base_model(token_ids, use_cache=False).last_hidden_state[0]
        logits = self._model(token_ids, use_cache=False).logits[0, :, : len(self.output)]
        if not torch.allclose(states @ self.output.T, logits, rtol=1e-2, atol=1e-2 * float(logits.abs().max())):
            raise TargetError(
                f"{name}: its logits are no linear map of its last hidden state, so its laws cannot be learned; choose "
                "a target without soft caps, scales or biases on its logits"
            )


@torch.no_grad()
def laws_of(states: Tensor, output: Tensor, *, with_expected: bool = True) -> Laws:
    """Return the laws that belong to last hidden states, over the tokens whose rows of the LM head are given.

    Args:
        states: `[n, d]`.
        output: `[k, d]`; tokens are numbered by its rows.
        with_expected: whether the mean rows are computed.
    """
    parts = [*_laws(states.to(output.dtype).split(_ROWS), output, with_expected)]
    return Laws(*(torch.cat(of_parts) for of_parts in zip(*parts, strict=True)))


def _laws(parts: Sequence[Tensor], output: Tensor, with_expected: bool) -> Iterator[Laws]:
    for part in parts:
        probs = torch.softmax((part @ output.T).float(), dim=-1)
        top = probs.topk(min(N_TOP, probs.shape[1]))
        expected = probs.to(part.dtype) @ output if with_expected else part[:, :0]
        yield Laws(expected, top.indices.to(torch.int32), top.values)


def load_frozen_target(files: BaseFiles, name: str) -> FrozenTarget:
    """Load a target for training.

    Raises:
        TargetError: its logits are more than a matrix times the last hidden state.
    """
    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(files.folder, dtype=files.dtype)
    torch.nn.Module.to(model.eval().requires_grad_(False), files.device)  # the model's own `to` hides its types
    return FrozenTarget(model, len(files.tokenizer), name)
