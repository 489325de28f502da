"""Restores through the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import UnfinishedRestore, UsageError
from tests.cli.test_json import validate
from tests.restore.test_programs import interrupt_restore
from tests.support.repository import Repo


def test_restore_undo_and_redo_return_results(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("file", b"one")
    first = history.capture("one").snapshot
    assert first is not None
    repo.write("file", b"two")
    planned = history.preview(first)
    assert (planned.snapshot, [step.path for step in planned.plan.steps]) == (None, [b"file"])
    assert history.restore(first, dry_run=True) == planned.plan
    assert repo.read("file") == b"two"
    done = history.restore("@")
    assert repo.read("file") == b"one"
    assert done.exact
    assert done.snapshot is not None
    assert done.snapshot.restored_from == first.id
    assert history.resolve("@").id == done.snapshot.id
    undone = history.undo()
    assert repo.read("file") == b"two"
    assert undone.safety is not None
    history.redo()
    assert repo.read("file") == b"one"


def test_snapshot_is_written_to_another_directory(repo: Repo, tmp_path: Path) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("file", b"one")
    first = history.capture("one")
    repo.write("file", b"two")
    written = history.write_to(first, tmp_path / "there")
    assert written.exact
    assert ((tmp_path / "there" / "file").read_bytes(), repo.read("file")) == (b"one", b"two")


def test_restore_takes_the_options_of_the_program(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    first = history.capture("clean")
    for name in ("a", "b", "app.py"):
        repo.write(name, b"new")
    told: list[object] = []
    history.restore(first, keep_new=True, paths=["app.py", b"a"], planned=told.append, saved=told.append)
    assert [repo.read(name) for name in ("a", "b", "app.py")] == [b"new", b"new", b"print('hello')\n"]
    assert len(told) == 2
    done = history.restore(first, paths=["a"], only=["files"])
    assert done.undo is not None
    assert not (repo.path / "a").exists()
    history.restore(done.undo)
    assert repo.read("a") == b"new"
    with pytest.raises(UsageError, match="unknown class of paths: 'nothing'"):
        history.restore(first, only=["nothing"])


def test_interrupted_restore_is_continued_or_aborted(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    first = history.capture("clean").snapshot
    assert first is not None
    for end, expected in ((history.continue_restore, b"one"), (history.abort_restore, b"two")):
        repo.write("file", b"one")
        target = history.capture("one").id
        repo.write("file", b"two")
        interrupt_restore(repo, str(target))
        with pytest.raises(UnfinishedRestore):
            history.capture("meanwhile")
        ended = end()
        assert (ended.exact, ended.undone, repo.read("file")) == (True, expected == b"two", expected)


def test_json_of_a_restore_matches_the_schema(repo: Repo) -> None:
    repo.write(b"caf\xe9", b"1")
    first = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    repo.write(b"caf\xe9", b"2")
    for words in (("-n", first), (first,), ("--undo",), ("--redo",), ("--keep-tracked", first)):
        done = repo.run("envrestore", "--json", *words, check=True)
        validate("restored", json.loads(done.out))
    given = repo.run(
        "envrestore", "--json", "--attachments", str(repo.path.parent / "out"), first, check=True
    )
    validate("given_back", json.loads(given.out))
