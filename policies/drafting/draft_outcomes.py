"""What became of the drafts of each member of a composed drafter, whether or not they were verified."""

from __future__ import annotations

import numba

from tts_orch.policies.drafting.composed_slots import TakenDrafts
from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.policies.routing.report import MemberTally
from tts_orch.policies.routing.routing import StepOutcome
from tts_orch.policies.routing.tree_confidence import confidence
from tts_orch.records import IntArray

__all__ = ["member_tallies", "step_outcome"]


def step_outcome(step: VerifiedStep, drafts: TakenDrafts) -> StepOutcome:
    """Hold the trees that members drafted for a trajectory against what was committed to it."""
    accepted = {name: _n_matching(tree.token, tree.parent, step.committed) for name, tree in drafts.trees.items()}
    return StepOutcome(
        step.trajectory, drafts.trees, accepted, drafts.seconds, step.tree.n_nodes - 1, len(step.accepted)
    )


def member_tallies(outcome: StepOutcome) -> dict[str, MemberTally]:
    """Return what a step adds to the sums of each member that drafted."""
    return {
        name: MemberTally(1, confidence(tree), outcome.accepted[name], tree.n_nodes - 1, outcome.seconds[name])
        for name, tree in outcome.drafts.items()
    }


@numba.njit(cache=True)
def _n_matching(token: IntArray, parent: IntArray, committed: IntArray) -> int:
    """Return how many committed tokens, from the first on, stand in a tree one behind the other."""
    place, n = 0, 0
    for node in range(1, len(token)):  # parents come first, and siblings differ
        if n < len(committed) and parent[node] == place and token[node] == committed[n]:
            place, n = node, n + 1
    return n
