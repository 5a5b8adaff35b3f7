"""How members compare, by steps in which all of them drafted."""

from __future__ import annotations

from collections import deque

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

    @property
    def leader(self) -> str | None:
        """The member with the largest mean confidence, of equals the first; None before enough steps were compared."""
        if len(self._steps) < (self._steps.maxlen or 0):
            return None
        return max(self._steps[0], key=lambda member: sum(step[member] for step in self._steps))

    def add(self, drafts: Drafts) -> None:
        """Count a step in which all members drafted."""
        self._steps.append({member: confidence(tree) for member, tree in drafts.items()})
