"""Adds records to the notes of snapshots, as objects that git's own notes machinery reads and goes on with.

A notes tree maps the hash of a commit to a blob. git spreads the hash over directories of two digits, as many levels
as it sees fit, and reads any mixture; we write one level (`ab/cdef…`), so that one note costs one blob, two small trees
and a commit however long the history is. A note that stands elsewhere moves there; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from git_envhist.errors import Damaged, GitFailed
from git_envhist.model import NoteRecord, ObjectId
from git_envhist.store.commits import encode_commit, parse_commit
from git_envhist.store.objects import GitObject
from git_envhist.store.records import LARGEST_NOTE, format_record, parse_records
from git_envhist.store.trees import DIRECTORY, FILE, decode_tree, encode_tree

__all__ = ["add_records", "format_record", "parse_records"]

TYPE = 0o170000
REGULAR = 0o100000
MESSAGE = b"envhist: metadata\n"
NO_FILES: Mapping[bytes, bytes] = {}


class ObjectReader(Protocol):
    """Gives the object of a hash; None where there is none."""

    def read(self, name: str) -> GitObject | None: ...


class ObjectSink(Protocol):
    """Takes new objects, wherever they go."""

    def add(self, kind: bytes, data: bytes) -> ObjectId: ...


def add_records(
    reader: ObjectReader,
    writer: ObjectSink,
    notes_tip: str | None,
    additions: Mapping[str, Sequence[NoteRecord]],
    *,
    identity: bytes,
    object_format: str,
    files: Mapping[bytes, bytes] = NO_FILES,
    without: Iterable[bytes] = (),
) -> str:
    """Append records to the notes of commits; returns the new notes commit, `Damaged` where the old one cannot be read.

    `identity` is a whole author line: name, address and moment. No record of the notes before is lost.
    `files`: what records speak of stands in the same tree, by its path there; git passes over what is no hash.
    `without`: directories of such files that are removed first.
    """
    tree = _NotesTree(reader, writer, 20 if object_format == "sha1" else 32)
    top = tree.open(notes_tip)
    for path in without:
        tree.take_directory(top, path)
    for path, content in sorted(files.items()):
        tree.put_file(top, path, content)
    for commit, records in sorted(additions.items()):
        if records:
            lines = b"".join(format_record(record) for record in records)
            tree.append(top, commit.encode("ascii"), lines)
    data = encode_commit(tree.write(top).hex(), notes_tip, identity, identity, MESSAGE)
    return writer.add(b"commit", data).hex()


def move_notes(
    reader: ObjectReader,
    writer: ObjectSink,
    notes_tip: str | None,
    moves: Mapping[str, Sequence[str]],
    *,
    more: Mapping[str, bytes],
    files: Mapping[bytes, bytes] = NO_FILES,
    without: Iterable[bytes] = (),
    identity: bytes,
    object_format: str,
) -> str | None:
    """Give the notes of commits to others: each to all of those that are named, and no longer where it stood.

    `more`: lines for the notes of commits; `files`: what is put beside them, by its path; `without`: directories of
    what is no note, which go. What the notes were before stands behind the new ones no more. None where nothing was
    ever said.
    """
    tree = _NotesTree(reader, writer, 20 if object_format == "sha1" else 32)
    top = tree.open(notes_tip)
    texts: dict[str, list[bytes]] = {}
    for old, new in moves.items():
        text = tree.take(top, old.encode("ascii"))
        for commit in new if text else ():
            texts.setdefault(commit, []).append(text)
    for commit, lines in more.items():
        texts.setdefault(commit, []).append(lines)
    for commit, parts in sorted(texts.items()):
        tree.put(top, commit.encode("ascii"), parts)
    for path, content in sorted(files.items()):
        tree.put_file(top, path, content)
    for path in without:
        tree.take_directory(top, path)
    if not top.entries:
        return None
    return writer.add(
        b"commit", encode_commit(tree.write(top).hex(), None, identity, identity, MESSAGE)
    ).hex()


class TreeEditor:
    """One directory of the tree while it is changed; those below are opened when somebody looks into them."""

    __slots__ = ("entries", "opened", "touched")

    def __init__(self, entries: dict[bytes, tuple[int, bytes]]) -> None:
        self.entries = entries
        self.opened: dict[bytes, TreeEditor] = {}
        self.touched = False

    @property
    def changed(self) -> bool:
        return self.touched or any(below.changed for below in self.opened.values())

    def holds(self, name: bytes, kind: int) -> bool:
        return name in self.entries and self.entries[name][0] & TYPE == kind

    def put(self, name: bytes, mode: int, oid: bytes) -> None:
        self.entries[name] = (mode, oid)
        self.touched = True

    def take(self, name: bytes) -> bytes:
        self.touched = True
        return self.entries.pop(name)[1]


class _NotesTree:
    """Reads levels of the notes tree, changes them and writes those that changed."""

    def __init__(self, reader: ObjectReader, writer: ObjectSink, hash_length: int) -> None:
        self._reader = reader
        self._writer = writer
        self._hash_length = hash_length

    def open(self, tip: str | None) -> TreeEditor:
        if tip is None:
            return TreeEditor({})
        return self._read_level(parse_commit(self._read(tip, "commit")).tree)

    def append(self, top: TreeEditor, commit: bytes, lines: bytes) -> None:
        """Put the whole note of a commit, with more lines at its end, where notes are kept."""
        before = b"".join(_whole_lines(part) for part in self._take_parts(top, commit))
        if len(before) + len(lines) > LARGEST_NOTE:
            raise Damaged(
                f"the note on '{commit.decode('ascii')}' is too large to add to",
                hint="'git notes --ref=<timeline> remove' takes it away",
            )
        level, name = self._place(top, commit)
        level.put(name, FILE, self._writer.add(b"blob", before + lines))

    def put_file(self, level: TreeEditor, path: bytes, content: bytes) -> None:
        """Put a file at a path that is no note's; one that stood there goes."""
        *directories, name = path.split(b"/")
        for directory in directories:
            if directory not in level.entries:
                level.entries[directory] = (DIRECTORY, b"")
                level.opened[directory] = TreeEditor({})
            if not level.holds(directory, DIRECTORY):
                raise Damaged(
                    f"the place of what is attached is taken: '{directory.decode('utf-8', 'replace')}'"
                )
            level = self._open_below(level, directory)
        level.put(name, FILE, self._writer.add(b"blob", content))

    def take(self, top: TreeEditor, commit: bytes) -> bytes:
        """Take the whole note of a commit away."""
        return b"".join(_whole_lines(part) for part in self._take_parts(top, commit))

    def take_directory(self, level: TreeEditor, path: bytes) -> None:
        """Take a directory away with all that stands in it, where there is one."""
        *directories, name = path.split(b"/")
        for directory in directories:
            if not level.holds(directory, DIRECTORY):
                return
            level = self._open_below(level, directory)
        if level.holds(name, DIRECTORY):
            level.opened.pop(name, None)
            level.take(name)

    def put(self, top: TreeEditor, commit: bytes, parts: Sequence[bytes]) -> None:
        """Add to the note of a commit what does not stand in it; nothing is too large that was there before."""
        lines: dict[bytes, None] = {}
        for part in (self.take(top, commit), *parts):
            lines.update(dict.fromkeys(_whole_lines(part).splitlines(keepends=True)))
        level, name = self._place(top, commit)
        level.put(name, FILE, self._writer.add(b"blob", b"".join(lines)))

    def write(self, level: TreeEditor) -> ObjectId:
        """Write a level and what changed below it."""
        self._write_below(level)
        return self._add_tree(level)

    def _write_below(self, level: TreeEditor) -> None:
        for name, below in level.opened.items():
            if below.changed:
                self._write_below(below)
                if below.entries:
                    level.put(name, DIRECTORY, self._add_tree(below))
                else:
                    level.take(name)

    def _add_tree(self, level: TreeEditor) -> ObjectId:
        entries = [(name, mode, oid) for name, (mode, oid) in level.entries.items()]
        return self._writer.add(b"tree", encode_tree(entries))

    def _take_parts(self, level: TreeEditor, rest: bytes) -> list[bytes]:
        # More than one level may hold a part of the same note; git shows them as one.
        parts = []
        if level.holds(rest, REGULAR):
            parts.append(self._read(level.take(rest).hex(), "blob"))
        if len(rest) > 2 and level.holds(rest[:2], DIRECTORY):
            parts += self._take_parts(self._open_below(level, rest[:2]), rest[2:])
        return parts

    def _place(self, top: TreeEditor, commit: bytes) -> tuple[TreeEditor, bytes]:
        directory, rest = commit[:2], commit[2:]
        if directory not in top.entries:
            top.entries[directory] = (DIRECTORY, b"")
            top.opened[directory] = TreeEditor({})
        if top.holds(directory, DIRECTORY):
            below = self._open_below(top, directory)
            if rest not in below.entries:
                return below, rest
        if commit in top.entries:
            raise Damaged(f"the place of the note on '{commit.decode('ascii')}' is taken")
        return top, commit

    def _open_below(self, level: TreeEditor, name: bytes) -> TreeEditor:
        if name not in level.opened:
            level.opened[name] = self._read_level(level.entries[name][1].hex())
        return level.opened[name]

    def _read_level(self, tree: str) -> TreeEditor:
        entries = decode_tree(self._read(tree, "tree"), self._hash_length)
        return TreeEditor({name: (mode, oid) for name, mode, oid in entries})

    def _read(self, name: str, kind: str) -> bytes:
        try:
            found = self._reader.read(name)
        except GitFailed as failed:
            raise Damaged(f"the notes cannot be read: {failed.message}") from failed
        if found is None or found.kind != kind:
            raise Damaged(f"the notes cannot be read: '{name}' is no {kind} here")
        return found.data


def _whole_lines(text: bytes) -> bytes:
    return text if text.endswith(b"\n") or not text else text + b"\n"
