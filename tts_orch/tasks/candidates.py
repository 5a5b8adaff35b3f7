"""Make a candidate of decoded tokens: its text, its answer, and what the raw law says about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tts_orch.policies.stopping.confidence import window_confidence
from tts_orch.records import Candidate, Chunk, FinishReason, Path, Problem, SamplingParams
from tts_orch.tasks.task import Extraction

__all__ = ["assemble_candidate"]


def assemble_candidate(
    problem: Problem,
    path: Path,
    seed: int,
    law: SamplingParams,
    chunk: Chunk,
    *,
    decode: Callable[[Sequence[int]], str],
    extract: Callable[[Problem, str], Extraction],
    output_before: Sequence[int] = (),
    parent: Path = (),
    confidence_window: int | None = None,
    worker: str = "",
    fingerprint: str = "",
) -> Candidate:
    """Return the candidate.

    Args:
        problem: the problem it answers.
        path: its place in the search.
        seed: its trajectory seed.
        law: the law it was sampled under.
        chunk: all tokens decoded for it, with the finish reason; means are taken over these.
        decode: tokens to text, special tokens left out.
        extract: finds the answer in a text; asked for solutions, and for those that may become one.
        output_before: output tokens of the prefix it was sampled from.
        parent: path of the candidate that this prefix is of.
        confidence_window: tokens of a window of confidence, None to leave windows out.
        worker: who decoded it.
        fingerprint: of that worker's numerics.
    """
    reason = chunk.finish_reason or FinishReason.CANCELLED
    token_ids = (*output_before, *chunk.token_ids.tolist())
    text = decode(token_ids)
    if reason is FinishReason.STOP_STRING:
        text = _before_stop_string(text, law.stop_strings)
    candidate = Candidate(
        problem_id=problem.id,
        path=path,
        seed=seed,
        token_ids=token_ids,
        text=text,
        finish_reason=reason,
        self_certainty=_mean(chunk.self_certainties),
        confidence=_mean(chunk.confidences),
        log_prob=float(chunk.log_probs.sum(dtype=np.float64)),
        verify_steps=chunk.verify_steps,
        worker=worker,
        fingerprint=fingerprint,
        message=chunk.message,
        parent=parent,
        n_before=len(output_before),
    )
    if candidate.is_solution or candidate.can_continue:
        found = extract(problem, text)
        candidate = replace(candidate, answer=found.answer, answer_is_fallback=found.is_fallback)
    return candidate if confidence_window is None else _with_windows(candidate, chunk, confidence_window)


def _with_windows(candidate: Candidate, chunk: Chunk, window: int) -> Candidate:
    means = window_confidence(chunk.confidences, window)
    return replace(
        candidate, tail_confidence=means.tail, bottom_confidence=means.bottom, lowest_confidence=means.lowest
    )


def _before_stop_string(text: str, stop_strings: Sequence[str]) -> str:
    ends = [text.find(stop_string) for stop_string in stop_strings if stop_string in text]
    return text[: min(ends, default=len(text))]


def _mean(values: np.ndarray) -> float:
    """Mean in float64 over all tokens at once, so that it does not depend on how they arrived."""
    return float(values.mean(dtype=np.float64)) if len(values) else 0.0
