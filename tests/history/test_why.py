"""The steps of one path along a timeline of many snapshots."""

from __future__ import annotations

from typing import cast

import pytest

from git_envhist.git.process import Git
from git_envhist.history.attribution import Certainty, ChangeTime, attribute_change
from git_envhist.history.versions import ABSENT, PathId, VersionReader, VersionStep
from git_envhist.history.why import OriginReader, Subject, SubjectKind
from git_envhist.lazy import replace
from git_envhist.model import CallWindow, EnvPath, RestoreRole, Snapshot, ToolCall
from tests.history.snapshots import snapshot

RENAMES = 1200


class Renamed:
    """A timeline in which each snapshot renames the only file: that of snapshot 7 is called 7."""

    def path_id(self, taken: Snapshot, path: EnvPath) -> PathId:
        return (0o100644, b"x") if path == taken.tree.encode() else ABSENT

    def change_time(self, taken: Snapshot, path: EnvPath) -> ChangeTime:
        return ChangeTime()


class RenamedOriginReader(OriginReader):
    def _renamed_from(self, step: VersionStep[PathId], path: EnvPath) -> EnvPath | None:
        return None if step.before is None else EnvPath(step.before.tree.encode())


class Database:
    """Two snapshots with a database and its -wal file: a call wrote the database at 105, somebody the -wal at 115."""

    def __init__(self, changed: tuple[bytes, ...]) -> None:
        self._changed = changed

    def path_id(self, taken: Snapshot, path: EnvPath) -> PathId:
        return 0o100644, taken.tree.encode() if path in self._changed else b"same"

    def change_time(self, taken: Snapshot, path: EnvPath) -> ChangeTime:
        return ChangeTime(115.0, 90.0) if path.endswith(b"-wal") else ChangeTime(105.0, 90.0)

    def content(self, taken: Snapshot, path: EnvPath) -> bytes | None:
        return taken.tree.encode()


@pytest.mark.parametrize(
    ("changed", "time"),
    [
        ((b"db",), ChangeTime(105.0, 105.0)),
        ((b"db-wal",), ChangeTime(115.0, 115.0)),
        ((b"db", b"db-wal"), ChangeTime(105.0, 115.0, is_indirect=True)),
    ],
)
def test_time_of_a_row_is_that_of_all_files_that_changed(
    changed: tuple[bytes, ...], time: ChangeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replace(snapshot("before", "10:00"), tree="old", trusted=True)
    call = ToolCall("Bash", "a", session="s", id="1", command="c", began=100.0, ended=110.0)
    after = replace(
        snapshot("after", "10:05"),
        tree="new",
        trusted=True,
        calls=(call,),
        window=CallWindow(before.id, 90.0, 120.0),
    )
    reader = cast(VersionReader, Database(changed))
    origins = OriginReader(cast(Git, None), [after, before], reader, lambda taken: taken)
    monkeypatch.setattr(origins, "_place_of_table", lambda table: "db")
    monkeypatch.setattr("git_envhist.history.why.row_fingerprint", lambda contents, table, key: str(contents))
    (first, *_) = origins.of(Subject(SubjectKind.ROW, "t:1"))
    assert first.attribution == attribute_change(after, before, "db", time)
    assert (first.attribution.call == call) == (changed == (b"db",))


def test_restore_is_named_only_for_a_path_as_in_the_restored_snapshot() -> None:
    source = replace(snapshot("source", "10:00"), tree="source", trusted=True)
    before = replace(snapshot("before", "10:01"), tree="before", parent=source.commit, trusted=True)
    restored = replace(
        snapshot("restored", "10:02"),
        tree="restored",
        parent=before.commit,
        restore=RestoreRole.TO,
        restored_from=source.id,
        trusted=True,
    )

    class Restored(Renamed):
        def path_id(self, taken: Snapshot, path: EnvPath) -> PathId:
            is_as_before = path == b"by-restore" and taken.tree != "before"
            return 0o100644, b"source" if is_as_before else taken.tree.encode()

    for path, certainty in (("by-restore", Certainty.RESTORE), ("by-another", Certainty.UNCERTAIN)):
        reader = cast(VersionReader, Restored())
        origins = OriginReader(cast(Git, None), [restored, before, source], reader, lambda taken: taken)
        first = next(origins.of(Subject(SubjectKind.PATH, path)))
        assert first.attribution.certainty is certainty


def test_only_as_many_applied_spans_are_read_as_one_snapshot_records(monkeypatch: pytest.MonkeyPatch) -> None:
    before = replace(snapshot("before", "10:01"), tree="before", trusted=True)
    spans = tuple((f"{at}", f"{at}") for at in range(2000))
    merged = replace(
        snapshot("merged", "10:02"),
        tree="merged",
        parent=before.commit,
        restore=RestoreRole.MERGE,
        applied=spans,
        trusted=True,
    )
    asked: list[str] = []
    reader = cast(VersionReader, Renamed())
    origins = RenamedOriginReader(cast(Git, None), [merged, before], reader, lambda taken: taken)
    monkeypatch.setattr(origins, "_tree_of", asked.append)
    next(origins.of(Subject(SubjectKind.PATH, "merged")))
    assert len(asked) == 100


def test_path_is_followed_across_any_number_of_renames() -> None:
    one = snapshot("one", "10:00")
    line = [
        replace(one, id=f"{at:040}", commit=f"{at:040}", tree=str(at), trusted=True)
        for at in range(RENAMES, 0, -1)
    ]
    origins = RenamedOriginReader(cast(Git, None), line, cast(VersionReader, Renamed()), lambda taken: taken)
    steps = list(origins.of(Subject(SubjectKind.PATH, str(RENAMES))))
    assert [step.snapshot for step in steps] == line
    assert steps[-1].path == b"1"
