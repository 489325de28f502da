"""Notes that other writers left on the first hash of a snapshot, where that has become another commit since.

A timeline's own notes move with its commits. Each of the others has notes of its own, which nobody moves: what they
say of somebody else's snapshot stands on its id, and is found by that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from git_envhist.errors import EnvhistError
from git_envhist.model import Record, Snapshot
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.records import attached_of, names_of, read_note, remarks_of, verdicts_of
from git_envhist.values import replace

NOTES = "refs/notes/envhist/"


def with_old_notes(git: Git, found: Sequence[Snapshot], own: str) -> list[Snapshot]:
    """The snapshots of a timeline, with what others say of their first hashes."""
    ids = {one.id for one in found if one.id != one.commit}
    if not ids:
        return list(found)
    records = _records_on(git, own, ids)
    return [with_records(one, records[one.id]) if one.id in records else one for one in found]


def _records_on(git: Git, own: str, ids: Collection[str]) -> dict[str, tuple[Record, ...]]:
    listed = git.try_run("for-each-ref", "--format=%(refname)", NOTES).out.decode("utf-8", "surrogateescape")
    found: dict[str, tuple[Record, ...]] = {}
    for ref in listed.split():
        if ref != NOTES + own:
            blobs = notes_in(git, ref, ids)
            for name, data in blobs.items():
                found[name] = (*found.get(name, ()), *read_note(data).records)
    return found


def notes_in(git: Git, ref: str, ids: Collection[str]) -> dict[str, bytes]:
    """The notes of one writer on some commits."""
    rows = git.try_run("ls-tree", "-r", "-z", "--full-tree", ref).out.split(b"\0")
    wanted: dict[str, str] = {}
    for row in rows:
        head, _, path = row.partition(b"\t")
        name = path.replace(b"/", b"").decode("ascii", "replace")
        if name in ids:
            wanted[name] = head.split()[2].decode("ascii")
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


def with_records(snapshot: Snapshot, more: tuple[Record, ...]) -> Snapshot:
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
