"""Joins what git's rows and the manifest's lines say of the same paths into changes (pure)."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from git_envhist.model import TOP, Change, ChangeSide, EntryKind, EnvPath, ObjectId
from git_envhist.store.layout import root_directory, stored_below
from git_envhist.store.metadata import MetadataPair, PathMetadata
from git_envhist.store.names import stored_name, stored_path, true_name, true_path
from git_envhist.store.rows import NESTED, ROOTS, DiffRow, is_modified
from git_envhist.values import once, pattern

IMPLIED = {
    0o100644: (EntryKind.FILE, 0o644),
    0o100755: (EntryKind.FILE, 0o755),
    0o120000: (EntryKind.LINK, 0o777),
    0o040000: (EntryKind.DIRECTORY, 0o755),
    0o160000: (EntryKind.BOUNDARY, 0o755),
}
"""By git's mode: what it says, and the permission bits that it stands for."""
DIRECTORY_MODE = 0o755
NOTHING = MetadataPair(None, None)
_FLAT_ESCAPE = pattern(rb"%([0-9a-f]{2})")

LookUp = Callable[[bytes], "ObjectId | None"]
"""Stored path -> the object that stands there in the later tree."""


class PathSides(NamedTuple):
    """One path, with both sides and what the manifest says of each."""

    before: ChangeSide | None
    after: ChangeSide | None
    traits: MetadataPair = NOTHING


def join_changes(contents: Mapping[bytes, DiffRow], nested: Mapping[bytes, DiffRow], known: Mapping[bytes, MetadataPair], look_up: LookUp) -> (
    dict[EnvPath, Change]
):  # fmt: skip
    """Everything that differs, as changes by their paths."""
    found: dict[EnvPath, PathSides] = {}
    modified: dict[EnvPath, Change] = {}
    for stored, row in contents.items():
        old_mode, new_mode, old_oid, new_oid = row
        modes = _modes_of_modified(old_mode, new_mode)
        path = environment_path(stored) if stored[:1] == b"." or b"%" in stored else EnvPath(stored)
        if modes is not None and stored not in known:
            # By far the most, where all that is wanted is a list of paths.
            kind, mode, later_mode, attributes = modes
            before = ChangeSide(path, kind, mode, ObjectId(unhexlify(old_oid)))
            after = ChangeSide(path, kind, later_mode, ObjectId(unhexlify(new_oid)))
            modified[path] = Change(before, after, None, attributes)
            continue
        _put(found, path, _from_row(path, row, known.get(stored, NOTHING)))
    for stored, both in known.items():
        if stored not in contents and both.before != both.after and not stored.startswith(NESTED):
            path = environment_path(stored)
            _put(found, path, _from_manifest(path, stored, both, look_up))
    for path, pair in _nested_repositories(nested, known, look_up):
        _put(found, path, pair)
    return {**_without_full_directories(found, modified), **modified}


def environment_path(stored: bytes) -> EnvPath:
    """The true path of a stored one, as `compare` spells it."""
    if stored.startswith(ROOTS):
        name, _, below = stored[len(ROOTS) :].partition(b"/")
        return EnvPath(_unflat(name) + b"://" + b"/".join(map(true_name, below.split(b"/") if below else ())))
    if stored.startswith(NESTED):
        # A path too long for one name stands there as its digest, which is all that can be shown of it.
        return EnvPath(_unflat(stored[len(NESTED) :].partition(b"/")[0]) + b"/.git")
    return true_path(stored) if b"%" in stored else EnvPath(stored)


def stored_side(side: ChangeSide) -> bytes:
    """Where the tree holds one side of a change: undoes `environment_path`."""
    name, separator, below = side.path.partition(b"://")
    is_link = side.kind is EntryKind.LINK
    if separator:
        directory, _, last = below.rpartition(b"/")
        above = stored_below(root_directory(name), EnvPath(directory))
        return above + b"/" + stored_name(last, link=is_link) if last else above
    return stored_path(side.path, link=is_link)


def _unflat(name: bytes) -> bytes:
    return _FLAT_ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode("ascii")), name)


def _put(found: dict[EnvPath, PathSides], path: EnvPath, new: PathSides) -> None:
    # A link and a file of one name may be stored under two names: then each of two rows has one side.
    old = found.get(path)
    if old is not None:
        traits = MetadataPair(new.traits.before or old.traits.before, new.traits.after or old.traits.after)
        new = PathSides(new.before or old.before, new.after or old.after, traits)
    found[path] = new


def _from_row(path: EnvPath, row: DiffRow, both: MetadataPair) -> PathSides:
    before = _side(path, row.old_mode, row.old_oid, both.before)
    after = _side(path, row.new_mode, row.new_oid, both.after)
    return PathSides(before, after, both)


