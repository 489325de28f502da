"""A read-only `.git`: captures and restores fail with one error line and a hint; reading commands still work."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture, history
from tests.hygiene.user_data import belongings
from tests.support.needs import require
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, Result


@contextmanager
def closed(place: Path) -> Iterator[None]:
    subprocess.run(["chmod", "-R", "a-w", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["chmod", "-R", "u+w", place], check=True)


def assert_read_only_error(done: Result) -> None:
    assert (done.status, done.out) == (128, "")
    printed = done.err.splitlines()
    assert len(printed) == 2, done.err
    assert printed[0].startswith("error: cannot write below '")
    assert printed[1] == "hint: allow writing to the git directory: a sandbox or its permissions prevent it"


@pytest.mark.parametrize("seen_before", [False, True], ids=["first capture", "later capture"])
def test_capture_in_a_read_only_git_directory_is_an_error(repo: Repo, seen_before: bool) -> None:
    user = as_ordinary_user()
    if seen_before:
        capture(repo)
    before = belongings(repo)
    with closed(repo.path / ".git"):
        done = repo.run("envlog", "capture", prefix=user)
        listed = repo.run("envlog", prefix=user)
    assert_read_only_error(done)
    assert listed.status == 0
    assert len(listed.out.splitlines()) == seen_before
    after = belongings(repo)
    assert (after.work, after.answers) == (before.work, before.answers)
    assert_holds(repo, capture(repo))


@pytest.mark.parametrize("part", ["objects/pack", "refs", "envhist", "objects"])
def test_capture_with_a_read_only_part_is_an_error_and_changes_nothing(repo: Repo, part: str) -> None:
    user = as_ordinary_user()
    capture(repo)
    known = history(repo)
    repo.write("more", b"1")
    with closed(repo.path / ".git" / part):
        done = repo.run("envlog", "capture", "-m", "second", prefix=user)
    if part != "objects":  # captures write into the pack directory, not into the directory above
        assert_read_only_error(done)
        assert history(repo) == known
    assert_holds(repo, capture(repo, "afterwards"))


def test_capture_on_a_read_only_disk_is_an_error(repo: Repo) -> None:
    capture(repo)
    known = history(repo)
    require("unshare")
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec git-envlog capture'
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(repo.path / ".git")]
    done = repo.execute(*words, check=False)
    if "unshare" in done.err or "mount:" in done.err:
        pytest.skip(f"cannot mount here: {done.err}")
    assert_read_only_error(done)
    assert history(repo) == known


def test_reading_commands_work_in_a_read_only_git_directory(repo: Repo) -> None:
    user = as_ordinary_user()
    with closed(repo.path / ".git"):
        assert "would read 1 file" in repo.run("envlog", "capture", "-n", check=True, prefix=user).out
    repo.write(".env", b"A=1")
    first = capture(repo)
    repo.write("app.py", b"changed")
    before = belongings(repo)
    scratch = repo.path.parent / "scratch"
    scratch.mkdir()
    repo.env["TMPDIR"] = str(scratch)
    scratch.chmod(0o777)
    there = str(repo.path.parent / "there")
    with closed(repo.path / ".git"):
        assert "~ app.py" in repo.run("envdiff", check=True, prefix=user).out
        planned = repo.run("envrestore", "-n", first, check=True, prefix=user).out
        undone = repo.run("envrestore", "-n", "--undo", check=True, prefix=user).out
        repo.run("envrestore", "--to", there, first, check=True, prefix=user)
        for words in (["envrestore", first], ["envrestore", "--undo"], ["envrestore", "--continue"]):
            assert_read_only_error(repo.run(*words, prefix=user))
    assert "replace:\n    app.py\n" in planned
    assert "replace:\n    app.py\n" in undone
    assert {path.name for path in (repo.path.parent / "there").iterdir()} == {".env", "app.py"}
    after = belongings(repo)
    assert (after.work, after.answers) == (before.work, before.answers)
    # No temporary copy of the environment remains.
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("words", [("envlog",), ("envlog", "show"), ("envlog", "capture"), ("envdiff",)])
def test_unreadable_history_is_an_error_and_not_reported_as_empty(repo: Repo, words: tuple[str, ...]) -> None:
    user = as_ordinary_user()
    capture(repo)
    state = repo.path / ".git/envhist"
    mode = state.stat().st_mode
    state.chmod(0)
    try:
        done = repo.run(*words, prefix=user)
    finally:
        state.chmod(mode)
    assert done.status == 128
    assert "denied" in done.err
    assert "nothing was captured" not in done.err
