"""Whether each member of a composed drafter is worth its while: each lives on what it brought, and on a small allowance.

What `DraftBalance` books for a drafter that is alone is booked here for each member: tokens that it brought against its time to
draft and learn, by the clock, and its nodes' share of the pass, by the cost curve. Where its account is empty a member rests, and
the others go on. When its allowance has filled the account it is tried again in one pass; if that pays it goes on, else it owes
what the trial cost, so that trials are the rarer the dearer they are.

A member brings what nobody else would have: a node that several proposed counts, with what it cost and what it brought, for the one
among them that would do best alone. So of two drafters that propose the same only one pays, and a network that proposes what a table
knows brings nothing.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.policies.drafting.draft_tree import Growth

__all__ = ["MemberAccounts", "MemberPass"]

_ALLOWANCE: Final = 0.003
"""Share of the time that each member is given."""
_FIRST: Final = 16.0
"""Tokens that a member has at first: by 32 trees that cost half a token each one sees whether they bring as much."""
_MOST: Final = 32.0
"""Tokens that it can save up, and lose when texts become others."""
_MEMORY: Final = 64
"""Trees that a member's means are about."""
_WEIGHT: Final = 1 / 8
"""Of the newest pass in the mean time of one."""
_LONGEST: Final = 4.0
"""Drafting that takes more than so many means is a pause of the machine and counts as so many."""


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
class _Account:
    tokens: float = _FIRST
    is_resting: bool = False
    worth: float = 0.0  # mean of what a tree would bring if nobody else drafted, less what it would cost
    seconds: float | None = None  # mean of a pass
    n_trees: int = 0

    def sober(self, seconds: float, plain: float) -> float:
        """Return the seconds of drafting for a pass without pauses and compilations, and remember them."""
        if self.seconds is None:
            self.seconds = min(seconds, plain)
            return self.seconds
        seconds = min(seconds, _LONGEST * self.seconds)
        self.seconds += _WEIGHT * (seconds - self.seconds)
        return seconds

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
        self._accounts = {name: _Account() for name in names}

    def take_over(self, earlier: MemberAccounts, names: Sequence[str]) -> None:
        """Go on with some accounts of others."""
        self._accounts.update({name: earlier._accounts[name] for name in names})

    @property
    def offered(self) -> tuple[str, ...]:
        """Who may draft in the next pass, in order: all but those that rest and cannot afford a trial."""
        return tuple(name for name, account in self._accounts.items() if account.tokens >= 0.0)

    @property
    def on_trial(self) -> tuple[str, ...]:
        """Those among them that rested."""
        return tuple(name for name in self.offered if self._accounts[name].is_resting)

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Return members by what each is worth alone, the best first."""
        return sorted(names, key=lambda name: -self._accounts[name].worth)

    def add_allowance(self, n_roots: int) -> None:
        """Give each member its share of a pass in which so many trajectories committed."""
        for account in self._accounts.values():
            account.tokens = min(account.tokens + _ALLOWANCE * n_roots, _MOST)

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
            account = self._accounts[name]
            seconds = account.sober(one.seconds, plain)
            account.tokens += one.brought - (seconds + node_seconds * one.verified) * tokens_a_second
            account.tokens = min(account.tokens, _MOST)
            account.is_resting = account.tokens < 0.0
            alone = one.accepted - (seconds + added(one.drafted)) * tokens_a_second
            account.learn(alone / one.trees, one.trees)
