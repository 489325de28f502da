"""The manifest: metadata of a directory's entries that a git tree cannot express (pure).

Each directory has one *shard*, a text with a line for each entry, sorted by name:

    envhist-manifest 1 src
    . d 0755 1763461083000000000 u=1000 g=1000
    app.py f 0644 1763461083123456789
    run%20me f 0755 1763461083123456789 l=1 x=user.note:aGVsbG8=

A capture writes 100,000 such lines, so `format_line` and `join_shard` take plain values; `write_shard` uses them.
`read_shard` validates everything: a shard may come from an untrusted repository. `plain_entries` is its fast path for
directories in which nothing is unusual. Measured by tests/snapshots/test_manifest.py: 0.5 µs per line written, 3 read.
"""

from __future__ import annotations

import re
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import lt
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, field, pattern
from git_envhist.model import Entry, EntryKind, EnvPath, ObjectId, StoredAs
from git_envhist.objects.trees import DIRECTORY, EXECUTABLE, FILE, LINK
from git_envhist.printable_text import display_bytes
from git_envhist.snapshots.layout import split_root
from git_envhist.snapshots.quoting import UNSAFE, quote, quote_path, unquote, unquote_path
from git_envhist.snapshots.stored_names import is_name, may_need_escape

# Device numbers in Linux's encoding, independent of the system that reads them.


def split_device(device: int) -> tuple[int, int]:
    """Return the major and minor number of a device."""
    return (device >> 8 & 0xFFF) | (device >> 32 & 0xFFFFF000), (device & 0xFF) | (device >> 12 & 0xFFFFFF00)


def join_device(major: int, minor: int) -> int:
    """Combine two numbers of 32 bits each; the inverse of `split_device`."""
    return (major & 0xFFF) << 8 | (major & 0xFFFFF000) << 32 | (minor & 0xFF) | (minor & 0xFFFFFF00) << 12


# The words at the end of a line. Known words come in a fixed order, each at most once (except extended attributes,
# which are sorted by name); numbers have one spelling and a range. Unknown words are preserved for the version that
# knows them.

MAX_ID = 2**32 - 1
MAX_ATTRIBUTE_NAME = 255

_WORD = pattern(rb"([a-z][a-z0-9-]{0,63})=(.*)", re.DOTALL)
_DECIMAL = pattern(rb"(?:0|[1-9][0-9]{0,9})\Z")
_GROUP = pattern(rb"(?:0|[1-9a-f][0-9a-f]{0,15})\Z")
_KEYED_HASH = pattern(rb"[0-9a-f]{1,128}\Z")

_DEVICES = (EntryKind.CHARACTER_DEVICE, EntryKind.BLOCK_DEVICE)
_WITH_BYTES = (EntryKind.FILE, EntryKind.LINK)


