"""Charts of points and curves with their intervals, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.reporting.marks import colour_class, legend, mark
from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.scales import Axis

__all__ = ["Curve", "Point", "curve_chart"]

_WIDTH: Final = 380
_HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 42


@dataclass(frozen=True, slots=True)
class Point:
    """A value with its interval.

    Attributes:
        x, y: where it lies.
        low, high: bounds of y, `y` itself without an interval.
        text: what it is, for people who point at it.
    """

    x: float
    y: float
    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one colour.

    Attributes:
        label: its name in the legend; without one it is not in it.
        number: of its colour and mark.
        points: from left to right.
        connected: whether a line joins the points, and a band their intervals; otherwise each has a whisker.
        hollow: whether its marks are empty.
    """

    label: str
    number: int
    points: Sequence[Point]
    connected: bool = True
    hollow: bool = False


def curve_chart(title: str, x: Axis, y: Axis, curves: Sequence[Curve]) -> Markup:
    """Return a chart with its title and legend."""
    drawing = element(
        "svg",
        element("title", title),
        *_frame(x, y),
        *(_curve(curve, x, y) for curve in curves),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        class_="chart",
    )
    named = legend((curve.number, curve.label) for curve in curves if curve.label)
    return element("figure", element("figcaption", title), drawing, named)


def _frame(x: Axis, y: Axis) -> Iterator[Markup]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in y.ticks():
        height = f"{_down(y, value):.1f}"
        yield element("line", x1=_LEFT, x2=right, y1=height, y2=height, class_="grid")
        yield element("text", y.write(value), x=_LEFT - 6, y=height, dy="0.32em", class_="tick end")
    for value in x.ticks():
        place = f"{_across(x, value):.1f}"
        yield element("line", x1=place, x2=place, y1=bottom, y2=bottom + 4, class_="axis")
        yield element("text", x.write(value), x=place, y=bottom + 16, class_="tick middle")
    yield element("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, class_="axis")
    yield element("text", x.title, x=(_LEFT + right) / 2, y=_HEIGHT - 6, class_="name middle")
    middle = (_TOP + bottom) / 2
    yield element("text", y.title, transform=f"translate(11 {middle:g}) rotate(-90)", class_="name middle")


def _curve(curve: Curve, x: Axis, y: Axis) -> Markup:
    places = [(_across(x, point.x), _down(y, point.y)) for point in curve.points]
    marks = [
        mark(curve.number, *place, hollow=curve.hollow, title=point.text)
        for place, point in zip(places, curve.points, strict=True)
    ]
    spread = _band(curve, x, y) if curve.connected else [_whisker(point, x, y) for point in curve.points]
    return element("g", spread, marks, class_=colour_class(curve.number))


def _band(curve: Curve, x: Axis, y: Axis) -> list[Markup]:
    over = [(_across(x, point.x), _down(y, point.high)) for point in curve.points]
    under = [(_across(x, point.x), _down(y, point.low)) for point in reversed(curve.points)]
    line = [(_across(x, point.x), _down(y, point.y)) for point in curve.points]
    return [element("polygon", points=_coordinates(over + under), class_="band"), _line(line, "line")]


def _whisker(point: Point, x: Axis, y: Axis) -> Markup:
    place = _across(x, point.x)
    return _line([(place, _down(y, point.low)), (place, _down(y, point.high))], "whisker")


def _line(places: Sequence[tuple[float, float]], look: str) -> Markup:
    return element("polyline", points=_coordinates(places), class_=look)


def _coordinates(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _across(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (_WIDTH - _RIGHT - _LEFT)


def _down(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - axis.place(value) * (_HEIGHT - _BOTTOM - _TOP)
