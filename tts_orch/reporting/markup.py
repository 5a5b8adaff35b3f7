"""HTML and SVG as values. Text is escaped when it becomes part of an element, so nothing that a model wrote is ever markup."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final, TypeAlias, Union

__all__ = ["Content", "Markup", "element", "joined"]

_VOID: Final = frozenset({"br", "input", "meta"})


class Markup(str):
    """Text that is markup already; only `element` and `joined` make it, from parts that are escaped or markup."""

    __slots__ = ()


Content: TypeAlias = Union[str, int, float, "Iterable[Content]", None]


def element(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Return an element.

    Args:
        name: its tag.
        content: texts, which are escaped, and markup, which is not; None is nothing.
        attributes: `_` stands for `-`, one at the end for nothing (`class_`); None and False are left out, True has no value.
    """
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{opening}>" if name in _VOID else f"<{opening}>{joined(*content)}</{name}>")


def joined(*content: Content) -> Markup:
    """Return the content of an element without the element."""
    return Markup("".join(_written(part) for part in content))


def _written(part: Content) -> str:
    if isinstance(part, Markup):
        return part
    if part is None:
        return ""
    if isinstance(part, (str, int, float)):
        return _escaped(part)
    return joined(*part)


def _attribute(name: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(value: str | float) -> str:
    """Return text that is safe in content and attributes; halves of surrogate pairs, which no file can hold, become `?`."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(text.encode("utf-8", "replace").decode())
