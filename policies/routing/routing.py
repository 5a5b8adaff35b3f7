"""The contract of a routing: which members of a composed drafter draft for a trajectory, and what becomes of their trees.

What routings look at are drafts, committed tokens and times, never a draw of the target before it is committed; with the
deterministic drafts of rejection verification their choices leave the law alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, TrajectoryStart
from tts_orch.policies.routing.tree_confidence import confidence

__all__ = ["Drafts", "PassSeconds", "Routing", "StepOutcome", "surest"]

Drafts: TypeAlias = Mapping[str, DraftTree]
"""What the members that were asked drafted for one trajectory, in the order of the members; at least one."""

PassSeconds: TypeAlias = Callable[[float], float]
"""What a pass costs a trajectory, in seconds, by the draft nodes of each."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What became of the drafts of one trajectory in one verify step.

    Attributes:
        trajectory: its id.
        drafts: what its members drafted, whether or not it was verified.
        accepted: by member, how many of the committed tokens stand in its own tree, one behind the other. Of a tree that was not
            verified they are at most one more than the verified one had: nothing more was committed.
        seconds: by member, its time to draft.
        n_verified: draft nodes that were verified.
        n_accepted: those among them that were accepted.
    """

    trajectory: TrajectoryId
    drafts: Drafts
    accepted: Mapping[str, int]
    seconds: Mapping[str, float]
    n_verified: int
    n_accepted: int


class Routing(ABC):
    """Chooses between members for each trajectory.

    Args:
        members: names, in the order that ties are broken by; at least one.
    """

    splits_nodes = False
    """Whether members share a trajectory's nodes out, or each drafts as many as it might have alone."""

    def __init__(self, members: Sequence[str]) -> None:
        self.members = tuple(members)

    @abstractmethod
    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return who drafts in the next step: at least one of `members`, those that do not rest, in their order."""

    @abstractmethod
    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the tree to verify, with at most `n_nodes` nodes below the root; called once a step that drafts."""

    def start(self, start: TrajectoryStart) -> None:  # noqa: B027 (right for some)
        """Begin a trajectory."""

    def observe(self, outcome: StepOutcome) -> None:  # noqa: B027 (right for most)
        """Learn from a verify step."""

    def close(self, trajectory: TrajectoryId) -> None:  # noqa: B027 (right for some)
        """Forget a trajectory."""

    def close_scope(self, scope: str) -> None:  # noqa: B027 (right for most)
        """Forget what was learned from the trajectories of a scope."""


def surest(drafts: Drafts) -> DraftTree:
    """Return the tree with the largest confidence, of equals the first."""
    return max(drafts.values(), key=confidence)
