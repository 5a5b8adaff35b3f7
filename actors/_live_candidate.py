"""What a controller knows of a candidate that is being decoded somewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tts_orch.actors._chunk_buffer import merge_chunks
from tts_orch.actors._held_prefixes import prefix_digest
from tts_orch.records import Chunk, DecodeRequest, FinishReason, IntArray

__all__ = ["TRIES", "Decoded", "LiveCandidate"]

TRIES: Final = 3
"""Workers that may be lost under a candidate before it is given up."""

_ATTEMPTS: Final = 1 << 16  # more than the workers that a candidate will ever leave


@dataclass(frozen=True, slots=True)
class Decoded:
    """A candidate that came to its end.

    Attributes:
        chunk: all its new tokens; the finish reason is set.
        worker: who decoded the last of them, empty if nobody began.
        fingerprint: of that worker's numerics.
    """

    chunk: Chunk
    worker: str = ""
    fingerprint: str = ""

    @classmethod
    def nothing(cls, start: int) -> Decoded:
        """Return the end of a candidate that was cancelled before anybody began it."""
        return cls(replace(_no_tokens("", start), finish_reason=FinishReason.CANCELLED))


class LiveCandidate:
    """A request, the tokens received for it, and the future of its end.

    Args:
        request: as it was asked for.
        problem_id: the problem it belongs to.
        rank: priority, order of the problem, arrival (unique): its place in the queue, lower first.
        on_tokens: called with the number of tokens whenever some arrive.

    Attributes:
        prefix: digest of the tokens that it was asked to go on from.
    """

    def __init__(
        self,
        request: DecodeRequest,
        problem_id: str,
        rank: tuple[int, int, int],
        on_tokens: Callable[[int], None] = lambda n_tokens: None,
    ) -> None:
        self.request = request
        self.problem_id = problem_id
        self.rank = rank
        self.on_tokens = on_tokens
        self.prefix = prefix_digest(problem_id, request.token_ids)
        self.n_lost_workers = 0
        self._n_left_workers = 0
        self.is_cancelled = False
        self.worker = ""
        self.fingerprint = ""
        self.decoded: asyncio.Future[Decoded] = asyncio.get_running_loop().create_future()
        self._chunks = [_no_tokens(self._attempt_id, len(request.token_ids))]

    @property
    def token_ids(self) -> IntArray:
        """`[n]` the tokens that it was asked to go on from, and those received."""
        return np.concatenate([self.request.token_ids, *(chunk.token_ids for chunk in self._chunks)])

    @property
    def end(self) -> int:
        """Absolute position after the last token received."""
        return self._chunks[-1].start + len(self._chunks[-1].token_ids)

    def may_run_on(self, fingerprints: Collection[str]) -> bool:
        """Whether a verifier of one of these fingerprints may go on: any may begin, only the same may continue."""
        return not self._has_tokens or self.fingerprint in fingerprints

    @property
    def _has_tokens(self) -> bool:
        return self.end > len(self.request.token_ids)

    @property
    def _attempt_id(self) -> str:
        return f"{self.request.candidate_id}#{self.rank[-1]}.{self._n_left_workers}"

    def leave_worker(self, *, is_lost: bool) -> None:
        """Take note that it goes on elsewhere, with another id."""
        self._n_left_workers += 1
        self.n_lost_workers += is_lost

    def remaining_request(self) -> DecodeRequest:
        """Return the request for what is not received yet: same seed, longer prefix, an id and an attempt of its own.

        What was received was sampled from the law, so going on from it is right under any verification. What a former worker
        drew beyond it may have taught tables that live on: rejection verification must not use those coins again.
        """
        token_ids = self.token_ids
        counted = len(token_ids) if self._has_tokens else self.request.statistics_from
        return replace(
            self.request,
            candidate_id=self._attempt_id,
            token_ids=token_ids,
            statistics_from=counted,
            attempt=self.request.attempt * _ATTEMPTS + self._n_left_workers,
            step_start=len(self.request.token_ids),
            confidences=self._known_confidences,
        )

    @property
    def _known_confidences(self) -> tuple[float, ...]:
        step = self.request.step
        if step is None or step.confidence is None:
            return ()
        return tuple(np.concatenate([chunk.confidences for chunk in self._chunks]).tolist())

    def receive(self, chunk: Chunk) -> int:
        """Take a chunk in; one that was received before is dropped.

        Returns:
            How many tokens were new.

        Raises:
            ValueError: the chunk does not start where the last one ended.
        """
        n_tokens = len(chunk.token_ids)
        if chunk.start < self.end and chunk.start + n_tokens <= self.end:
            return 0
        if chunk.start != self.end:
            raise ValueError(f"tokens from position {chunk.start} arrived where {self.end} was due")
        self._chunks.append(chunk)
        if chunk.finish_reason is not None:
            self.finish(chunk.finish_reason, chunk.message)
        return n_tokens

    def finish(self, reason: FinishReason, message: str = "") -> None:
        """End the candidate with what was received."""
        if not self.decoded.done():
            merged = replace(merge_chunks(self._chunks), finish_reason=reason, message=message)
            self.decoded.set_result(Decoded(merged, self.worker, self.fingerprint))


def _no_tokens(candidate_id: str, start: int) -> Chunk:
    none = np.zeros(0, np.float32)
    return Chunk(candidate_id, start, np.zeros(0, np.int32), none, none, none)
