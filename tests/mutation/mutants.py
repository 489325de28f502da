"""Mutants: single changes to a source line that a good test suite notices."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    """A change: a span of a file, its replacement, and the function around it."""

    path: Path
    function: int
    """The first line of the innermost function, its decorators included, as code objects count it."""
    line: int
    start: int
    end: int
    """The span in bytes of the whole file."""
    text: str
    before: str

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change made."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def draw(files: list[Path], count: int, seed: int) -> list[Mutant]:
    """Choose mutants at random, at most one per line."""
    by_line = {(mutant.path, mutant.line): mutant for path in files for mutant in find_mutants(path)}
    chosen = random.Random(seed).sample(sorted(by_line), min(count, len(by_line)))
    return [by_line[key] for key in chosen]


def find_mutants(path: Path) -> Iterator[Mutant]:
    """Yield every change that can be made inside the functions of a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        for node in _own_nodes(function):
            if (text := _changed(node)) is None or not hasattr(node, "lineno"):
                continue
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            yield Mutant(path, first, node.lineno, start, end, text, source[start:end].decode())


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    # A nested function is called separately, and its mutants are found separately.
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _changed(node: ast.AST) -> str | None:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            return f"({ast.unparse(ast.Compare(left, [COMPARISONS[type(operator)]()], [right]))})"
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            return f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
        case ast.Expr(value=ast.Call()):
            return "None"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            return "return None"
    return None
