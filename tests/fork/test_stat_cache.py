"""The first capture of a fork reads few files and equals a full capture."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from git_envhist import fork as seeding
from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.fork import seed_stat_cache
from git_envhist.model import EnvPath
from git_envhist.workers import WORKER_KILLED_MESSAGE
from git_envhist.worktree.scan import is_settled
from tests.fork.test_fork import beside, fork, rich
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo

__all__ = ["rich"]


def tree(repo: Repo) -> str:
    return repo.run("envlog", "-1", "--format=%T", check=True).out


def cache(repo: Repo) -> Path:
    return Path(repo.git("rev-parse", "--absolute-git-dir")) / "envhist/cache"


def would_read(repo: Repo) -> int:
    return int(json.loads(repo.run("envlog", "capture", "--dry-run", "--json", check=True).out)["files"])


def seed_again(source: Repo, made: Repo, lost: frozenset[EnvPath] = frozenset()) -> None:
    """Write the stat cache as if the fork had just been written."""
    shutil.rmtree(cache(made))
    _wait_until_settled(made)
    theirs, mine = (
        EnvHistory.open(str(one.path), workers="here", one_command=True) for one in (source, made)
    )
    seed_stat_cache(theirs.capturing, mine.capturing, theirs.log()[0], lost)


def _wait_until_settled(made: Repo) -> None:
    """Wait until stat data of all files may be recorded."""
    found = [made.path, *made.path.rglob("*")]
    youngest = max(os.lstat(path).st_ctime_ns for path in found)
    while not is_settled(youngest, youngest, time.time_ns()):
        time.sleep(0.001)


def test_first_snapshot_of_a_fork_equals_a_full_capture(rich: Repo) -> None:
    made = fork(rich, "made")
    first = tree(made)
    shutil.rmtree(cache(made))
    made.run("envlog", "capture", "read anew", check=True)
    assert tree(made) == first


def test_written_files_are_not_read_except_those_with_several_names(rich: Repo) -> None:
    made = fork(rich, "made")
    seed_again(rich, made)
    assert would_read(made) == 2
    shutil.rmtree(cache(made))
    assert would_read(made) > 2


def test_file_changed_after_writing_is_read(rich: Repo) -> None:
    made = fork(rich, "made")
    made.write("app.py", "print('altered')\n")
    (made.path / "node_modules/tool/run.js").unlink()
    made.write("build/new", "1")
    seed_again(rich, made)
    before = tree(made)
    made.run("envlog", "capture", "changed", check=True)
    changed = tree(made)
    shutil.rmtree(cache(made))
    made.run("envlog", "capture", "read anew", check=True)
    assert before != changed == tree(made)


def test_killed_worker_costs_only_time(rich: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise EnvhistError(WORKER_KILLED_MESSAGE)

    made = fork(rich, "made")
    monkeypatch.setattr(seeding, "share_out", killed)
    seed_again(rich, made)
    assert not cache(made).exists()


def test_records_of_another_snapshot_are_not_used(rich: Repo) -> None:
    made = fork(rich, "made", "start-here")
    rich.write("build/out", os.urandom(100))
    rich.run("envlog", "capture", "later", check=True)
    shutil.rmtree(cache(made))
    theirs, mine = (EnvHistory.open(str(one.path), workers="here", one_command=True) for one in (rich, made))
    seed_stat_cache(theirs.capturing, mine.capturing, theirs.log()[-1], frozenset())
    assert not cache(made).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
@pytest.mark.parametrize("name", ["theirs/file", "theirs"])
def test_file_with_another_owner_than_captured_is_read(repo: Repo, name: str) -> None:
    repo.write("theirs/file", "x")
    os.chown(repo.path / name, os.getuid(), 54321)
    repo.run("envlog", "capture", "start", check=True)
    words = (*as_ordinary_user(), "git-envlog", "fork", "--json", "../made")
    output = json.loads(repo.execute(*words, check=False).out)
    lost = frozenset(EnvPath(os.fsencode(item["path"])) for item in output["losses"])
    made = beside(repo, "made")
    seed_again(repo, made, lost)
    made.write("app.py", "print('another')\n")
    made.run("envlog", "capture", "with its records", check=True)
    first = tree(made)
    shutil.rmtree(cache(made))
    made.run("envlog", "capture", "read anew", check=True)
    assert lost
    assert tree(made) == first


def test_file_created_while_forking_is_captured(rich: Repo) -> None:
    made = fork(rich, "made")
    made.write("node_modules/new", "1")
    seed_again(rich, made)
    made.write("app.py", "print('another')\n")
    made.run("envlog", "capture", "with its records", check=True)
    assert "node_modules/new" in made.git("ls-tree", "-r", "--name-only", tree(made).strip())


def test_records_of_the_original_are_used_for_the_fork(
    rich: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = EnvHistory.open(str(rich.path), workers="here", one_command=True)
    moment = history.log()[0]

    def read(*_: object) -> None:
        raise AssertionError("what is known was read")

    monkeypatch.setattr("git_envhist.capture.probe_runner.ProbeRunner._read_files", read)
    made = history.fork(moment.id, str(tmp_path / "fork"))
    facts = [rich.git("rev-parse", f"{one}:.envhist/facts") for one in (moment.id, made.log()[0].id)]
    assert facts[0] == facts[1]
