"""The manifest: what a directory's entries are beyond what a git tree can say (pure).

Each directory has one *shard*, a text with a line for each entry, sorted by name:

    envhist-manifest 1 src
    . d 0755 1763461083000000000 u=1000 g=1000
    app.py f 0644 1763461083123456789
    run%20me f 0755 1763461083123456789 l=1 x=user.note:aGVsbG8=

A capture writes a hundred thousand such lines, so `format_line` and `join_shard` take plain values; `write_shard` is
made of them. Measured by tests/store/test_manifest.py: 0.5 µs a line to write, 3 to read. A reader trusts nothing:
see `read_shard`.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.model import Entry, EntryKind, EnvPath, StoredAs
from git_envhist.store.devices import split_device
from git_envhist.store.extras import read_extras
from git_envhist.store.layout import split_realm
from git_envhist.store.names import is_name
from git_envhist.store.quoting import UNSAFE, quote, quote_path, show, unquote, unquote_path
from git_envhist.values import dataclass, pattern

__all__ = [
    "BUDGET",
    "VERSION",
    "NewerFormat",
    "Shard",
    "ShardLimits",
    "format_extras",
    "format_line",
    "join_shard",
    "quote",
    "read_shard",
    "shard_path",
    "unquote",
    "write_shard",
]

VERSION = 1
HEADER = b"envhist-manifest"
OWN_NAME = b"."
"""The first line's name: the directory itself."""
FIRST_NOTES = ("h",)
"""Notes that stand before the extended attributes: the keyed hash of a file that is recorded by hash only."""
LATEST_NS = 2**63 * 10**9
"""Seconds of 64 bits, which is what a kernel can say: ext4 and XFS do keep times beyond 64 bits of nanoseconds."""


class NewerFormat(Damaged):
    """Written by a later version, in a form that this one does not know."""

    code = "newer-format"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="a newer git-envhist reads it")


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """How much one shard may ask of its reader."""

    size: int = 1 << 28
    lines: int = 1 << 22
    line: int = 1 << 24
    depth: int = 2048
    path_bytes: int = 1 << 30


BUDGET = ShardLimits()


@dataclass(frozen=True, slots=True)
class Shard:
    """One directory of a snapshot: where it stands in the tree, what it is, and what it holds."""

    directory: bytes
    """Its stored path."""
    own: Entry
    entries: tuple[Entry, ...]
    """In the order of their names; their paths are true ones, from the top of their realm on."""


class ShardLine(NamedTuple):
    """One line of a shard, read so far that an entry can be made of it."""

    name: bytes
    kind: EntryKind
    mode: int
    mtime_ns: int
    words: bytes
    """What stands behind the time, with a space before each word."""

    def entry(self, own: Entry | None = None, prefix: bytes = b"") -> Entry:
        """The entry; `own`: that of its directory, `prefix`: the path of that, with a slash."""
        path = EnvPath(prefix + self.name)
        if not self.words:
            return Entry(path, self.kind, self.mode, self.mtime_ns)
        extras = read_extras(self.words, self.kind)
        return Entry(
            path,
            self.kind,
            self.mode,
            self.mtime_ns,
            stored=extras.stored,
            # An owner is told where it differs; one that is told needlessly means the same.
            uid=None if own and extras.uid == own.uid else extras.uid,
            gid=None if own and extras.gid == own.gid else extras.gid,
            xattrs=tuple(extras.xattrs),
            link_group=extras.link_group,
            device=extras.device,
            notes=tuple(extras.notes),
        )


class ScannedShard(NamedTuple):
    """A shard whose lines are not made into entries yet."""

    directory: bytes
    """Its stored path."""
    path: EnvPath
    """From the top of its realm on."""
    own: Entry
    rows: list[ShardLine]


def shard_path(stored_directory: bytes) -> tuple[str, str]:
    """The two names, below the manifest's directory, under which the shard of a directory stands."""
    import hashlib  # loaded late: a list of paths hashes nothing

    digest = hashlib.sha256(stored_directory).hexdigest()
    return digest[:2], digest[2:40]


def write_shard(directory: bytes, own: Entry, entries: Iterable[Entry]) -> bytes:
    """The shard of a directory; the entries may come in any order."""
    if own.uid is None or own.gid is None:
        raise ValueError("a directory's own line names its owner")
    named = {entry.path.rpartition(b"/")[2]: entry for entry in entries}
    lines = [_entry_line(name, named[name], own.uid, own.gid) for name in sorted(named)]
    return join_shard(directory, _entry_line(OWN_NAME, own, None, None), lines)


def join_shard(directory: bytes, own_line: bytes, lines: Iterable[bytes]) -> bytes:
    """A whole shard from lines that `format_line` made, which come in the order of their true names."""
    return b"%b %d %b\n%b%b" % (HEADER, VERSION, quote_path(directory), own_line, b"".join(lines))


def format_line(name: bytes, kind: bytes, mode: int, mtime_ns: int, extras: bytes) -> bytes:
    """One entry's line; `extras` is empty or what `format_extras` gave."""
    if UNSAFE.search(name) is not None:
        name = quote(name)
    return b"%b %b %04o %d%b\n" % (name, kind, mode, mtime_ns, extras)


