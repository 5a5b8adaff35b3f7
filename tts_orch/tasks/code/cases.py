"""Number the assertions of a test's source, so that each has a verdict of its own."""

from __future__ import annotations

import ast
import functools
from typing import Final

__all__ = ["numbered_cases"]

_LONGEST_NAME: Final = 80
_WHOLE: Final = "the tests"


@functools.lru_cache(maxsize=1 << 10)
def numbered_cases(source: str) -> tuple[str, tuple[str, ...]]:
    """Return the source with its assertions numbered, and a name for each number.

    Every `assert` becomes `with __case__(number): assert ...`, so that one that fails stops no other; one of a constant
    proves nothing and gets no number. `a == b` becomes `__equal__(a, b)`, which does not believe values that equal anything.
    A source without assertions is one case as a whole.
    """
    numbering = _Numbering()
    tree = numbering.visit(ast.parse(source))
    if not numbering.names:
        tree.body = [_case(numbering.next(_WHOLE), tree.body)]
    return ast.unparse(ast.fix_missing_locations(tree)), tuple(numbering.names)


class _Numbering(ast.NodeTransformer):
    def __init__(self) -> None:
        self.names: list[str] = []

    def next(self, name: str) -> int:
        self.names.append(name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "...")
        return len(self.names) - 1

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if isinstance(node.test, ast.Constant):
            return node
        number = self.next(ast.unparse(node.test))
        self.generic_visit(node)
        return _case(number, [node])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            return _call("__equal__", node.left, node.comparators[0])
        return node


def _case(number: int, body: list[ast.stmt]) -> ast.With:
    return ast.With([ast.withitem(_call("__case__", ast.Constant(number)))], body)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
