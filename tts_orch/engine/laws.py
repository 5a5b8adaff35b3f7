"""The sampling law: the one pipeline from raw logits to log-weights, for plain and speculative decoding alike.

Every row is judged on its own history: committed tokens plus the draft tokens on the path to its node. On CPUs the bits
of a row do not depend on the other rows of a call: only elementwise operations, sorting and sums that run along a row in
one order are used.

Order and meaning of the processors are those of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts_orch.engine import noise, row_kernels
from tts_orch.engine.truncation import descending, truncate
from tts_orch.errors import ConfigError
from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = ["RawStatistics", "TrajectoryLaw", "draw", "process", "raw_statistics"]


class TrajectoryLaw:
    """The sampling law of one trajectory, with as much of its history as the law asks for.

    Args:
        params: the law.
        stop_ids: every token id that ends the trajectory, EOS included.
        prompt_ids: `[n]` prompt tokens.
        vocab_size: number of ids that can be drawn.

    Raises:
        ConfigError: a bias on a token that does not exist.
    """

    def __init__(
        self, params: SamplingParams, stop_ids: Sequence[int], prompt_ids: Iterable[int], vocab_size: int
    ) -> None:
        self.params = params
        self._bias = dict(params.logit_bias)
        missing = [token_id for token_id in self._bias if token_id >= vocab_size]
        if missing:
            raise ConfigError(f"logit_bias: no token {missing[0]}; the target's vocabulary has {vocab_size} tokens")
        self._stop_ids = [token_id for token_id in stop_ids if token_id < vocab_size]
        self._n_output = 0
        self._penalises_prompt = params.repetition_penalty != 1
        self._penalises = self._penalises_prompt or params.presence_penalty != 0 or params.frequency_penalty != 0
        prompt = (int(token_id) for token_id in prompt_ids if token_id < vocab_size)
        self._counts = dict.fromkeys(prompt, 0) if self._penalises_prompt else {}  # occurrences in the output

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken."""
        return self.params.temperature == 0

    @property
    def uses_history(self) -> bool:
        """Whether `edit` changes anything."""
        return bool(self._bias) or self._penalises or self._n_output < self.params.min_new_tokens

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append output tokens."""
        self._n_output += len(token_ids)
        if self._penalises:
            _count(self._counts, token_ids)

    def edit(self, row: Tensor, path: Sequence[int]) -> None:
        """Apply bias, penalties and bans in place to the logits `[V]` after the committed tokens and `path`."""
        if self._bias:
            row[list(self._bias)] += row.new_tensor(list(self._bias.values()))
        if self._penalises:
            self._penalise(row, path)
        if self._n_output + len(path) < self.params.min_new_tokens:
            row[self._stop_ids] = -math.inf

    def _penalise(self, row: Tensor, path: Sequence[int]) -> None:
        counts = self._counts
        if path:
            counts = counts.copy()
            _count(counts, path)
        ids = torch.from_numpy(np.fromiter(counts, np.int64, len(counts))).to(row.device)
        occurrences = torch.from_numpy(np.fromiter(counts.values(), np.float64, len(counts))).to(row)
        params, logits = self.params, row[ids]
        if self._penalises_prompt:
            penalty = params.repetition_penalty
            logits = torch.where(logits < 0, logits * penalty, logits / penalty)
        row[ids] = logits - params.frequency_penalty * occurrences - params.presence_penalty * (occurrences > 0)


def _count(counts: dict[int, int], token_ids: Iterable[int]) -> None:
    for token_id in token_ids:
        counts[token_id] = counts.get(token_id, 0) + 1


def process(logits: Tensor, laws: Sequence[TrajectoryLaw], paths: Sequence[Sequence[int]]) -> Tensor:
    """Turn raw logits into the log-weights that tokens are drawn from.

    Args:
        logits: `[R, V]` raw logits, left as they are.
        laws: `[R]` the law of each row's trajectory.
        paths: `[R]` draft tokens between the committed text and the row's node, root excluded.

    Returns:
        `[R, V]` log-weights up to a constant a row, -inf for what cannot be drawn; float64 for float64 logits, else
        float32. It is `logits` itself where no processor is on.
    """
    weights = logits if logits.dtype == torch.float64 else logits.float()
    edited = [row for row, law in enumerate(laws) if law.uses_history]
    if edited and weights is logits:
        weights = logits.clone()
    for row in edited:
        laws[row].edit(weights[row], paths[row])
    groups: dict[tuple[float, int, float, float], list[int]] = {}
    for row, law in enumerate(laws):
        params = law.params
        groups.setdefault((params.temperature, params.top_k, params.top_p, params.min_p), []).append(row)
    if len(groups) == 1:
        return _shape(weights, *next(iter(groups)))
    shaped = torch.empty_like(weights)
    for shape, rows in groups.items():
        shaped[rows] = _shape(weights[rows], *shape)
    return shaped


def _shape(weights: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Apply what does not depend on history."""
    if temperature == 0:
        best, ids = weights.max(dim=1, keepdim=True)
        return torch.full_like(weights, -math.inf).scatter_(1, ids, best)
    if temperature != 1:
        weights = weights / temperature
    return truncate(weights, top_k=top_k, top_p=top_p, min_p=min_p)


