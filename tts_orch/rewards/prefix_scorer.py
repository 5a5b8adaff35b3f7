"""Reads solutions with a causal model, no shared prefix twice, and takes scores at the ends of their segments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from transformers import DynamicCache, PreTrainedModel

from tts_orch.rewards.likelihood import Likelihood
from tts_orch.rewards.padded_batch import Row, pad, past_of
from tts_orch.rewards.prefix_memory import KeptSegment, PrefixMemory, prefix_keys
from tts_orch.rewards.segments import Segment, n_tokens_of

__all__ = ["PrefixScorer", "Readings", "Readout"]

Readout: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states `[n, hidden]`, or what else is read `[n, n_inputs]`, to probabilities `[n]`."""

_HIDDEN: Final = -torch.inf


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read of one solution.

    Attributes:
        scores: one for each segment that is read.
        n_tokens: tokens that were read for it now.
    """

    scores: tuple[float, ...]
    n_tokens: int


class PrefixScorer:
    """Scores token segments with a decoder model.

    Args:
        backbone: the model without its head, in evaluation mode on its device; attention layers only.
        readout: the head.
        batch: solutions in a forward.
        kv_bytes: memory for keys and values of what was read.
        likelihood: what the readout gets instead of the last hidden states alone.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        readout: Readout,
        *,
        batch: int = 16,
        kv_bytes: int = 2**30,
        likelihood: Likelihood | None = None,
    ) -> None:
        self._likelihood = likelihood
        self._backbone = backbone
        self._readout = readout
        self._batch = batch
        self._keeps = kv_bytes > 0
        self._memory = PrefixMemory(kv_bytes)
        names = inspect.signature(backbone.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # newer and older transformers

    @torch.inference_mode()
    def read(self, solutions: Sequence[Sequence[Segment]]) -> list[Readings]:
        """Score solutions.

        Returns:
            In the order of `solutions`; the same within float rounding whatever is read together, or was read before.
        """
        keys = [prefix_keys(segments) for segments in solutions]
        readings: dict[int, Readings] = {}
        waiting = list(range(len(solutions)))
        while waiting:
            wave = _disjoint(waiting, keys, self._memory) if self._keeps else waiting
            for some in _chunks(sorted(wave, key=lambda i: n_tokens_of(solutions[i])), self._batch):
                found = self._read_together([solutions[i] for i in some], [keys[i] for i in some])
                readings.update(zip(some, found, strict=True))
            waiting = [i for i in waiting if i not in readings]
        return [readings[i] for i in range(len(solutions))]

    def _read_together(self, solutions: Sequence[Sequence[Segment]], keys: Sequence[list[bytes]]) -> list[Readings]:
        rows = []
        for segments, its_keys in zip(solutions, keys, strict=True):
            kept = self._memory.find(its_keys)
            rows.append(Row(kept, segments[len(kept) :]))
        computed = iter(self._forward([row for row in rows if row.new]))
        readings = []
        for row, its_keys in zip(rows, keys, strict=True):
            new = next(computed) if row.new else []
            if self._keeps:
                self._memory.keep(its_keys, new)
            scores = tuple(segment.score for segment in (*row.kept, *new) if segment.score is not None)
            readings.append(Readings(scores, n_tokens_of(row.new)))
        return readings

    def _forward(self, rows: Sequence[Row]) -> list[list[KeptSegment]]:
        """Compute the new segments of all rows in one pass."""
        if not rows:
            return []
        batch = pad(rows)
        cache = _cache_of(rows, batch.n_past)
        device = self._backbone.device
        visible = batch.visible.to(device)
        mask = torch.zeros(visible.shape, dtype=self._backbone.dtype, device=device).masked_fill_(~visible, _HIDDEN)
        inputs = {self._cache_name: cache, "attention_mask": mask, "position_ids": batch.positions.to(device)}
        if self._likelihood and self._likelihood.layer is not None:
            inputs["output_hidden_states"] = True
        output = self._backbone(input_ids=batch.token_ids.to(device), use_cache=True, **inputs)
        computed = iter(self._computed(rows, output))
        layers = cache.layers if self._keeps else ()
        return [
            _to_keep(row, list(islice(computed, len(row.new))), layers, i, batch.n_past) for i, row in enumerate(rows)
        ]

    def _computed(self, rows: Sequence[Row], output: Any) -> list[_Computed]:
        """Return what is known of all new segments, in order."""
        top = output.last_hidden_state
        if self._likelihood is None:
            return [_Computed(score) for score in self._scores(_states_at(top, rows))]
        layer, likelihoods = self._likelihood.layer, self._likelihood.of(rows, top)
        hidden = [] if layer is None else [_states_at(output.hidden_states[layer], rows)]
        tops = (its_top[end - 1].clone() for row, its_top in zip(rows, top, strict=True) for end in row.ends)
        return [
            _Computed(*one)
            for one in zip(self._scores(torch.cat([*hidden, likelihoods], 1)), tops, likelihoods, strict=True)
        ]

    def _scores(self, inputs: torch.Tensor) -> list[float]:
        scores: list[float] = self._readout(inputs).double().tolist()
        return scores


class _Computed(NamedTuple):
    """What a forward tells of one segment, besides keys and values; see `KeptSegment`."""

    score: float
    top: torch.Tensor | None = None
    likelihood: torch.Tensor | None = None


def _states_at(hidden: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """Return `[n, hidden]` the states where the scores of all new segments are taken."""
    return torch.cat([hidden[i, row.reads] for i, row in enumerate(rows)])


def _cache_of(rows: Sequence[Row], n_past: int) -> DynamicCache:
    cache = DynamicCache()
    if n_past:
        n_layers = next(len(row.kept[0].layers) for row in rows if row.kept)
        for layer in range(n_layers):
            keys, values = past_of(rows, n_past, layer)
            cache.update(keys, values, layer)
    return cache


def _to_keep(row: Row, computed: Sequence[_Computed], layers: Sequence[Any], i: int, n_past: int) -> list[KeptSegment]:
    segments = []
    for segment, end, (score, top, likelihood) in zip(row.new, row.ends, computed, strict=True):
        span = slice(n_past + end - len(segment.token_ids), n_past + end)
        of_layers = tuple(torch.stack([layer.keys[i, :, span], layer.values[i, :, span]]) for layer in layers)
        segments.append(KeptSegment(of_layers, score if segment.is_read else None, top, likelihood))
    return segments


def _disjoint(waiting: Sequence[int], keys: Sequence[list[bytes]], memory: PrefixMemory) -> list[int]:
    """Choose solutions, at least one, of which no two would read the same segment now; the others find it kept later."""
    chosen, claimed = [], set[bytes]()
    for i in waiting:
        new = keys[i][len(memory.find(keys[i])) :]
        if claimed.isdisjoint(new):
            claimed.update(new)
            chosen.append(i)
    return chosen


def _chunks(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (items[start : start + size] for start in range(0, len(items), size))
