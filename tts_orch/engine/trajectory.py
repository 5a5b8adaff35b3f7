"""`Trajectory`: everything a decoder knows about one live request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tts_orch.engine.laws import TrajectoryLaw
from tts_orch.engine.step_end import StepEnd
from tts_orch.engine.stop_strings import StopScanner
from tts_orch.records import DecodeRequest, FinishReason, IntArray, StepRule

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
        features_told: positions, from the beginning, whose features the drafter has been told.
        is_asked: whether the drafter has been asked for drafts on the committed tokens.
        verify_steps: verify steps it took so far.
        observe_from: first position whose law may still be counted into the draft statistics.
        solution_limit: length that a solution may reach.
        limit: length at which this request ends at the latest: that one, or the end of its longest step.
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
        self.features_told = 0
        self.is_asked = False
        self.verify_steps = 0
        self.observe_from = request.statistics_from
        prompt, output = np.split(request.token_ids, [request.prompt_length])
        self.solution_limit = self.limit = min(request.prompt_length + request.law.max_new_tokens, max_context)
        self._stop_ids = frozenset(stop_ids)
        self.law = TrajectoryLaw(request.law, stop_ids, prompt, vocab_size)
        self._scanner = None
        if request.law.stop_strings and decode is not None:
            self._scanner = StopScanner(decode, prompt.tolist(), request.law.stop_strings)
        self._step_end = None if request.step is None else self._begin_step(request.step, decode)
        self._buffer = np.zeros(self.limit, np.int32)
        self._buffer[: self.length] = request.token_ids
        self.law.commit(output.tolist())
        for token in output.tolist():
            if self._scanner is not None:
                self._scanner.feed(token)

    def _begin_step(self, rule: StepRule, decode: Callable[[Sequence[int]], str] | None) -> StepEnd:
        """Return the step's end, told of the tokens that the step has already."""
        request = self.request
        start = self.length if request.step_start is None else request.step_start
        self.limit = min(self.solution_limit, start + rule.max_tokens)
        before, begun = np.split(request.token_ids, [start])
        step_end = StepEnd(rule, before.tolist(), decode)
        for token, confidence in zip(begun.tolist(), request.confidences or [0.0] * len(begun), strict=True):
            step_end.feed(token, confidence)
        return step_end

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

    def commit(self, tokens: Sequence[int], confidences: Sequence[float]) -> tuple[int, FinishReason | None]:
        """Append tokens, each with its confidence, up to where the trajectory ends.

        The first token at which a rule holds is the last one; at the same token EOS and stop ids come before stop
        strings, these before the length limit, and all of them before the end of a step.

        Returns:
            How many were appended, and why the trajectory ended if it did.
        """
        self.is_asked = False
        for n, (token, confidence) in enumerate(zip(tokens, confidences, strict=True), start=1):
            self._buffer[self.length] = token
            self.length += 1
            reason = self._ending(token, confidence)
            if reason is not None or n == len(tokens):
                self.law.commit(tokens[:n])
                return n, reason
        return 0, None

    def _ending(self, token: int, confidence: float) -> FinishReason | None:
        is_stop_string = self._scanner is not None and self._scanner.feed(token)
        if token in self._stop_ids:
            return FinishReason.EOS
        if is_stop_string:
            return FinishReason.STOP_STRING
        if self.length >= self.solution_limit:
            return FinishReason.LENGTH
        return None if self._step_end is None else self._step_end.feed(token, confidence)
