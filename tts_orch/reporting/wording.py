"""How numbers, answers and verdicts are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tts_orch.reporting.markup import Markup, element

__all__ = [
    "amount",
    "counted",
    "dotted",
    "percent",
    "percent_with_interval",
    "points_with_interval",
    "shortened",
    "verdict",
    "written_answer",
]


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"


def percent_with_interval(measure: Mapping[str, float] | None) -> str:
    """Return a mean with its interval, a dash where there is none."""
    if measure is None:
        return "–"
    return f"{percent(measure['mean'])} ({100 * measure['low']:.1f} – {100 * measure['high']:.1f})"


def points_with_interval(mean: float, low: float, high: float) -> str:
    """Return a difference of shares in percentage points with its interval."""
    return f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def amount(value: float) -> str:
    """Return a number of things, or a mean of such numbers."""
    return f"{value:,.1f}" if value < 100 and value != int(value) else f"{value:,.0f}"


def counted(n: int, thing: str) -> str:
    """Return a number of things with their name."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def dotted(path: Sequence[int]) -> str:
    """Return a candidate's place in the search."""
    return ".".join(map(str, path)) or "–"


def shortened(text: str, most: int) -> str:
    """Return the first line of a text, cut to so many characters."""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def written_answer(answer: str | None) -> str:
    """Return an answer, or that there is none."""
    return "no answer" if answer is None else shortened(answer, 40) or "(blank)"


def verdict(is_correct: bool | None) -> Markup:
    """Return the sign of right, wrong or not known."""
    sign, name = {True: ("✓", "right"), False: ("✗", "wrong"), None: ("?", "not-graded")}[is_correct]
    return element("b", sign, title=name.replace("-", " "), class_=f"verdict {name}")
