"""Numbers by which the nodes of a composed drafter's members are told apart: their kinds and sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree

__all__ = ["SOURCES", "ComposedKinds", "member_of_source"]

SOURCES: Final = 16
"""A node's `source` is this times the number of its member, and the member's own source."""
_NO_RATE: Final = 0.5
"""Prior of kinds that fill up a member's groups; no node has them."""


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
        self._first_group = np.cumsum([0, *(len(table) for table in tables)])
        padded = [
            np.pad(table, ((0, 0), (0, max(self._widths) - width)), constant_values=_NO_RATE)
            for table, width in zip(tables, self._widths, strict=True)
        ]
        self.priors: NDArray[np.float64] = np.concatenate(padded)

    def composed(self, member: int, tree: DraftTree, rates: NDArray[np.float64]) -> DraftTree:
        """Return a member's tree with kinds and sources of the composition.

        Nodes without a law of their own get a `log_q`: their acceptance rate stands for it, so that trees of members with and
        without laws can be compared.

        Args:
            member: its number.
            tree: with its own kinds.
            rates: `[kinds]` acceptance rate of each kind of the composition.

        Raises:
            ValueError: the tree was drawn for rejection verification; what has been drawn cannot be chosen from.
        """
        if tree.laws is not None:
            raise ValueError("members of a composed drafter must draft deterministically under rejection verification")
        group, place = np.divmod(tree.kind, self._widths[member])
        kind = (self._first_group[member] + group) * self.priors.shape[1] + place
        source = SOURCES * member + tree.source % SOURCES
        rate = np.log(np.maximum(rates[kind], np.finfo(np.float32).tiny))
        log_q = np.where(tree.log_q == 0, rate, np.minimum(tree.log_q, 0))
        kind[0] = source[0] = log_q[0] = 0
        return replace(tree, kind=kind.astype(np.int32), source=source.astype(np.int32), log_q=log_q.astype(np.float32))

    def own_rates(self, member: int, rates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `[kinds]` of a member from those of the composition."""
        table = rates.reshape(self.priors.shape)
        groups = slice(self._first_group[member], self._first_group[member + 1])
        return np.ascontiguousarray(table[groups, : self._widths[member]]).ravel()


def member_of_source(source: int) -> int:
    """Return the number of the member that proposed a node."""
    return source // SOURCES
