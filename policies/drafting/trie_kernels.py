"""The compiled inner loops of `CountedTrie`: a text comes in token by token and goes out as a whole."""

from __future__ import annotations

import numba

from tts_orch.policies.drafting.trie_nodes import (
    COUNT,
    NEXT,
    PARENT,
    PREVIOUS,
    ROOT,
    SUFFIX,
    Trie,
    add_node,
    delete_node,
    find_child,
    insert,
    unlink,
)
from tts_orch.records import IntArray

__all__ = ["append_tokens", "longest_match", "remove_text"]


@numba.njit(cache=True)
def append_tokens(trie: Trie, active: int, length: int, tokens: IntArray, max_depth: int) -> tuple[int, int]:
    """Add tokens to the end of a text.

    Args:
        trie: changed in place.
        active: node of the text's last `max_depth` tokens, of the whole text if that is shorter.
        length: tokens of the text so far.
        tokens: what to add.
        max_depth: longest run of tokens that is counted.

    Returns:
        The new active node, and the number of tokens added: fewer than all when nodes run out.
    """
    nodes, _, free = trie
    for done in range(len(tokens)):
        if free[1] < max_depth:
            return active, done
        node = active if length + done < max_depth else nodes[active, SUFFIX]
        active = longer = _count(trie, node, tokens[done])
        while node != ROOT:
            node = nodes[node, SUFFIX]
            shorter = _count(trie, node, tokens[done])
            nodes[longer, SUFFIX] = shorter
            longer = shorter
    return active, len(tokens)


@numba.njit(cache=True)
def remove_text(trie: Trie, tokens: IntArray, max_depth: int) -> None:
    """Take a whole text out again; nodes without a count become free."""
    nodes = trie[0]
    for start in range(len(tokens)):
        node = ROOT
        for token in tokens[start : start + max_depth]:
            node = find_child(trie, node, token)
        while node != ROOT:
            above = nodes[node, PARENT]
            _discount(trie, node)
            node = above


@numba.njit(cache=True)
def longest_match(trie: Trie, tokens: IntArray) -> tuple[int, int]:
    """Return the node of the longest suffix of `tokens` that has one, and its length; `tokens` are fewer than the depth."""
    nodes = trie[0]
    node, length = ROOT, 0
    for token in tokens:
        child = find_child(trie, node, token)
        while child < 0 and node != ROOT:
            node = nodes[node, SUFFIX]
            length -= 1
            child = find_child(trie, node, token)
        if child >= 0:
            node = child
            length += 1
    return node, length


@numba.njit(cache=True)
def _count(trie: Trie, parent: int, token: int) -> int:
    """Count a child once more, a new one if need be, and return it."""
    nodes = trie[0]
    node = find_child(trie, parent, token)
    if node < 0:
        node = add_node(trie, parent, token)
    nodes[node, COUNT] += 1
    previous = nodes[node, PREVIOUS]
    while previous >= 0 and nodes[previous, COUNT] < nodes[node, COUNT]:
        previous = nodes[previous, PREVIOUS]
    if previous != nodes[node, PREVIOUS]:
        unlink(nodes, node)
        insert(nodes, node, previous)
    return node


@numba.njit(cache=True)
def _discount(trie: Trie, node: int) -> None:
    """Count a node once less, and free it at 0."""
    nodes = trie[0]
    nodes[node, COUNT] -= 1
    if nodes[node, COUNT] == 0:
        delete_node(trie, node)
        return
    previous = node
    while nodes[previous, NEXT] >= 0 and nodes[nodes[previous, NEXT], COUNT] > nodes[node, COUNT]:
        previous = nodes[previous, NEXT]
    if previous != node:
        unlink(nodes, node)
        insert(nodes, node, previous)
