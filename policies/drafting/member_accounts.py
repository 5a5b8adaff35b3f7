"""Whether each member of a composed drafter is worth its while: each lives on what it brought, and on a small allowance.

What `DraftBalance` books for a drafter that is alone is booked here for each member (`DraftAccount`): tokens that it brought against
its time to draft and learn, by the clock, and its nodes' share of the pass, by the cost curve. Where its account is empty a member
rests, and the others go on.

A member brings what nobody else would have: a node that several proposed counts, with what it cost and what it brought, for the one
among them that would do best alone. So of two drafters that propose the same only one pays, and a network that proposes what a table
knows brings nothing.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tts_orch.policies.drafting.draft_account import DraftAccount
from tts_orch.policies.drafting.draft_tree import Growth

__all__ = ["MemberAccounts", "MemberPass"]

_MEMORY: Final = 64
"""Trees that a member's means are about."""


@dataclass(frozen=True, slots=True)
class MemberPass:
    """What a member did for the trajectories of one pass for which it drafted.

    Attributes:
        trees: how many these were.
        drafted: nodes of its own trees.
        accepted: committed tokens that stand in them.
        verified: nodes of the pass that count for it.
        brought: accepted ones among these.
        seconds: that it took to draft and to learn.
    """

    trees: int = 0
    drafted: int = 0
    accepted: int = 0
    verified: int = 0
    brought: int = 0
    seconds: float = 0.0

    def __add__(self, other: MemberPass) -> MemberPass:
        """Return the sums of both."""
        return MemberPass(
            self.trees + other.trees,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.verified + other.verified,
            self.brought + other.brought,
            self.seconds + other.seconds,
        )


@dataclass(slots=True)
class _Member:
    account: DraftAccount = field(default_factory=DraftAccount)
    worth: float = 0.0  # mean of what a tree would bring if nobody else drafted, less what it would cost
    n_trees: int = 0

    def learn(self, worth: float, n_trees: int) -> None:
        """Count some trees, and what one of them was worth in the mean."""
        self.n_trees += n_trees
        self.worth += min(1.0, n_trees / min(self.n_trees, _MEMORY)) * (worth - self.worth)


class MemberAccounts:
    """Says who may draft, and books what came of it.

    Args:
        names: of the members, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._members = {name: _Member() for name in names}

    def take_over(self, earlier: MemberAccounts, names: Sequence[str]) -> None:
        """Go on with some accounts of others."""
        self._members.update({name: earlier._members[name] for name in names})

    @property
    def offered(self) -> tuple[str, ...]:
        """Who may draft in the next pass, in order: all but those that rest and cannot afford a trial."""
        return tuple(name for name, member in self._members.items() if member.account.affords_drafts)

    @property
    def on_trial(self) -> tuple[str, ...]:
        """Those among them that rested."""
        return tuple(name for name, member in self._members.items() if member.account.is_on_trial)

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Return members by what each is worth alone, the best first."""
        return sorted(names, key=lambda name: -self._members[name].worth)

    def add_allowance(self, n_roots: int) -> None:
        """Give each member its share of a pass in which so many trajectories committed."""
        for member in self._members.values():
            member.account.add_allowance(n_roots)

    def book(self, passes: Mapping[str, MemberPass], growth: Growth, n_roots: int) -> None:
        """Settle a pass.

        Args:
            passes: what each member did that drafted.
            growth: what rows of the pass cost.
            n_roots: trajectories that were drafted for.
        """
        rows, last = growth.other_rows, len(growth.seconds) - 1
        plain = float(growth.seconds[n_roots])
        tokens_a_second = n_roots / plain

        def added(n_nodes: int) -> float:
            return float(growth.seconds[min(rows + n_nodes, last)] - growth.seconds[rows])

        n_verified = sum(one.verified for one in passes.values())
        node_seconds = added(n_verified) / max(n_verified, 1)
        for name, one in passes.items():
            member = self._members[name]
            worth = one.brought - node_seconds * one.verified * tokens_a_second
            seconds = member.account.book(worth, one.seconds, plain, n_roots)
            alone = one.accepted - (seconds + added(one.drafted)) * tokens_a_second
            member.learn(alone / one.trees, one.trees)
