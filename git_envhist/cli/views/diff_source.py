"""What a diff is shown of, and how: the two trees, their changes, and the means to read and open what they hold."""

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
"""(path, sealed bytes) -> what was sealed; `SealingError` where the key is not here."""

POINTER = b"envhist-pieces 1\nsize "


@dataclass(frozen=True, slots=True)
class DiffSource:
    """Two trees that `git` can read, and what differs between them."""

    git: Git
    before: str
    """A tree-ish; for what came out of nothing the empty tree (`store.rows.empty_tree`)."""
    after: str
    changes: tuple[Change, ...]
    open_sealed: Opener
    renames: int | None = None
    facts: tuple[FactChange, ...] = ()
    """What differs beside the files."""
    machines: bool = False
    """Whether the two are of different machines, and what differs by nature is told in few words."""


@dataclass(frozen=True, slots=True)
class DiffStyle:
    """How a diff is to look."""

    palette: Palette = PLAIN
    columns: int | None = None
    """The width to keep to; None where the answer goes to a file."""
    ended_by_nul: bool = False
    quote_all: bool = True
    """core.quotePath."""
    reveal: bool = False
    """Show the values in sealed files."""
    plain: bool = False
    """Spell our own symbols with plain letters."""
    full_index: bool = False
    """Name the contents of a patch by their whole ids, and not by as much of them as tells them apart."""


class DiffContents:
    """Reads the sides of changes, sealed ones opened."""

    def __init__(self, source: DiffSource, reader: CatFile) -> None:
        self._open_sealed = source.open_sealed
        self._reader = reader

    def of(self, side: ChangeSide | None) -> bytes:
        """What the file held; nothing where there was none."""
        if side is None or side.oid is None:
            return b""
        stored = self._reader.read(side.oid.hex())
        if stored is None:
            raise Damaged(f"the content of '{side.path.decode('utf-8', 'replace')}' is missing")
        return self._open_sealed(side.path, stored.data) if side.stored is StoredAs.SEALED else stored.data

    def both(self, change: Change) -> tuple[bytes, bytes]:
        return self.of(change.before), self.of(change.after)

    def size(self, side: ChangeSide | None) -> int:
        """How large a file of pieces is, which its pointer says; any other file's size."""
        data = self.of(side)
        if side is None or side.stored is not StoredAs.PIECES or not data.startswith(POINTER):
            return len(data)
        number = data[len(POINTER) :].partition(b"\n")[0]
        return int(number) if number.isdigit() and len(number) < 20 else 0


def is_sealed(change: Change) -> bool:
    return is_stored(change, StoredAs.SEALED)


def is_environment_file(change: Change) -> bool:
    """Whether the change is told by its variables: a sealed file whose name says that it holds some."""
    from git_envhist.probes.variables import is_variables  # loaded late: a list of paths needs none of it

    return is_sealed(change) and is_variables(change.path)


def is_in_pieces(change: Change) -> bool:
    return is_stored(change, StoredAs.PIECES)