def draw(
    processed: Tensor, seeds: NDArray[np.uint64], positions: NDArray[np.int64], greedy: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Draw one token a row.

    Args:
        processed: `[R, V]` log-weights.
        seeds: `[R]` trajectory seeds.
        positions: `[R]` absolute positions of the tokens to be drawn.
        greedy: `[R]` rows whose largest weight is taken without noise.

    Returns:
        `[R]` token ids; -1 where a row gives no token a chance, as when the target's logits are not numbers.
    """
    tokens = np.empty(len(processed), np.int64)
    if greedy.any():
        best, ids = processed[torch.from_numpy(greedy)].max(dim=1)
        tokens[greedy] = torch.where(best > -math.inf, ids, -1).cpu().numpy()
    if not greedy.all():
        drawn = ~greedy
        rows = processed[torch.from_numpy(drawn)] if greedy.any() else processed
        tokens[drawn] = _keyed_argmax(rows, seeds[drawn], positions[drawn])
    return tokens


def _keyed_argmax(rows: Tensor, seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    if rows.device.type == "cpu":
        return row_kernels.keyed_argmax(rows.contiguous().numpy(), seeds, positions)
    return noise.keyed_argmax(rows, seeds, positions)


@dataclass(frozen=True, slots=True)
class RawStatistics:
    """What is kept of raw laws (T=1, before every processor), one entry a row.

    Attributes:
        log_normaliser: `[R]` log of the sum of exponentials of the logits, float64.
        top_ids: `[R, k]` most probable ids first, equals by id.
        top_log_probs: `[R, k]` their log-probabilities.
        confidences: `[R]` minus the mean of these (arXiv 2508.15260, token confidence).
        self_certainties: `[R]` KL(uniform || law) (arXiv 2502.18581).
    """

    log_normaliser: NDArray[np.float64]
    top_ids: IntArray
    top_log_probs: FloatArray
    confidences: FloatArray
    self_certainties: FloatArray


def raw_statistics(logits: Tensor, k: int = 20) -> RawStatistics:
    """Describe every row of raw logits `[R, V]`; with fewer than `k` ids all are listed."""
    k = min(k, logits.shape[1])
    if logits.device.type == "cpu" and logits.dtype != torch.float64:
        values, ids, normalisers, means = row_kernels.describe_rows(logits.float().contiguous().numpy(), k)
    else:
        values, ids, normalisers, means = _describe(logits, k)
    log_probs = values - normalisers[:, None]
    return RawStatistics(
        normalisers,
        ids,
        log_probs.astype(np.float32),
        -log_probs.mean(axis=1).astype(np.float32),
        (normalisers - means - math.log(logits.shape[1])).astype(np.float32),
    )


def _describe(
    logits: Tensor, k: int
) -> tuple[NDArray[np.floating], IntArray, NDArray[np.float64], NDArray[np.float64]]:
    """Do what the kernel `describe_rows` does with torch."""
    weights = logits if logits.dtype == torch.float64 else logits.float()
    values, ids = descending(weights, k)
    normalisers = values[:, 0] - weights.log_softmax(dim=1).gather(1, ids[:, :1])[:, 0]
    means = weights.cumsum(dim=1)[:, -1] / weights.shape[1]
    columns = [column.double().cpu().numpy() for column in (values, normalisers, means)]
    return columns[0], ids.int().cpu().numpy(), columns[1], columns[2]
