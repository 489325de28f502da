"""The printed undo command restores everything including HEAD, and messages are printed in order."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.support.repository import Repo

TOGETHER = ("sh", "-c", 'exec "$@" 2>&1', "sh")


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


def told_command(said: str) -> list[str]:
    return said.rstrip("\n").rpartition("to undo: git ")[2].split(" ")


def test_printed_undo_command_returns_to_the_previous_commit(repo: Repo) -> None:
    repo.git("commit", "-q", "--allow-empty", "-m", "one")
    first = capture(repo, "at one")
    repo.write("app.py", b"two")
    capture(repo, "the same files, before they are committed")
    repo.git("commit", "-qam", "two")
    before = repo.git("symbolic-ref", "HEAD"), repo.git("rev-parse", "HEAD")
    planned = repo.run("envrestore", "-n", "--head", first, check=True).out
    said = repo.run("envrestore", "--head", first, check=True).out
    assert repo.git("rev-parse", "HEAD") != before[1]
    assert told_command(planned) == ["envrestore", "--head", "@~1"]
    resolved = repo.run("envlog", "show", "@~1", check=True).out.split()[1]
    assert resolved.startswith(told_command(said)[-1])
    repo.run(*told_command(said), check=True)
    assert (repo.git("symbolic-ref", "HEAD"), repo.git("rev-parse", "HEAD")) == before
    assert (repo.read("app.py"), repo.git("status", "--porcelain")) == (b"two", "")


def test_plan_is_printed_before_messages_about_it(repo: Repo) -> None:
    with closing(sqlite3.connect(repo.path / "app.db")) as database:
        database.execute("create table t (a)")
        database.commit()
        first = capture(repo, "one")
        database.execute("begin immediate")
        database.execute("insert into t values (1)")
        repo.write("app.py", b"two")
        database.commit()
        said = repo.run("envrestore", first, prefix=TOGETHER)
    assert said.status == 3
    assert said.out.index("replace") < said.out.index("error: 'app.db' is open")


def test_head_moves_when_no_file_differs(repo: Repo) -> None:
    repo.git("commit", "-q", "--allow-empty", "-m", "one")
    first, one = capture(repo, "at one"), repo.git("rev-parse", "HEAD")
    repo.git("commit", "-q", "--allow-empty", "-m", "two")
    two = repo.git("rev-parse", "HEAD")
    planned = repo.run("envrestore", "-n", "--head", first, check=True).out
    assert f"then: HEAD is at {one[:7]}, on no branch\n" in planned
    assert repo.git("rev-parse", "HEAD") == two
    said = repo.run("envrestore", "--head", first, check=True).out
    assert repo.git("rev-parse", "HEAD") == one
    assert "nothing to restore" in repo.run("envrestore", "--head", first, check=True).out
    repo.run(*told_command(said), check=True)
    assert repo.git("rev-parse", "HEAD") == two
    assert repo.git("symbolic-ref", "HEAD").startswith("refs/heads/")


def test_dry_run_warns_about_a_refusal(repo: Repo) -> None:
    first = capture(repo, "one")
    repo.write("app.py", b"two")
    repo.git("add", "app.py")
    planned = repo.run("envrestore", "-n", "--head", first)
    assert (planned.status, "replace" in planned.out) == (0, True)
    assert "warning: this restore would be refused: 1 staged changes would be lost" in planned.err
    assert repo.run("envrestore", "--head", first).status == 3
    assert "refused" not in repo.run("envrestore", "-n", "--head", "--force", first, check=True).err
