"""A fork's first capture reads little, and holds what one that reads everything does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.forking.seeding import seed
from tests.forking.test_fork import fork, rich
from tests.support.repository import Repo

__all__ = ["rich"]


def tree(repo: Repo) -> str:
    return repo.run("envlog", "-1", "--format=%T", check=True).out


def cache(repo: Repo) -> Path:
    return Path(repo.git("rev-parse", "--absolute-git-dir")) / "envhist/cache"


def would_read(repo: Repo) -> int:
    return int(json.loads(repo.run("envlog", "capture", "--dry-run", "--json", check=True).out)["files"])


def seed_again(source: Repo, made: Repo) -> None:
    """As if it had been written just now."""
    shutil.rmtree(cache(made))
    theirs, mine = (EnvHistory.open(str(one.path)) for one in (source, made))
    seed(theirs._capturing, mine._capturing, theirs.log()[0])


def test_the_first_moment_of_a_fork_is_what_a_look_at_everything_finds(rich: Repo) -> None:
    made = fork(rich, "made")
    first = tree(made)
    shutil.rmtree(cache(made))
    made.run("envlog", "capture", "read anew", check=True)
    assert tree(made) == first


def test_what_was_written_is_not_read_again_but_for_what_has_several_names(rich: Repo) -> None:
    made = fork(rich, "made")
    seed_again(rich, made)
    assert would_read(made) == 2
    shutil.rmtree(cache(made))
    assert would_read(made) > 2


def test_what_was_changed_since_it_was_written_is_read(rich: Repo) -> None:
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


def test_records_of_another_moment_are_not_taken(rich: Repo) -> None:
    made = fork(rich, "made", "start-here")
    rich.write("build/out", os.urandom(100))
    rich.run("envlog", "capture", "later", check=True)
    shutil.rmtree(cache(made))
    theirs, mine = (EnvHistory.open(str(one.path)) for one in (rich, made))
    seed(theirs._capturing, mine._capturing, theirs.log()[-1])
    assert not cache(made).exists()
