"""Read and write the notes of snapshots, in the format of `git notes`.

A notes tree maps the hash of a commit to a blob. git spreads the hash over directories of two digits, as many levels
as it likes, and reads any mixture. This module writes one level (`ab/cdef...`), so that a note costs one blob, two
small trees and a commit however long the history is; a note found at another depth is moved there.

Each writer has a notes ref of its own. Other writers' notes on a rewritten snapshot are found by its first hash
(`with_notes_of_other_writers`). Notes between machines are joined when they are read (`add_local_notes`,
`add_fetched_notes`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from git_envhist.disk import Durability, cannot_write, replace_file
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.git.cat_file import CatFile, GitObject
from git_envhist.git.process import Git
from git_envhist.lazy import replace
from git_envhist.model import NoteRecord, ObjectId, Snapshot
from git_envhist.objects.commits import encode_commit, parse_commit
from git_envhist.objects.trees import DIRECTORY, FILE, decode_tree, encode_tree
from git_envhist.platform import open_file_only
from git_envhist.snapshots.fetched_store import FETCHED_NOTES, REMOTES, FetchedStore, is_fetched, split_name
from git_envhist.snapshots.note_records import (
    HASH,
    MAX_NOTE,
    VERDICT,
    attached_of,
    format_record,
    names_of,
    read_note,
    remarks_of,
    verdicts_of,
)

if TYPE_CHECKING:
    from git_envhist.snapshots.layout import ObjectSink

TYPE = 0o170000
REGULAR = 0o100000
MESSAGE = b"envhist: metadata\n"
NO_FILES: Mapping[bytes, bytes] = {}


class NamedObjectReader(Protocol):
    """Reads objects by name; returns None if the object is missing."""

    def read(self, name: str) -> GitObject | None: ...


def add_records(
    reader: NamedObjectReader,
    writer: ObjectSink,
    notes_tip: str | None,
    additions: Mapping[str, Sequence[NoteRecord]],
    *,
    identity: bytes,
    object_format: str,
    files: Mapping[bytes, bytes] = NO_FILES,
    without: Iterable[bytes] = (),
) -> str:
    """Append records to the notes of commits, and return the new notes commit.

    Raise `Damaged` if the old notes cannot be read. No existing record is lost. `identity` is a whole author line:
    name, address and time. `files`: attached files that records refer to, stored in the same tree by path; git
    ignores names that are not hashes. `without`: directories of such files that are removed first.
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
    reader: NamedObjectReader,
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
    """Move the notes of commits to other commits.

    Return the new notes commit, which has no parent, or None if there are no notes. `moves`: for each commit the
    commits that get its note; it loses the note itself. `more`: lines to add to the notes of commits; `files`: files
    to store by path; `without`: directories of files to remove.
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


class NotesLevel:
    """A directory of the notes tree while it is edited. Subdirectories are read when they are first needed."""

    __slots__ = ("entries", "opened", "touched")

    def __init__(self, entries: dict[bytes, tuple[int, bytes]]) -> None:
        self.entries = entries
        self.opened: dict[bytes, NotesLevel] = {}
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

    def __init__(self, reader: NamedObjectReader, writer: ObjectSink, hash_length: int) -> None:
        self._reader = reader
        self._writer = writer
        self._hash_length = hash_length

    def open(self, tip: str | None) -> NotesLevel:
        if tip is None:
            return NotesLevel({})
        return self._read_level(parse_commit(self._read(tip, "commit")).tree)

    def append(self, top: NotesLevel, commit: bytes, lines: bytes) -> None:
        """Store the whole note of a commit, with more lines at its end, at its regular place."""
        before = b"".join(_whole_lines(part) for part in self._take_parts(top, commit))
        if len(before) + len(lines) > MAX_NOTE:
            raise Damaged(
                f"the note on '{commit.decode('ascii')}' is too large to add to",
                hint="'git notes --ref=<timeline> remove' removes it",
            )
        level, name = self._place(top, commit)
        level.put(name, FILE, self._writer.add(b"blob", before + lines))

    def put_file(self, level: NotesLevel, path: bytes, content: bytes) -> None:
        """Store a file next to the notes; replace an existing one."""
        *directories, name = path.split(b"/")
        for directory in directories:
            if directory not in level.entries:
                level.entries[directory] = (DIRECTORY, b"")
                level.opened[directory] = NotesLevel({})
            if not level.holds(directory, DIRECTORY):
                raise Damaged(
                    f"the directory of an attached file is a file: '{directory.decode('utf-8', 'replace')}'"
                )
            level = self._open_below(level, directory)
        level.put(name, FILE, self._writer.add(b"blob", content))

    def take(self, top: NotesLevel, commit: bytes) -> bytes:
        """Remove the note of a commit and return it."""
        return b"".join(_whole_lines(part) for part in self._take_parts(top, commit))

    def take_directory(self, level: NotesLevel, path: bytes) -> None:
        """Remove a directory and its contents if it exists."""
        *directories, name = path.split(b"/")
        for directory in directories:
            if not level.holds(directory, DIRECTORY):
                return
            level = self._open_below(level, directory)
        if level.holds(name, DIRECTORY):
            level.opened.pop(name, None)
            level.take(name)

    def put(self, top: NotesLevel, commit: bytes, parts: Sequence[bytes]) -> None:
        """Add to the note of a commit the lines that it does not contain yet.

        There is no size limit: the lines existed before.
        """
        lines: dict[bytes, None] = {}
        for part in (self.take(top, commit), *parts):
            lines.update(dict.fromkeys(_whole_lines(part).splitlines(keepends=True)))
        level, name = self._place(top, commit)
        level.put(name, FILE, self._writer.add(b"blob", b"".join(lines)))

    def write(self, level: NotesLevel) -> ObjectId:
        """Write a level and the changed levels below it."""
        self._write_below(level)
        return self._add_tree(level)

    def _write_below(self, level: NotesLevel) -> None:
        for name, below in level.opened.items():
            if below.changed:
                self._write_below(below)
                if below.entries:
                    level.put(name, DIRECTORY, self._add_tree(below))
                else:
                    level.take(name)

    def _add_tree(self, level: NotesLevel) -> ObjectId:
        entries = [(name, mode, oid) for name, (mode, oid) in level.entries.items()]
        return self._writer.add(b"tree", encode_tree(entries))

    def _take_parts(self, level: NotesLevel, rest: bytes) -> list[bytes]:
        # Several levels may contain a part of the same note; git shows them as one.
        parts = []
        if level.holds(rest, REGULAR):
            parts.append(self._read(level.take(rest).hex(), "blob"))
        if len(rest) > 2 and level.holds(rest[:2], DIRECTORY):
            parts += self._take_parts(self._open_below(level, rest[:2]), rest[2:])
        return parts

    def _place(self, top: NotesLevel, commit: bytes) -> tuple[NotesLevel, bytes]:
        directory, rest = commit[:2], commit[2:]
        if directory not in top.entries:
            top.entries[directory] = (DIRECTORY, b"")
            top.opened[directory] = NotesLevel({})
        if top.holds(directory, DIRECTORY):
            below = self._open_below(top, directory)
            if rest not in below.entries:
                return below, rest
        if commit in top.entries:
            raise Damaged(
                f"the note on '{commit.decode('ascii')}' cannot be stored, another entry has its name"
            )
        return top, commit

    def _open_below(self, level: NotesLevel, name: bytes) -> NotesLevel:
        if name not in level.opened:
            level.opened[name] = self._read_level(level.entries[name][1].hex())
        return level.opened[name]

    def _read_level(self, tree: str) -> NotesLevel:
        entries = decode_tree(self._read(tree, "tree"), self._hash_length)
        return NotesLevel({name: (mode, oid) for name, mode, oid in entries})

    def _read(self, name: str, kind: str) -> bytes:
        try:
            found = self._reader.read(name)
        except GitFailed as failed:
            raise Damaged(f"the notes cannot be read: {failed.message}") from failed
        if found is None or found.kind != kind:
            raise Damaged(f"the notes cannot be read: '{name}' is not a {kind}")
        return found.data


def _whole_lines(text: bytes) -> bytes:
    return text if text.endswith(b"\n") or not text else text + b"\n"


# Other writers' notes on the first hash of a rewritten snapshot. A timeline's own notes move with its commits; notes
# of other writers stay on the snapshot's id, and are found by it.

NOTES = "refs/notes/envhist/"
LIST = ("ls-tree", "-r", "-z", "--full-tree")


def with_notes_of_other_writers(git: Git, found: Sequence[Snapshot], own: str) -> list[Snapshot]:
    """Add the notes that other writers left on the snapshots' first hashes."""
    ids = {one.id for one in found if one.id != one.commit}
    if not ids:
        return list(found)
    records = _records_on(git, own, ids)
    return [with_records(one, records[one.id]) if one.id in records else one for one in found]


