"""The steps of one path along a timeline of many snapshots."""

from __future__ import annotations

from typing import cast

from git_envhist.git.process import Git
from git_envhist.history.attribution import ChangeTime
from git_envhist.history.versions import ABSENT, PathId, Step, VersionReader
from git_envhist.history.why import Origins, Subject, SubjectKind
from git_envhist.lazy import replace
from git_envhist.model import EnvPath, Snapshot
from tests.history.snapshots import snapshot

RENAMES = 1200


class Renamed:
    """A timeline in which each snapshot renames the only file: that of snapshot 7 is called 7."""

    def path_id(self, taken: Snapshot, path: EnvPath) -> PathId:
        return (0o100644, b"x") if path == taken.tree.encode() else ABSENT

    def change_time(self, taken: Snapshot, path: EnvPath) -> ChangeTime:
        return ChangeTime()


class RenamedOrigins(Origins):
    def _renamed_from(self, step: Step[PathId], path: EnvPath) -> EnvPath | None:
        return None if step.before is None else EnvPath(step.before.tree.encode())


def test_path_is_followed_across_any_number_of_renames() -> None:
    one = snapshot("one", "10:00")
    line = [
        replace(one, id=f"{at:040}", commit=f"{at:040}", tree=str(at), trusted=True)
        for at in range(RENAMES, 0, -1)
    ]
    origins = RenamedOrigins(cast(Git, None), line, cast(VersionReader, Renamed()), lambda taken: taken)
    steps = list(origins.of(Subject(SubjectKind.PATH, str(RENAMES))))
    assert [step.snapshot for step in steps] == line
    assert steps[-1].path == b"1"
