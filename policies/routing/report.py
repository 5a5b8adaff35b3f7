"""What composed drafters count for a router: how each member does in each domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MemberTally", "RoutingReport"]


@dataclass(frozen=True, slots=True)
class MemberTally:
    """Sums over the verify steps for which a member drafted, whether or not its trees were verified.

    Attributes:
        steps: how many.
        confidence: of its trees: tokens that by its law were expected to be accepted.
        accepted: committed tokens that stood in its trees.
    """

    steps: int = 0
    confidence: float = 0.0
    accepted: int = 0

    def __add__(self, other: MemberTally) -> MemberTally:
        """Return the sums of both."""
        return MemberTally(
            self.steps + other.steps,
            self.confidence + other.confidence,
            self.accepted + other.accepted,
        )

    @property
    def accepted_per_step(self) -> float:
        """Mean number of accepted tokens; 0 without steps."""
        return self.accepted / self.steps if self.steps else 0.0

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of its trees; 0 without steps."""
        return self.confidence / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class RoutingReport:
    """Tallies by (domain, member); reports of many workers add up, in any order."""

    tallies: Mapping[tuple[str, str], MemberTally] = field(default_factory=dict)

    def __add__(self, other: RoutingReport) -> RoutingReport:
        """Return the sums of both."""
        sums = dict(self.tallies)
        for key, tally in other.tallies.items():
            sums[key] = sums.get(key, MemberTally()) + tally
        return RoutingReport(sums)
