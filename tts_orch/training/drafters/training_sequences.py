"""Texts to learn from, as tokens: a prompt, an answer, and how much of it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tts_orch.records import IntArray

__all__ = ["TrainingSequence", "choose_sequences", "is_held_out", "n_training_tokens"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """A prompt with its answer.

    Attributes:
        token_ids: `[n]` int32, prompt and answer.
        n_prompt: how many of them are the prompt.
        length: how many of them are used; the rest was over a limit.
        is_held_out: whether it is for the evaluation alone.
    """

    token_ids: IntArray
    n_prompt: int
    length: int
    is_held_out: bool = False

    @property
    def first_law(self) -> int:
        """First position whose law a head can learn: it predicts no answer token before, and no head drafts the second token."""
        return max(self.n_prompt - 1, 1)

    @property
    def n_laws(self) -> int:
        """Answer tokens that a head learns from."""
        return max(self.length - 1 - self.first_law, 0)

    def cut_to(self, n_laws: int) -> TrainingSequence:
        """Return it with so many answer tokens at most."""
        return replace(self, length=min(self.length, self.first_law + 1 + n_laws))


def is_held_out(prompt: IntArray, share: float) -> bool:
    """Say whether a prompt is for the evaluation alone; the same in every mixture."""
    digest = hashlib.blake2b(prompt.tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def choose_sequences(
    sequences: Iterable[TrainingSequence], limit: int | None, max_held_out: int, group: int
) -> list[TrainingSequence]:
    """Take sequences in order until exactly `limit` answer tokens are to be trained on, the last sequence cut for it.

    Args:
        sequences: in order; no more are asked for than are needed.
        limit: answer tokens of the training part, None for all.
        max_held_out: held-out sequences that are used.
        group: sequences are cached by so many; the last group is filled with unused ones, of length 0.

    Returns:
        The sequences, in order; those with `n_laws` 0 are not used.
    """
    chosen: list[TrainingSequence] = []
    n_left, n_held_out = limit, 0
    for sequence in sequences:
        if sequence.is_held_out:
            n_held_out += 1
            chosen.append(sequence if n_held_out <= max_held_out else sequence.cut_to(0))
        elif n_left is None:
            chosen.append(sequence)
        else:
            chosen.append(sequence.cut_to(n_left))
            n_left -= chosen[-1].n_laws
        if n_left == 0 and len(chosen) % group == 0:
            break
    return chosen


def n_training_tokens(sequences: Sequence[TrainingSequence]) -> int:
    """Return the answer tokens that are trained on."""
    return sum(one.n_laws for one in sequences if not one.is_held_out)
