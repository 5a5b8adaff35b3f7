"""Make a candidate of decoded tokens: its text, its answer, and what the raw law says about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tts_orch.records import Candidate, Chunk, FinishReason, Path, Problem, SamplingParams

__all__ = ["assemble_candidate"]


def assemble_candidate(
    problem: Problem,
    path: Path,
    seed: int,
    law: SamplingParams,
    chunk: Chunk,
    *,
    decode: Callable[[Sequence[int]], str],
    extract: Callable[[Problem, str], str | None],
    output_before: Sequence[int] = (),
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
        extract: finds the answer in a text; a failed or cancelled candidate is not asked.
        output_before: output tokens of the prefix it was sampled from.
        worker: who decoded it.
        fingerprint: of that worker's numerics.
    """
    reason = chunk.finish_reason or FinishReason.CANCELLED
    token_ids = (*output_before, *chunk.token_ids.tolist())
    text = decode(token_ids)
    if reason is FinishReason.STOP_STRING:
        text = _before_stop_string(text, law.stop_strings)
    is_complete = reason not in (FinishReason.CANCELLED, FinishReason.ERROR)
    return Candidate(
        problem_id=problem.id,
        path=path,
        seed=seed,
        token_ids=token_ids,
        text=text,
        finish_reason=reason,
        answer=extract(problem, text) if is_complete else None,
        self_certainty=_mean(chunk.self_certainties),
        confidence=_mean(chunk.confidences),
        log_prob=float(chunk.log_probs.sum(dtype=np.float64)),
        verify_steps=chunk.verify_steps,
        worker=worker,
        fingerprint=fingerprint,
        message=chunk.message,
    )


def _before_stop_string(text: str, stop_strings: Sequence[str]) -> str:
    ends = [text.find(stop_string) for stop_string in stop_strings if stop_string in text]
    return text[: min(ends, default=len(text))]


def _mean(values: np.ndarray) -> float:
    """Mean in float64 over all tokens at once, so that it does not depend on how they arrived."""
    return float(values.mean(dtype=np.float64)) if len(values) else 0.0
