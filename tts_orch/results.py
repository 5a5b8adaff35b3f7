"""What a run found for each problem, graded: all that the run's summary needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from tts_orch.json_lines import JsonObject
from tts_orch.records import FinishReason, Path, Problem, SearchResult
from tts_orch.tasks.classes import answer_classes
from tts_orch.tasks.grading import answers_equal

__all__ = ["ProblemResult"]


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """One line of `results.jsonl`.

    Attributes:
        problem_id: the problem.
        method: name of the search policy.
        n: candidates that were asked for.
        answer: the method's answer, None without one.
        reference: the reference answer, None when it is not known.
        correct: whether `answer` is right, None without a reference answer.
        chosen: path of the candidate that stands for the answer.
        votes: weight by answer class representative, heaviest first.
        candidate_classes: answer class of each candidate in path order, failed ones included; None for an abstention.
        candidate_correct: whether each is right; empty without a reference answer.
        finish_reasons: candidates by finish reason.
        generated_tokens: every token the target generated for the problem, cancelled ones included.
        kept_tokens: tokens of the candidates that came to an end.
        verify_steps: verify steps these took.
        reward_tokens: tokens a reward model read.
    """

    problem_id: str
    method: str
    n: int
    answer: str | None
    reference: str | None
    correct: bool | None
    chosen: Path | None
    votes: Mapping[str, float]
    candidate_classes: tuple[int | None, ...]
    candidate_correct: tuple[bool, ...]
    finish_reasons: Mapping[str, int]
    generated_tokens: int
    kept_tokens: int
    verify_steps: int
    reward_tokens: int

    @classmethod
    def of(cls, problem: Problem, result: SearchResult, n: int) -> ProblemResult:
        """Grade what a search found for a problem."""
        reasons = Counter(str(candidate.finish_reason) for candidate in result.candidates)
        answers = [candidate.answer for candidate in result.candidates]
        known = problem.answer is not None
        return cls(
            problem_id=problem.id,
            method=result.method,
            n=n,
            answer=result.answer,
            reference=problem.answer,
            correct=_is_correct(result.answer, problem) if known else None,
            chosen=result.chosen,
            votes=dict(result.votes),
            candidate_classes=tuple(answer_classes(answers)),
            candidate_correct=tuple(_is_correct(answer, problem) for answer in answers) if known else (),
            finish_reasons=dict(reasons),
            generated_tokens=result.generated_tokens,
            kept_tokens=result.kept_tokens,
            reward_tokens=result.reward_tokens,
            verify_steps=sum(candidate.verify_steps for candidate in result.candidates if candidate.is_complete),
        )

    @classmethod
    def from_json(cls, values: JsonObject) -> ProblemResult:
        """Return the result of a line.

        Raises:
            KeyError, TypeError: the line is not a result.
        """
        known = {field.name: values[field.name] for field in fields(cls)}
        for name in ("candidate_classes", "candidate_correct"):
            known[name] = tuple(known[name])
        chosen = None if known["chosen"] is None else tuple(known["chosen"])
        return cls(**{**known, "chosen": chosen})

    def to_json(self) -> JsonObject:
        """Return the form of `results.jsonl`: the fields and the derived numbers."""
        return {**asdict(self), "n_candidates": self.n_candidates, "n_errors": self.n_errors, "tau": self.tau}

    @property
    def n_candidates(self) -> int:
        """Candidates in the search's result, failed ones included."""
        return len(self.candidate_classes)

    @property
    def n_errors(self) -> int:
        """Candidates that failed and are to be done again."""
        return self.finish_reasons.get(FinishReason.ERROR, 0)

    @property
    def n_finished(self) -> int:
        """Candidates that came to an end."""
        return self.n_candidates - self.n_errors - self.finish_reasons.get(FinishReason.CANCELLED, 0)

    @property
    def tau(self) -> float:
        """Committed tokens per verify step; 0 when nothing was decoded."""
        return self.kept_tokens / self.verify_steps if self.verify_steps else 0.0


def _is_correct(answer: str | None, problem: Problem) -> bool:
    return answer is not None and problem.answer is not None and answers_equal(answer, problem.answer)
