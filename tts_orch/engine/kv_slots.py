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
    """A cached page.

    Attributes:
        page: its number.
        tokens: what its first positions hold.
        parent: the page before it; the root, which is no page, has none.
        whole: pages that continue it and are full, by the bytes of their tokens.
        partial: pages that continue it and are not.
        n_holds: what keeps it from being evicted: its readers together count one, and each child that is kept another.
    """

    page: int
    tokens: IntArray
    parent: _Node | None
    whole: dict[bytes, _Node] = field(default_factory=dict)
    partial: list[_Node] = field(default_factory=list)
    n_holds: int = 0

    def adopt(self, child: _Node) -> None:
        if len(child.tokens) == PAGE:
            self.whole[child.tokens.tobytes()] = child
        else:
            self.partial.append(child)

    def disown(self, child: _Node) -> None:
        if len(child.tokens) == PAGE:
            del self.whole[child.tokens.tobytes()]
        else:
            self.partial.remove(child)

    def child_with(self, tokens: IntArray) -> _Node | None:
        """Return a child that begins with all these tokens."""
        if len(tokens) == PAGE:
            return self.whole.get(tokens.tobytes())
        best, common = self.best_child(tokens)
        return best if common == len(tokens) else None

    def best_child(self, tokens: IntArray) -> tuple[_Node | None, int]:
        """Return the child that shares most leading tokens, and how many."""
        exact = self.whole.get(tokens.tobytes())
        if exact is not None:
            return exact, PAGE
        best, best_common = None, 0
        for child in (*self.whole.values(), *self.partial):
            n = min(len(child.tokens), len(tokens))
            differ = np.flatnonzero(child.tokens[:n] != tokens[:n])
            common = int(differ[0]) if len(differ) else n
            if common > best_common:
                best, best_common = child, common
        return best, best_common


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
        self._cached: dict[int, _Node] = {}  # by page
        self._idle: OrderedDict[int, _Node] = OrderedDict()  # cached pages without a hold, longest idle first
        self.n_pages = n_pages

    @property
    def n_available(self) -> int:
        """Pages that an `allocate` could hand out now, cached ones that nobody reads included."""
        return len(self._free) + len(self._idle)

    def allocate(self, n: int) -> list[int] | None:
        """Reserve `n` pages, evicting unread prefixes if need be; None (and nothing changed) if there are too few."""
        if n > self.n_available:
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
            if self._users[page] == 0:
                if page in self._cached:
                    self._let_go(self._cached[page])
                else:
                    self._free.append(page)

    def find(self, token_ids: IntArray) -> SharedPrefix:
        """Reserve the longest cached prefix of these tokens."""
        node, n_tokens = self._root, 0
        pages: list[int] = []
        while True:
            child, common = node.best_child(token_ids[n_tokens : n_tokens + PAGE])
            if child is None:
                return SharedPrefix(pages, -1, n_tokens)
            self._users[child.page] += 1
            if self._users[child.page] == 1:
                self._hold(child)
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
            child = node.child_with(tokens)
            if child is None:
                if page in self._cached:
                    break
                child = self._cached[page] = _Node(page, tokens.copy(), node)
                node.adopt(child)
                self._hold(child)
                offered.append(page)
            if len(child.tokens) < PAGE:
                break
            node = child
        return offered

    def _hold(self, node: _Node) -> None:
        """Keep a page, and with it the pages before it."""
        while node.parent is not None:
            node.n_holds += 1
            if node.n_holds > 1:
                break
            self._idle.pop(node.page, None)
            node = node.parent

    def _let_go(self, node: _Node) -> None:
        """Take one hold back; pages become idle from the last one on, so whatever is idle first has no children."""
        while node.parent is not None:
            node.n_holds -= 1
            if node.n_holds > 0:
                break
            self._idle[node.page] = node
            node = node.parent

    def _evict_one(self) -> None:
        page, node = self._idle.popitem(last=False)
        del self._cached[page]
        if node.parent is not None:
            node.parent.disown(node)
        self._free.append(page)
