"""`--name-only`, `--name-status`, `--raw`: one record a change, as git prints them, `-z` included."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.diffsource import DiffStyle
from git_envhist.cli.paths import all_plain, quoted
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind

TYPE_BITS = {
    EntryKind.FILE: 0o100000,
    EntryKind.LINK: 0o120000,
    EntryKind.DIRECTORY: 0o040000,
    EntryKind.FIFO: 0o010000,
    EntryKind.SOCKET: 0o140000,
    EntryKind.CHARACTER_DEVICE: 0o020000,
    EntryKind.BLOCK_DEVICE: 0o060000,
    EntryKind.BOUNDARY: 0o160000,
}
ID_LENGTHS = (20, 32)
LETTERS = {kind.value: kind.value.encode("ascii") for kind in ChangeKind}


def name_only(changes: tuple[Change, ...], manner: DiffStyle) -> Iterator[bytes]:
    """The path of each change; of a renamed file, the new one."""
    for change in changes:
        yield _record([change.path], manner)


def name_status(changes: tuple[Change, ...], manner: DiffStyle) -> Iterator[bytes]:
    """git's letter and the path, or both paths of a rename."""
    if not manner.ended_by_nul and all_plain([change.path for change in changes]):
        # As nearly all lists are: none of a thousand paths is looked at on its own.
        yield b"".join([_plain_line(change, manner) for change in changes])
        return
    for change in changes:
        yield _record([letter(change), *paths(change)], manner)


def raw(changes: tuple[Change, ...], manner: DiffStyle) -> Iterator[bytes]:
    """git's raw format with whole ids; the modes hold all twelve bits, and the type of whatever it is."""
    zeros = b"0" * (2 * _id_length(changes))
    for change in changes:
        modes = b" ".join(
            b"%06o" % (side_mode(side) if side else 0) for side in (change.before, change.after)
        )
        ids = b" ".join(_id(side) or zeros for side in (change.before, change.after))
        yield _record([b":" + modes + b" " + ids + b" " + letter(change), *paths(change)], manner)


def letter(change: Change) -> bytes:
    """The status letter; for a rename with its similarity, as git has it."""
    word = change.kind.value.encode("ascii")
    return word + b"%03d" % (change.similarity or 0) if change.kind is ChangeKind.RENAMED else word


def paths(change: Change) -> list[bytes]:
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        return [change.before.path, change.path]
    return [change.path]


def _plain_line(change: Change, manner: DiffStyle) -> bytes:
    before, after = change.before, change.after
    if before is not None and after is not None and (before.path, before.kind) == (after.path, after.kind):
        return b"M\t%b\n" % (after.path or b".")
    kind = change.kind
    if kind is ChangeKind.RENAMED:
        return _record([letter(change), *paths(change)], manner)
    return b"%b\t%b\n" % (LETTERS[kind.value], change.path or b".")


def side_mode(side: ChangeSide) -> int:
    """The mode as stat gives it; of a link as git gives it, since a link has no bits of its own."""
    return TYPE_BITS[side.kind] | (0 if side.kind is EntryKind.LINK else side.mode)


def shown_path(path: bytes, manner: DiffStyle) -> bytes:
    """The path as it is printed: in quotes where it wants them; the top is a dot."""
    return quoted(path or b".", quote_all=manner.quote_all)


def _record(fields: list[bytes], manner: DiffStyle) -> bytes:
    if manner.ended_by_nul:
        return b"".join((field or b".") + b"\0" for field in fields)
    head = [field for field in fields[:1] if len(fields) > 1]
    return b"\t".join([*head, *(shown_path(field, manner) for field in fields[len(head) :])]) + b"\n"


def _id(side: ChangeSide | None) -> bytes | None:
    return None if side is None or side.oid is None else side.oid.hex().encode("ascii")


def _id_length(changes: tuple[Change, ...]) -> int:
    sides = (side for change in changes for side in (change.before, change.after))
    return next((len(side.oid) for side in sides if side is not None and side.oid is not None), ID_LENGTHS[0])
