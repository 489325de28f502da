"""The library, as a Python program uses it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

import git_envhist
from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError, NotARepository, SnapshotNotFound
from git_envhist.model import ChangeKind, EnvPath, SnapshotDiff
from tests.end_to_end.captures import assert_holds
from tests.rules.source import CHECKOUT
from tests.support.repository import Repo

# Modules that a program must not load by importing the package.
HEAVY = {
    "click",
    "rich",
    "pathspec",
    "dulwich",
    "zstandard",
    "cryptography",
    "subprocess",
    "multiprocessing",
    "asyncio",
}


def test_a_history_is_captured_read_compared_named_and_noted(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), one_command=True)
    captured = history.capture("before auth refactor")
    assert captured.snapshot is not None
    assert_holds(repo, captured.snapshot.commit)
    repo.write("app.py", b"changed\n")
    comparison = history.diff("@", "now")
    assert isinstance(comparison, SnapshotDiff)
    assert [(one.kind, one.path) for one in comparison.files] == [(ChangeKind.MODIFIED, b"app.py")]
    history.name("start")
    history.note("a remark")
    (snapshot,) = EnvHistory.open(str(repo.path), one_command=True).log()
    assert (snapshot.id, snapshot.intent) == (captured.snapshot.id, "before auth refactor")
    assert (snapshot.names, [remark.text for remark in snapshot.remarks]) == (("start",), ["a remark"])
    assert dataclasses.is_dataclass(snapshot)


def test_open_history_sees_its_own_changes(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), one_command=True)
    with pytest.raises(SnapshotNotFound):
        history.resolve("@")
    first, second = history.capture("one").snapshot, history.capture("two").snapshot
    assert first is not None
    assert second is not None
    assert history.resolve("@").id == second.id
    history.name("here", "@~1")
    assert history.resolve("here").id == first.id
    history.name("here")
    assert history.resolve("here").id == second.id


def test_revisions_are_resolved_and_errors_are_public_classes(repo: Repo, tmp_path: object) -> None:
    history = EnvHistory.open(str(repo.path), one_command=True)
    assert history.log() == []
    taken = history.capture("x").snapshot
    assert taken is not None
    opened = EnvHistory.open(str(repo.path), one_command=True)
    assert opened.resolve("@").id == taken.id
    assert opened.timelines() == (taken.timeline,)
    assert opened.read_file(opened.resolve("@"), EnvPath(b"app.py")) == b"print('hello')\n"
    with pytest.raises(SnapshotNotFound):
        opened.resolve("no-such-name")
    with pytest.raises(NotARepository):
        EnvHistory.open(str(tmp_path), one_command=True)
    assert issubclass(NotARepository, EnvhistError)


def test_name_is_removed(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), one_command=True)
    history.capture("x", name="start")
    EnvHistory.open(str(repo.path), one_command=True).remove_name("start")
    assert EnvHistory.open(str(repo.path), one_command=True).log()[0].names == ()


def test_every_type_and_error_is_a_public_name() -> None:
    for name in (
        "Snapshot",
        "SnapshotDiff",
        "CaptureResult",
        "Entry",
        "EnvhistError",
        "SnapshotNotFound",
        "EnvHistory",
    ):
        assert getattr(git_envhist, name).__name__ == name
    with pytest.raises(AttributeError):
        git_envhist.NoSuchThing  # noqa: B018


@pytest.mark.parametrize("statement", ["import git_envhist", "from git_envhist import EnvHistory"])
def test_importing_the_package_is_cheap_and_starts_no_process(statement: str) -> None:
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(done.stdout.split())


def test_log_loads_no_unneeded_modules(repo: Repo) -> None:
    EnvHistory.open(str(repo.path), one_command=True).capture("x")
    script = (
        "import sys; from git_envhist.cli.main import envlog; envlog(); print(*sys.modules, file=sys.stderr)"
    )
    environment = {**repo.env, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=repo.path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not (HEAVY | {"dataclasses"}) & set(done.stderr.split())
