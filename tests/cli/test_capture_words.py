"""Messages of `git envlog capture` and of restores after it."""

from __future__ import annotations

import os

import pytest

from git_envhist.cli.command import Session
from git_envhist.cli.commands.capture import dry_run_lines, report_lock_holder, why_missing
from git_envhist.cli.output import Output
from git_envhist.model import CaptureResult, EnvPath, MissingPath, MissingReason
from tests.end_to_end.captures import capture
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo


def test_dry_run_folds_directories_by_their_top() -> None:
    directories = [(EnvPath(b"node_modules/p%d" % number), 1, 10) for number in range(2000)]
    directories += [(EnvPath(b"src%d/deep" % number), 1, 1) for number in range(13)]
    looked = CaptureResult(
        None, files=2013, new_files=2013, new_bytes=20013, stored_bytes=0, seconds=0.1,
        directories=tuple(directories),
    )  # fmt: skip
    _, first, *others, rest = list(dry_run_lines(looked))
    assert first.split() == ["19.5", "KiB", "2,000", "files", "node_modules/"]
    assert len(others) == 11
    assert rest.split() == ["2", "B", "2", "files", "in", "2", "more", "directories"]


def test_size_of_a_missing_file_is_readable() -> None:
    over = MissingPath(EnvPath(b"model.bin"), MissingReason.BUDGET, f"{5 << 30} bytes")
    assert why_missing(over) == "budget: 5.0 GiB"
    assert why_missing(MissingPath(EnvPath(b"x"), MissingReason.UNREADABLE, "permission denied")) == (
        "unreadable: permission denied"
    )
    assert why_missing(MissingPath(EnvPath(b"x"), MissingReason.MOUNT)) == "mount"


def test_file_over_the_budget_is_reported_with_the_setting(repo: Repo) -> None:
    repo.git("config", "envhist.budget", "64k")
    repo.write("big", os.urandom(200_000))
    printed = repo.run("envlog", "capture", "x", check=True).err.splitlines()
    assert printed == [
        "warning: not captured (budget: 195.3 KiB): 'big'",
        "hint: raise the limit, e.g. to 8 GiB: git config envhist.budget 8g",
    ]


def test_first_capture_does_not_advise_to_exclude_installed_packages(repo: Repo) -> None:
    repo.write("node_modules/a/index.js", "1\n" * 1000)
    repo.write(".venv/bin/python", "1\n" * 1000)
    assert "to leave one out" not in repo.run("envlog", "capture", "-m", "x", check=True).out
    repo.write("cache/a", "1\n")
    repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert "echo /cache/ >>" in repo.run("envlog", "capture", "-m", "x", check=True).out


def test_undo_after_head_prints_the_command_to_move_it(repo: Repo) -> None:
    first = capture(repo, "first")
    repo.write("app.py", "2\n")
    repo.commit("second commit")
    second, there = capture(repo, "second"), repo.git("rev-parse", "--short=7", "HEAD")
    repo.run("envrestore", "--head", first, check=True)
    output = repo.run("envrestore", "--undo", check=True).out
    line = f"HEAD was not moved; it was at {there} then: git envrestore --head {second[:7]}"
    assert line in output.splitlines()
    repo.run("envrestore", "--head", second, check=True)
    assert repo.git("rev-parse", "--short=7", "HEAD") == there


@pytest.mark.full
def test_undo_after_head_names_the_last_commit_of_an_unchanged_environment(repo: Repo) -> None:
    first = capture(repo, "first")
    repo.write("app.py", "2\n")
    capture(repo, "second")
    # The commit changes no file, so its snapshot has the state of the one before.
    repo.commit("second commit")
    capture(repo, "after the commit")
    there = repo.git("rev-parse", "--short=7", "HEAD")
    repo.run("envrestore", "--head", first, check=True)
    output = repo.run("envrestore", "--undo", check=True).out
    assert f"HEAD was not moved; it was at {there} then: git envrestore --head" in output


def test_waiting_capture_names_a_restore(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo.path)
    session = Session("git-envlog", None, Output())
    report_lock_holder(session)
    repo.write(".git/envhist/restore/journal", b"")
    report_lock_holder(session)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "waiting for another capture of this working tree to finish"
    assert second == "waiting for a restore of this working tree to finish"


def test_unreadable_new_file_is_reported_when_nothing_else_changed(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    repo.write("locked", b"x").chmod(0)
    done = repo.run("envlog", "capture", "--if-changed", prefix=as_ordinary_user())
    assert "warning: not captured (unreadable: permission denied): 'locked'" in done.err
