"""How many verifiers to start: numbers only, no Ray and no tasks."""

from __future__ import annotations

import logging
from typing import Final

from tts_orch.actors._cluster_nodes import Survey

__all__ = ["Staffing"]

logger = logging.getLogger(__name__)

_FUTILE: Final = 4  # in a row that came to nothing: the next ones would too


class Staffing:
    """Decides how many verifiers are started.

    With a number that is wanted, so many are kept, whether there is room for them now or later. Without one there are as
    many as there is room for, and one at least: nobody is asked for machines beyond that.

    Args:
        n_wanted: how many to keep, None for as many as there is room for.
    """

    def __init__(self, n_wanted: int | None) -> None:
        self._n_wanted = n_wanted
        self._n_free = 0
        self._nodes: frozenset[str] = frozenset()
        self._n_futile = 0

    def n_to_start(self, n_at_work: int, n_starting: int) -> int:
        """Return how many verifiers to start beside those at work and those that were started."""
        if self._n_futile >= _FUTILE:
            return 0
        lacking = (self._n_wanted or 1) - n_at_work - n_starting
        return max(lacking if self._n_wanted else max(lacking, self._n_free - n_starting), 0)

    def heed(self, survey: Survey) -> None:
        """Learn what the cluster has; where a node joined, it is worth while to try again."""
        if survey.nodes - self._nodes:
            self._n_futile = 0
        self._nodes, self._n_free = survey.nodes, survey.n_free_places

    def note_success(self) -> None:
        """A new verifier has done its first work."""
        self._n_futile = 0

    def note_loss(self, was_useful: bool) -> None:
        """A verifier was lost, and has left a place."""
        self._n_free += 1
        if was_useful:
            self._n_futile = 0
        else:
            self.note_failure()

    def note_failure(self) -> None:
        """A verifier came to nothing."""
        self._n_futile += 1
        if self._n_futile == _FUTILE:
            logger.warning("%d verifiers in a row came to nothing; no more are started until a node joins", _FUTILE)

    def note_no_place(self) -> None:
        """A verifier found no place."""
        self._n_free = 0
