"""Directories read by column: equal to reading line by line, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.model import Entry, EntryKind, EnvPath, StoredAs
from git_envhist.objects.trees import DIRECTORY, EXECUTABLE, FILE, LINK
from git_envhist.snapshots.manifest import plain_entries, read_shard, write_shard

OWN = Entry(EnvPath(b"a/b"), EntryKind.DIRECTORY, 0o755, 5, uid=3, gid=4)
OID = b"\7" * 20
KINDS = {EntryKind.FILE: FILE, EntryKind.DIRECTORY: DIRECTORY, EntryKind.LINK: LINK}
NAMES = st.one_of(
    st.binary(min_size=1, max_size=6).filter(lambda name: b"/" not in name and b"\0" not in name),
    st.sampled_from(
        [b"plain", b"naked.py", b".git", b"git~1", b"two words", b"%41", b".", b"..", b".gitignore"]
    ),
)
ENTRIES = st.dictionaries(
    NAMES,
    st.tuples(
        st.sampled_from([*KINDS, EntryKind.FIFO]),
        st.integers(0, 0o7777),
        st.integers(-5, 5) | st.integers(10**18, 10**20),
        st.sampled_from([None, None, None, 3, 9]),
    ),
    max_size=5,
)


def shard_of(lines: dict[bytes, tuple[EntryKind, int, int, int | None]]) -> bytes:
    return write_shard(
        b"a/b",
        OWN,
        [Entry(EnvPath(b"a/b/" + name), *rest[:3], uid=rest[3]) for name, rest in lines.items()],
    )


def read(text: bytes, tree: dict[bytes, tuple[int, bytes]]) -> dict[bytes, Entry] | None:
    start = text.find(b"\n", text.find(b"\n") + 1) + 1
    return plain_entries(text, start, EnvPath(b"a/b"), OWN, tree)


def tree_of(entries: dict[bytes, tuple[EntryKind, int, int, int | None]]) -> dict[bytes, tuple[int, bytes]]:
    def mode(kind: EntryKind, permissions: int) -> int:
        return EXECUTABLE if kind is EntryKind.FILE and permissions & 0o100 else KINDS[kind]

    return {name: (mode(kind, bits), OID) for name, (kind, bits, *_) in entries.items() if kind in KINDS}


@given(ENTRIES)
def test_plain_entries_agrees_with_read_shard(
    lines: dict[bytes, tuple[EntryKind, int, int, int | None]],
) -> None:
    text = shard_of(lines)
    found = read(text, tree_of(lines))
    try:
        slowly = read_shard(text).entries
    except Damaged:
        assert found is None
        return
    if found is not None:
        assert list(found) == [entry.path[len(b"a/b/") :] for entry in slowly]
        for quick, slow in zip(found.values(), slowly, strict=True):
            oid = None if slow.kind is EntryKind.DIRECTORY else OID
            assert quick == Entry(
                slow.path, slow.kind, slow.mode, slow.mtime_ns, oid, StoredAs.PLAIN, OWN.uid, OWN.gid
            )


def plain() -> tuple[bytes, dict[bytes, tuple[int, bytes]]]:
    lines = {
        b"file": (EntryKind.FILE, 0o644, 10**18, None),
        b"link": (EntryKind.LINK, 0o777, 7, None),
        b"run": (EntryKind.FILE, 0o755, 0, None),
        b"under": (EntryKind.DIRECTORY, 0o700, 9, None),
    }
    return shard_of(lines), tree_of(lines)


def test_plain_directory_is_read_by_column() -> None:
    found = read(*plain())
    assert found is not None
    assert [(name, entry.kind.value, entry.mode) for name, entry in found.items()] == [
        (b"file", "f", 0o644),
        (b"link", "l", 0o777),
        (b"run", "f", 0o755),
        (b"under", "d", 0o700),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"file f 0644", b"zzzz f 0644"),  # out of order
        (b"file f 0644", b"link f 0644"),  # twice
        (b"file f 0644", b"file f 0744"),  # executable, as the tree has it not
        (b"run f 0755", b"run l 0755"),
        (b"under d", b"under f"),
        (b"file f 0644 1", b"file f 0644 01"),
        (b"file f 0644", b"file f  0644"),
        (b"file f", b".git f"),
        (b"file f", b"f/le f"),
        (b"link l 0777 7", b"link l 0777 7 u=4"),
        (b"link l 0777 7\n", b"\nlink l 0777 7\n"),
        (b"under d 0700 9\n", b"under d 0700 9"),
    ],
)
def test_unusual_line_is_not_read_by_column(old: bytes, new: bytes) -> None:
    text, tree = plain()
    assert old in text
    assert read(text.replace(old, new), tree) is None


def test_shard_that_disagrees_with_its_tree_is_not_read_by_column() -> None:
    text, tree = plain()
    assert read(text, {**tree, b"more": (FILE, OID)}) is None
    assert read(text, {name: item for name, item in tree.items() if name != b"file"}) is None
    assert read(text, {**tree, b"file": (LINK, OID)}) is None