@lru_cache(64)
def _modes_of_modified(old: int, new: int) -> tuple[EntryKind, int, int, tuple[str, ...]] | None:
    """What git's two modes say of a path that stays what it is: its kind, its permissions before and after."""
    if not is_modified(old, new):
        return None
    (kind, mode), (_, later_mode) = _implied(old), _implied(new)
    return kind, mode, later_mode, ("mode",) if mode != later_mode else ()


def _implied(git_mode: int) -> tuple[EntryKind, int]:
    return IMPLIED.get(git_mode) or (EntryKind.FILE, git_mode & 0o777)


def _side(path: EnvPath, git_mode: int, oid: bytes, traits: PathMetadata | None) -> ChangeSide | None:
    if not git_mode:
        # Not in the tree, and yet it was there: its bytes could not be had, or it has none.
        return None if traits is None else ChangeSide(path, traits.kind, traits.mode, None, traits.stored)
    kind, mode = _implied(git_mode)
    raw = ObjectId(unhexlify(oid))
    if traits is None or traits.kind is not kind:
        return ChangeSide(path, kind, mode, raw)
    return ChangeSide(path, kind, traits.mode, raw, traits.stored)


def _from_manifest(path: EnvPath, stored: bytes, both: MetadataPair, look_up: LookUp) -> PathSides:
    has_bytes = both.before and both.after and both.after.kind in (EntryKind.FILE, EntryKind.LINK)
    oid = look_up(stored) if has_bytes else None
    before, after = (
        None if traits is None else ChangeSide(path, traits.kind, traits.mode, oid, traits.stored)
        for traits in both
    )
    return PathSides(before, after, both)


def _nested_repositories(
    nested: Mapping[bytes, DiffRow], known: Mapping[bytes, MetadataPair], look_up: LookUp
) -> Iterable[tuple[EnvPath, PathSides]]:
    for stored, row in nested.items():
        path = environment_path(stored)
        yield path, _from_row(path, row, known.get(stored, NOTHING))
    for stored, both in known.items():
        top = b"/".join(stored.split(b"/", 3)[:3])
        if stored.startswith(NESTED) and top not in nested and both.before != both.after:
            path, oid = environment_path(stored), look_up(top)
            side = ChangeSide(path, EntryKind.DIRECTORY, DIRECTORY_MODE, oid)
            yield path, PathSides(side, side, both)


def _without_full_directories(
    found: Mapping[EnvPath, PathSides], modified: Iterable[EnvPath]
) -> dict[EnvPath, Change]:
    # Asked for by what came or went alone: most that differs was modified.
    full_before = _Parents(chain(modified, (path for path, pair in found.items() if pair.before is not None)))
    full_after = _Parents(chain(modified, (path for path, pair in found.items() if pair.after is not None)))
    changes = {}
    for path, (before, after, traits) in found.items():
        if before is None or after is None or before.kind is not after.kind:
            # It came or went as a directory: told by what came or went in it, if there is anything.
            before = None if before is not None and _stands_for_more(before, full_before) else before
            after = None if after is not None and _stands_for_more(after, full_after) else after
        if before is not None or after is not None:
            changes[path] = Change(before, after, None, _attributes(before, after, traits))
    return changes


class _Parents:
    """The directories that some paths stand in, found when one is asked for."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._paths = paths

    @once
    def _found(self) -> set[bytes]:
        return set(map(_parent, self._paths))

    def __contains__(self, path: bytes) -> bool:
        return path in self._found


def _stands_for_more(side: ChangeSide, full: _Parents) -> bool:
    is_plain_directory = side.kind is EntryKind.DIRECTORY and side.oid is None
    return is_plain_directory and (side.path == TOP or side.path in full)


def _parent(path: bytes) -> bytes:
    if path.endswith(b"://"):
        return b"\0"
    above = path.rpartition(b"/")[0]
    return above + b"/" if above.endswith(b":/") else above


def _attributes(before: ChangeSide | None, after: ChangeSide | None, traits: MetadataPair) -> tuple[str, ...]:
    if before is None or after is None or before.kind is not after.kind:
        return ()
    old, new = traits
    if old is None and before.mode == after.mode:
        return ()
    words = ["mode"] if before.mode != after.mode else []
    if old is not None and new is not None and old != new:
        pairs = (
            ("owner", old.owner != new.owner),
            ("xattr", old.xattrs != new.xattrs),
            ("device", old.device != new.device),
            ("content", old.fingerprint != new.fingerprint),
            ("stored", old.stored is not new.stored),
        )
        words += [word for word, differs in pairs if differs]
    return tuple(words)
