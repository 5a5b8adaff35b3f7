"""Nodes of a `CountedTrie`, compiled: found by hash of parent and token, their children in a list."""

from __future__ import annotations

from typing import Final, TypeAlias

import numba
import numpy as np

from tts_orch.records import IntArray

__all__ = [
    "COUNT",
    "FIELDS",
    "FIRST_CHILD",
    "LAST_CHILD",
    "NEXT",
    "PARENT",
    "PREVIOUS",
    "ROOT",
    "SUFFIX",
    "TOKEN",
    "Trie",
    "add_node",
    "delete_node",
    "enter_nodes",
    "find_child",
    "insert",
    "unlink",
]

FIELDS: Final = 8
TOKEN, COUNT, PARENT, SUFFIX, FIRST_CHILD, LAST_CHILD, NEXT, PREVIOUS = range(FIELDS)
"""Fields of a node. It stands for the tokens on the path to it; its suffix is the node of these tokens without the first.
Children are a list by falling count, of equals who got there first; -1 stands for none. Half a cache line."""

ROOT: Final = 0
"""The node of no tokens. Its children are in no list: there are too many, and none is ever drafted without a context."""

Trie: TypeAlias = tuple[IntArray, IntArray, IntArray]
"""Nodes `[capacity, FIELDS]`; index `[power of 2, at least twice the capacity]` of nodes by parent and token, -1 where empty;
the first free node, of a list by `next`, and the number of free nodes."""


@numba.njit(cache=True)
def find_child(trie: Trie, node: int, token: int) -> int:
    """Return a node's child, or -1."""
    nodes, index, _ = trie
    return index[_place(nodes, index, node, token)]


@numba.njit(cache=True)
def add_node(trie: Trie, parent: int, token: int) -> int:
    """Take a free node as a child that is not there yet, last in its list, with a count of 0."""
    nodes, index, free = trie
    node = index[_place(nodes, index, parent, token)] = free[0]
    free[0] = nodes[node, NEXT]
    free[1] -= 1
    nodes[node, TOKEN], nodes[node, PARENT] = token, parent
    nodes[node, FIRST_CHILD] = nodes[node, LAST_CHILD] = -1
    nodes[node, SUFFIX] = ROOT
    insert(nodes, node, nodes[parent, LAST_CHILD])
    return node


@numba.njit(cache=True)
def delete_node(trie: Trie, node: int) -> None:
    """Make a node free."""
    nodes, _, free = trie
    unlink(nodes, node)
    _erase(trie, node)
    nodes[node, NEXT] = free[0]
    free[0] = node
    free[1] += 1


@numba.njit(cache=True)
def enter_nodes(trie: Trie) -> None:
    """Enter the nodes that are in use into an empty index."""
    nodes, index, _ = trie
    for node in range(len(nodes)):
        if nodes[node, COUNT] > 0:
            index[_place(nodes, index, nodes[node, PARENT], nodes[node, TOKEN])] = node


@numba.njit(cache=True)
def insert(nodes: IntArray, node: int, previous: int) -> None:
    """Enter a node into its parent's list, behind `previous`, first for -1."""
    parent = nodes[node, PARENT]
    if parent == ROOT:
        nodes[node, PREVIOUS] = nodes[node, NEXT] = -1
        return
    following = nodes[previous, NEXT] if previous >= 0 else nodes[parent, FIRST_CHILD]
    nodes[node, PREVIOUS], nodes[node, NEXT] = previous, following
    if previous >= 0:
        nodes[previous, NEXT] = node
    else:
        nodes[parent, FIRST_CHILD] = node
    if following >= 0:
        nodes[following, PREVIOUS] = node
    else:
        nodes[parent, LAST_CHILD] = node


@numba.njit(cache=True)
def unlink(nodes: IntArray, node: int) -> None:
    """Take a node out of its parent's list."""
    parent, previous, following = nodes[node, PARENT], nodes[node, PREVIOUS], nodes[node, NEXT]
    if parent == ROOT:
        return
    if previous >= 0:
        nodes[previous, NEXT] = following
    else:
        nodes[parent, FIRST_CHILD] = following
    if following >= 0:
        nodes[following, PREVIOUS] = previous
    else:
        nodes[parent, LAST_CHILD] = previous


@numba.njit(cache=True)
def _place(nodes: IntArray, index: IntArray, parent: int, token: int) -> int:
    """Return where the index has this child, or the free place where it goes."""
    place = _home(index, parent, token)
    while True:
        node = index[place]
        if node < 0 or (nodes[node, PARENT] == parent and nodes[node, TOKEN] == token):
            return place
        place = (place + 1) & (len(index) - 1)


@numba.njit(cache=True)
def _home(index: IntArray, parent: int, token: int) -> int:
    """Return where a node belongs in the index: multiplicative hashing of both numbers, the high bits of the product."""
    mixed = (np.uint64(parent) << np.uint64(32)) ^ np.uint64(token)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    return int(np.int64(mixed >> np.uint64(32)) & (len(index) - 1))


@numba.njit(cache=True)
def _erase(trie: Trie, node: int) -> None:
    """Take a node out of the index; nodes behind it move up, so that no search ends early."""
    nodes, index, _ = trie
    mask = len(index) - 1
    hole = _place(nodes, index, nodes[node, PARENT], nodes[node, TOKEN])
    place = (hole + 1) & mask
    while index[place] >= 0:
        home = _home(index, nodes[index[place], PARENT], nodes[index[place], TOKEN])
        if ((place - home) & mask) >= ((place - hole) & mask):
            index[hole] = index[place]
            hole = place
        place = (place + 1) & mask
    index[hole] = -1