@dataclass(slots=True)
class ExtraWords:
    """The words of one line, as read so far."""

    kind: EntryKind
    uid: int | None = None
    gid: int | None = None
    link_group: int | None = None
    device: int | None = None
    stored: StoredAs = StoredAs.PLAIN
    xattrs: list[tuple[bytes, bytes]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


def read_extras(text: bytes, kind: EntryKind) -> ExtraWords:
    """Parse the words after a line's time; `text` is empty or begins with a space."""
    extras = ExtraWords(kind)
    last = -1
    for item in text[1:].split(b" ") if text else ():
        word = _WORD.fullmatch(item)
        if word is None:
            raise _unreadable(item)
        rank, read = _READERS.get(word[1], _OTHER)
        if rank < last or (rank == last and rank < _ATTRIBUTES):
            raise Damaged(f"the words of a manifest line are not in order: '{display_bytes(text)}'")
        last = rank
        if not read(extras, word[1], word[2]):
            raise _unreadable(item)
    return extras


def _read_uid(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.uid = _number(value)
    return extras.uid is not None


def _read_gid(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.gid = _number(value)
    return extras.gid is not None


def _read_link_group(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    if _GROUP.match(value) is None or extras.kind is EntryKind.DIRECTORY:
        return False
    extras.link_group = int(value, 16)
    return True


def _read_device(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    major, colon, minor = value.partition(b":")
    numbers = _number(major), _number(minor)
    if not colon or numbers[0] is None or numbers[1] is None or extras.kind not in _DEVICES:
        return False
    extras.device = join_device(numbers[0], numbers[1])
    return True


def _read_stored(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    if value not in _STORED or extras.kind not in _WITH_BYTES:
        return False
    extras.stored = _STORED[value]
    return True


def _read_keyed_hash(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.notes.append(("h", value.decode("ascii", "replace")))
    return _KEYED_HASH.match(value) is not None


def _read_attribute(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    # A name may contain a colon, base64 never does.
    quoted, colon, encoded = value.rpartition(b":")
    name = unquote(quoted)
    try:
        content = a2b_base64(encoded, strict_mode=True)
    except NotBase64:
        return False
    if not colon or not 0 < len(name) <= MAX_ATTRIBUTE_NAME or b"\0" in name:
        return False
    if b2a_base64(content, newline=False) != encoded:
        return False
    extras.xattrs.append((name, content))
    return len(extras.xattrs) == 1 or extras.xattrs[-2][0] < name


def _read_note(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.notes.append((word.decode("ascii"), unquote(value).decode("utf-8", "surrogateescape")))
    return True


def _number(text: bytes) -> int | None:
    number = int(text) if _DECIMAL.match(text) else MAX_ID + 1
    return number if number <= MAX_ID else None


def _unreadable(item: bytes) -> Damaged:
    return Damaged(f"a word of a manifest line cannot be read: '{display_bytes(item)}'")


_Reader = Callable[[ExtraWords, bytes, bytes], bool]
"""Takes the word and its value. Returns False if the value is malformed."""

_STORED = {stored.value.encode("ascii"): stored for stored in StoredAs if stored is not StoredAs.PLAIN}
_ATTRIBUTES = 6
_READERS: dict[bytes, tuple[int, _Reader]] = {
    b"u": (0, _read_uid),
    b"g": (1, _read_gid),
    b"l": (2, _read_link_group),
    b"r": (3, _read_device),
    b"as": (4, _read_stored),
    b"h": (5, _read_keyed_hash),
    b"x": (_ATTRIBUTES, _read_attribute),
}
_OTHER: tuple[int, _Reader] = (_ATTRIBUTES + 1, _read_note)


VERSION = 1
HEADER = b"envhist-manifest"
OWN_NAME = b"."
"""The name in the first line: the directory itself."""
FIRST_NOTES = ("h",)
"""Notes that precede the extended attributes: the keyed hash of a file that is recorded by hash only."""
LATEST_NS = 2**63 * 10**9
"""Seconds of 64 bits, as a kernel reports them: ext4 and XFS store times beyond 64 bits of nanoseconds."""


class NewerManifestFormat(Damaged):
    """A manifest was written by a later version of this program."""

    code = "newer-format"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="upgrade git-envhist to read it")


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """Upper bounds for one shard."""

    size: int = 1 << 28
    lines: int = 1 << 22
    line: int = 1 << 24
    depth: int = 2048
    path_bytes: int = 1 << 30


BUDGET = ShardLimits()


@dataclass(frozen=True, slots=True)
class Shard:
    """A directory of a snapshot: its stored path, its own entry and its entries."""

    directory: bytes
    """The stored path."""
    own: Entry
    entries: tuple[Entry, ...]
    """Sorted by name; the paths are relative to the root that the directory belongs to."""


class ShardLine(NamedTuple):
    """A line of a shard, parsed up to its words."""

    name: bytes
    kind: EntryKind
    mode: int
    mtime_ns: int
    words: bytes
    """Everything after the time, with a space before each word."""

    def entry(self, own: Entry | None = None, prefix: bytes = b"") -> Entry:
        """Return the entry. `own`: the entry of its directory; `prefix`: the directory's path with a slash."""
        path = EnvPath(prefix + self.name)
        if not self.words:
            return Entry(path, self.kind, self.mode, self.mtime_ns)
        extras = read_extras(self.words, self.kind)
        return Entry(
            path=path,
            kind=self.kind,
            mode=self.mode,
            mtime_ns=self.mtime_ns,
            stored=extras.stored,
            # An owner equal to the directory's is redundant, and dropped.
            uid=None if own and extras.uid == own.uid else extras.uid,
            gid=None if own and extras.gid == own.gid else extras.gid,
            xattrs=tuple(extras.xattrs),
            link_group=extras.link_group,
            device=extras.device,
            notes=tuple(extras.notes),
        )


class ScannedShard(NamedTuple):
    """A parsed shard; its lines are not converted to entries yet."""

    directory: bytes
    """The stored path."""
    path: EnvPath
    """Relative to the root that the directory belongs to."""
    own: Entry
    rows: list[ShardLine]


def write_shard(directory: bytes, own: Entry, entries: Iterable[Entry]) -> bytes:
    """Return the shard of a directory; the entries may come in any order."""
    if own.uid is None or own.gid is None:
        raise ValueError("a directory's own line names its owner")
    named = {entry.path.rpartition(b"/")[2]: entry for entry in entries}
    lines = [_entry_line(name, named[name], own.uid, own.gid) for name in sorted(named)]
    return join_shard(directory, _entry_line(OWN_NAME, own, None, None), lines)


def join_shard(directory: bytes, own_line: bytes, lines: Iterable[bytes]) -> bytes:
    """Return a whole shard from lines made by `format_line`, sorted by true name."""
    return b"%b %d %b\n%b%b" % (HEADER, VERSION, quote_path(directory), own_line, b"".join(lines))


def format_line(name: bytes, kind: bytes, mode: int, mtime_ns: int, extras: bytes) -> bytes:
    """Return the line of one entry; `extras` is empty or the result of `format_extras`."""
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
    """Return the words at the end of a line, a space before each.

    `uid`, `gid`: only if they differ from the directory's.
    """
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
    """Parse an untrusted shard; `directory`: the stored path that it must belong to.

    Raise `Damaged` for everything that `write_shard` would not write: order, names, numbers, quoting, size.
    """
    scanned = scan_shard(data, directory=directory, budget=budget)
    prefix = scanned.path + b"/" if scanned.path else b""
    entries = tuple([row.entry(scanned.own, prefix) for row in scanned.rows])
    return Shard(scanned.directory, scanned.own, entries)


def scan_shard(data: bytes, *, directory: bytes | None = None, budget: ShardLimits = BUDGET) -> ScannedShard:
    """Parse a shard like `read_shard`, but leave the words of the lines unparsed until an entry is made."""
    lines = _split_lines(data, budget)
    stored = _read_header(lines[0])
    if directory is not None and stored != directory:
        raise Damaged(f"the manifest of '{display_bytes(directory)}' is that of '{display_bytes(stored)}'")
    if stored.count(b"/") >= budget.depth:
        raise Damaged(f"a directory is nested too deeply: '{display_bytes(stored)}'")
    path = split_root(stored)[1]
    # Each entry repeats the path of its directory: a small text must not expand to a large amount of memory.
    if (len(path) + 1) * len(lines) > budget.path_bytes:
        raise Damaged(f"the manifest of '{display_bytes(stored)}' is too large")
    own = _read_own(lines[1], path)
    return ScannedShard(stored, path, own, _read_rows(lines))


def _split_lines(data: bytes, budget: ShardLimits) -> list[bytes]:
    if len(data) > budget.size or data.count(b"\n") > budget.lines:
        raise Damaged("a manifest is too large")
    if not data.endswith(b"\n"):
        raise Damaged("a manifest ends in the middle of a line")
    lines = data[:-1].split(b"\n")
    if len(lines) < 2:
        raise Damaged("a manifest has no line for its directory")
    if max(map(len, lines)) > budget.line:
        raise Damaged("a manifest has a line that is too long")
    return lines


def _read_header(line: bytes) -> bytes:
    header = _HEADER_LINE.fullmatch(line)
    if header is None:
        raise Damaged(f"not a manifest: '{display_bytes(line)}'")
    if int(header[1]) != VERSION:
        raise NewerManifestFormat(
            f"a manifest is written in format {int(header[1])}, this version reads {VERSION}"
        )
    return unquote_path(header[2])


def _read_own(line: bytes, path: EnvPath) -> Entry:
    if not line.startswith(OWN_NAME + b" "):
        raise Damaged(f"a manifest does not begin with its directory: '{display_bytes(line)}'")
    own = _read_row(line, path).entry()
    if own.kind is not EntryKind.DIRECTORY or own.uid is None or own.gid is None:
        raise Damaged(f"a manifest does not describe its directory completely: '{display_bytes(line)}'")
    return own


def _read_rows(lines: list[bytes]) -> list[ShardLine]:
    rows = []
    last = b""
    for number in range(2, len(lines)):
        line = lines[number]
        name = unquote(line[: line.find(b" ")])
        if not is_name(name):
            raise Damaged(f"a manifest has an impossible name: '{display_bytes(name)}'")
        if name <= last:
            raise Damaged(f"the names in a manifest are not in order: '{display_bytes(name)}'")
        last = name
        rows.append(_read_row(line, name))
    return rows


def _read_row(line: bytes, name: bytes) -> ShardLine:
    found = _LINE.fullmatch(line)
    if found is None:
        raise Damaged(f"a line of a manifest cannot be read: '{display_bytes(line)}'")
    letter, mode, time, words = found.groups()
    mtime_ns = int(time)
    if not -LATEST_NS <= mtime_ns <= LATEST_NS:
        raise Damaged(f"a manifest has a time out of range: '{display_bytes(line)}'")
    return ShardLine(name, _KINDS[letter], int(mode, 8), mtime_ns, words)


_KINDS = {kind.value.encode("ascii"): kind for kind in EntryKind}
_HEADER_LINE = pattern(HEADER + rb" ([1-9][0-9]{0,8}) (.+)", re.DOTALL)
_LINE = pattern(
    rb"[^ ]+ ([" + b"".join(_KINDS) + rb"]) ([0-7]{4}) (0|-?[1-9][0-9]{0,28})((?: [^ ]+)*)", re.DOTALL
)


# The fast path for directories in which nothing is unusual, which nearly all are: shard and tree are joined by
# column. Measured with the 12,000 directories of an environment: 1.7 µs per entry instead of 7. Anything unusual is
# left to `read_shard`, which handles every case and reports errors.

_PLAIN_LINE = re.compile(rb"(?m)^([^\x00-\x20%/\x7f]++) ([fdl]) ([0-7]{4}) (0|[1-9][0-9]{0,18})\n")
"""An unquoted name, a time after 1970 within 64 bits, nothing else.

It matches only at the beginnings of lines, once for each: a hostile author may write lines of any length.
"""
SEPARATORS = len(b"   \n") + len(b"f") + len(b"0644")
MAX_BYTES = 1 << 24
_HEAD = re.compile(
    rb"(?s)envhist-manifest 1 (.+)\n"
    rb"\. d ([0-7]{4}) (0|[1-9][0-9]{0,18}) u=(0|[1-9][0-9]{0,8}) g=(0|[1-9][0-9]{0,8})\n"
)
"""The first two lines; only uids and gids of at most 9 digits match."""
_PLAIN_KINDS = {b"f": EntryKind.FILE, b"d": EntryKind.DIRECTORY, b"l": EntryKind.LINK}


def plain_own(head: bytes, stored: bytes, path: EnvPath) -> Entry | None:
    """Parse the first two lines of a shard. Return None if they are not plain, or name another directory."""
    found = _HEAD.fullmatch(head)
    if found is None or found[1] != quote_path(stored) or stored.count(b"/") >= BUDGET.depth:
        return None
    mode, time, uid, gid = found.group(2, 3, 4, 5)
    return Entry(
        path=path,
        kind=EntryKind.DIRECTORY,
        mode=int(mode, 8),
        mtime_ns=int(time),
        uid=int(uid),
        gid=int(gid),
    )


def plain_entries(
    text: bytes, start: int, path: EnvPath, own: Entry, tree: Mapping[bytes, tuple[int, bytes]]
) -> dict[bytes, Entry] | None:
    """Parse the lines from `start` on and join them with the tree. Return entries by name, None if one is not plain."""
    if len(text) > MAX_BYTES:
        return None
    found = _PLAIN_LINE.findall(text, start)
    names = [line[0] for line in found]
    if not _is_plain(text, start, path, names, sum([len(line[3]) for line in found])):
        return None
    prefix = path + b"/" if path else b""
    uid, gid, plain = own.uid, own.gid, StoredAs.PLAIN
    entries: dict[bytes, Entry] = {}
    for name, letter, mode, time in found:
        mode_of_git, oid = tree.get(name, (0, b""))
        permissions = int(mode, 8)
        if mode_of_git != _expected(letter, permissions):
            return None
        # Positional arguments: keywords would take 40 % longer. A test in test_manifest.py checks the order.
        entries[name] = Entry(
            EnvPath(prefix + name),
            _PLAIN_KINDS[letter],
            permissions,
            int(time),
            None if letter == b"d" else ObjectId(oid),
            plain,
            uid,
            gid,
        )
    return entries if len(tree) == len(entries) else None


def _is_plain(text: bytes, start: int, path: EnvPath, names: list[bytes], digits: int) -> bool:
    # Matches do not overlap, so their lengths add up to the whole only if nothing lies between them.
    if sum(map(len, names)) + digits + SEPARATORS * len(names) != len(text) - start:
        return False
    return (
        (len(path) + 1) * len(names) <= BUDGET.path_bytes
        and all(map(lt, names, islice(names, 1, None)))
        and not may_need_escape(b"\0".join(names))
    )


def _expected(letter: bytes, permissions: int) -> int:
    """Return the mode that the tree must have for an entry of this kind."""
    if letter == b"f":
        return EXECUTABLE if permissions & 0o100 else FILE
    return DIRECTORY if letter == b"d" else LINK