def _records_on(git: Git, own: str, ids: Collection[str]) -> dict[str, tuple[NoteRecord, ...]]:
    listed = git.ask("for-each-ref", "--format=%(refname)", NOTES).out
    found: dict[str, tuple[NoteRecord, ...]] = {}
    for ref in listed.decode("utf-8", "surrogateescape").split():
        if ref != NOTES + own:
            blobs = read_notes(git, ref, ids)
            for name, data in blobs.items():
                found[name] = (*found.get(name, ()), *read_note(data).records)
    return found


def read_all_notes(git: Git, ref: str) -> dict[str, bytes]:
    """Return all notes of one writer by commit. Raise an error if one of them cannot be read."""
    found: dict[str, bytes] = {}
    rows = [(name, oid) for name, oid in _listed(git.run(*LIST, ref)) if HASH.fullmatch(name)]
    with CatFile(git) as reader:
        # Several entries of the tree may contain a part of the same note.
        for (name, _), answer in zip(rows, reader.read_many(oid for _, oid in rows), strict=True):
            if answer is None:
                raise Damaged(f"a note is missing: on '{name}' in '{ref}'")
            found[name] = found.get(name, b"") + answer.data
    return found


def _listed(rows: bytes) -> Iterator[tuple[str, str]]:
    """Yield (commit, blob) for the entries of a notes tree."""
    for row in filter(None, rows.split(b"\0")):
        head, _, path = row.partition(b"\t")
        yield path.replace(b"/", b"").decode("ascii", "replace"), head.split()[2].decode("ascii")


