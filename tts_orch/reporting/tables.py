"""Tables, and what names a run in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tts_orch.reporting.marks import legend
from tts_orch.reporting.markup import Content, Markup, element

__all__ = ["named_run", "table"]


def table(header: Sequence[Content], rows: Iterable[Iterable[Content]]) -> Markup:
    """Return a table that scrolls sideways where the page is too narrow; the first cell of a row is its heading."""
    head = element("tr", *(element("th", name, scope="col") for name in header))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="scroll")


def named_run(number: int, label: str) -> Markup:
    """Return a run's name with the mark that it has in charts."""
    return legend([(number, label)])
