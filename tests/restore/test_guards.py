"""Guards refuse a restore before anything is changed."""

from __future__ import annotations

import pytest

from git_envhist.errors import Refused
from git_envhist.model import (
    Entry,
    EntryKind,
    EnvPath,
    MissingPath,
    MissingReason,
    PlanAction,
    PlanStep,
    RestorePlan,
)
from git_envhist.restore.guards import refuse_unsaved


def step(path: bytes, before: EntryKind, after: EntryKind | None = None) -> PlanStep:
    sides = [Entry(EnvPath(path), kind, 0o644, 0) if kind else None for kind in (before, after)]
    return PlanStep(b"", EnvPath(path), PlanAction.REMOVE, *sides)


def missing(path: bytes, why: MissingReason = MissingReason.DISK) -> list[MissingPath]:
    return [MissingPath(EnvPath(path), why)]


@pytest.mark.parametrize("path", [b"a/b", b"a/b/c", b"a/b/c/d", b"a", b""])
def test_unsaved_path_and_its_directories_are_not_replaced(path: bytes) -> None:
    going = RestorePlan((step(b"a/b/c", EntryKind.FILE), step(b"a/b", EntryKind.DIRECTORY)), ())
    with pytest.raises(Refused):
        refuse_unsaved(going, missing(path))


def test_unsaved_path_outside_the_plan_or_on_a_mount_is_allowed() -> None:
    going = RestorePlan((step(b"a/b", EntryKind.DIRECTORY),), ())
    refuse_unsaved(going, missing(b"a/bc"))
    refuse_unsaved(going, missing(b"x"))
    refuse_unsaved(going, missing(b"a/b/c", MissingReason.MOUNT))
    stays = RestorePlan((step(b"a/b", EntryKind.FILE, EntryKind.FILE),), ())
    refuse_unsaved(stays, missing(b"a/b/c"))
