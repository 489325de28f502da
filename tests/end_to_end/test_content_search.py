"""`git envlog -S` and `-G`: the snapshots that changed a text in files, as git's own log finds commits."""

from __future__ import annotations

import pytest

from tests.end_to_end.captures import capture
from tests.support.repository import Repo


@pytest.fixture
def searched(repo: Repo) -> Repo:
    repo.write("app.py", "print('hello')\n")
    capture(repo, "first")
    repo.write("lib/flask.txt", "flask 3.0.1\nflask 3.0.1\n")
    capture(repo, "flask came")
    repo.write("lib/flask.txt", "flask 3.0.1\nflask 3.0.2\n")
    capture(repo, "flask changed")
    repo.write(".env", "FLASK=flask-secret\n")
    capture(repo, "sealed")
    (repo.path / "lib/flask.txt").unlink()
    capture(repo, "flask went")
    return repo


def found(repo: Repo, *words: str, paths: tuple[str, ...] = ()) -> list[str]:
    return repo.run("envlog", *words, "--format=%s", "--", *paths, check=True).out.splitlines()


def test_text_search_finds_where_a_text_was_added_and_removed(searched: Repo) -> None:
    assert found(searched, "-S", "flask") == ["flask went", "flask came"]
    assert found(searched, "-Shello") == ["first"]
    assert found(searched, "-S", "FLASK", "-i") == ["flask went", "flask came"]
    assert found(searched, "-S", "flask", paths=("app.py",)) == []
    assert found(searched, "-S", "flask", "-1", paths=("lib",)) == ["flask went"]


def test_pattern_search_finds_changed_lines(searched: Repo) -> None:
    assert found(searched, "-G", r"^flask 3\.0\.[2-9]") == ["flask went", "flask changed"]
    assert found(searched, "--find", "FLASK") == ["sealed"]


def test_content_search_reads_no_summary_and_no_manifest(searched: Repo) -> None:
    assert found(searched, "-S", "flask.txt") == []
    assert found(searched, "-S", "flask-secret") == []


def test_wrong_search_is_a_usage_error(searched: Repo) -> None:
    assert searched.run("envlog", "-S", "a", "-G", "b").status == 129
    wrong = searched.run("envlog", "-G", "(")
    assert (wrong.status, wrong.err.splitlines()[0]) == (129, "error: not a pattern: '('")
    assert searched.run("envlog", "-S", "").status == 129
