"""What a client of a pool keeps of a trajectory: all that the pool must know of it, and how much of that was sent."""

from __future__ import annotations

from dataclasses import replace

import torch

from tts_orch.drafters.pool_messages import TrajectoryNews
from tts_orch.policies.drafting.draft_tree import Features, TrajectoryStart
from tts_orch.policies.drafting.token_buffer import TokenBuffer
from tts_orch.records import IntArray

__all__ = ["ToldTrajectory"]


class ToldTrajectory:
    """A trajectory with the features of its positions, in the memory of the CPU.

    Args:
        start: how it began.

    Attributes:
        n_tokens: committed tokens.
        kept_bytes: memory that its features take.
        is_lost: whether features were given up before they were sent, or again where they must be sent again: the
            pool can draft for it no more.
    """

    def __init__(self, start: TrajectoryStart) -> None:
        self._start = start
        self._buffer = TokenBuffer(start.token_ids)
        self._kept: list[torch.Tensor] = []  # features, in pieces as they came
        self._has_all = True  # whether nothing of them was freed
        self._n_features = 0
        self._n_sent = self._n_sent_features = self._n_sent_pieces = 0
        self.kept_bytes = 0
        self.is_lost = False

    @property
    def n_tokens(self) -> int:
        """Committed tokens."""
        return len(self._buffer)

    @property
    def root(self) -> int:
        """The last committed token."""
        return int(self._buffer.tokens[-1])

    def commit(self, token_ids: IntArray) -> None:
        """Add committed tokens."""
        self._buffer.append(token_ids)

    def add_features(self, features: Features) -> None:
        """Add features `[m, d]` of the next positions."""
        self._n_features += len(features)
        if not self.is_lost:
            piece = torch.as_tensor(features).detach().to("cpu", copy=True)  # a view would be sent whole
            self._kept.append(piece)
            self.kept_bytes += piece.nbytes

    def news(self) -> TrajectoryNews:
        """Return what was not sent yet; it counts as sent from now on."""
        is_new = self._n_sent == 0
        tokens = self._buffer.tokens.copy()
        unsent = self._kept[self._n_sent_pieces :]
        news = TrajectoryNews(
            trajectory=self._start.trajectory,
            start=replace(self._start, token_ids=tokens) if is_new else None,
            n_known=self._n_sent,
            committed=tokens[self.n_tokens if is_new else self._n_sent :],
            n_known_features=self._n_sent_features,
            features=torch.cat(unsent) if unsent else None,
        )
        self._n_sent, self._n_sent_features, self._n_sent_pieces = self.n_tokens, self._n_features, len(self._kept)
        return news

    def begin_anew(self) -> None:
        """Take back that anything was sent."""
        self._n_sent = self._n_sent_features = self._n_sent_pieces = 0
        if not self._has_all:
            self.is_lost = True
            self._free()

    def release(self) -> None:
        """Free the features; those that were not sent are lost."""
        self.is_lost = self.is_lost or self._n_sent_features < self._n_features
        self._has_all = self._has_all and not self._kept
        self._free()

    def _free(self) -> None:
        self._kept.clear()
        self.kept_bytes = self._n_sent_pieces = 0
