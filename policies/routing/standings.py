"""How members compare, by steps in which all drafted that did not rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import fmean

from tts_orch.policies.routing.routing import Drafts
from tts_orch.policies.routing.tree_confidence import confidence

__all__ = ["Standings"]


class Standings:
    """Confidence of every member in the latest steps that compared them.

    Args:
        n_steps: how many of these steps count; so many settle who leads.
    """

    def __init__(self, n_steps: int) -> None:
        self._steps: deque[dict[str, float]] = deque(maxlen=n_steps)

    def leader(self, members: Sequence[str]) -> str | None:
        """Return which of some members has the largest mean confidence, of equals the first.

        It is None before enough steps were compared, and where a member rested in the newest of these.
        """
        if len(self._steps) < (self._steps.maxlen or 0) or not self._steps[-1].keys() >= set(members):
            return None
        return max(members, key=lambda member: fmean(step[member] for step in self._steps if member in step))

    def add(self, drafts: Drafts) -> None:
        """Count a step in which members were compared."""
        self._steps.append({member: confidence(tree) for member, tree in drafts.items()})
