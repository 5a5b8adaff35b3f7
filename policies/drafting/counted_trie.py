"""`CountedTrie`: how often each run of tokens, up to a length, stands in a set of growing texts."""

from __future__ import annotations

from collections import deque

import numpy as np

from tts_orch.policies.drafting.token_buffer import TokenBuffer
from tts_orch.policies.drafting.trie_kernels import append_tokens, remove_text
from tts_orch.policies.drafting.trie_nodes import FIELDS, FIRST_CHILD, LAST_CHILD, NEXT, ROOT, Trie, enter_nodes
from tts_orch.records import IntArray

__all__ = ["CountedTrie", "TrieText"]

_SMALLEST = 1 << 10
_NO_TOKENS = np.zeros(0, np.int32)


class TrieText:
    """A text that grows at its end; it belongs to one trie."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, with no tokens."""
        self.buffer = TokenBuffer(_NO_TOKENS)
        self.active = ROOT


class CountedTrie:
    """A suffix trie of bounded depth and size; adding a token costs a hash search for each level.

    A node takes 32 bytes and 8 to 16 of index; a token adds at most `max_depth` nodes. When nodes run out, or there are more
    tokens than nodes, the text that came first is taken out; if it still grows, it counts as a new one from there on.

    Args:
        max_depth: longest run of tokens that is counted.
        max_nodes: nodes it has at most, the root among them; more than `max_depth`.

    Raises:
        ValueError: fewer nodes than one token may need.
    """

    def __init__(self, max_depth: int, max_nodes: int = 1 << 30) -> None:
        if max_nodes <= max_depth:
            raise ValueError(f"max_nodes: {max_nodes} must be more than max_depth ({max_depth})")
        self.max_depth = max_depth
        self._max_nodes = max_nodes
        self._n_tokens = 0
        self._texts: deque[TrieText] = deque()
        nodes = np.zeros((1, FIELDS), np.int32)
        nodes[ROOT, [FIRST_CHILD, LAST_CHILD]] = -1
        self.arrays: Trie = (nodes, np.full(2, -1, np.int32), np.zeros(2, np.int32))
        self._grow(_SMALLEST)

    @property
    def n_nodes(self) -> int:
        """Nodes in use, the root among them."""
        nodes, _, free = self.arrays
        return len(nodes) - int(free[1])

    @property
    def n_bytes(self) -> int:
        """Memory of nodes and index."""
        return sum(array.nbytes for array in self.arrays)

    def append(self, text: TrieText, token_ids: IntArray) -> None:
        """Add tokens at the end of a text."""
        done = 0
        while done < len(token_ids):
            self._make_room()
            if len(text.buffer) == 0:
                self._texts.append(text)
            text.active, n = append_tokens(self.arrays, text.active, len(text.buffer), token_ids[done:], self.max_depth)
            text.buffer.append(token_ids[done : done + n])
            self._n_tokens += n
            done += n

    def _make_room(self) -> None:
        """See to it that one more token can be added."""
        while self._n_tokens >= self._max_nodes or self.arrays[2][1] < self.max_depth:
            capacity = len(self.arrays[0])
            if self._n_tokens < self._max_nodes and capacity < self._max_nodes:
                self._grow(2 * capacity)
            else:
                self._evict(self._texts.popleft())

    def _evict(self, text: TrieText) -> None:
        self._n_tokens -= len(text.buffer)
        remove_text(self.arrays, text.buffer.tokens, self.max_depth)
        text.forget()

    def _grow(self, capacity: int) -> None:
        """Have this many nodes, or as many as are allowed; the new ones come first among the free."""
        old, _, (first_free, n_free) = self.arrays
        capacity, n = min(capacity, self._max_nodes), len(old)
        nodes = np.zeros((capacity, FIELDS), np.int32)
        nodes[:n] = old
        nodes[n:, NEXT] = np.arange(n + 1, capacity + 1)
        nodes[-1, NEXT] = first_free
        index = np.full(1 << (2 * capacity - 1).bit_length(), -1, np.int32)
        self.arrays = nodes, index, np.array([n, n_free + capacity - n], np.int32)
        enter_nodes(self.arrays)
