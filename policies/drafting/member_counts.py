"""What became of the nodes of each drafter in a composed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from tts_orch.policies.drafting.composed_kinds import SOURCES
from tts_orch.policies.drafting.draft_tree import VerifiedStep

__all__ = ["MemberCounts", "member_shares"]

_DRAFTED: Final = "nodes_drafted_by_"
_ACCEPTED: Final = "nodes_accepted_by_"


class MemberCounts:
    """Counts verified nodes by who proposed them; one that several did counts for the first of them.

    Args:
        names: of the members, in order.
        earlier: counters of other members, which these go on from.
    """

    def __init__(self, names: Sequence[str], earlier: Mapping[str, float] = MappingProxyType({})) -> None:
        self._names = tuple(names)
        self._earlier = dict(earlier)
        self._drafted = np.zeros(len(names), np.int64)
        self._accepted = np.zeros(len(names), np.int64)

    def add(self, steps: Sequence[VerifiedStep]) -> None:
        """Count the verify steps of a pass, of trees whose sources these members have."""
        n = len(self._names)
        for step in steps:
            member = step.tree.source // SOURCES
            self._drafted += np.bincount(member[1:], minlength=n)[:n]
            self._accepted += np.bincount(member[step.accepted], minlength=n)[:n]

    def counters(self) -> dict[str, float]:
        """Return the counts by name, as `member_shares` reads them."""
        counters = dict(self._earlier)
        for kind, counts in ((_DRAFTED, self._drafted), (_ACCEPTED, self._accepted)):
            for name, n in zip(self._names, counts.tolist(), strict=True):
                counters[kind + name] = counters.get(kind + name, 0.0) + n
        return counters


def member_shares(counters: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return what each member drafted and had accepted, and its share of both, from counters of any decoders together.

    Returns:
        By name, those who had most accepted first: `drafted` and `accepted` nodes, `share_of_drafted`, `share_of_accepted`.
        Nothing where one drafter drafts alone.
    """
    drafted = {name.removeprefix(_DRAFTED): n for name, n in counters.items() if name.startswith(_DRAFTED)}
    accepted = {name: counters.get(f"{_ACCEPTED}{name}", 0.0) for name in drafted}
    all_drafted, all_accepted = sum(drafted.values()) or 1.0, sum(accepted.values()) or 1.0
    return {
        name: {
            "drafted": drafted[name],
            "accepted": accepted[name],
            "share_of_drafted": drafted[name] / all_drafted,
            "share_of_accepted": accepted[name] / all_accepted,
        }
        for name in sorted(drafted, key=lambda name: -accepted[name])
    }
