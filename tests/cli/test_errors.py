"""Common failures, one by one: the status, the line, the hint, and the same as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.repository import Repo
from tests.support.template import start_from


class Case(NamedTuple):
    """The typed words, and the expected failure."""

    words: tuple[str, ...]
    status: int
    code: str
    says: str
    hint: str
    before: Callable[[Repo], object] = lambda repo: None


def _break_key(repo: Repo) -> None:
    (repo.path / "key").write_text("no key\n")


def _elsewhere(repo: Repo) -> None:
    os.mkdir(repo.path.parent / "bare")


def _broken_off(repo: Repo) -> None:
    place = repo.path / ".git" / "envhist" / "restore"
    place.mkdir(parents=True, exist_ok=True)
    (place / "journal").write_text("")


def _opened(repo: Repo) -> None:
    repo.write("gone", "1\n")
    repo.run("envlog", "capture", "--name", "early", check=True)
    (repo.path / "gone").unlink()
    repo.run("envlog", "capture", "--name", "late", check=True)


CASES = {
    "option": Case(("envlog", "--bogus"), 129, "usage", "no such option: '--bogus'", "git envlog -h' lists"),
    "subcommand": Case(("envhist", "captrue"), 129, "usage", "no such subcommand: 'captrue'", "did you mean"),
    "excluding": Case(("envlog", "--stat", "-p"), 129, "usage", "exclude each other", "-h lists the options"),
    "operand": Case(
        ("envlog", "capture", "a", "b"), 129, "usage", "unexpected argument: 'b'", "quote several words: git envlog",
    ),
    "word": Case(("envlog", "redo", "1", "x"), 129, "usage", "unexpected argument: 'x'", "usage: git envlog redo"),
    "number": Case(("envlog", "-n", "x"), 129, "usage", "", "-n <n>: list at most <n>"),
    "date": Case(
        ("envlog", "--date=odd"), 129, "usage", "unknown date format 'odd'", "one of: default", _opened,
    ),
    "template": Case(("envlog", "--format=%q"), 129, "usage", "unknown placeholder '%q'", "known: %H"),
    "pattern": Case(
        ("envlog", "--grep=("), 129, "usage", "not a pattern: '('", "regular expression", _opened,
    ),
    "time": Case(("envlog", "--since=someday"), 129, "usage", "'someday'", "a time is one of", _opened),
    "braces": Case(
        ("envrestore", "@{25:99}"), 4, "no-such-snapshot", "no snapshot matches '@{25:99}': '25:99' is not a time",
        "a time is one of", _opened,
    ),
    "colon in braces": Case(
        ("envlog", "show", "@{25:99}"), 4, "no-such-snapshot", "'25:99' is not a time", "a time is one of", _opened,
    ),
    "range from no time": Case(
        ("envlog", "@{25:99}.."), 4, "no-such-snapshot", "'25:99' is not a time", "a time is one of", _opened,
    ),
    "attachment": Case(
        ("envlog", "capture", "--attach", "nowhere", "x"), 128, "failed", "cannot attach 'nowhere': no such file",
        "name a file that exists",
    ),
    "attached directory": Case(
        ("envlog", "capture", "--attach", ".", "x"), 128, "failed", "cannot attach '.': is a directory", "tar -cf",
    ),
    "task number": Case(("envlog", "task", "start"), 129, "usage", "no task number given", "task start <number>"),
    "task text": Case(("envlog", "task", "add"), 129, "usage", "no text given", "task add <text>"),
    "key action": Case(("envlog", "key", "list"), 129, "usage", "no such action: 'list'", "use one of: show, new"),
    "second task text": Case(
        ("envlog", "task", "add", "a b", "c d"), 129, "usage", "unexpected argument: 'c d'", "task add <text>",
    ),
    "name to remove": Case(
        ("envlog", "name", "-d", "nope"), 4, "no-such-snapshot", "'nope'", "git envlog name", _opened,
    ),
    "dropped": Case(
        ("envlog", "undrop", "@"), 4, "not-in-trash", "no dropped snapshot matches '@'", "was not dropped", _opened,
    ),
    "export to a missing directory": Case(
        ("envlog", "export", "../none/x/y", "@"), 128, "failed", "none' does not exist", "create it", _opened,
    ),
    "similarity": Case(("envdiff", "-Mx"), 129, "usage", "not a percentage: 'x'", "-M90%"),
    "class": Case(
        ("envrestore", "--only=odd", "@"), 129, "usage", "unknown class of paths", "use one of: packages", _opened,
    ),
    "steps": Case(("envrestore", "--undo", "x"), 129, "usage", "not a number of steps: 'x'", "--undo 2"),
    "range": Case(("envlog", "a...b"), 129, "usage", "not a range", "the two ends: a..b", _opened),
    "no check": Case(("envlog", "verify"), 129, "no-check", "", "", _opened),
    "name": Case(
        ("envlog", "name", "good"), 3, "refused", "not usable as a name: 'good'", "before-refactor", _opened,
    ),
    "snapshot": Case(
        ("envlog", "show", "nope"), 4, "no-such-snapshot", "no snapshot matches 'nope'", "", _opened,
    ),
    "near": Case(("envdiff", "earyl"), 4, "no-such-snapshot", "'earyl'", "did you mean 'early'?", _opened),
    "intent": Case(
        ("envrestore", "why so"), 4, "no-such-snapshot", "'why so'", "':/why so'",
        lambda repo: repo.run("envlog", "capture", "why so", check=True),
    ),
    "path that is gone": Case(
        ("envrestore", "gone"), 4, "no-such-snapshot", "'gone'", "git envrestore @ -- gone",
        lambda repo: (repo.write("gone"), repo.run("envlog", "capture", check=True), (repo.path / "gone").unlink()),
    ),
    "newest": Case(("envrestore", "latest"), 4, "no-such-snapshot", "'latest'", "the newest is '@'", _opened),
    "empty": Case(("envrestore", "@"), 4, "no-such-snapshot", "nothing was captured here yet", "git envlog capture"),
    "path": Case(
        ("envrestore", "early", "--", "nowhere"), 4, "no-such-path", "'nowhere'", "git envdiff", _opened,
    ),
    "file": Case(("envlog", "show", "late", "--", "gone"), 4, "no-such-snapshot", "'gone'", "", _opened),
    "file of now": Case(
        ("envlog", "show", "now", "--", "gone"), 4, "no-such-snapshot", "'gone'", "no such file", _opened,
    ),
    "undo": Case(("envrestore", "--undo"), 4, "nothing-to-undo", "", ""),
    "redo": Case(
        ("envrestore", "--redo"), 4, "nothing-to-undo", "nothing to redo", "git envlog --graph", _opened,
    ),
    "directory": Case(
        ("envlog", "-C", "nowhere"), 128, "no-such-directory", "'nowhere'", "-C takes an existing directory",
    ),
    "repository": Case(
        ("envlog", "-C", "../bare"), 128, "not-a-repository", "not a git repository", "git init", _elsewhere,
    ),
    "key": Case(
        ("envlog", "key", "import", "key"), 128, "sealing", "not an exported key", "git envlog key", _break_key,
    ),
    "no key": Case(
        ("envlog", "key", "import", "nowhere"), 128, "cannot-read", "cannot read 'nowhere'", "key import",
    ),
    "remote": Case(("envlog", "push", "nowhere"), 128, "no-remote", "'nowhere'", "", _opened),
    "broken off": Case(
        ("envlog", "capture"), 128, "restore-left", "a restore was interrupted", "--continue", _broken_off,
    ),
    "bisect": Case(("envlog", "bisect", "--", "true"), 4, "no-such-snapshot", "'good'", "to check one", _opened),
    "agent": Case(
        ("envlog", "install", "--agent", "odd"), 129, "usage", "unknown agent: ", "known agents: antigravity",
    ),
}  # fmt: skip


def prepare(repo: Repo, case: Case) -> None:
    """Put a repository into the initial state of the case."""
    if case.before is _opened:
        start_from(repo, _opened)
    else:
        case.before(repo)


@pytest.mark.parametrize("name", CASES)
def test_error_has_a_message_and_a_hint(repo: Repo, name: str) -> None:
    case = CASES[name]
    prepare(repo, case)
    done = repo.run(*case.words)
    assert (done.status, done.out) == (case.status, "")
    told, hinted = done.err.split("\nhint: ")
    assert told.startswith("error: ")
    assert case.says in told
    assert case.hint in hinted
    assert "Traceback" not in done.err
    assert hinted.count("\n") == 1


@pytest.mark.parametrize("words", [("envlog",), ("envdiff",), ("envrestore", "good"), ("envlog", "init")])
def test_wrong_git_dir_is_named(repo: Repo, words: tuple[str, ...]) -> None:
    done = repo.run(*words, env={"GIT_DIR": "/no/such/place"})
    assert (done.status, done.out) == (128, "")
    assert done.err == (
        "error: GIT_DIR names no git repository: '/no/such/place'\n"
        "hint: unset GIT_DIR, or set it to the '.git' directory of a repository\n"
    )


# A file's bytes are no JSON, and in JSON times have one style.
NO_JSON = ("date", "file", "file of now")


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_JSON])
def test_error_as_json_has_code_message_and_hint(repo: Repo, name: str) -> None:
    case = CASES[name]
    prepare(repo, case)
    program, *words = case.words
    done = repo.run(program, "--json", *words)
    error = json.loads(done.out)["error"]
    assert (done.status, error["status"], error["code"]) == (case.status, case.status, case.code)
    assert error["hint"]
    assert done.err == ""


def test_unwritable_report_does_not_hide_the_error(repo: Repo, hermetic: Path) -> None:
    broken = repo.path / "broken"
    broken.mkdir()
    (broken / "click.py").write_text("raise ValueError('boom')\n")
    (hermetic / "state").write_text("no directory\n")
    done = repo.run("envlog", "-h", env={"PYTHONPATH": str(broken)})
    assert done.status == 128
    assert done.err.splitlines()[1] == "hint: run it with GIT_ENVHIST_TRACE=1 to see where"
