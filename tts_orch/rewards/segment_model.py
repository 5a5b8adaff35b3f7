"""A reward model that is a prompt form and a causal model: every adapter for transformers models makes one of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from transformers import PreTrainedModel

from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import DEFAULT_DELIMITERS, Solution, StepScores
from tts_orch.rewards.likelihood import Likelihood
from tts_orch.rewards.prefix_scorer import PrefixScorer, Readings, Readout
from tts_orch.rewards.segments import Segment, n_tokens_of
from tts_orch.rewards.steps import split_steps

__all__ = ["Cut", "PromptForm", "SegmentModel"]

PromptForm: TypeAlias = Callable[[Problem, Sequence[str]], list[Segment]]
"""Problem and steps, at least one, to what is read."""

Cut: TypeAlias = Callable[[str, Sequence[str]], Sequence[str]]
"""Text and delimiters to steps, such as `split_steps`."""


class SegmentModel:
    """A `RewardModel` over token segments.

    Args:
        form: how a solution is shown.
        backbone: reads it, a decoder without its head.
        readout: the head.
        config: batch size, memory, delimiters.
        max_context: tokens of prompt and solution; what is longer gets no score, and is never cut.
        cut: where the steps of a text are.
        likelihood: what the head reads beside a hidden state.
    """

    def __init__(
        self,
        form: PromptForm,
        backbone: PreTrainedModel,
        readout: Readout,
        config: RewardConfig,
        max_context: int,
        cut: Cut = split_steps,
        likelihood: Likelihood | None = None,
    ) -> None:
        self._form = form
        kv_bytes = int(config.kv_memory_gib * 2**30)
        self._scorer = PrefixScorer(backbone, readout, batch=config.batch, kv_bytes=kv_bytes, likelihood=likelihood)
        self._max_context = max_context
        self._cut = cut
        self._delimiters = config.delimiters or DEFAULT_DELIMITERS

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the scores of each solution; see `RewardModel`."""
        shown = [self._show(solution) for solution in solutions]
        readings = iter(self._scorer.read([segments for segments in shown if not isinstance(segments, str)]))
        return [
            StepScores(failure=segments) if isinstance(segments, str) else _step_scores(segments, next(readings))
            for segments in shown
        ]

    def _show(self, solution: Solution) -> list[Segment] | str:
        """Return what is read, or why it cannot be."""
        steps = self._cut(solution.text, self._delimiters)
        if not steps:
            return "there is no step"
        segments = self._form(solution.problem, steps)
        n_tokens = sum(len(segment.token_ids) for segment in segments) + max(len(segment.tail) for segment in segments)
        if n_tokens > self._max_context:
            return f"its {n_tokens} tokens are more than the reward model reads ({self._max_context})"
        return segments


def _step_scores(segments: Sequence[Segment], readings: Readings) -> StepScores:
    return StepScores.checked(readings.scores, readings.n_tokens, n_tokens_of(segments))
