"""The texts of a training with the target's features, read from disk as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tts_orch.training.drafters.feature_shards import SEQUENCES_A_SHARD, FeatureShard, Learned
from tts_orch.training.drafters.training_sequences import TrainingSequence

__all__ = ["TrainingTexts", "texts_of"]


class _Text(NamedTuple):
    sequence: TrainingSequence
    shard: FeatureShard
    place: int


class TrainingTexts:
    """Texts by their numbers.

    Args:
        texts: where each is.
    """

    def __init__(self, texts: Sequence[_Text]) -> None:
        self._texts = texts

    @property
    def lengths(self) -> list[int]:
        """Tokens of every text."""
        return [text.sequence.length for text in self._texts]

    @property
    def n_laws(self) -> list[int]:
        """Answer tokens of every text."""
        return [text.sequence.n_laws for text in self._texts]

    def read(self, number: int) -> Learned:
        """Return one text."""
        text = self._texts[number]
        return text.shard.read(text.place)


def texts_of(
    parts: Sequence[Sequence[TrainingSequence]], folder: Path, layers: Sequence[int]
) -> tuple[list[FeatureShard], TrainingTexts, TrainingTexts]:
    """Return all shards, the texts to train on, and the held-out ones.

    Args:
        parts: of a mixture.
        folder: of the target's features,
        layers: from these hidden states.
    """
    shards, texts = [], []
    for part in parts:
        for first in range(0, len(part), SEQUENCES_A_SHARD):
            group = part[first : first + SEQUENCES_A_SHARD]
            shards.append(FeatureShard(folder, group, layers))
            texts += [_Text(one, shards[-1], place) for place, one in enumerate(group) if one.n_laws]
    training = [text for text in texts if not text.sequence.is_held_out]
    held_out = [text for text in texts if text.sequence.is_held_out]
    return shards, TrainingTexts(training), TrainingTexts(held_out)
