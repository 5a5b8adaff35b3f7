"""The tree of a stepwise search: what was sampled, what was kept of it, and what led to the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, takewhile
from types import MappingProxyType

from tts_orch.records import Candidate, Path
from tts_orch.reporting.recorded_search import Decision, RecordedSearch

__all__ = ["SearchNode", "search_forest", "subtrees"]


@dataclass(frozen=True, slots=True)
class SearchNode:
    """A candidate in its tree.

    Attributes:
        decision: what became of it.
        text: its own part of the text, without what it continues.
        answer: the answer in it, None without one.
        is_correct: whether that one is right, None where it was not graded.
        is_chosen: whether it stands for the method's answer.
        leads_to_chosen: whether that one continues it, or is it.
        children: what continues it, in order of their paths.
    """

    decision: Decision
    text: str
    answer: str | None
    is_correct: bool | None
    is_chosen: bool
    leads_to_chosen: bool
    children: tuple[SearchNode, ...]


def search_forest(
    search: RecordedSearch, chosen: Path | None, verdicts: Mapping[Path, bool] = MappingProxyType({})
) -> list[SearchNode]:
    """Return the trees of a search, roots in order of their paths; none where the method does not search by steps.

    Args:
        search: what the journal has.
        chosen: path of the candidate that stands for the answer.
        verdicts: whether a candidate is right, by path, as far as it is known.
    """
    children: dict[Path | None, list[Decision]] = {}
    for path in sorted(search.decisions):
        decision = search.decisions[path]
        parent = decision.parent if decision.parent in search.decisions else None
        children.setdefault(parent, []).append(decision)
    lineage = set(_lineage(search.decisions, chosen))

    def grown(decision: Decision) -> SearchNode:
        candidate = search.candidates.get(decision.path)
        return SearchNode(
            decision=decision,
            text=_own_text(candidate, search.candidates.get(decision.parent)),
            answer=candidate.answer if candidate else None,
            is_correct=verdicts.get(decision.path),
            is_chosen=decision.path == chosen,
            leads_to_chosen=decision.path in lineage,
            children=tuple(grown(child) for child in children.get(decision.path, ())),
        )

    return [grown(root) for root in children.get(None, ())]


def subtrees(forest: Iterable[SearchNode]) -> list[list[SearchNode]]:
    """Return the roots in groups that were sampled together: one a subtree, or all in one where they compete."""
    return [list(group) for _, group in groupby(forest, lambda root: root.decision.path[:-1])]


def _lineage(decisions: Mapping[Path, Decision], path: Path | None) -> Iterator[Path]:
    """Yield a path and those that it continues; a circle, which only a damaged file has, ends where it began."""
    seen: set[Path] = set()
    while path is not None and path in decisions and path not in seen:
        yield path
        seen.add(path)
        path = decisions[path].parent


def _own_text(candidate: Candidate | None, parent: Candidate | None) -> str:
    """Return what a candidate adds; the last character of what it continues may have been decoded otherwise."""
    if candidate is None:
        return ""
    before = parent.text if parent else ""
    n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(candidate.text, before, strict=False)))
    return candidate.text[n_same:]
