"""What a run found for each problem, graded: all that the run's summary needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from tts_orch.budget_config import RUN_BUDGET_ENDS
from tts_orch.json_lines import JsonObject
from tts_orch.method_config import MethodConfig, ScoredMethod
from tts_orch.policies.voting import aggregate
from tts_orch.records import Candidate, FinishReason, Path, Problem, SearchResult
from tts_orch.task_config import TaskName
from tts_orch.tasks.answers import classes_for, grade_for

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
        candidate_classes: answer class of each candidate in path order, failed ones included; None for an abstention or a
            candidate that may not vote, failed, cut or unfinished.
        candidate_correct: whether each is right; empty without a reference answer.
        finish_reasons: candidates by finish reason.
        generated_tokens: every token the target generated for the problem, cancelled ones included.
        kept_tokens: those among them that candidates which came to an end consist of, shared beginnings counted once.
        verify_steps: verify steps that all generated tokens took.
        reward_tokens: tokens a reward model read.
        reward_tokens_whole: tokens that it would have read without what it kept of earlier steps; 0 if not known.
        stopped_by: what ended the search before the method would have, a stopping rule or a budget; empty for none.
        candidate_paths: place of each candidate in the search.
        candidate_scores: score of each by the method's aggregation, None for one that was not scored; empty without scores.
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
    reward_tokens_whole: int = 0
    stopped_by: str = ""
    candidate_paths: tuple[Path, ...] = ()
    candidate_scores: tuple[float | None, ...] = ()

    @classmethod
    def of(cls, problem: Problem, result: SearchResult, method: MethodConfig, task: TaskName = "auto") -> ProblemResult:
        """Grade what a search by a method found for a problem."""
        reasons = Counter(str(candidate.finish_reason) for candidate in result.candidates)
        answers = [candidate.answer if candidate.is_solution else None for candidate in result.candidates]
        verdicts = grade_for(problem, [result.answer, *answers], task=task)
        return cls(
            problem_id=problem.id,
            method=result.method,
            n=method.n,
            answer=result.answer,
            reference=problem.answer,
            correct=None if verdicts is None else verdicts[0],
            chosen=result.chosen,
            votes=dict(result.votes),
            candidate_classes=tuple(classes_for(problem, answers, task=task)),
            candidate_correct=() if verdicts is None else tuple(verdicts[1:]),
            finish_reasons=dict(reasons),
            generated_tokens=result.generated_tokens,
            kept_tokens=result.kept_tokens,
            reward_tokens=result.reward_tokens,
            reward_tokens_whole=result.reward_tokens_whole,
            verify_steps=result.verify_steps,
            stopped_by=result.stopped_by,
            candidate_paths=tuple(candidate.path for candidate in result.candidates),
            candidate_scores=_scores(result.candidates, method),
        )

    @classmethod
    def from_json(cls, values: JsonObject) -> ProblemResult:
        """Return the result of a line.

        Raises:
            KeyError, TypeError: the line is not a result.
        """
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        known["candidate_paths"] = tuple(tuple(path) for path in known.get("candidate_paths", ()))
        for name in {"candidate_classes", "candidate_correct", "candidate_scores"} & known.keys():
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
    def is_settled(self) -> bool:
        """Whether the next run has nothing to add: no candidate failed, and it was not stopped with its run."""
        return not self.n_errors and self.stopped_by not in RUN_BUDGET_ENDS

    @property
    def n_finished(self) -> int:
        """Candidates that came to an end."""
        return self.n_candidates - self.n_errors - self.finish_reasons.get(FinishReason.CANCELLED, 0)

    @property
    def tau(self) -> float:
        """Committed tokens per verify step; 0 when nothing was decoded."""
        return self.generated_tokens / self.verify_steps if self.verify_steps else 0.0


def _scores(candidates: Sequence[Candidate], method: MethodConfig) -> tuple[float | None, ...]:
    """Return one score a candidate, nothing where no candidate has any."""
    aggregation = method.aggregation if isinstance(method, ScoredMethod) else "last"
    scores = [aggregate(candidate.step_scores, aggregation) for candidate in candidates]
    return () if all(score is None for score in scores) else tuple(scores)
