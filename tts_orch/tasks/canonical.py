"""A cheap canonical form of an answer: equal forms mean equal answers, different forms decide nothing."""

from __future__ import annotations

import re
from fractions import Fraction

from tts_orch.tasks.braces import matching_braces

__all__ = ["canonical_key", "plain_number", "terminates"]

_LONGEST_NUMBER = 200
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_WRAPPERS = (r"\boxed", r"\fbox", r"\text", r"\textbf", r"\mathrm", r"\mathbf", r"\mbox")
_SPACING = re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[!,;: ]|~")
_CURRENCY = re.compile(r"\A([+-]?)\\?\$(?=[\d.])")
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"[+-]?(?:{_WHOLE}(?:\.\d*)?|\.\d+)")
_FRACTION = re.compile(rf"([+-]?)(?:\\frac\{{(-?{_WHOLE})\}}\{{({_WHOLE})\}}|({_WHOLE})\s?/\s?({_WHOLE}))")


def canonical_key(answer: str) -> str:
    """Return the canonical form: delimiters, wrappers and spacing dropped, plain numbers as reduced fractions."""
    text = _unwrap(answer.strip().rstrip(".").strip())
    text = _SPACING.sub("", text).replace("{,}", ",").replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac")
    text = _CURRENCY.sub(r"\1", " ".join(text.split()))
    number = plain_number(text)
    return text if number is None else str(number)


def plain_number(text: str) -> Fraction | None:
    r"""Return the value of an integer, decimal or fraction (`1,000.5`, `-3/4`, `\frac{3}{4}`), None for anything else."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if _DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", ""))
    fraction = _FRACTION.fullmatch(text)
    if fraction is None:
        return None
    sign, *parts = (part.replace(",", "") for part in fraction.groups(""))
    numerator, denominator = int(parts[0] or parts[2]), int(parts[1] or parts[3])
    return Fraction(-numerator if sign == "-" else numerator, denominator) if denominator else None


def terminates(number: Fraction) -> bool:
    """Return whether the number has a finite decimal form."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _unwrap(text: str) -> str:
    """Drop delimiters and commands that enclose the whole text, as often as they do."""
    for opening, closing in _DELIMITERS:
        inner = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner and closing not in inner:
            return _unwrap(inner.strip())
    for wrapper in _WRAPPERS:
        start = len(wrapper)
        if text.startswith(wrapper + "{") and matching_braces(text).get(start) == len(text) - 1:
            return _unwrap(text[start + 1 : -1].strip())
    return text
