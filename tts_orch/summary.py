"""A run in numbers: `summary.json`, a pure function of its results and of how long they took.

Failed candidates and those without an answer are wrong and stay in every denominator; intervals are over problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, takewhile
from typing import Final

from tts_orch.json_lines import JsonObject
from tts_orch.metrics import majority_at_k, mean_with_interval, pass_at_k
from tts_orch.results import ProblemResult

__all__ = ["DecodingTime", "summarise"]

_RIGHT: Final = -1  # the class of every right answer; others are numbered from 0


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
    kept_tokens = sum(result.kept_tokens for result in results)
    verify_steps = sum(result.verify_steps for result in results)
    return {
        "n_problems": n_problems,
        "n_finished": len(results),
        "n_candidates": sum(result.n_candidates for result in results),
        "accuracy": _accuracy([result for result in results if result.correct is not None]),
        "generated_tokens": sum(result.generated_tokens for result in results),
        "kept_tokens": kept_tokens,
        "reward_tokens": sum(result.reward_tokens for result in results),
        "tau": kept_tokens / verify_steps if verify_steps else 0.0,
        **asdict(time),
        "tokens_per_s": time.tokens_per_s,
        "finish_reasons": dict(sum((Counter(result.finish_reasons) for result in results), Counter[str]())),
        "n_abstentions": sum(result.candidate_classes.count(None) for result in results),
        "n_errors": sum(result.n_errors for result in results),
    }


def _accuracy(results: Sequence[ProblemResult]) -> JsonObject | None:
    """Return each measure with its interval, None when no reference answer is known."""
    if not results:
        return None
    sizes = _subset_sizes(min(result.n_candidates for result in results))
    return {
        "n_problems": len(results),
        "at_1": _over(results, lambda result: sum(result.candidate_correct) / max(result.n_candidates, 1)),
        "of_method": _over(results, lambda result: float(result.correct is True)),
        "pass_at": {str(k): _over(results, partial(_pass_at, k)) for k in sizes},
        "majority_at": {str(k): _over(results, partial(_majority_at, k)) for k in sizes},
    }


def _over(results: Sequence[ProblemResult], measure: Callable[[ProblemResult], float]) -> JsonObject:
    return mean_with_interval([measure(result) for result in results])._asdict()


def _pass_at(k: int, result: ProblemResult) -> float:
    return pass_at_k(result.n_candidates, sum(result.candidate_correct), k)


def _majority_at(k: int, result: ProblemResult) -> float:
    votes = zip(result.candidate_classes, result.candidate_correct, strict=True)
    return majority_at_k([_RIGHT if is_correct else number for number, is_correct in votes], _RIGHT, k)


def _subset_sizes(n: int) -> list[int]:
    """Return 1, 2, 4, ... and n itself."""
    powers = takewhile(lambda k: k < n, (2**exponent for exponent in count()))
    return [*powers, n] if n else []
