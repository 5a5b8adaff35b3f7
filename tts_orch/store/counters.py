"""Counters that threads read while one of them counts: values that are replaced, never changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

__all__ = ["counted"]

Counters = TypeVar("Counters", bound=Any)  # a frozen dataclass of numbers


def counted(counters: Counters, **more: int) -> Counters:
    """Return the counters with some of them raised."""
    raised: Counters = replace(counters, **{name: getattr(counters, name) + n for name, n in more.items()})
    return raised
