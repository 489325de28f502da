"""Leave out secret files that differ only by their key: equal contents sealed with two keys are no change.

A restore of contents that an older key sealed changes no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from git_envhist.cli.views.diff_source import DiffContents, DiffSource, Opener
from git_envhist.errors import EnvhistError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.lazy import replace
from git_envhist.model import Change, StoredAs
from git_envhist.secrets.seal import sealed_key_id


def without_resealed(git: Git, changes: Sequence[Change], open_sealed: Opener) -> tuple[Change, ...]:
    """Return the changes without those that only the key makes; other attributes of such a file may still differ."""
    if not any(map(_may_be, changes)):
        return tuple(changes)
    with CatFile(git) as reader:
        contents = DiffContents(DiffSource(git, "", "", (), open_sealed), reader)
        return tuple(left for change in changes for left in _left_of(change, contents, reader))


def _left_of(change: Change, contents: DiffContents, reader: CatFile) -> Iterator[Change]:
    if not _may_be(change) or not _is_same(change, contents, reader):
        yield change
    elif change.attributes:
        assert change.before is not None
        assert change.after is not None
        yield replace(change, before=replace(change.before, oid=change.after.oid))


def _may_be(change: Change) -> bool:
    one, other = change.before, change.after
    return (
        one is not None
        and other is not None
        and one.path == other.path
        and one.stored is other.stored is StoredAs.SEALED
        and one.oid != other.oid
    )


def _is_same(change: Change, contents: DiffContents, reader: CatFile) -> bool:
    sealed = [
        _stored(side.oid, reader) for side in (change.before, change.after) if side is not None and side.oid
    ]
    if len(sealed) != 2 or sealed_key_id(sealed[0]) == sealed_key_id(sealed[1]):
        # Sealed with one key, equal contents are equal.
        return False
    try:
        before, after = contents.both(change)
    except EnvhistError:
        return False
    return before == after


def _stored(oid: bytes, reader: CatFile) -> bytes:
    found = reader.read(oid.hex())
    return found.data if found is not None else b""
