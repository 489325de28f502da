"""The input of a diff view: two trees with their changes (`DiffSource`), the style, and the contents of files."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.cli.output import PLAIN, Palette
from git_envhist.diff.summary import is_stored
from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.model import Change, ChangeSide, EnvPath, FactChange, StoredAs

Opener = Callable[[EnvPath, bytes], bytes]
"""Takes the path and the sealed bytes, returns the content; raises `SealingError` without the key."""

POINTER = b"envhist-pieces 1\nsize "


@dataclass(frozen=True, slots=True)
class DiffSource:
    """Two trees, and the differences between them."""

    git: Git
    before: str
    """A tree-ish; the empty tree if there is no snapshot before."""
    after: str
    changes: tuple[Change, ...]
    open_sealed: Opener
    renames: int | None = None
    facts: tuple[FactChange, ...] = ()
    """The facts that differ."""
    machines: bool = False
    """True if the trees are of different machines, so that normal differences are only counted."""


@dataclass(frozen=True, slots=True)
class DiffStyle:
    """The style of a diff."""

    palette: Palette = PLAIN
    columns: int | None = None
    """The width of the terminal; None if the output is not a terminal."""
    ended_by_nul: bool = False
    quote_all: bool = True
    """The value of core.quotePath."""
    reveal: bool = False
    """Show the values in sealed files."""
    plain: bool = False
    """Write symbols as ASCII letters."""
    full_index: bool = False
    """Print full object ids in a patch."""


class DiffContents:
    """Reads the contents of both sides of a change, and opens sealed ones."""

    def __init__(self, source: DiffSource, reader: CatFile) -> None:
        self._open_sealed = source.open_sealed
        self._reader = reader

    def of(self, side: ChangeSide | None) -> bytes:
        """Return the content of a file; nothing if the file does not exist on this side."""
        if side is None or side.oid is None:
            return b""
        stored = self._reader.read(side.oid.hex())
        if stored is None:
            raise Damaged(f"the content of '{side.path.decode('utf-8', 'replace')}' is missing")
        return self._open_sealed(side.path, stored.data) if side.stored is StoredAs.SEALED else stored.data

    def both(self, change: Change) -> tuple[bytes, bytes]:
        return self.of(change.before), self.of(change.after)

    def size(self, side: ChangeSide | None) -> int:
        """Return the size of a file; that of a file in chunks is in its pointer."""
        data = self.of(side)
        if side is None or side.stored is not StoredAs.PIECES or not data.startswith(POINTER):
            return len(data)
        number = data[len(POINTER) :].partition(b"\n")[0]
        return int(number) if number.isdigit() and len(number) < 20 else 0


def is_sealed(change: Change) -> bool:
    return is_stored(change, StoredAs.SEALED)


def is_sealed_variables_file(change: Change) -> bool:
    """Return whether the change is a sealed file of variables, which is shown by variables."""
    from git_envhist.probes.variables import (
        is_variables_file,  # loaded late: a list of paths needs none of it
    )

    return is_sealed(change) and is_variables_file(change.path)


def is_in_pieces(change: Change) -> bool:
    return is_stored(change, StoredAs.PIECES)
