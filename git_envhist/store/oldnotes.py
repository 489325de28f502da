"""Notes that other writers left on the first hash of a snapshot, where that has become another commit since.

A timeline's own notes move with its commits. Each of the others has notes of its own, which nobody moves: what they
say of somebody else's snapshot stands on its id, and is found by that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from git_envhist.errors import Damaged, EnvhistError
from git_envhist.model import NoteRecord, Snapshot
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.records import HASH, attached_of, names_of, read_note, remarks_of, verdicts_of
from git_envhist.values import replace

NOTES = "refs/notes/envhist/"
LIST = ("ls-tree", "-r", "-z", "--full-tree")


def with_old_notes(git: Git, found: Sequence[Snapshot], own: str) -> list[Snapshot]:
    """The snapshots of a timeline, with what others say of their first hashes."""
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
            blobs = notes_in(git, ref, ids)
            for name, data in blobs.items():
                found[name] = (*found.get(name, ()), *read_note(data).records)
    return found


def every_note(git: Git, ref: str) -> dict[str, bytes]:
    """By commit, all notes of one writer; an error where one of them cannot be read."""
    found: dict[str, bytes] = {}
    rows = [(name, oid) for name, oid in _listed(git.run(*LIST, ref)) if HASH.fullmatch(name)]
    with CatFile(git) as reader:
        # More than one place of the tree may hold a part of the same note.
        for (name, _), answer in zip(rows, reader.read_many(oid for _, oid in rows), strict=True):
            if answer is None:
                raise Damaged(f"a note is missing: on '{name}' in '{ref}'")
            found[name] = found.get(name, b"") + answer.data
    return found


def _listed(rows: bytes) -> Iterator[tuple[str, str]]:
    """(commit, blob) for what stands in a tree of notes."""
    for row in filter(None, rows.split(b"\0")):
        head, _, path = row.partition(b"\t")
        yield path.replace(b"/", b"").decode("ascii", "replace"), head.split()[2].decode("ascii")


def notes_in(git: Git, ref: str, ids: Collection[str]) -> dict[str, bytes]:
    """The notes of one writer on some commits."""
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
                continue  # damaged, and somebody else's: nothing of ours depends on it
            if answer is not None and answer.kind == "blob":
                found[name] = answer.data
    return found


def with_records(snapshot: Snapshot, more: tuple[NoteRecord, ...]) -> Snapshot:
    """The snapshot, with more that is said of it."""
    records = tuple(sorted((*snapshot.records, *more), key=lambda record: record.at))
    said = [record for record in records if record.kind != "intent"]
    return replace(
        snapshot,
        records=records,
        names=names_of(said),
        verdicts=verdicts_of(said),
        remarks=remarks_of(said),
        attached=attached_of(said),
    )
