"""Budget forcing: make a thinking model think on where it would end, and ask for its answer when the budget is spent.

Source: s1, arXiv 2501.19393, section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tts_orch.config import BudgetForcing
from tts_orch.policies.search.concurrency import together
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.election import elect
from tts_orch.policies.search.turns import sample_child
from tts_orch.records import Candidate, FinishReason, Prefix, Problem, SearchResult, StepRule

__all__ = ["budget_forcing"]


async def budget_forcing(problem: Problem, context: SearchContext, config: BudgetForcing) -> SearchResult:
    """Search by a majority vote over n candidates whose thinking is forced to a budget.

    Candidate i begins at the path `(i,)`; each piece that follows an intervention is child 0 of the one before.
    """
    root = await context.root(problem)
    marked = await context.append(root, config.mark)
    mark = tuple(marked.token_ids[len(root.token_ids) :].tolist())
    thinker = _Thinker(context, root, mark, config)
    candidates = await together(thinker.solve(number) for number in range(config.n))
    return await elect(problem, config.name, candidates, context)


@dataclass(frozen=True, slots=True)
class _Thinker:
    """Thinks about one problem.

    Attributes:
        context: of the problem.
        root: its prompt.
        mark: tokens of the mark that ends the thinking.
        config: settings of the method.
    """

    context: SearchContext
    root: Prefix
    mark: tuple[int, ...]
    config: BudgetForcing

    async def solve(self, number: int) -> Candidate:
        """Return a candidate with its answer, or the piece of it that went wrong."""
        n_left, ignores = self.config.thinking_tokens, self.config.ignores
        prefix, child = self.root, number
        while True:
            piece = await sample_child(self.context, prefix, child, StepRule((self.config.mark,), max_tokens=n_left))
            thought = self._without_end(piece)
            n_left -= thought.n_new
            if thought is piece or not ignores or n_left <= 0:
                return await self._answered(piece, thought)
            ignores -= 1
            prefix, child = await self.context.append(self.root.after(thought), self.config.wait), 0

    def _without_end(self, piece: Candidate) -> Candidate:
        """Return a piece of thinking without the tokens that end it, or as it is where there are none that can be taken off.

        A mark that the target wrote in other tokens than its text has stays: the token with its last letter may hold more.
        """
        end = self.mark if piece.finish_reason is FinishReason.STEP else piece.token_ids[-1:]
        ends_early = piece.finish_reason in (FinishReason.STEP, FinishReason.EOS)
        if not ends_early or piece.token_ids[-len(end) :] != end:
            return piece
        return replace(piece, token_ids=piece.token_ids[: -len(end)])

    async def _answered(self, piece: Candidate, thought: Candidate) -> Candidate:
        """Sample the answer: after the target's own mark, or after one that is written for it."""
        if piece.finish_reason is FinishReason.STEP:
            return await sample_child(self.context, self.root.after(piece), 0)
        if piece.finish_reason in (FinishReason.STEP_LENGTH, FinishReason.EOS):
            closing = f"\n{self.config.mark}\n{self.config.answer_prefix}"
            return await sample_child(self.context, await self.context.append(self.root.after(thought), closing), 0)
        return piece
