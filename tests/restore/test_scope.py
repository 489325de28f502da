"""What a restore leaves alone, and what it says of it."""

from __future__ import annotations

from git_envhist.model import EnvPath, MissingPath, MissingReason
from git_envhist.restore.plan import SkipReason
from git_envhist.restore.scope import CapturedExtent, Scope

NOTHING = CapturedExtent.of((), (), ())


def missing(path: bytes, why: MissingReason) -> MissingPath:
    return MissingPath(EnvPath(path), why)


def keep(scope: Scope, path: bytes, *, directory: bool = False) -> str | None:
    return scope.keep(EnvPath(path), directory)


def test_what_either_moment_left_out_stays_with_all_that_is_in_it() -> None:
    scope = Scope(CapturedExtent.of(("cache/", "*.log"), (), ()), CapturedExtent.of((), ("/build",), ()))
    assert keep(scope, b"a/cache/b/c") == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"a/cache", directory=True) == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"a/cache") is None  # a file of that name was in it
    assert keep(scope, b"x.log") == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"build/out") == SkipReason.LEFT_OUT_NOW
    assert keep(scope, b"src/build/out") is None


def test_a_pattern_of_the_working_tree_names_nothing_in_a_further_root() -> None:
    scope = Scope(CapturedExtent.of(("*.log",), ("*.tmp",), ()), NOTHING, roots={b"nginx": b"/absent"})
    assert keep(scope, b"nginx://conf.d/x.log") is None
    assert keep(scope, b"nginx://conf.d/x.tmp") == SkipReason.LEFT_OUT_THEN
    assert keep(scope, b"apache://x") == SkipReason.NO_ROOT


def test_what_the_snapshot_could_not_hold_stays_and_the_reason_is_told() -> None:
    then = CapturedExtent.of(
        (), (), [missing(b"secret", MissingReason.UNREADABLE), missing(b"mnt", MissingReason.MOUNT)]
    )
    scope = Scope(then, CapturedExtent.of((), (), [missing(b"usb", MissingReason.MOUNT)]))
    assert "unreadable" in (keep(scope, b"secret/deep/file") or "")
    assert keep(scope, b"secrets") is None
    assert keep(scope, b"mnt/a") == keep(scope, b"usb/b") == SkipReason.MOUNTED


def test_what_cannot_be_read_now_is_not_passed_over_in_silence() -> None:
    # Whether it can be saved is for a guard to say, and to refuse.
    now = CapturedExtent.of((), (), [missing(b"closed", MissingReason.UNREADABLE)])
    assert keep(Scope(NOTHING, now), b"closed/file") is None


def test_choices_are_no_news_and_code_is_told() -> None:
    chosen = Scope(NOTHING, NOTHING, chosen={b"a/b/c", b"d"}, code={b"d"})
    assert keep(chosen, b"a/b/x") == SkipReason.NOT_CHOSEN
    assert keep(chosen, b"d") == SkipReason.TRACKED
    # What is chosen is reached through the directories that it lies in.
    assert [keep(chosen, path, directory=True) for path in (b"", b"a", b"a/b")] == [None] * 3
    assert [keep(chosen, path) for path in (b"a", b"a/b")] == [SkipReason.NOT_CHOSEN] * 2
