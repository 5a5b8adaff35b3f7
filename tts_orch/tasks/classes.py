"""Partition answers into classes of the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from tts_orch.tasks.canonical import canonical_key
from tts_orch.tasks.equivalence import answers_equal

__all__ = ["answer_classes", "equal_classes"]


def answer_classes(
    answers: Sequence[str | None], equal: Callable[[str, str], bool] = answers_equal
) -> list[int | None]:
    """Return a class number for each answer, None for an abstention.

    Answers with one canonical form are one class. Between forms, `equal` must hold in both directions, since it is not
    symmetric; and as it is not transitive either, classes are closed under it. A permutation of the answers gives the same
    partition: each form is judged by its least spelling, forms in sorted order.

    Args:
        answers: extracted answers.
        equal: judge of two spellings.

    Returns:
        Numbers in order of first appearance, from 0.
    """
    spelling: dict[str, str] = {}
    keys = [None if answer is None else canonical_key(answer) for answer in answers]
    for key, answer in zip(keys, answers, strict=True):
        if key and answer is not None:
            spelling[key] = min(answer, spelling.get(key, answer))
    root = _closure(sorted(spelling), lambda a, b: equal(spelling[a], spelling[b]) and equal(spelling[b], spelling[a]))
    number: dict[str, int] = {}
    return [number.setdefault(root[key], len(number)) if key else None for key in keys]


def equal_classes(answers: Sequence[str | None]) -> list[int | None]:
    """Return a class number for each answer, one for all that are the same text; None for an abstention."""
    number: dict[str, int] = {}
    return [None if answer is None else number.setdefault(answer, len(number)) for answer in answers]


def _closure(keys: Sequence[str], related: Callable[[str, str], bool]) -> dict[str, str]:
    """Return the root of every key in the transitive closure of a relation (union-find)."""
    parent = {key: key for key in keys}

    def root(key: str) -> str:
        while parent[key] != key:
            key = parent[key]
        return key

    for a, b in combinations(keys, 2):
        root_a, root_b = root(a), root(b)
        if root_a != root_b and related(a, b):
            parent[max(root_a, root_b)] = min(root_a, root_b)
    return {key: root(key) for key in keys}
