"""What every search over steps does: sample next steps, score them, and write down which are kept."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tts_orch.errors import ConfigError
from tts_orch.method_config import StepwiseMethod
from tts_orch.policies.search.concurrency import together
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.sampling import collect
from tts_orch.policies.search.scoring import Look, score_candidates
from tts_orch.policies.voting import aggregate
from tts_orch.records import Candidate, FinishReason, Prefix, Problem, SamplingParams

__all__ = ["StepSearch"]


@dataclass(frozen=True, slots=True)
class StepSearch:
    """The search for the solution of one problem, a step at a time.

    Attributes:
        root: the problem's prompt.
        context: of the problem.
        config: settings of the method.
    """

    root: Prefix
    context: SearchContext
    config: StepwiseMethod

    @classmethod
    async def of(cls, problem: Problem, context: SearchContext, config: StepwiseMethod) -> StepSearch:
        """Return the search for a problem.

        Raises:
            ConfigError: there is no reward model.
        """
        if not context.has_rewards:
            raise ConfigError(f"{config.name}: needs a reward model to score steps; give one, or use best_of_n")
        return cls(await context.root(problem), context, config)

    async def next_steps(
        self, prefixes: Iterable[tuple[Prefix, int]], depth: int, look: Look | None = None
    ) -> list[Candidate]:
        """Return scored next steps in path order; failed ones are among them, without scores.

        Args:
            prefixes: where to go on, and with how many next steps.
            depth: steps that the prefixes have; the last step of a solution is sampled to the solution's end.
            look: from a next step to what is scored in its place.
        """
        is_last = depth + 1 >= self.config.max_steps
        batches = await together(self.sample(prefix, n, is_last=is_last) for prefix, n in prefixes)
        children = sorted((child for batch in batches for child in batch), key=lambda child: child.path)
        return await score_candidates(children, self.context, look)

    async def sample(
        self, prefix: Prefix, n: int, *, is_last: bool = False, law: SamplingParams | None = None
    ) -> list[Candidate]:
        """Return n next steps of a prefix; a solution ends with the step that has its answer in a box."""
        children = await collect(self.context, [prefix], n, None if is_last else self.config.step, law)
        return [
            replace(child, finish_reason=FinishReason.ANSWER_FOUND) if _has_boxed_answer(child) else child
            for child in children
        ]

    def best_first(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates that have scores and are at no dead end, best first; ties keep their order."""
        scored = [candidate for candidate in candidates if candidate.step_scores and candidate.is_viable]
        return sorted(scored, key=lambda candidate: -self.score(candidate))

    def score(self, candidate: Candidate) -> float:
        """Return the score of a candidate that has step scores; 0 for others, which must not get this far."""
        return aggregate(candidate.step_scores, self.config.aggregation) or 0.0

    async def keep(self, children: Sequence[Candidate], kept: Collection[Candidate]) -> None:
        """Journal which of the children are kept."""
        paths = {candidate.path for candidate in kept}
        await self.context.keep(
            [child for child in children if child.path in paths],
            [child for child in children if child.path not in paths],
        )


def _has_boxed_answer(candidate: Candidate) -> bool:
    r"""Say whether a step ended with an answer in a box.

    What is found as an answer is never a box that is empty or not closed, nor one of a model's thinking.
    """
    if not candidate.can_continue or candidate.answer is None:
        return False
    box = r"\\(?:boxed|fbox)\s*\{\s*" + re.escape(candidate.answer) + r"\s*\}"
    return re.search(box, candidate.text) is not None
