"""Chunks of live candidates on their way to the controller: coalesced, numbered, kept until acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tts_orch.records import Chunk

__all__ = ["ChunkBuffer", "merge_chunks"]


def merge_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Join consecutive chunks of one candidate; the first chunk's start and the last one's finish reason hold."""
    if len(chunks) == 1:
        return chunks[0]
    return replace(
        chunks[-1],
        start=chunks[0].start,
        token_ids=np.concatenate([chunk.token_ids for chunk in chunks]),
        log_probs=np.concatenate([chunk.log_probs for chunk in chunks]),
        confidences=np.concatenate([chunk.confidences for chunk in chunks]),
        self_certainties=np.concatenate([chunk.self_certainties for chunk in chunks]),
        verify_steps=sum(chunk.verify_steps for chunk in chunks),
        draft_nodes=sum(chunk.draft_nodes for chunk in chunks),
    )


class ChunkBuffer:
    """Written by the engine's thread, read by the actor's; a chunk leaves when the reader has acknowledged it.

    Args:
        interval_s: tokens of a candidate wait at most so long for company; what finishes leaves at once.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._gathering: dict[str, tuple[float, list[Chunk]]] = {}
        self._sealed: list[Chunk] = []
        self._first_sealed = 1
        self._failure: Exception | None = None
        self._changed = threading.Condition()

    def add(self, chunks: Sequence[Chunk], now: float) -> None:
        """Take the chunks of one verify step; `now` in seconds on a monotonic clock."""
        for chunk in chunks:
            self._gathering.setdefault(chunk.candidate_id, (now, []))[1].append(chunk)
        due = [
            candidate_id
            for candidate_id, (since, gathered) in self._gathering.items()
            if gathered[-1].finish_reason is not None or now - since >= self._interval_s
        ]
        if due:
            sealed = [merge_chunks(self._gathering.pop(candidate_id)[1]) for candidate_id in due]
            with self._changed:
                self._sealed.extend(sealed)
                self._changed.notify_all()

    def fail(self, failure: Exception) -> None:
        """Make every later `read` raise."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def read(self, acknowledged: int, wait_s: float) -> tuple[int, list[Chunk]]:
        """Forget what was acknowledged and return the rest, waiting for something to return.

        Args:
            acknowledged: sequence number of the last chunk that the reader has seen; 0 at first.
            wait_s: give up after so many seconds and return nothing.

        Returns:
            Sequence number of the last chunk returned, and the chunks.
        """
        with self._changed:
            seen = max(acknowledged - self._first_sealed + 1, 0)
            del self._sealed[:seen]
            self._first_sealed += seen
            self._changed.wait_for(lambda: self._sealed or self._failure, wait_s)
            if self._failure is not None:
                raise self._failure
            return self._first_sealed + len(self._sealed) - 1, list(self._sealed)
