"""Going back from a program: results, not words."""

from __future__ import annotations

import json

from git_envhist.api import EnvHistory
from tests.cli.test_json import validate
from tests.support.repository import Repo


def test_a_restore_its_undo_and_its_redo(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path))
    repo.write("file", b"one")
    first = history.capture("one").snapshot
    assert first is not None
    repo.write("file", b"two")
    planned = history.restore(first, dry_run=True)
    assert (planned.moment, [step.path for step in planned.plan.steps]) == (None, [b"file"])
    assert repo.read("file") == b"two"
    done = history.restore("@")
    assert repo.read("file") == b"one"
    assert done.exact
    assert done.moment is not None
    assert done.moment.restored_from == first.id
    assert history.resolve("@").id == done.moment.id
    undone = history.undo()
    assert repo.read("file") == b"two"
    assert undone.safety is not None
    history.redo()
    assert repo.read("file") == b"one"


def test_what_is_said_in_json_is_what_the_schema_says(repo: Repo) -> None:
    repo.write(b"caf\xe9", b"1")
    first = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    repo.write(b"caf\xe9", b"2")
    for words in (("-n", first), (first,), ("--undo",), ("--redo",), ("--keep-code", first)):
        done = repo.run("envrestore", "--json", *words, check=True)
        validate("restored", json.loads(done.out))
    given = repo.run(
        "envrestore", "--json", "--attachments", str(repo.path.parent / "out"), first, check=True
    )
    validate("given_back", json.loads(given.out))
