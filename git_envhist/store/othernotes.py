"""What is said of a snapshot on another machine than its own: each writer has their own notes, and readers join them.

Notes on what was fetched stand in the user's repository, and go out with the next push. What came with a fetch and
speaks of somebody else's snapshots is listed once, as it comes, in a file beside the refs: a fleet has hundreds of
writers, hardly one of them says anything of another's, and a log shall not ask them all.

From elsewhere remarks and verdicts are taken, with whose word it is. A name is not: it would decide what a word of ours
means.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from git_envhist.errors import Damaged
from git_envhist.model import NoteRecord, Snapshot
from git_envhist.store.durable import cannot_write
from git_envhist.store.fetched import FETCHED_NOTES, REMOTES, FetchedStore, is_fetched, split_name
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.oldnotes import notes_in, with_records
from git_envhist.store.records import VERDICT, read_note
from git_envhist.system import open_file_only
from git_envhist.values import replace

HEADS = "refs/envhist/heads/"
FIRST = "envhist-crossed 1"
CROSSED = "crossed"
"""In the repository of what was fetched: `<writer> <commit> <blob>` a line."""
SPOKEN = "spoken"
"""There too: whether anything was said here of what was fetched."""
TAKEN = ("note", VERDICT)
MOST_LINES = 100_000


def mark_fetched_notes(fetched: FetchedStore) -> None:
    """Remember that something is said here of a fetched snapshot."""
    try:
        with open(os.path.join(fetched.path, SPOKEN), "ab"):
            pass
    except OSError as error:
        raise cannot_write(error, fetched.path) from error


def add_local_notes(own: Git, fetched: FetchedStore, found: Sequence[Snapshot]) -> list[Snapshot]:
    """Snapshots of a fetched timeline, with what was said of them here."""
    if not os.path.exists(os.path.join(fetched.path, SPOKEN)):
        return list(found)
    ids = {one.commit for one in found} | {one.id for one in found}
    said: dict[str, tuple[NoteRecord, ...]] = {}
    listed = own.ask("for-each-ref", "--format=%(refname)", FETCHED_NOTES).out
    for ref in listed.decode("utf-8", "surrogateescape").split():
        for name, data in notes_in(own, ref, ids).items():
            said[name] = (*said.get(name, ()), *read_note(data).records)
    return _joined(found, said)


def add_fetched_notes(fetched: FetchedStore, found: Sequence[Snapshot]) -> list[Snapshot]:
    """Snapshots of whomever, with what others say of them that came with a fetch."""
    rows = _read(fetched)
    ids = {one.commit for one in found} | {one.id for one in found} if rows else set()
    wanted = [(writer, commit, blob) for writer, commit, blob in rows if commit in ids]
    if not wanted:
        return list(found)
    said: dict[str, tuple[NoteRecord, ...]] = {}
    with CatFile(fetched.git) as reader:
        for writer, commit, blob in wanted:
            try:
                answer = reader.read(blob)
            except Damaged:
                continue  # somebody else's: nothing of ours depends on it
            if answer is not None and answer.kind == "blob":
                told = [_told(record, writer) for record in read_note(answer.data).records]
                said[commit] = (*said.get(commit, ()), *(one for one in told if one is not None))
    return _joined(found, said)


def _joined(found: Sequence[Snapshot], said: Mapping[str, tuple[NoteRecord, ...]]) -> list[Snapshot]:
    def more(one: Snapshot) -> tuple[NoteRecord, ...]:
        return (*said.get(one.commit, ()), *(said.get(one.id, ()) if one.id != one.commit else ()))

    return [with_records(one, more(one)) if more(one) else one for one in found]


def _told(record: NoteRecord, writer: str) -> NoteRecord | None:
    if record.kind not in TAKEN:
        return None
    text = record.fields.get("text")
    if record.kind == "note" and isinstance(text, str):
        return replace(record, fields={**record.fields, "text": f"{text} (said by {writer})"})
    return record


def list_crossed(fetched: FetchedStore, own: Git, fresh: Collection[str]) -> None:
    """List anew what those notes say of others' snapshots that a fetch has changed; `fresh`: writers' names here."""
    there = {ref.removeprefix(FETCHED_NOTES) for ref in fetched.refs(FETCHED_NOTES)}
    kept = [row for row in _read(fetched) if row[0] in there and row[0] not in fresh]
    writers = [writer for writer in fresh if writer in there]
    whose = _whose(fetched, own) if writers else {}
    for writer in writers:
        rows = fetched.git.run("ls-tree", "-r", "-z", "--full-tree", FETCHED_NOTES + writer).split(b"\0")
        for row in rows:
            head, _, path = row.partition(b"\t")
            commit = path.replace(b"/", b"").decode("ascii", "replace")
            if len(commit) in (40, 64) and whose.get(commit, "") not in (_bare(writer), ""):
                kept.append((writer, commit, head.split()[2].decode("ascii")))
    _write(fetched, kept[:MOST_LINES])


def _whose(fetched: FetchedStore, own: Git) -> dict[str, str]:
    """The timeline that each commit is of, by its name where it was written."""
    found: dict[str, str] = {}
    for git, place in ((fetched.git, REMOTES), (own, HEADS)):
        told = git.ask("log", "--source", "--format=%H %S", f"--glob={place}", "--no-notes")
        for line in told.out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
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
        with open(path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.rename(path + ".new", path)
    except OSError as error:
        raise cannot_write(error, path) from error
