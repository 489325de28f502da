"""Read the project's own source as syntax, for the rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "git_envhist"


@dataclass(frozen=True, slots=True)
class Import:
    """An import of a module, and its place."""

    module: str
    line: int
    late: bool
    """The import is inside a function, not at the top of the file."""
    typing: bool = False
    """The import is below `if TYPE_CHECKING` and never runs."""


@dataclass(frozen=True)
class Source:
    """A file of the package."""

    path: Path

    @property
    def name(self) -> str:
        """Return the dotted module: `git_envhist.objects.pack_writer`."""
        parts = self.path.relative_to(CHECKOUT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """Return the package below `git_envhist`, or the module itself if it is at the top: `objects`, `disk`."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(
            _imports(self.tree, self.name, self.path.name == "__init__.py", late=False, typing=False)
        )

    @cached_property
    def _all_nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def nodes(self, kind: type[Node]) -> Iterator[Node]:
        """Yield all nodes of a kind, at any depth."""
        return (node for node in self._all_nodes if isinstance(node, kind))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return (node for node in self._all_nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def sources() -> tuple[Source, ...]:
    """Return every file of the package; all rules share one copy of the syntax."""
    return tuple(Source(path) for path in sorted(PACKAGE.rglob("*.py")))


def forget_syntax() -> None:
    """Free the memory of the syntax, which each later fork of this process would copy."""
    for source in sources():
        vars(source).pop("tree", None)
        vars(source).pop("_all_nodes", None)


def _imports(node: ast.AST, module: str, package: bool, *, late: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        unused = typing or (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING")
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, late, typing)
        elif isinstance(child, ast.ImportFrom):
            origin = _origin(child, module, package)
            # `from git_envhist import model` names a module, `from git_envhist.model import Entry` does not. Both
            # spellings are returned, and rules ignore a name that is not a module.
            for alias in child.names:
                name = f"{origin}.{alias.name}" if origin == "git_envhist" else origin
                yield Import(name, child.lineno, late, typing)
        else:
            yield from _imports(child, module, package, late=inside, typing=unused)


def _origin(node: ast.ImportFrom, module: str, package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + (1 if package else 0)]
    return ".".join([*base, *([node.module] if node.module else [])])