def format_extras(
    *,
    uid: int | None = None,
    gid: int | None = None,
    link_group: int | None = None,
    device: int | None = None,
    stored: StoredAs = StoredAs.PLAIN,
    xattrs: Iterable[tuple[bytes, bytes]] = (),
    notes: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The further words of a line, a space before each; `uid`, `gid`: only where they differ from the directory's."""
    words = [] if uid is None else [b" u=%d" % uid]
    if gid is not None:
        words.append(b" g=%d" % gid)
    if link_group is not None:
        words.append(b" l=%x" % link_group)
    if device is not None:
        words.append(b" r=%d:%d" % split_device(device))
    if stored is not StoredAs.PLAIN:
        words.append(b" as=" + stored.value.encode("ascii"))
    words += [_note(word, value) for word, value in notes if word in FIRST_NOTES]
    words += [b" x=%b:%b" % (quote(name), b2a_base64(value, newline=False)) for name, value in sorted(xattrs)]
    words += [_note(word, value) for word, value in notes if word not in FIRST_NOTES]
    return b"".join(words)


def _entry_line(name: bytes, entry: Entry, uid: int | None, gid: int | None) -> bytes:
    extras = format_extras(
        uid=None if entry.uid == uid else entry.uid,
        gid=None if entry.gid == gid else entry.gid,
        link_group=entry.link_group,
        device=entry.device,
        stored=entry.stored,
        xattrs=entry.xattrs,
        notes=entry.notes,
    )
    return format_line(name, entry.kind.value.encode("ascii"), entry.mode, entry.mtime_ns, extras)


def _note(word: str, value: str) -> bytes:
    return b" %b=%b" % (word.encode("ascii"), quote(value.encode("utf-8", "surrogateescape")))


def read_shard(data: bytes, *, directory: bytes | None = None, budget: ShardLimits = BUDGET) -> Shard:
    """Read what may come from anywhere; `directory`: the stored path that it must be the shard of.

    `Damaged` for whatever `write_shard` would not have written: order, names, numbers, quoting, size.
    """
    scanned = scan_shard(data, directory=directory, budget=budget)
    prefix = scanned.path + b"/" if scanned.path else b""
    entries = tuple([row.entry(scanned.own, prefix) for row in scanned.rows])
    return Shard(scanned.directory, scanned.own, entries)


def scan_shard(data: bytes, *, directory: bytes | None = None, budget: ShardLimits = BUDGET) -> ScannedShard:
    """The same, but for the words at the end of the lines: they are read when an entry is made of one."""
    lines = _split_lines(data, budget)
    stored = _read_header(lines[0])
    if directory is not None and stored != directory:
        raise Damaged(f"the manifest of '{show(directory)}' is that of '{show(stored)}'")
    if stored.count(b"/") >= budget.depth:
        raise Damaged(f"a directory stands too deep: '{show(stored)}'")
    path = split_realm(stored)[1]
    # Each entry repeats the path of its directory: a small text must not become a large memory.
    if (len(path) + 1) * len(lines) > budget.path_bytes:
        raise Damaged(f"the manifest of '{show(stored)}' holds too much")
    own = _read_own(lines[1], path)
    return ScannedShard(stored, path, own, _read_rows(lines))


def _split_lines(data: bytes, budget: ShardLimits) -> list[bytes]:
    if len(data) > budget.size or data.count(b"\n") > budget.lines:
        raise Damaged("a manifest holds too much")
    if not data.endswith(b"\n"):
        raise Damaged("a manifest ends in the middle of a line")
    lines = data[:-1].split(b"\n")
    if len(lines) < 2:
        raise Damaged("a manifest has no line for its directory")
    if max(map(len, lines)) > budget.line:
        raise Damaged("a manifest holds a line that is too long")
    return lines


def _read_header(line: bytes) -> bytes:
    header = _HEADER_LINE.fullmatch(line)
    if header is None:
        raise Damaged(f"not a manifest: '{show(line)}'")
    if int(header[1]) != VERSION:
        raise NewerFormat(f"a manifest is written in format {int(header[1])}, this version reads {VERSION}")
    return unquote_path(header[2])


def _read_own(line: bytes, path: EnvPath) -> Entry:
    if not line.startswith(OWN_NAME + b" "):
        raise Damaged(f"a manifest does not begin with its directory: '{show(line)}'")
    own = _read_row(line, path).entry()
    if own.kind is not EntryKind.DIRECTORY or own.uid is None or own.gid is None:
        raise Damaged(f"a manifest says too little of its directory: '{show(line)}'")
    return own


def _read_rows(lines: list[bytes]) -> list[ShardLine]:
    rows = []
    last = b""
    for number in range(2, len(lines)):
        line = lines[number]
        name = unquote(line[: line.find(b" ")])
        if not is_name(name):
            raise Damaged(f"a manifest holds an impossible name: '{show(name)}'")
        if name <= last:
            raise Damaged(f"the names in a manifest are not in order: '{show(name)}'")
        last = name
        rows.append(_read_row(line, name))
    return rows


def _read_row(line: bytes, name: bytes) -> ShardLine:
    found = _LINE.fullmatch(line)
    if found is None:
        raise Damaged(f"a line of a manifest cannot be read: '{show(line)}'")
    letter, mode, time, words = found.groups()
    mtime_ns = int(time)
    if not -LATEST_NS <= mtime_ns <= LATEST_NS:
        raise Damaged(f"a manifest holds a time that no clock shows: '{show(line)}'")
    return ShardLine(name, _KINDS[letter], int(mode, 8), mtime_ns, words)


_KINDS = {kind.value.encode("ascii"): kind for kind in EntryKind}
_HEADER_LINE = pattern(HEADER + rb" ([1-9][0-9]{0,8}) (.+)", re.DOTALL)
_LINE = pattern(
    rb"[^ ]+ ([" + b"".join(_KINDS) + rb"]) ([0-7]{4}) (0|-?[1-9][0-9]{0,28})((?: [^ ]+)*)", re.DOTALL
)
