"""No command prints a control character from a record, a name, a file or a server, in a pipe or on a terminal."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_terminal_session import on_terminal
from tests.secrets.hostile import COMMANDS, EVERYTHING, Hostile, make_hostile
from tests.secrets.test_hostile_text import MISTAKES, QUESTIONS, assert_harmless, words_of
from tests.support.repository import Result, make_repo

MORE_QUESTIONS = [
    ("envrestore", "-n", "@"),
    ("envrestore", "-n", "--allow-unsigned", "@"),
    ("envrestore", "-n", "@~2"),
    ("envrestore", "-n", "--json", "@~2"),
    ("envrestore", "--to", "/nowhere/else", "-n", "@"),
    ("envrestore", "--to", "x", "-n", "@~1", "--", "."),
    ("envlog", "show", "HEAD"),
    ("envlog", "-z"),
    ("envlog", "--format=%(verdict)|%(story)|%(title)|%(name)|%(trigger)|%B|%an"),
    ("envlog", "-z", "--format=%(verdict)|%(title)"),
    ("envlog", "--graph", "--all"),
    ("envlog", "--html", "-"),
    ("envlog", "recent"),
    ("envlog", "recent", "--json"),
    ("envlog", "verify", "--list"),
    ("envlog", "verify", "@", "true"),
    ("envlog", "bisect", "@~2", "@"),
    ("envlog", "undo", "-n"),
    ("envlog", "redo", "-n"),
    ("envlog", "task"),
    ("envlog", "task", "list"),
    ("envlog", "resume"),
    ("envlog", "resume", "-n"),
    ("envlog", "observe"),
    ("envlog", "fork", "-n", "../fork", "@"),
    ("envlog", "fork", "../fork", "@"),
    ("envlog", "push", "-n"),
    ("envlog", "push", "-n", EVERYTHING),
    ("envlog", "fetch", EVERYTHING),
    ("envlog", "export", "-n", "-"),
    ("envlog", "import", EVERYTHING),
    ("envlog", "gc", "-n"),
    ("envlog", "drop", "-n", "@"),
    ("envlog", "drop", "-n", "@~1"),
    ("envlog", "undrop"),
    ("envlog", "prune", "-n"),
    ("envlog", "prune", "-n", "--keep-last=1"),
    ("envlog", "du"),
    ("envlog", "du", "--json"),
    ("envlog", "fsck"),
    ("envlog", "purge", "-n", "--", EVERYTHING),
    ("envlog", "purge", "-n", "--", "."),
    ("envlog", "install", "-n"),
    ("envlog", "uninstall", "-n"),
    ("envlog", "status"),
    ("envlog", "status", "--json"),
    ("envlog", "key"),
    ("envlog", "help", EVERYTHING),
    ("envhist", "complete", "revisions"),
    ("envhist", "complete", "names"),
    ("envhist", "complete", "timelines"),
    ("envhist", "workbench", "checkpoint", "list"),
    ("envhist", "workbench", "checkpoint", "info", EVERYTHING),
    ("envhist", "workbench", "restore", EVERYTHING),
]
"""Commands that may end with any status."""

PROGRESS = re.compile(r"\r\x1b\[K|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r")
"""Terminal sequences of progress lines, which are allowed."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, sealed_session: None) -> Hostile:
    return make_hostile(make_repo(tmp_path_factory.mktemp("printed") / "repo"))


@pytest.mark.parametrize("question", MORE_QUESTIONS, ids=words_of)
def test_command_prints_no_control_character_in_a_pipe(
    hostile: Hostile, question: tuple[str | bytes, ...]
) -> None:
    program, *words = question
    done = hostile.repo.run(str(program), *words)
    ends = Result(0, done.stdout.replace(b"\0", b""), done.stderr) if "-z" in question else done
    assert_harmless(ends)
    assert b"Traceback" not in done.stderr
    assert b"unexpected failure" not in done.stderr


ON_A_TERMINAL = [*QUESTIONS, *MORE_QUESTIONS, *MISTAKES]


@pytest.mark.parametrize("question", ON_A_TERMINAL, ids=words_of)
def test_command_prints_no_control_character_on_a_terminal(
    hostile: Hostile, question: tuple[str | bytes, ...]
) -> None:
    words = [os.fsdecode(word) for word in question]
    shown, _ = on_terminal(hostile.repo, f"git-{words[0]}", *words[1:], env={"GIT_PAGER": "cat"})
    told = PROGRESS.sub("", shown)
    ends = told.replace("\0", "") if "-z" in question else told
    assert_harmless(Result(0, ends.encode(), b""), colour=True)


def test_unsigned_verdict_is_escaped_in_a_template(hostile: Hostile) -> None:
    """The author's name was printed unescaped before: OSC 52 writes to the clipboard."""
    done = hostile.repo.run("envlog", "-1", "--format=%(verdict)", hostile.forged, check=True)
    assert "\\x1b]52;c;cm0gLXJmIH4=\\x07" in done.out


def test_template_is_printed_exactly_as_typed(hostile: Hostile) -> None:
    done = hostile.repo.run("envlog", "-1", "-z", "--format=%x1b[1m%h%x00\x1b[m", hostile.own[0], check=True)
    assert done.stdout == b"\x1b[1m" + hostile.own[0][:7].encode() + b"\0\x1b[m\0"


def test_content_of_a_file_is_exact_in_a_pipe_and_escaped_on_a_terminal(hostile: Hostile) -> None:
    place = b"d0 " + COMMANDS["clear"] + b"/f"
    words = ("show", "@~1", "--", os.fsdecode(place))
    assert hostile.repo.run("envlog", *words, check=True).stdout == COMMANDS["clear"]
    shown, _ = on_terminal(hostile.repo, "git-envlog", *words, env={"GIT_PAGER": "cat"})
    assert shown == "\\x1b[2J\\x1b[H"


def test_message_of_a_server_is_escaped(hostile: Hostile, tmp_path: Path) -> None:
    script = tmp_path / "server"
    line = b"ERR " + COMMANDS["clipboard"] + COMMANDS["title"] + b"\n"
    packet = b"%04x" % (len(line) + 4) + line
    octal = "".join(f"\\{byte:03o}" for byte in packet)
    script.write_text(f"#!/bin/sh\nprintf '{octal}'\nprintf '\\033]52;c;eA==\\007\\033[2J' >&2\nexit 1\n")
    script.chmod(0o755)
    repo = hostile.repo
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "remote.git"], check=True)
    repo.git("config", "remote.evil.url", str(tmp_path / "remote.git"))
    repo.git("config", "remote.evil.uploadpack", str(script))
    repo.git("config", "remote.evil.receivepack", str(script))
    for words in (("fetch", "evil"), ("push", "--yes", "evil"), ("push", "-n", "evil"), ("status",)):
        done = repo.run("envlog", *words)
        assert_harmless(done)
        shown, _ = on_terminal(repo, "git-envlog", *words)
        told = PROGRESS.sub("", shown)
        assert_harmless(Result(0, told.encode(), b""), colour=True)
