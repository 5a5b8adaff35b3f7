"""A run in numbers: `summary.json`, a pure function of its results and of how long they took.

Failed candidates and those without an answer are wrong and stay in every denominator; intervals are over problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, takewhile
from typing import Final

from tts_orch.json_lines import JsonObject
from tts_orch.metrics import (
    best_at_k,
    majority_at_k,
    mean_with_interval,
    pass_at_k,
    pass_hat_k,
    weighted_at_k,
)
from tts_orch.results import ProblemResult

__all__ = ["DecodingTime", "summarise"]

_RIGHT: Final = -1  # the class of every right answer; others are numbered from 0
_INDEPENDENT: Final = frozenset(
    {"best_of_n", "budget_forcing", "majority_vote"}
)  # any k candidates are a run with n = k


@dataclass(frozen=True, slots=True)
class DecodingTime:
    """What was decoded in how much time, over all runs in a folder that ended in order.

    Attributes:
        wall_time_s: from the first request to the last result, loading not counted.
        decoded_tokens: tokens decoded in that time; those from the journal are not.
    """

    wall_time_s: float = 0.0
    decoded_tokens: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Decoded tokens a second; 0 when nothing was decoded."""
        return self.decoded_tokens / self.wall_time_s if self.wall_time_s else 0.0

    def __add__(self, other: DecodingTime) -> DecodingTime:
        return DecodingTime(self.wall_time_s + other.wall_time_s, self.decoded_tokens + other.decoded_tokens)


def summarise(results: Sequence[ProblemResult], n_problems: int, time: DecodingTime) -> JsonObject:
    """Return the summary of a run.

    Args:
        results: finished problems; accuracy is over those with a reference answer.
        n_problems: problems of the run, the unfinished ones included.
        time: what decoding took.
    """
    generated_tokens = sum(result.generated_tokens for result in results)
    verify_steps = sum(result.verify_steps for result in results)
    return {
        "n_problems": n_problems,
        "n_finished": len(results),
        "n_candidates": sum(result.n_candidates for result in results),
        "accuracy": _accuracy([result for result in results if result.correct is not None]),
        "generated_tokens": generated_tokens,
        "kept_tokens": sum(result.kept_tokens for result in results),
        "reward_tokens": sum(result.reward_tokens for result in results),
        "reward_tokens_whole": sum(result.reward_tokens_whole for result in results),
        "tau": generated_tokens / verify_steps if verify_steps else 0.0,
        **asdict(time),
        "tokens_per_s": time.tokens_per_s,
        "finish_reasons": dict(sum((Counter(result.finish_reasons) for result in results), Counter[str]())),
        "n_abstentions": sum(result.candidate_classes.count(None) for result in results),
        "n_errors": sum(result.n_errors for result in results),
    }


def _accuracy(results: Sequence[ProblemResult]) -> JsonObject | None:
    """Return each measure with its interval, None when no reference answer is known.

    Measures at k are empty where k candidates are not what the method would have found with n = k.
    """
    if not results:
        return None
    sizes = _subset_sizes(results)
    return {
        "n_problems": len(results),
        "at_1": _over(results, lambda result: sum(result.candidate_correct) / max(result.n_candidates, 1)),
        "of_method": _over(results, lambda result: float(result.correct is True)),
        "any_candidate": _over(results, lambda result: float(any(result.candidate_correct))),
        **{name: {str(k): _over(results, partial(measure, k)) for k in sizes} for name, measure in _measures(results)},
    }


def _measures(results: Sequence[ProblemResult]) -> Iterator[tuple[str, Callable[[int, ProblemResult], float]]]:
    yield "pass_at", _pass_at
    yield "pass_hat_at", _pass_hat_at
    yield "majority_at", _majority_at
    if any(result.candidate_scores for result in results):
        yield "best_at", _best_at
        yield "weighted_at", _weighted_at


def _over(results: Sequence[ProblemResult], measure: Callable[[ProblemResult], float]) -> JsonObject:
    return mean_with_interval([measure(result) for result in results])._asdict()


def _pass_at(k: int, result: ProblemResult) -> float:
    return pass_at_k(result.n_candidates, sum(result.candidate_correct), k)


def _pass_hat_at(k: int, result: ProblemResult) -> float:
    return pass_hat_k(result.n_candidates, sum(result.candidate_correct), k)


def _majority_at(k: int, result: ProblemResult) -> float:
    return majority_at_k(_votes(result), _RIGHT, k)


def _best_at(k: int, result: ProblemResult) -> float:
    return best_at_k(_scores(result), result.candidate_correct, k)


def _weighted_at(k: int, result: ProblemResult) -> float:
    return weighted_at_k(_votes(result), [score or 0.0 for score in _scores(result)], _RIGHT, k)


def _votes(result: ProblemResult) -> list[int | None]:
    votes = zip(result.candidate_classes, result.candidate_correct, strict=True)
    return [_RIGHT if is_correct else number for number, is_correct in votes]


def _scores(result: ProblemResult) -> Sequence[float | None]:
    """Return a score a candidate, None for those that never win: without an answer, or not scored."""
    scores = result.candidate_scores or [None] * result.n_candidates
    return [None if number is None else score for number, score in zip(result.candidate_classes, scores, strict=True)]


def _subset_sizes(results: Sequence[ProblemResult]) -> list[int]:
    """Return 1, 2, 4, ... and n itself where every subset of the candidates is a run of its own, otherwise nothing."""
    n = min(result.n_candidates for result in results)
    are_whole = all(result.method in _INDEPENDENT and result.n_candidates == result.n for result in results)
    powers = takewhile(lambda k: k < n, (2**exponent for exponent in count()))
    return [*powers, n] if are_whole else []
