"""Odd places, limits and configurations: a line says what is wrong and one what to do, or there is just the answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.support.repository import Repo


def test_a_directory_that_is_gone_is_said_to_be(repo: Repo) -> None:
    gone = repo.path.parent / "gone"
    gone.mkdir()
    words = ("sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", str(gone))
    done = repo.run("envlog", prefix=words)
    assert done.status == 128
    assert "the current directory was removed" in done.err


@pytest.mark.parametrize("zone", ["<+99>-99", "<-99>99", "No/Where"])
def test_a_zone_that_no_place_has_is_no_obstacle(repo: Repo, zone: str) -> None:
    env = {**repo.env, "TZ": zone}
    env.pop("GIT_COMMITTER_DATE", None)
    for words in (("capture", "x"), ("-n1",), ("show",), ("show", "@{1 hour ago}")):
        done = repo.run("envlog", *words, env=env)
        assert "unexpected" not in done.err
        assert done.status == (4 if "ago" in words[-1] else 0), done.err


@pytest.mark.parametrize("content", ["", "xyz\n"])
def test_a_damaged_timeline_is_not_called_an_empty_one(repo: Repo, content: str) -> None:
    first = capture(repo, "one")
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    (repo.path / ".git" / ref).write_text(content)

    for words in (("envlog",), ("envlog", "show"), ("envdiff",), ("envrestore", "@")):
        listed = repo.run(*words)
        assert listed.status == 128
        assert "git envlog fsck --repair" in listed.err
    more = repo.run("envlog", "capture", "two")
    assert more.status == 128
    assert "git envlog fsck" in more.err
    repo.run("envlog", "fsck", "--repair", check=True)
    assert repo.run("envlog", "--format=%H", check=True).out.split() == [first]


def test_the_users_own_dates_do_not_end_a_history(repo: Repo) -> None:
    capture(repo, "one")
    repo.git("config", "log.date", "nonsense")
    assert repo.run("envdiff", "@").status == 0
    assert repo.run("envrestore", "-n", "@").status == 0


@pytest.mark.parametrize("words", [("envdiff", "@~1"), ("envlog", "capture", "x"), ("envrestore", "@~1")])
def test_too_few_files_are_told_as_that(repo: Repo, words: tuple[str, ...]) -> None:
    capture(repo, "one")
    repo.write("f", "1")
    capture(repo, "two")
    before = Path(repo.path / "f").read_bytes()
    limited = ("sh", "-c", 'ulimit -n 12; exec "$@"', "sh")
    done = repo.run(words[0], *words[1:], prefix=limited)
    assert done.status == 128
    assert "too many open files" in done.err.lower()
    assert "ulimit -n" in done.err
    assert (repo.path / "f").read_bytes() == before


def test_a_file_in_the_place_of_our_directory_is_named(repo: Repo) -> None:
    capture(repo, "one")
    shutil.rmtree(repo.path / ".git/envhist")
    (repo.path / ".git/envhist").write_text("")
    done = repo.run("envlog")
    assert done.status == 128
    assert os.path.join(".git", "envhist") in done.err
    assert "unexpected" not in done.err
