"""Colours, the shapes that go with them, and legends: nothing is told apart by its colour alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tts_orch.reporting.markup import Markup, element

__all__ = ["colour_class", "legend", "mark"]

_N_COLOURS: Final = 8
_OUTLINES: Final = (  # around the origin, about 8 wide
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.5,-3.5h7v7h-7z",
    "M0,-4.5L4.4,3.4H-4.4z",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,4.5L4.4,-3.4H-4.4z",
    "M-4.5,-1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",
    "M-2,-4.5H2L4.5,0L2,4.5H-2L-4.5,0z",
    "M-5,-2.5h10v5h-10z",
)


def colour_class(number: int) -> str:
    """Return the style class that sets the colour of a number; it begins again after the last."""
    return f"c{number % _N_COLOURS}"


def mark(number: int, x: float = 0, y: float = 0, *, hollow: bool = False, title: str | None = None) -> Markup:
    """Return the mark of a number at a place of a drawing, with a text that shows under the pointer."""
    return element(
        "path",
        element("title", title) if title else None,
        d=_OUTLINES[number % _N_COLOURS],
        transform=f"translate({x:.1f} {y:.1f})",
        class_=f"{colour_class(number)} {'hollow' if hollow else 'solid'}",
    )


def legend(entries: Iterable[tuple[int, str]]) -> Markup:
    """Return what each number of a drawing stands for."""
    items = [element("li", _sample(number), element("bdi", label)) for number, label in entries]
    return element("ul", items, class_="legend")


def _sample(number: int) -> Markup:
    return element("svg", mark(number), viewBox="-6 -6 12 12", class_="sample", aria_hidden="true")
