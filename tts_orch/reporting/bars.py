"""Charts of horizontal bars, whole or of parts, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.reporting.marks import colour_class, legend
from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.wording import shortened

__all__ = ["Bar", "bar_chart"]

_WIDTH: Final = 380
_ROW: Final = 38
_THICKNESS: Final = 13
_FULL: Final = 235  # pixels of the longest bar; the rest is for the text behind it
_MOST_LETTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        label: stands above it.
        parts: length of each part by its name, from left to right.
        text: stands behind it.
    """

    label: str
    parts: Mapping[str, float]
    text: str


def bar_chart(title: str, bars: Sequence[Bar], numbers: Mapping[str, int]) -> Markup:
    """Return a chart with its title, and with a legend if bars have parts.

    Args:
        title: what is measured.
        bars: from top to bottom.
        numbers: colour number of each name that parts have, in the order of the legend.
    """
    longest = max((sum(bar.parts.values()) for bar in bars), default=0) or 1.0
    rows = [_row(place, bar, longest, numbers) for place, bar in enumerate(bars)]
    box = f"0 0 {_WIDTH} {_ROW * max(len(bars), 1)}"
    drawing = element("svg", element("title", title), *rows, viewBox=box, role="img", class_="chart")
    named = legend((number, name) for name, number in numbers.items()) if len(numbers) > 1 else None
    return element("figure", element("figcaption", title), drawing, named)


def _row(place: int, bar: Bar, longest: float, numbers: Mapping[str, int]) -> Markup:
    top, length = _ROW * place, _FULL * sum(bar.parts.values()) / longest
    return element(
        "g",
        element("text", shortened(bar.label, _MOST_LETTERS), x=0, y=top + 13, class_="tick"),
        *_parts(bar, top + 18, longest, numbers),
        element("text", bar.text, x=f"{length + 6:.1f}", y=top + 29, class_="tick"),
    )


def _parts(bar: Bar, top: float, longest: float, numbers: Mapping[str, int]) -> Iterator[Markup]:
    left = 0.0
    for name, value in bar.parts.items():
        width = _FULL * value / longest
        if width:
            yield element(
                "rect",
                element("title", f"{bar.label}: {name} {value:g}"),
                x=f"{left:.1f}",
                y=top,
                width=f"{width:.1f}",
                height=_THICKNESS,
                class_=f"part {colour_class(numbers[name])}",
            )
        left += width
