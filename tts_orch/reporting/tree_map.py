"""A search tree at a glance: a row a leaf, a column a step, every mark a link to its step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.search_tree import SearchNode, subtrees
from tts_orch.reporting.tree_view import fate
from tts_orch.reporting.wording import counted, dotted

__all__ = ["tree_map"]

_COLUMN: Final = 40
_ROW: Final = 14
_EDGE: Final = 12
_RADIUS: Final = {"chosen": 6.0, "kept": 4.5, "dropped": 4.5}


@dataclass(frozen=True, slots=True)
class _Place:
    node: SearchNode
    column: int
    row: int
    parent: _Place | None

    @property
    def x(self) -> float:
        return _EDGE + self.column * _COLUMN

    @property
    def y(self) -> float:
        return _EDGE + self.row * _ROW


def tree_map(forest: Sequence[SearchNode], anchor: str) -> Markup:
    """Return a drawing of the trees; marks are the fuller the higher the last step score is.

    Args:
        forest: the roots.
        anchor: of the steps' ids, as in the tree view.
    """
    places = list(_laid_out(forest))
    width = max(place.x for place in places) + _EDGE
    height = max(place.y for place in places) + _EDGE
    lines = [_edge(place.parent, place) for place in places if place.parent]
    drawing = element(
        "svg",
        element("title", "the search tree, a column a step"),
        *lines,
        *(_mark(place, anchor) for place in places),
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        class_="map",
    )
    return element("div", drawing, class_="scroll")


def _laid_out(forest: Sequence[SearchNode]) -> Iterator[_Place]:
    """Yield every node after its parent; a node is level with its first child, and subtrees are apart."""
    row = 0
    for group in subtrees(forest):
        for root in group:
            for place in _grown(root, None, row):
                row = place.row
                yield place
            row += 1
        row += 1


def _grown(node: SearchNode, parent: _Place | None, row: int) -> Iterator[_Place]:
    here = _Place(node, parent.column + 1 if parent else 0, row, parent)
    yield here
    for number, child in enumerate(node.children):
        for place in _grown(child, here, row + (number > 0)):
            row = place.row
            yield place


def _edge(start: _Place, end: _Place) -> Markup:
    middle = (start.x + end.x) / 2
    route = f"M{start.x:g},{start.y:g}C{middle:g},{start.y:g} {middle:g},{end.y:g} {end.x:g},{end.y:g}"
    return element("path", d=route, class_="edge lineage" if end.node.leads_to_chosen else "edge")


def _mark(place: _Place, anchor: str) -> Markup:
    decision, became = place.node.decision, fate(place.node)
    score = decision.step_scores[-1] if decision.step_scores else None
    text = f"{became}, {'no score' if score is None else f'score {score:.3f}'}, {counted(decision.n_new, 'token')}"
    circle = element(
        "circle",
        element("title", text),
        cx=place.x,
        cy=place.y,
        r=_RADIUS[became],
        fill_opacity=None if score is None else f"{score:.2f}",
        class_=f"node {became}",
    )
    return element("a", circle, href=f"#{anchor}-{dotted(decision.path)}")
