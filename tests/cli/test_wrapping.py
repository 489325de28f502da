"""Lines that are too long for a terminal are broken between words; paths, ids and commands are not broken."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from git_envhist.cli.terminal import mark_colour, wrapped
from tests.support.repository import Repo

RED, RESET = mark_colour("\x1b[31m"), mark_colour("\x1b[m")


@pytest.mark.parametrize(
    ("line", "columns", "lines"),
    [
        ("short", 20, ["short"]),
        ("one two three four", 10, ["one two", "  three", "  four"]),
        ("  one two three", 9, ["  one two", "  three"]),
        ("hint: the words go on here", 20, ["hint: the words go", "      on here"]),
        ("Label:    some words that go on", 26, ["Label:    some words that", "          go on"]),
        ("1234567  10:18  a reason that goes on", 40, ["1234567  10:18  a reason that goes on"]),
        ("1234567  10:18  a reason that goes on", 34, ["1234567  10:18  a reason that goes", "                on"]),
        ("in '/a path/with spaces' it is", 12, ["in", "  '/a path/with spaces'", "  it is"]),
        ("     12 B  /a/path/that/is/as/long", 28, ["     12 B  /a/path/that/is/as/long"]),
        ("go there: git envrestore @; or not", 20, ["go there:", "  git envrestore @;", "  or not"]),
        ("データ ベース の", 8, ["データ", "  ベース", "  の"]),
        (f"a {RED}red one{RESET} b", 6, [f"a {RED}red{RESET}", f"  {RED}one{RESET}", "  b"]),
    ],
    # The mark of colours differs between processes.
    ids=range(12),
)  # fmt: skip
def test_lines_break_between_words(line: str, columns: int, lines: list[str]) -> None:
    assert wrapped(line, columns) == lines


def test_error_is_one_line_in_a_pipe_and_wrapped_on_a_terminal(repo: Repo) -> None:
    words = ("git-envlog", "show", "a-name-that-nobody-ever-gave")
    assert len(repo.run(*words).err.splitlines()) == 2
    ours, theirs = pty.openpty()
    env = {**repo.env, "COLUMNS": "30"}
    subprocess.run(words, cwd=repo.path, env=env, stdin=theirs, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    said = os.read(ours, 4096).decode().replace("\r\n", "\n")
    os.close(ours)
    assert said.splitlines()[:2] == ["error: no snapshot matches", "       'a-name-that-nobody-ever-gave'"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_stream_is_never_reused_for_a_file(repo: Repo, closed: str) -> None:
    repo.write("new", closed)
    done = repo.execute("sh", "-c", f"git-envlog capture -m closed {closed}", check=False)
    assert (done.status, "Traceback" in done.err) == (0, False)
    assert repo.run("envlog", "fsck").status == 0
    assert repo.run("envlog", "-1", "--format=%s", check=True).out == "closed\n"
