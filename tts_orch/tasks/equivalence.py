"""Whether two answers mean the same: cheap rules first, then math-verify in a killable process.

math-verify parses LaTeX and plain expressions and compares them with sympy, which may hang or eat memory; so it never
runs in the caller's process. A pair that it cannot decide within the limits counts as different.
"""

from __future__ import annotations

import functools
import logging
import os
import re

from tts_orch.tasks.canonical import canonical_key, plain_number, terminates
from tts_orch.tasks.process_pool import CallLostError, ProcessPool

__all__ = ["answers_equal"]

_LONGEST_ANSWER = 2000
_MATHEMATICS = re.compile(r"\$|\\\(|\\\[|\\boxed")

logger = logging.getLogger(__name__)


def answers_equal(a: str, b: str) -> bool:
    """Return whether answer `a` means the same as the reference answer `b`.

    Numbers with a finite decimal form are equal only exactly; `0.333333` still equals `1/3`. The relation is neither
    symmetric nor transitive for expressions that math-verify has to judge; `classes.answer_classes` deals with that.
    """
    key_a, key_b = canonical_key(a), canonical_key(b)
    if key_a == key_b:
        return bool(key_a)
    number_a, number_b = plain_number(key_a), plain_number(key_b)
    if number_a is not None and number_b is not None and terminates(number_a) and terminates(number_b):
        return False
    if max(len(a), len(b)) > _LONGEST_ANSWER or not (key_a and key_b):
        return False
    return _judge(a.strip(), b.strip())


@functools.lru_cache(maxsize=1 << 16)
def _judge(a: str, b: str) -> bool:
    try:
        return _pool().call(a, b)
    except CallLostError as error:
        logger.warning("could not compare %.60r with %.60r (%s); they count as different", a, b, error)
        return False


@functools.lru_cache(maxsize=1)
def _pool() -> ProcessPool[[str, str], bool]:
    return ProcessPool(verify_in_worker)


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child must not share its parent's workers


def verify_in_worker(a: str, b: str) -> bool:
    """Compare with math-verify in this process, without any limit of its own."""
    from math_verify import verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limits are off
    return bool(verify(_parsed(b), _parsed(a), timeout_seconds=None))


@functools.lru_cache(maxsize=4096)
def _parsed(answer: str) -> list[object]:
    from math_verify import parse

    if answer.count(r"\pm") == 1 and "," not in answer:  # both values, as a list
        answer = ",".join(answer.strip("$").replace(r"\pm", sign) for sign in "+-")
    text = answer if _MATHEMATICS.search(answer) else f"${answer}$"
    return list(parse(text, parsing_timeout=None))
