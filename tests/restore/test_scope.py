"""Reasons for which a restore skips paths."""

from __future__ import annotations

from git_envhist.model import EnvPath, MissingPath, MissingReason
from git_envhist.restore.plan_steps import SkipReason
from git_envhist.restore.scope import CapturedExtent, Scope

NOTHING = CapturedExtent.of((), (), ())


def missing(path: bytes, why: MissingReason) -> MissingPath:
    return MissingPath(EnvPath(path), why)


def keep(scope: Scope, path: bytes, *, directory: bool = False) -> str | None:
    return scope.keep(EnvPath(path), directory)


def test_path_excluded_in_either_snapshot_is_skipped_with_its_contents() -> None:
    scope = Scope(CapturedExtent.of(("cache/", "*.log"), (), ()), CapturedExtent.of((), ("/build",), ()))
    assert keep(scope, b"a/cache/b/c") == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"a/cache", directory=True) == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"a/cache") is None  # the pattern excludes only a directory
    assert keep(scope, b"x.log") == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"build/out") == SkipReason.LEFT_OUT_NOW
    assert keep(scope, b"src/build/out") is None


def test_pattern_of_the_working_tree_matches_nothing_in_an_additional_root() -> None:
    scope = Scope(CapturedExtent.of(("*.log",), ("*.tmp",), ()), NOTHING, roots={b"nginx": b"/absent"})
    assert keep(scope, b"nginx://conf.d/x.log") is None
    assert keep(scope, b"nginx://conf.d/x.tmp") == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"apache://x") == SkipReason.NO_ROOT


def test_path_missing_from_the_snapshot_is_skipped_with_the_reason() -> None:
    then = CapturedExtent.of(
        (), (), [missing(b"secret", MissingReason.UNREADABLE), missing(b"mnt", MissingReason.MOUNT)]
    )
    scope = Scope(then, CapturedExtent.of((), (), [missing(b"usb", MissingReason.MOUNT)]))
    assert "unreadable" in (keep(scope, b"secret/deep/file") or "")
    assert keep(scope, b"secrets") is None
    assert keep(scope, b"mnt/a") == keep(scope, b"usb/b") == SkipReason.MOUNTED


def test_unreadable_path_is_not_skipped() -> None:
    # Not a matter of the scope: a guard refuses paths that cannot be saved.
    now = CapturedExtent.of((), (), [missing(b"closed", MissingReason.UNREADABLE)])
    assert keep(Scope(NOTHING, now), b"closed/file") is None


def test_unchosen_and_tracked_paths_are_skipped_with_their_reasons() -> None:
    chosen = Scope(NOTHING, NOTHING, chosen={b"a/b/c", b"d"}, code={b"d"})
    assert keep(chosen, b"a/b/x") == SkipReason.NOT_CHOSEN
    assert keep(chosen, b"d") == SkipReason.TRACKED
    # Directories above a chosen path are not skipped.
    assert [keep(chosen, path, directory=True) for path in (b"", b"a", b"a/b")] == [None] * 3
    assert [keep(chosen, path) for path in (b"a", b"a/b")] == [SkipReason.NOT_CHOSEN] * 2
