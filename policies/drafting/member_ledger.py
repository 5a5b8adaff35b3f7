"""All that is booked about the members of a composed drafter: whose nodes were right, how each does by domain, who pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tts_orch.policies.drafting.draft_outcomes import first_proposers, member_tallies
from tts_orch.policies.drafting.draft_tree import Growth, VerifiedStep
from tts_orch.policies.drafting.member_accounts import MemberAccounts, MemberPass
from tts_orch.policies.drafting.member_counts import MemberCounts
from tts_orch.policies.routing.report import MemberTally, RoutingReport
from tts_orch.policies.routing.routing import StepOutcome

__all__ = ["MemberLedger"]


class MemberLedger:
    """Books passes.

    Args:
        names: of the members, in order.

    Attributes:
        accounts: who pays.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.accounts = MemberAccounts(names)
        self._counts = MemberCounts(names)
        self._tallies: dict[tuple[str, str], MemberTally] = {}

    def changed(self, names: Sequence[str], kept: Sequence[str]) -> MemberLedger:
        """Return one of other members that goes on counting; those that are kept keep their accounts."""
        other = MemberLedger(names)
        other.accounts.take_over(self.accounts, kept)
        other._counts = MemberCounts(names, self._counts.counters())
        other._tallies = self._tallies
        return other

    def count(self, steps: Sequence[VerifiedStep]) -> None:
        """Count the nodes of a pass, and give members their allowance of it."""
        self._counts.add(steps)
        self.accounts.add_allowance(len(steps))

    def tally(self, domain: str, outcome: StepOutcome) -> None:
        """Add a step to what is reported about its domain."""
        for name, tally in member_tallies(outcome).items():
            self._tallies[domain, name] = self._tallies.get((domain, name), MemberTally()) + tally

    def settle(
        self,
        judged: Sequence[tuple[VerifiedStep, StepOutcome]],
        learning: Mapping[str, float],
        growth: Growth,
    ) -> None:
        """Book what a pass brought and cost.

        Args:
            judged: the verify steps of trajectories that were drafted for, and what became of their drafts.
            learning: seconds that each member took to learn from the pass.
            growth: what rows of the pass cost.
        """
        passes: dict[str, MemberPass] = {}
        for step, outcome in judged:
            names = self.accounts.ranked(list(outcome.drafts))
            proposer = first_proposers(step.tree, [outcome.drafts[name] for name in names])
            for number, name in enumerate(names):
                one = MemberPass(
                    trees=1,
                    drafted=outcome.drafts[name].n_nodes - 1,
                    accepted=outcome.accepted[name],
                    verified=int((proposer == number).sum()),
                    brought=int((proposer[step.accepted] == number).sum()),
                    seconds=outcome.seconds[name],
                )
                passes[name] = passes.get(name, MemberPass(seconds=learning[name])) + one
        self.accounts.book(passes, growth, len(judged))

    def take_report(self) -> RoutingReport:
        """Return what was tallied since the last call."""
        report = RoutingReport(self._tallies)
        self._tallies = {}
        return report

    def counters(self) -> dict[str, float]:
        """Return what became of each member's nodes (`member_shares`)."""
        return self._counts.counters()
