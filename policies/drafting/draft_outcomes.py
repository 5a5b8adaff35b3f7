"""What became of the drafts of each member of a composed drafter, whether or not they were verified."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tts_orch.policies.drafting.composed_slots import TakenDrafts
from tts_orch.policies.drafting.draft_tree import DraftTree, VerifiedStep
from tts_orch.policies.routing.report import MemberTally
from tts_orch.policies.routing.routing import StepOutcome
from tts_orch.policies.routing.tree_confidence import confidence
from tts_orch.records import IntArray

__all__ = ["first_proposers", "member_tallies", "step_outcome"]


def step_outcome(step: VerifiedStep, drafts: TakenDrafts) -> StepOutcome:
    """Hold the trees that members drafted for a trajectory against what was committed to it."""
    accepted = {name: _n_matching(tree.token, tree.parent, step.committed) for name, tree in drafts.trees.items()}
    return StepOutcome(
        step.trajectory, drafts.trees, accepted, drafts.seconds, step.tree.n_nodes - 1, len(step.accepted)
    )


def member_tallies(outcome: StepOutcome) -> dict[str, MemberTally]:
    """Return what a step adds to the sums of each member that drafted."""
    return {name: MemberTally(1, confidence(tree), outcome.accepted[name]) for name, tree in outcome.drafts.items()}


def first_proposers(verified: DraftTree, trees: Sequence[DraftTree]) -> IntArray:
    """Return `[n]` the first of some trees on one root that holds each node of a verified tree.

    It is `len(trees)` for the root, and for nodes that no tree holds.
    """
    proposer = np.full(verified.n_nodes, len(trees), np.int32)
    for number, tree in enumerate(trees):
        _claim(verified.token, verified.parent, tree.token, tree.parent, number, proposer)
    return proposer


@numba.njit(cache=True)
def _claim(
    verified: IntArray, verified_parent: IntArray, token: IntArray, parent: IntArray, number: int, proposer: IntArray
) -> None:
    """Write a tree's number on those verified nodes that it holds and that have a larger one."""
    place = np.full(len(token), -1, np.int32)  # of its nodes in the verified tree
    place[0] = 0
    for node in range(1, len(token)):
        above = place[parent[node]]
        if above < 0:
            continue
        for other in range(above + 1, len(verified)):  # parents come first, and siblings differ
            if verified_parent[other] == above and verified[other] == token[node]:
                place[node] = other
                proposer[other] = min(proposer[other], number)
                break


@numba.njit(cache=True)
def _n_matching(token: IntArray, parent: IntArray, committed: IntArray) -> int:
    """Return how many committed tokens, from the first on, stand in a tree one behind the other."""
    place, n = 0, 0
    for node in range(1, len(token)):  # parents come first, and siblings differ
        if n < len(committed) and parent[node] == place and token[node] == committed[n]:
            place, n = node, n + 1
    return n
