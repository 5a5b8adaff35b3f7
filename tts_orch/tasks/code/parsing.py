"""What can be said of Python source without running it."""

from __future__ import annotations

import ast
import builtins
import functools
import warnings
from typing import Final

__all__ = ["called_name", "defines", "is_python", "leading_python", "normal_form"]

_SOURCE: Final = "<solution>"
_MOST_CUTS: Final = 40
_LONGEST: Final = 200_000
_TOO_HARD: Final = (ValueError, RecursionError, MemoryError, OverflowError)

# What a model writes may warn of its escape sequences; nobody here can mend them.
warnings.filterwarnings("ignore", module=_SOURCE)


def is_python(code: str) -> bool:
    """Return whether the source compiles."""
    return _error_line(code) is None


def leading_python(code: str, n_kept: int = 0) -> str | None:
    """Return the source up to the line that its first error is in, cut as often as it takes; None if nothing is left.

    Args:
        code: source, with something else behind it perhaps.
        n_kept: lines at the beginning that are not to be cut, nor enough by themselves.
    """
    lines = code.splitlines()
    for _ in range(_MOST_CUTS):
        if len(lines) <= n_kept or not any(map(str.strip, lines[n_kept:])):
            return None
        kept = "\n".join(lines).rstrip()
        line = _error_line(kept)
        if line is None:
            return kept
        lines = lines[: min(line, len(lines)) - 1]
    return None


def defines(code: str, name: str) -> bool:
    """Return whether the source compiles and defines a function, class or variable of this name at its top."""
    return is_python(code) and any(name in _bound(statement) for statement in ast.parse(code, _SOURCE).body)


@functools.lru_cache(maxsize=1 << 10)
def called_name(tests: str) -> str | None:
    """Return the first name that a test's source calls and neither defines nor finds among the builtins."""
    tree = ast.parse(tests)
    known = {name for statement in ast.walk(tree) if isinstance(statement, ast.stmt) for name in _bound(statement)}
    asserted = (
        node for assertion in ast.walk(tree) if isinstance(assertion, ast.Assert) for node in ast.walk(assertion)
    )
    names = (node.func.id for node in asserted if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return next((name for name in names if name not in known and not hasattr(builtins, name)), None)


def normal_form(code: str) -> str:
    """Return the source as it would be printed anew: without comments, docstrings and spellings of one's own."""
    if not is_python(code):
        return code.strip()
    tree = ast.parse(code, _SOURCE)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
    return ast.unparse(tree)


def _error_line(code: str) -> int | None:
    """Return the line of the first error, None if there is none; the first line for what no compiler can read."""
    if len(code) > _LONGEST:
        return 1
    try:
        compile(code, _SOURCE, "exec", dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 1
    except _TOO_HARD:
        return 1
    return None


def _bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
    return set()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
