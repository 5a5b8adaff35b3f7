"""Where a search step ends: at a delimiter, at its greatest length, or where confidence is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from tts_orch.engine.stop_strings import StopScanner
from tts_orch.records import ConfidenceCut, FinishReason, StepRule

__all__ = ["StepEnd"]

_ROUNDING: Final = 1e-9  # of a sum of confidences: one that is as confident as it must be is not cut


class StepEnd:
    """Is fed the tokens of one step and says with which of them it ends.

    Args:
        rule: when it ends.
        before: the tokens before the step; a delimiter that begins in them does not count.
        decode: token ids to text; without it no delimiter is found.
    """

    def __init__(self, rule: StepRule, before: Sequence[int], decode: Callable[[Sequence[int]], str] | None) -> None:
        self._rule = rule
        self._n_tokens = 0
        self._scanner = StopScanner(decode, before, rule.delimiters) if rule.delimiters and decode else None
        self._window = _ConfidenceWindow(rule.confidence) if rule.confidence else None

    def feed(self, token: int, confidence: float) -> FinishReason | None:
        """Take the next token; return why the step ends with it, None if it goes on.

        Where several rules hold at one token, lost confidence comes before a delimiter, and that before the length.
        """
        self._n_tokens += 1
        is_delimited = self._scanner is not None and self._scanner.feed(token)
        if self._window is not None and self._window.is_low_after(confidence):
            return FinishReason.LOW_CONFIDENCE
        if is_delimited and self._n_tokens >= self._rule.min_tokens:
            return FinishReason.STEP
        return FinishReason.STEP_LENGTH if self._n_tokens >= self._rule.max_tokens else None


class _ConfidenceWindow:
    """The mean confidence of the last tokens, as a function of their sequence alone.

    Source: DeepConf, arXiv 2508.15260, group confidence.
    """

    def __init__(self, cut: ConfidenceCut) -> None:
        self._cut = cut
        self._floor = cut.least * cut.window * (1 - _ROUNDING)
        self._last: deque[float] = deque()
        self._sum = 0.0

    def is_low_after(self, confidence: float) -> bool:
        """Take the next token's confidence in; whether the window is full and its mean too low."""
        self._last.append(confidence)
        self._sum += confidence
        if len(self._last) > self._cut.window:
            self._sum -= self._last.popleft()
        return len(self._last) == self._cut.window and self._sum < self._floor
