"""`Trajectory`: everything a decoder knows about one live request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tts_orch.engine.laws import TrajectoryLaw
from tts_orch.engine.stop_strings import StopScanner
from tts_orch.records import DecodeRequest, FinishReason, IntArray

__all__ = ["Trajectory"]


class Trajectory:
    """A request being decoded.

    Attributes:
        request: what was asked for.
        arrival: order of submission.
        length: committed tokens, prompt included; the last of them is the root, whose keys are not computed yet.
        computed: positions whose keys and values are in `pages`.
        pages: committed pages in order of position.
        draft_pages: pages for the keys of draft nodes.
        is_shared: whether the last of `pages` can be seen by others and must be copied before it is written.
        is_known: whether the drafter has been told about it.
        verify_steps: verify steps it took so far.
        observe_from: first position whose law may still be counted into the draft statistics.
    """

    def __init__(
        self,
        request: DecodeRequest,
        arrival: int,
        *,
        stop_ids: Sequence[int],
        vocab_size: int,
        max_context: int,
        decode: Callable[[Sequence[int]], str] | None,
    ) -> None:
        self.request = request
        self.arrival = arrival
        self.length = len(request.token_ids)
        self.computed = 0
        self.pages: list[int] = []
        self.draft_pages: list[int] = []
        self.is_shared = False
        self.is_known = False
        self.verify_steps = 0
        self.observe_from = request.statistics_from
        prompt, output = np.split(request.token_ids, [request.prompt_length])
        self.limit = min(request.prompt_length + request.law.max_new_tokens, max_context)
        self._buffer = np.zeros(self.limit, np.int32)
        self._buffer[: self.length] = request.token_ids
        self._stop_ids = frozenset(stop_ids)
        self.law = TrajectoryLaw(request.law, stop_ids, prompt, vocab_size)
        self._scanner = None
        if request.law.stop_strings and decode is not None:
            self._scanner = StopScanner(decode, prompt.tolist(), request.law.stop_strings)
        self.law.commit(output.tolist())
        for token in output.tolist():
            if self._scanner is not None:
                self._scanner.feed(token)

    @property
    def token_ids(self) -> IntArray:
        """`[length]` committed tokens, prompt included."""
        return self._buffer[: self.length]

    @property
    def root(self) -> int:
        """The last committed token."""
        return int(self._buffer[self.length - 1])

    @property
    def is_prefilling(self) -> bool:
        """Whether keys of committed positions before the root are still to be computed."""
        return self.computed < self.length - 1

    def commit(self, tokens: Sequence[int]) -> tuple[int, FinishReason | None]:
        """Append tokens up to where the trajectory ends.

        The first token at which a rule holds is the last one; at the same token EOS and stop ids come before stop
        strings, and these before the length limit.

        Returns:
            How many were appended, and why the trajectory ended if it did.
        """
        for n, token in enumerate(tokens, start=1):
            self._buffer[self.length] = token
            self.length += 1
            reason = self._ending(token)
            if reason is not None or n == len(tokens):
                self.law.commit(tokens[:n])
                return n, reason
        return 0, None

    def _ending(self, token: int) -> FinishReason | None:
        is_stop_string = self._scanner is not None and self._scanner.feed(token)
        if token in self._stop_ids:
            return FinishReason.EOS
        if is_stop_string:
            return FinishReason.STOP_STRING
        return FinishReason.LENGTH if self.length >= self.limit else None