def read_notes(git: Git, ref: str, ids: Collection[str]) -> dict[str, bytes]:
    """Return the notes of one writer on some commits."""
    listed = _listed(git.ask(*LIST, ref).out)
    wanted = {name: oid for name, oid in listed if name in ids}
    if not wanted:
        return {}
    found = {}
    with CatFile(git) as reader:
        for name, oid in wanted.items():
            try:
                answer = reader.read(oid)
            except EnvhistError:
                continue  # damaged, but another writer's: no local data depends on it
            if answer is not None and answer.kind == "blob":
                found[name] = answer.data
    return found


def with_records(snapshot: Snapshot, more: tuple[NoteRecord, ...]) -> Snapshot:
    """Return the snapshot with additional records."""
    records = tuple(sorted((*snapshot.records, *more), key=lambda record: record.at))
    others = [record for record in records if record.kind != "intent"]
    return replace(
        snapshot,
        records=records,
        names=names_of(others),
        verdicts=verdicts_of(others),
        remarks=remarks_of(others),
        attached=attached_of(others),
    )


# Notes on other machines' snapshots. Notes on fetched snapshots are stored in the user's repository and sent by the
# next push. Fetched notes on other writers' snapshots are listed in a file when they arrive: a fleet has hundreds of
# writers, few of which write about another's snapshots, and a log must not read the notes of all of them. Remarks and
# verdicts are accepted from other writers and marked with the writer; names are not, because a name decides which
# snapshot a revision means.

HEADS = "refs/envhist/heads/"
FIRST = "envhist-crossed 1"
CROSSED = "crossed"
"""In the repository of fetched timelines, one line each: `<writer> <commit> <blob>`."""
SPOKEN = "spoken"
"""Also there: exists if a note was written here on a fetched snapshot."""
TAKEN = ("note", VERDICT)
MAX_LINES = 100_000


def record_note_on_fetched(fetched: FetchedStore) -> None:
    """Record that a note was written here on a fetched snapshot."""
    try:
        with open(os.path.join(fetched.path, SPOKEN), "ab"):
            pass
    except OSError as error:
        raise cannot_write(error, fetched.path) from error


def add_local_notes(own: Git, fetched: FetchedStore, found: Sequence[Snapshot]) -> list[Snapshot]:
    """Add the notes written here to snapshots of a fetched timeline."""
    if not os.path.exists(os.path.join(fetched.path, SPOKEN)):
        return list(found)
    ids = {one.commit for one in found} | {one.id for one in found}
    by_commit: dict[str, tuple[NoteRecord, ...]] = {}
    listed = own.ask("for-each-ref", "--format=%(refname)", FETCHED_NOTES).out
    for ref in listed.decode("utf-8", "surrogateescape").split():
        for name, data in read_notes(own, ref, ids).items():
            by_commit[name] = (*by_commit.get(name, ()), *read_note(data).records)
    return _joined(found, by_commit)


