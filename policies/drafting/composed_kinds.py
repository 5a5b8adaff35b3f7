"""Numbers by which the nodes of a composed drafter's members are told apart: their kinds and sources."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import FloatArray, IntArray

__all__ = ["SOURCES", "ComposedKinds", "member_of_source"]

SOURCES: Final = 16
"""A node's `source` is this times the number of its member, and the member's own source."""
_NO_RATE: Final = 0.5
"""Prior of kinds that fill up a member's groups; no node has them."""
_LOWEST_RATE: Final = 1e-30


class ComposedKinds:
    """Lays the kinds of all members into one table of priors, group below group.

    Args:
        priors: of each member, `[groups, kinds of a group]` or `[kinds]`.

    Attributes:
        priors: `[groups of all, kinds of the widest group]`.
    """

    def __init__(self, priors: Sequence[NDArray[np.float64]]) -> None:
        tables = [np.atleast_2d(table) for table in priors]
        self._widths = [table.shape[1] for table in tables]
        self._first_group = list(accumulate((len(table) for table in tables), initial=0))
        padded = [
            np.pad(table, ((0, 0), (0, max(self._widths) - width)), constant_values=_NO_RATE)
            for table, width in zip(tables, self._widths, strict=True)
        ]
        self.priors: NDArray[np.float64] = np.concatenate(padded)

    def composed(
        self, member: int, tree: DraftTree, rates: NDArray[np.float64], *, is_noisy: bool = False
    ) -> DraftTree:
        """Return a member's tree with kinds and sources of the composition.

        Nodes without a law of their own get a `log_q`: their acceptance rate stands for it, so that trees of members with and
        without laws can be compared. Where the verifier's noise chose the nodes, that rate is what all of them promise, since it
        was learned from nodes that were chosen so; how sure a member is of a text its law says all the same.

        Args:
            member: its number.
            tree: with its own kinds.
            rates: `[kinds]` acceptance rate of each kind of the composition.
            is_noisy: whether the verifier's noise chose the nodes.

        Raises:
            ValueError: the tree was drawn for rejection verification; what has been drawn cannot be chosen from.
        """
        if tree.laws is not None:
            raise ValueError("members of a composed drafter must draft deterministically under rejection verification")
        place = self._first_group[member], self._widths[member], self.priors.shape[1]
        kind, source, log_q, log_rate = _numbered(tree.kind, tree.source, tree.log_q, rates, member, place)
        log_promise = log_rate if is_noisy else None
        return DraftTree(tree.token, tree.parent, tree.depth, tree.slot, log_q, source, kind, log_promise=log_promise)

    def own_rates(self, member: int, rates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `[kinds]` of a member from those of the composition."""
        table = rates.reshape(self.priors.shape)
        return np.ascontiguousarray(table[self._groups(member), : self._widths[member]]).ravel()

    def with_priors(self, members: Sequence[int], rates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `[kinds]` of the composition with what some members' kinds had to begin with."""
        table = rates.reshape(self.priors.shape).copy()
        for member in members:
            groups = self._groups(member)
            table[groups] = self.priors[groups]
        return table.ravel()

    def _groups(self, member: int) -> slice:
        return slice(self._first_group[member], self._first_group[member + 1])


@numba.njit(cache=True)
def _numbered(
    kind: IntArray,
    source: IntArray,
    log_q: FloatArray,
    rates: NDArray[np.float64],
    member: int,
    place: tuple[int, int, int],
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return kinds, sources, `log_q` and log-rates of a member's nodes.

    Args:
        kind: its own,
        source: its own,
        log_q: and its own, 0 where it has no law.
        rates: by kind of the composition.
        member: its number.
        place: its first group, and the widths of its own and of all groups.
    """
    first_group, own_width, width = place
    kinds, sources = np.zeros(len(kind), np.int32), np.zeros(len(kind), np.int32)
    log_probs, log_rates = np.zeros(len(kind), np.float32), np.zeros(len(kind), np.float32)
    for node in range(1, len(kind)):
        kinds[node] = (first_group + kind[node] // own_width) * width + kind[node] % own_width
        sources[node] = SOURCES * member + source[node] % SOURCES
        log_rates[node] = np.log(max(rates[kinds[node]], _LOWEST_RATE))
        log_probs[node] = min(log_q[node], np.float32(0)) if log_q[node] != 0 else log_rates[node]
    return kinds, sources, log_probs, log_rates


def member_of_source(source: int) -> int:
    """Return the number of the member that proposed a node."""
    return source // SOURCES
