"""Symbols or ASCII letters by character set; times by --date and log.date."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_envhist.cli.formats import date_style
from git_envhist.cli.terminal import shows_symbols
from tests.cli.test_terminal_session import on_terminal
from tests.support.repository import Repo
from tests.support.template import start_from


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({}, True),
        ({"LANG": "en_GB.UTF-8"}, True),
        ({"LC_ALL": "C.utf8"}, True),
        ({"LANG": "de_DE.UTF-8@euro"}, True),
        ({"LC_CTYPE": "ja_JP.UTF-8", "LANG": "C"}, True),
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_GB.UTF-8"}, False),
        ({"LANG": "de_DE"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        # Python sets the second variable in this case.
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, True),
    ],
)
def test_symbols_depend_on_the_character_set(environ: dict[str, str], shown: bool) -> None:
    assert shows_symbols(environ, terminal=False) is shown
    assert not shows_symbols({**environ, "TERM": "dumb"}, terminal=True)


@pytest.fixture
def told(repo: Repo) -> Repo:
    """Return a repository with two snapshots, one that passed its check and one that failed it."""
    start_from(repo, take_two_snapshots)
    return repo


def take_two_snapshots(repo: Repo) -> None:
    repo.run("envlog", "capture", "first · of → all", "--verify", "true", check=True)
    repo.write("gone.txt", "1\n")
    repo.run("envlog", "capture", "second", "--verify", "false", check=True)
    (repo.path / "gone.txt").unlink()


def test_ascii_letters_replace_symbols_without_moving_columns(told: Repo) -> None:
    plain, fancy = (told.run("envlog", env={"LC_ALL": words}).out for words in ("C", "C.UTF-8"))
    assert plain.isascii()
    assert [line[16:18] for line in plain.splitlines()] == ["x ", "v "]
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in fancy.splitlines()]
    diff = told.run("envdiff", env={"LC_ALL": "C"}).out
    assert diff == "files     - gone.txt\n"
    dry = told.run("envrestore", "-n", "@", env={"LC_ALL": "C"}).out
    assert "write 1 - unchanged 1" in dry


def test_output_for_programs_keeps_symbols(told: Repo) -> None:
    env = {"LC_ALL": "C"}
    assert "first · of → all" in told.run("envlog", "--json", env=env).out
    assert told.run("envlog", "--format=%s", "--reverse", env=env).out.startswith("first · of → all\n")
    told.write("notes", "a → b\n")
    told.run("envlog", "capture", "x", check=True)
    assert told.run("envlog", "show", "@", "--", "notes", env=env).out == "a → b\n"
    assert "+a → b" in told.run("envdiff", "-p", "@~1..@", env=env).out


def test_dumb_terminal_gets_ascii_letters(told: Repo) -> None:
    shown, _ = on_terminal(told, "git-envlog", "-P", env={"TERM": "dumb"})
    assert shown.isascii()
    shown, _ = on_terminal(told, "git-envlog", "-P", "--no-color")
    assert "✗ second" in shown


def test_date_style_is_chosen_as_git_chooses_it() -> None:
    assert date_style(None, None, terminal=True) is None
    assert date_style(None, "iso", terminal=False) == "iso"
    assert date_style("short", "iso", terminal=False) == "short"
    assert date_style(None, "auto:human", terminal=True) == "human"
    assert date_style(None, "auto:human", terminal=False) is None


def test_log_date_is_the_style_without_an_option(repo: Repo) -> None:
    repo.env["GIT_COMMITTER_DATE"] = "2026-11-18T10:27:03+00:00"
    repo.run("envlog", "capture", "x", check=True)
    repo.git("config", "log.date", "iso")
    assert "  2026-11-18 10:27:03 +0000  · x" in repo.run("envlog", check=True).out
    assert "  2026-11-18  · x" in repo.run("envlog", "--date=short", check=True).out
    assert "Date:      2026-11-18 10:27:03 +0000\n" in repo.run("envlog", "show", check=True).out
    assert repo.run("envlog", "--format=%ad", check=True).out == "2026-11-18 10:27:03 +0000\n"
    repo.git("config", "log.date", "no-such-style")
    assert repo.run("envlog").status == 129


def test_a_graph_shows_forks_and_restores(repo: Repo, tmp_path: Path) -> None:
    for minute, words in enumerate(("clean", "better", "worse")):
        repo.env["GIT_COMMITTER_DATE"] = f"2026-11-18T10:0{minute}:03+00:00"
        repo.write("app.py", words)
        repo.run("envlog", "capture", words, check=True)
    repo.env["GIT_COMMITTER_DATE"] = "2026-11-18T10:05:03+00:00"
    repo.run("envrestore", "@~1", check=True)
    repo.env["GIT_COMMITTER_DATE"] = "2026-11-18T10:06:03+00:00"
    repo.run("envlog", "fork", str(tmp_path / "fork"), ":/clean", check=True)
    drawn = repo.run("envlog", "--graph", "--format=%s", check=True).out
    ids = dict(line.split(" ", 1)[::-1] for line in repo.run("envlog", "--format=%h %s").out.splitlines())
    assert drawn.replace(ids["better"], "<b>").replace(ids["clean"], "<a>") == (
        "* forked from <a>\n| * restore of <b>\n| | * before the restore of <b>\n| | * worse\n| |/\n"
        "| * better\n|/\n* clean\n"
    )
    assert repo.run("envlog", "--graph", "-1", "--oneline").out.startswith("* ")
    assert repo.run("envlog", "--graph", "--reverse").status == 129
    assert repo.run("envlog", "--graph", "--stat").status == 129
    assert len(repo.run("envlog", "--graph", "--full", "-1").out.splitlines()) > 5
    shown, _ = on_terminal(repo, "git-envlog", "-P", "--graph", "--no-color", columns=70)
    assert max(map(len, shown.splitlines())) <= 70
