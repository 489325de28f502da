"""The recorded check runs after a restore; if it fails, undo is offered."""

from __future__ import annotations

import json
import os
import pty

import pytest

from tests.checks.test_capture_verify import shown
from tests.cli.test_json import validate
from tests.support.repository import Repo


@pytest.fixture
def checked(repo: Repo) -> Repo:
    """Return a repository in which `old` passed its check, and the environment now differs."""
    repo.write("state", "old")
    repo.run("envlog", "capture", "old", "--verify", "test ! -e ../broken", "--exit-code", check=True)
    repo.write("state", "new")
    return repo


def test_recorded_check_runs_on_the_restored_environment(checked: Repo) -> None:
    done = checked.run("envrestore", "good", "--verify")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("✓ test ! -e ../broken (")
    assert checked.read("state") == b"old"
    found = shown(checked)
    assert str(found["intent"]).startswith("restore of ")
    assert [verdict["carried_from"] is None for verdict in found["verdicts"]] == [False, True]  # type: ignore[attr-defined]


def test_failed_check_prints_the_undo_command(checked: Repo) -> None:
    (checked.path.parent / "broken").touch()
    done = checked.run("envrestore", ":/old", "--verify")
    assert done.status == 1
    assert done.err.splitlines() == [
        "warning: the check failed: test ! -e ../broken: exit 1", "hint: to undo: git envrestore --undo",
    ]  # fmt: skip
    assert checked.read("state") == b"old"
    checked.run("envrestore", "--undo", check=True)
    done = checked.run("envrestore", ":/old", "--verify", "--json")
    output = json.loads(done.out)
    validate("restored", output)
    assert (done.status, output["verify"]["status"]) == (1, "fail")


@pytest.mark.parametrize(("answer", "state"), [("y", b"new"), ("n", b"old"), ("", b"old")])
def test_failed_check_asks_on_a_terminal(checked: Repo, answer: str, state: bytes) -> None:
    (checked.path.parent / "broken").touch()
    master, terminal = pty.openpty()
    os.write(master, f"{answer}\n".encode())
    import subprocess

    done = subprocess.run(
        ["git-envrestore", ":/old", "--verify"], cwd=checked.path, stdin=terminal, stderr=terminal,
        stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(terminal)
    os.close(master)
    assert done.returncode == 1
    assert checked.read("state") == state


def test_nothing_is_restored_without_a_check(repo: Repo) -> None:
    repo.write("state", "old")
    repo.run("envlog", "capture", "old", check=True)
    repo.write("state", "new")
    done = repo.run("envrestore", "@", "--verify")
    assert done.status == 129
    assert repo.read("state") == b"new"
    repo.git("config", "envhist.verify", "exit 126")
    assert repo.run("envrestore", ":/old", "--verify").status == 125
    assert repo.read("state") == b"old"


def test_dry_run_checks_nothing(checked: Repo) -> None:
    (checked.path.parent / "broken").touch()
    assert checked.run("envrestore", "@", "--verify", "-n").status == 0
    assert checked.read("state") == b"new"
