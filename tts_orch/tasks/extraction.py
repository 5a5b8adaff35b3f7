r"""Find the answer in a model's output.

In order: the last `\boxed{}` with balanced braces, GSM8K's `####`, the last "answer is ...", and in the end, as a fallback
that says so, the last number or formula. None when there is nothing to find; an output cut inside its only box is an
abstention too.
"""

from __future__ import annotations

import re

from tts_orch.tasks.braces import boxes
from tts_orch.tasks.statements import STATED, last_match
from tts_orch.tasks.task import Extraction

__all__ = ["extract_answer", "find_answer"]

_LONGEST_PHRASE = 80
_LAST_RESORT = 5000  # characters at the end in which a number or formula is looked for

_GSM8K = re.compile(r"####[ \t]*(?=\S)")
_STATEMENT = re.compile(STATED + r"(?=\S)")
_SENTENCE_END = re.compile(r"\.(?=\s|\*|$)|。|<\|")
_WHOLE = r"(?:\d{1,3}(?:,(?:\\!\s*)?\d{3})+|\d+)"
_NUMBER = (
    r"(?<![A-Za-z0-9_.])(?P<number>-?\\?\$?-?"
    rf"(?:\\[dt]?frac\{{-?\d+\}}\{{\d+\}}|(?:{_WHOLE}(?:\.\d+)?|\.\d+)(?:\s?/\s?\d+)?(?:\s?\\?%)?))"
)
_FORMULA = (
    r"\$\$(?P<display>.+?)\$\$|\\\[(?P<bracket>.+?)\\\]|\\\((?P<parenthesis>.+?)\\\)"
    r"|\$(?P<dollar>(?=\S)[^$\n]*(?<=\S)|[^$\n]*\\[^$\n]*)\$(?!\d)"
)
_LEADING_FORMULA = re.compile(_FORMULA, re.DOTALL)
_VALUE = re.compile(f"{_FORMULA}|{_NUMBER}", re.DOTALL)
_LEADING_NUMBER = re.compile(_NUMBER + r"(?=\s+(?![-+*/=^×÷<>]|\\)|[.,;!?](?:\s|$)|\*\*|$|[^\x00-\x7f])")
_ARITHMETIC = re.compile(r"[^A-Za-z\\]*=\s*" + _NUMBER)
_WORD = re.compile(r"(?<!\\)\b[A-Za-zÀ-ɏ]{2,}|[\u3040-\u9fff]")


def extract_answer(text: str) -> str | None:
    """Return the answer as it stands in the text of an output, None for an abstention."""
    return find_answer(text).answer


def find_answer(text: str) -> Extraction:
    """Return the answer, and whether it is a fallback: the last number or formula of a text that announces none."""
    boxed = list(boxes(text))
    if boxed:
        return Extraction(next((box for box in reversed(boxed) if box), None))
    final = last_match(_GSM8K, text)
    if final is not None:
        return Extraction(_value_in(_rest_of_line(text, final)))
    statement = last_match(_STATEMENT, text)
    stated = _value_in(_first_sentence(_rest_of_line(text, statement))) if statement else None
    if stated is not None:
        return Extraction(stated)
    value = _last_value(text)
    return Extraction(value, is_fallback=value is not None)


def _rest_of_line(text: str, announcement: re.Match[str]) -> str:
    return text[announcement.end() :].partition("\n")[0]


def _first_sentence(text: str) -> str:
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _value_in(phrase: str) -> str | None:
    """Return what a stated answer amounts to: a leading formula or number, a short phrase, or the last value of a long one."""
    phrase = phrase.strip().strip("*").strip()
    for leading in (_LEADING_FORMULA, _LEADING_NUMBER, _ARITHMETIC):
        found = leading.match(phrase)
        if found:
            return _content(found)
    is_prose = len(_WORD.findall(phrase)) >= 3 or len(phrase) > _LONGEST_PHRASE
    return (_last_value(phrase) if is_prose else None) or phrase[:_LONGEST_PHRASE].rstrip(" ,;") or None


def _last_value(text: str) -> str | None:
    """Return the last number or formula; a formula without digit, command or relation (`$x$`) is only a name."""
    values = [_content(found) for found in _VALUE.finditer(text[-_LAST_RESORT:])]
    return next((value for value in reversed(values) if re.search(r"[\d\\=<>]", value)), None)


def _content(found: re.Match[str]) -> str:
    value = found[found.lastgroup or 0].strip()
    return value.replace("$", "").lstrip("\\") if found.lastgroup == "number" and "frac" not in value else value
