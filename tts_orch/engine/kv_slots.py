"""Which page of keys and values holds what: allocation, sharing of prefixes, least-recently-used eviction.

Pages are shared by token content: trajectories that begin with the same tokens read the same pages, and pages of ended
trajectories stay until memory is wanted, so nobody releases a prefix by hand. A page that somebody else can see is never
written: who wants to go on inside it gets a copy. Only accounting lives here; tensors are in `kv_pages`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tts_orch.engine.packing import PAGE
from tts_orch.records import IntArray

__all__ = ["KVSlots", "SharedPrefix"]


@dataclass(slots=True, eq=False)
class _Node:
    """A cached page: `tokens` are what its first positions hold, `children` continue it when it is full."""

    page: int
    tokens: IntArray
    parent: _Node | None
    children: list[_Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The cached part of a prefix.

    Attributes:
        pages: whole pages to read, each reserved for the caller.
        partial: page whose first positions go on with the prefix and have to be copied, -1 without one; reserved too.
        n_tokens: positions covered, the partial page's included.
    """

    pages: list[int]
    partial: int
    n_tokens: int


class KVSlots:
    """Accounts for `n_pages` pages."""

    def __init__(self, n_pages: int) -> None:
        self._free = list(range(n_pages - 1, -1, -1))
        self._users = np.zeros(n_pages, np.int32)
        self._root = _Node(-1, np.zeros(0, np.int32), None)
        self._cached: OrderedDict[int, _Node] = OrderedDict()  # by page, least recently used first
        self.n_pages = n_pages

    @property
    def n_available(self) -> int:
        """Pages that an `allocate` could hand out now, cached ones that nobody reads included."""
        n, kept = len(self._free), set()
        for page, node in self._cached.items():  # `_touch` keeps children before their parents
            if self._users[page] or node in kept:
                kept.add(node.parent)
            else:
                n += 1
        return n

    def allocate(self, n: int) -> list[int] | None:
        """Reserve `n` pages, evicting unread prefixes if need be; None (and nothing changed) if there are too few."""
        if n > len(self._free) and n > self.n_available:
            return None
        while len(self._free) < n:
            self._evict_one()
        pages = [self._free.pop() for _ in range(n)]
        self._users[pages] = 1
        return pages

    def release(self, pages: Sequence[int]) -> None:
        """Give up one reservation of each page; cached pages stay readable until evicted."""
        for page in pages:
            self._users[page] -= 1
            if self._users[page] == 0 and page not in self._cached:
                self._free.append(page)

    def find(self, token_ids: IntArray) -> SharedPrefix:
        """Reserve the longest cached prefix of these tokens."""
        node, n_tokens = self._root, 0
        pages: list[int] = []
        while True:
            rest = token_ids[n_tokens : n_tokens + PAGE]
            child, common = _best_child(node, rest)
            if child is None or common == 0:
                return SharedPrefix(pages, -1, n_tokens)
            self._users[child.page] += 1
            self._touch(child)
            n_tokens += common
            if common < PAGE:
                return SharedPrefix(pages, child.page, n_tokens)
            pages.append(child.page)
            node = child

    def share(self, token_ids: IntArray, pages: Sequence[int]) -> list[int]:
        """Offer computed pages for sharing.

        Args:
            token_ids: what the pages hold, position by position; the last page may be partly filled.
            pages: their pages, each reserved by the caller.

        Returns:
            The pages that are now visible to others; the caller must not write to them any more. A page whose content is
            cached already is not offered.
        """
        node, offered = self._root, []
        for i, page in enumerate(pages):
            tokens = token_ids[i * PAGE : (i + 1) * PAGE]
            if len(tokens) == 0:
                break
            child, common = _best_child(node, tokens)
            if child is None or common < len(tokens):
                if page in self._cached:
                    break
                child = _Node(page, tokens.copy(), node)
                node.children.append(child)
                self._cached[page] = child
                offered.append(page)
            self._touch(child)
            if len(child.tokens) < PAGE:
                break
            node = child
        return offered

    def _touch(self, node: _Node) -> None:
        """Mark a page and those before it as recently used, the first page as the most recent."""
        step: _Node | None = node
        while step is not None and step.page >= 0:
            self._cached.move_to_end(step.page)
            step = step.parent

    def _evict_one(self) -> None:
        node = next(node for page, node in self._cached.items() if self._users[page] == 0 and not node.children)
        del self._cached[node.page]
        if node.parent is not None:
            node.parent.children.remove(node)
        self._free.append(node.page)


def _best_child(node: _Node, tokens: IntArray) -> tuple[_Node | None, int]:
    """Return the child that shares most leading tokens, and how many."""
    best, best_common = None, 0
    for child in node.children:
        n = min(len(child.tokens), len(tokens))
        differ = np.flatnonzero(child.tokens[:n] != tokens[:n])
        common = int(differ[0]) if len(differ) else n
        if common > best_common:
            best, best_common = child, common
    return best, best_common
