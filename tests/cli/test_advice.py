"""Hints after a capture, a failed check, a restore and a refusal, and how to turn them off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from git_envhist.cli.errors import ADVICE_KEYS
from tests.cli.test_terminal_session import on_terminal
from tests.support.repository import Repo


def hints(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("hint: ")]


def switched_off(repo: Repo, key: str) -> Repo:
    repo.git("config", f"advice.{key}", "false")
    return repo


def test_capture_prints_a_hint_on_a_terminal(repo: Repo) -> None:
    repo.env["COLUMNS"] = "200"
    shown, _ = on_terminal(repo, "git-envlog", "capture", "one")
    said = hints(shown)
    assert re.fullmatch(
        r"hint: restore it at any time: git envrestore [0-9a-f]{7}; list snapshots: git envlog", said[0]
    )
    assert said[1:] == ["hint: (turn off: git config --global advice.envhistCapture false)"]
    shown, _ = on_terminal(repo, "git-envlog", "capture", "two")
    assert hints(shown)[0].endswith("see later changes: git envdiff")
    shown, _ = on_terminal(switched_off(repo, "envhistCapture"), "git-envlog", "capture", "three")
    assert not hints(shown)


def test_capture_prints_no_hint_in_a_pipe(repo: Repo) -> None:
    assert repo.run("envlog", "capture", "one", check=True).err == ""


def test_failed_check_prints_a_hint(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--verify", "false")
    assert hints(done.err) == [
        "hint: output of the check: git envlog show; what changed in this snapshot: git envdiff @~1..@"
    ]
    repo.run("envlog", "capture", "--verify", "true", check=True)
    # Another check passed, so a passing state is named only for that one.
    assert "good" not in hints(repo.run("envlog", "verify", "--", "exit 3").err)[0]
    check = "! test -e broken"
    repo.run("envlog", "capture", "--verify", check, check=True)
    repo.write("broken", "")
    for words in (("capture", "--verify", check), ("verify", "--", check)):
        (said,) = hints(repo.run("envlog", *words).err)
        assert said.startswith("hint: changes since the check last passed: git envdiff good;")
    assert not hints(switched_off(repo, "envhistVerdict").run("envlog", "verify", "--", "exit 3").err)


def test_restore_prints_the_undo_command(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    repo.write("app.py", "changed\n")
    assert "to undo: git envrestore --undo\n" in repo.run("envrestore", "@", check=True).out
    repo.write("app.py", "again\n")
    assert "to undo" not in switched_off(repo, "envhistRestore").run("envrestore", "@", check=True).out


def test_empty_history_prints_the_capture_command(repo: Repo) -> None:
    assert hints(repo.run("envlog").err) == ["hint: nothing was captured here yet: git envlog capture"]
    assert not hints(switched_off(repo, "envhistEmpty").run("envlog").err)


def test_empty_history_of_a_clone_names_fetch(repo: Repo) -> None:
    repo.git("remote", "add", "origin", "../elsewhere")
    elsewhere = "git envlog capture; snapshots of a remote: git envlog fetch"
    assert hints(repo.run("envlog").err) == [f"hint: nothing was captured here yet: {elsewhere}"]
    assert hints(repo.run("envrestore", "@").err) == [f"hint: {elsewhere}"]


def test_refusal_names_the_overriding_option(repo: Repo) -> None:
    refused = repo.run("envlog", "capture", "--name", "list")
    assert (refused.status, len(hints(refused.err))) == (3, 1)
    quiet = switched_off(repo, "envhistRefusal").run("envlog", "capture", "--name", "list")
    assert (quiet.status, quiet.err.count("\n")) == (3, 1)
    # The hint of a usage error is always printed.
    assert hints(repo.run("envlog", "--bogus").err)


def test_git_advice_turns_off_all_hints(repo: Repo) -> None:
    repo.env["GIT_ADVICE"] = "0"
    assert not hints(repo.run("envlog").err)
    assert not hints(repo.run("envlog", "capture", "--verify", "false").err)
    assert not hints(repo.run("envlog", "capture", "--name", "list").err)
    shown, _ = on_terminal(repo, "git-envlog", "capture", "two")
    assert not hints(shown)


@pytest.mark.parametrize("key", ADVICE_KEYS)
def test_every_advice_key_is_in_the_man_page(key: str) -> None:
    manual = Path(__file__).resolve().parents[2] / "docs" / "man" / "git-envlog.rst"
    assert f"**advice.{key}**" in manual.read_text()


def test_mistyped_word_is_answered_with_the_right_one(repo: Repo) -> None:
    repo.git("config", "envhist.timeline", "laptop/app-4f2a91")
    repo.run("envlog", "capture", "one", "--name", "before-refactor", check=True)
    for words, meant in (
        (("envlog", "captrue"), "did you mean 'git envlog capture'?"),
        (("envlog", "list"), "did you mean 'git envlog'?"),
        (("envhist", "statu"), "did you mean 'git envlog status'?"),
        (("envrestore", "before-refctor"), "did you mean 'before-refactor'?"),
        (("envlog", "show", "Before-Refactor"), "did you mean 'before-refactor'?"),
        (("envdiff", "laptop/app-4f2a92"), "did you mean 'laptop/app-4f2a91'?"),
        (("envlog", "--onelin"), "did you mean '--oneline'?"),
        (("envrestore", "goood"), "did you mean 'good'?"),
    ):
        done = repo.run(*words)
        assert done.status in (4, 129), words
        assert hints(done.err) == [f"hint: {meant}"]


def test_trace_prints_each_step_with_its_time(repo: Repo, tmp_path: Path) -> None:
    line = re.compile(r"\d\d:\d\d:\d\d\.\d{6} envhist\[\d+\] +(\d+\.\d{4} s)?  \S.*")
    done = repo.run("envlog", "capture", "one", env={"GIT_ENVHIST_TRACE": "1"}, check=True)
    output = [one for one in done.err.splitlines() if "envhist[" in one]
    assert all(line.fullmatch(one) for one in output)
    for words in (
        "read git's status",
        "scan the environment",
        "publish the snapshot",
        " update-ref ",
    ):
        assert any(words in one for one in output), words
    assert output[-1].endswith("git-envlog ends")
    repo.write("app.py", "changed\n")
    place = tmp_path / "trace"
    done = repo.run("envrestore", "@", env={"GIT_ENVHIST_TRACE": str(place)}, check=True)
    assert done.err == ""
    for words in ("plan the restore", "execute the plan", "record the restore"):
        assert words in place.read_text()


def test_trace_is_off_without_the_variable(repo: Repo) -> None:
    for value in ("", "0", "false"):
        assert repo.run("envlog", "capture", "x", env={"GIT_ENVHIST_TRACE": value}).err == ""
