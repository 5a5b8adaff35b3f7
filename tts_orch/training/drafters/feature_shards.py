"""The target's features and laws on disk, computed once for all trainings that share a cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from tts_orch.atomic_file import write_atomically
from tts_orch.drafters.head_config import LAST_HIDDEN_STATE
from tts_orch.training.drafters.target_laws import FrozenTarget, Laws, laws_of
from tts_orch.training.drafters.training_sequences import TrainingSequence

__all__ = ["SEQUENCES_A_SHARD", "FeatureShard", "Learned", "features_key", "write_missing"]

SEQUENCES_A_SHARD: Final = 32


class Learned(NamedTuple):
    """What a head learns from a sequence.

    Attributes:
        token_ids: `[n]` int32.
        features: `[n - 1, layers * d]` float32 of all positions but the last.
        states: `[m, d]` float32 last hidden states of positions `first_law` up to `n - 2`,
        laws: and their laws; without mean rows where these states are not the features.
        first_law: first position whose law is learned.
    """

    token_ids: Tensor
    features: Tensor
    states: Tensor
    laws: Laws
    first_law: int


def features_key(weights_id: str, dtype: str, layers: Sequence[int]) -> str:
    """Return the name of the folder of a target's features, of these layers."""
    of_layers = "" if tuple(layers) == LAST_HIDDEN_STATE else f"-layers-{'-'.join(map(str, layers))}"
    return f"features-{weights_id[:16]}-{dtype}{of_layers}"


class FeatureShard:
    """Features and laws of a few sequences in one file, whose name is a hash of their tokens.

    Args:
        folder: of the target and the layers, see `features_key`.
        sequences: what is in it, whole.
        layers: hidden states of the target that are the features, see `Drafter.feature_layers`.
    """

    def __init__(self, folder: Path, sequences: Sequence[TrainingSequence], layers: Sequence[int]) -> None:
        self._sequences = sequences
        self._layers = tuple(layers)
        digest = hashlib.blake2b(digest_size=16)
        for one in sequences:
            digest.update(f"{len(one.token_ids)} {one.n_prompt} ".encode() + one.token_ids.tobytes())
        self._file = folder / f"{digest.hexdigest()}.safetensors"

    @property
    def exists(self) -> bool:
        """Whether it is on disk."""
        return self._file.exists()

    def write(self, target: FrozenTarget) -> None:
        """Compute it; features of float32 targets are kept as float16."""
        width = target.output.shape[1]
        read = target.features([one.token_ids for one in self._sequences], (*self._layers, -1))
        states = torch.cat([f[one.first_law :, -width:] for f, one in zip(read, self._sequences, strict=True)])
        laws = laws_of(states, target.output, with_expected=not self._has_states)
        tensors = {"features": _halved(torch.cat([features[:, :-width] for features in read])), **laws._asdict()}
        tensors["expected"] = _halved(laws.expected)
        if self._has_states:
            tensors["states"] = _halved(states)
        write_atomically(self._file, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}))

    def read(self, index: int) -> Learned:
        """Return what is used of one sequence."""
        sequence = self._sequences[index]
        row, law_row = self._rows[index]
        end = law_row + sequence.n_laws
        expected, top_ids, top_probs = (self._slice(name, law_row, end) for name in Laws._fields)
        features = self._slice("features", row, row + sequence.length - 1).float()
        states = self._slice("states", law_row, end).float() if self._has_states else features[sequence.first_law :]
        laws = Laws(expected.float(), top_ids.long(), top_probs)
        token_ids = torch.from_numpy(sequence.token_ids[: sequence.length])
        return Learned(token_ids, features, states, laws, sequence.first_law)

    @property
    def _has_states(self) -> bool:
        """Whether the last hidden states are kept apart from the features."""
        return self._layers != LAST_HIDDEN_STATE

    @cached_property
    def _rows(self) -> list[tuple[int, int]]:
        """Where each sequence begins, among the features and among the laws."""
        rows, row, law_row = [], 0, 0
        for one in self._sequences:
            rows.append((row, law_row))
            row += len(one.token_ids) - 1
            law_row += max(len(one.token_ids) - 1 - one.first_law, 0)
        return rows

    @cached_property
    def _opened(self) -> Any:
        """The file, mapped into memory."""
        return safe_open(self._file, "pt")

    def _slice(self, name: str, first: int, end: int) -> Tensor:
        rows: Tensor = self._opened.get_slice(name)[first:end]
        return rows


def write_missing(shards: Sequence[FeatureShard], target: FrozenTarget, on_shard: Callable[[int], None]) -> None:
    """Compute the shards that are not on disk.

    Args:
        shards: all.
        target: whose features they hold.
        on_shard: called with the number of shards that are done.
    """
    for n_done, shard in enumerate(shards, start=1):
        if not shard.exists:
            shard.write(target)
        on_shard(n_done)


def _halved(tensor: Tensor) -> Tensor:
    return tensor if tensor.element_size() == 2 else tensor.half()