def add_fetched_notes(fetched: FetchedStore, found: Sequence[Snapshot]) -> list[Snapshot]:
    """Return the snapshots with the fetched notes of other writers added."""
    rows = _read(fetched)
    ids = {one.commit for one in found} | {one.id for one in found} if rows else set()
    wanted = [(writer, commit, blob) for writer, commit, blob in rows if commit in ids]
    if not wanted:
        return list(found)
    by_commit: dict[str, tuple[NoteRecord, ...]] = {}
    with CatFile(fetched.git) as reader:
        for writer, commit, blob in wanted:
            try:
                answer = reader.read(blob)
            except Damaged:
                continue  # another writer's: no local data depends on it
            if answer is not None and answer.kind == "blob":
                accepted = [_accepted(record, writer) for record in read_note(answer.data).records]
                by_commit[commit] = (
                    *by_commit.get(commit, ()),
                    *(one for one in accepted if one is not None),
                )
    return _joined(found, by_commit)


def _joined(found: Sequence[Snapshot], by_commit: Mapping[str, tuple[NoteRecord, ...]]) -> list[Snapshot]:
    def more(one: Snapshot) -> tuple[NoteRecord, ...]:
        return (*by_commit.get(one.commit, ()), *(by_commit.get(one.id, ()) if one.id != one.commit else ()))

    return [with_records(one, more(one)) if more(one) else one for one in found]


def _accepted(record: NoteRecord, writer: str) -> NoteRecord | None:
    if record.kind not in TAKEN:
        return None
    text = record.fields.get("text")
    if record.kind == "note" and isinstance(text, str):
        return replace(record, fields={**record.fields, "text": f"{text} (said by {writer})"})
    return record


def list_cross_machine_notes(fetched: FetchedStore, own: Git, fresh: Collection[str]) -> None:
    """List the cross-machine notes of the writers in `fresh`, given by local name, again after a fetch changed them."""
    present = {ref.removeprefix(FETCHED_NOTES) for ref in fetched.refs(FETCHED_NOTES)}
    kept_rows = [row for row in _read(fetched) if row[0] in present and row[0] not in fresh]
    writers = [writer for writer in fresh if writer in present]
    owners = _timeline_of_commits(fetched, own) if writers else {}
    for writer in writers:
        rows = fetched.git.run("ls-tree", "-r", "-z", "--full-tree", FETCHED_NOTES + writer).split(b"\0")
        for row in rows:
            head, _, path = row.partition(b"\t")
            commit = path.replace(b"/", b"").decode("ascii", "replace")
            if len(commit) in (40, 64) and owners.get(commit, "") not in (_bare(writer), ""):
                kept_rows.append((writer, commit, head.split()[2].decode("ascii")))
    _write(fetched, kept_rows[:MAX_LINES])


def _timeline_of_commits(fetched: FetchedStore, own: Git) -> dict[str, str]:
    """Return the timeline of each commit, by its name on the machine that wrote it."""
    found: dict[str, str] = {}
    for git, place in ((fetched.git, REMOTES), (own, HEADS)):
        listed = git.ask("log", "--source", "--format=%H %S", f"--glob={place}", "--no-notes")
        for line in listed.out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
            commit, _, ref = line.partition(" ")
            found[commit] = _bare(ref.removeprefix(place))
    return found


def _bare(name: str) -> str:
    return split_name(name)[1] if is_fetched(name) else name


def _read(fetched: FetchedStore) -> list[tuple[str, str, str]]:
    try:
        with open(
            os.path.join(fetched.path, CROSSED),
            encoding="utf-8",
            errors="surrogateescape",
            opener=open_file_only,
        ) as file:
            first, *lines = file.read().splitlines() or [""]
    except OSError:
        return []
    rows = [line.split(" ") for line in lines] if first == FIRST else []
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3]


def _write(fetched: FetchedStore, rows: Iterable[tuple[str, str, str]]) -> None:
    path = os.path.join(fetched.path, CROSSED)
    text = "".join(f"{line}\n" for line in (FIRST, *(" ".join(row) for row in rows)))
    try:
        replace_file(path, text.encode("utf-8", "surrogateescape"), durability=Durability.NONE)
    except OSError as error:
        raise cannot_write(error, path) from error
