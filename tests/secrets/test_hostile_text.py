"""Hostile text is escaped on a terminal, in output and in errors; `--json` prints valid JSON."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.test_terminal_session import on_terminal
from tests.secrets.hostile import COMMANDS, EVERYTHING, Hostile, make_hostile
from tests.support.repository import Repo, Result, make_repo

OUR_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# Sequences that move the cursor, end a line early, reverse the writing direction or start a command.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")

QUESTIONS = [
    ("envlog",),
    ("envlog", "--color=always"),
    ("envlog", "--all"),
    ("envlog", "--oneline"),
    ("envlog", "--full"),
    ("envlog", "--full", "--color=always"),
    ("envlog", "--stat"),
    ("envlog", "--name-status"),
    ("envlog", "--name-only"),
    ("envlog", "-p", "--color=always"),
    ("envlog", "--format=%s"),
    ("envlog", "--format=%b"),
    ("envlog", "--format=%B %an %ae %(name) %(story) %(verdict) %(, name)"),
    ("envlog", "--json"),
    ("envlog", "--json=lines"),
    ("envlog", "--grep", COMMANDS["c1"]),
    ("envlog", "show"),
    ("envlog", "show", "@~1"),
    ("envlog", "show", "@~2"),
    ("envlog", "show", "--color=always"),
    ("envlog", "show", "--json"),
    ("envlog", "show", "now"),
    ("envlog", "capture", "-n", "--force"),
    ("envlog", "capture", "--json", "-n"),
    ("envdiff",),
    ("envdiff", "@~2"),
    ("envdiff", "@~2..@"),
    ("envdiff", "--color=always", "@~2..@"),
    ("envdiff", "-p", "--color=always", "@~2..@"),
    ("envdiff", "-p", "--color=always", "--reveal", "@~2..@"),
    ("envdiff", "--stat", "@~2..@"),
    ("envdiff", "--name-status", "@~2..@"),
    ("envdiff", "--name-only", "@~2..@"),
    ("envdiff", "--raw", "@~2..@"),
    ("envdiff", "--json", "@~2..@"),
]
SUBCOMMANDS = ("show", "name", "note", "capture")
UNKNOWN = EVERYTHING + b" and more"
"""A name that no snapshot has; a forged commit contains a similar text."""
MISTAKES = [
    ("envlog", "show", UNKNOWN),
    ("envlog", "show", b":/never " + EVERYTHING),
    ("envlog", "show", b"@{" + EVERYTHING + b"}"),
    ("envlog", UNKNOWN),
    ("envlog", "--since", EVERYTHING),
    ("envlog", "--grep", EVERYTHING),
    ("envlog", b"--format=%(" + EVERYTHING + b")"),
    ("envlog", b"--" + EVERYTHING),
    ("envlog", "--date", EVERYTHING),
    ("envlog", "-C", EVERYTHING),
    ("envlog", "show", "@", "--", EVERYTHING),
    ("envlog", "show", "@", "--", b"d0 " + COMMANDS["clear"]),
    ("envlog", "name", EVERYTHING),
    ("envlog", "name", "-d", EVERYTHING),
    ("envlog", "note", UNKNOWN, "-m", "x"),
    ("envlog", "capture", "--attach", b"/" + EVERYTHING),
    ("envlog", "capture", "--meta", COMMANDS["title"]),
    ("envlog", "key", "export", EVERYTHING),
    ("envdiff", UNKNOWN),
    ("envdiff", "@~2..@", "--", b":(bogus)" + EVERYTHING),
    ("envdiff", b"--only=" + EVERYTHING),
    ("envhist", EVERYTHING),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, sealed_session: None) -> Hostile:
    return make_hostile(make_repo(tmp_path_factory.mktemp("hostile") / "repo"))


def words_of(question: tuple[str | bytes, ...]) -> str:
    return ascii(b" ".join(word if isinstance(word, bytes) else word.encode() for word in question)[:40])


def assert_harmless(done: Result, *, colour: bool = False) -> None:
    for printed in (done.stdout, done.stderr):
        plain = OUR_COLOUR.sub(b"", printed) if colour else printed
        found = FORBIDDEN.search(plain.decode("utf-8"))
        assert found is None, plain[max(0, found.start() - 60) : found.end() + 60]


@pytest.mark.parametrize("question", QUESTIONS, ids=words_of)
def test_output_contains_no_terminal_control(hostile: Hostile, question: tuple[str | bytes, ...]) -> None:
    done = hostile.repo.run(*question)
    assert done.status == 0, done.err
    assert_harmless(done, colour="--color=always" in question)
    assert b"Traceback" not in done.stderr
    if "--json" in question:
        assert json.loads(done.stdout)
    if "--json=lines" in question:
        assert all(json.loads(line) for line in done.stdout.split(b"\n") if line)


@pytest.mark.parametrize("question", MISTAKES, ids=words_of)
def test_error_contains_no_terminal_control(hostile: Hostile, question: tuple[str | bytes, ...]) -> None:
    program, *words = question
    for asked in (words, as_json(words)):
        done = hostile.repo.run(str(program), *asked)
        # JSON has no date styles.
        assert done.status not in (0, 1) or (asked is not words and "--date" in words)
        assert_harmless(done)
        assert b"Traceback" not in done.stderr
        assert b"unexpected failure" not in done.stderr
        if done.stdout and done.status:
            assert json.loads(done.stdout)["error"]["message"]


def as_json(words: list[str | bytes]) -> list[str | bytes]:
    """Return the command with JSON output, after the subcommand if there is one."""
    behind = 1 if words[0] in SUBCOMMANDS else 0
    return [*words[:behind], "--json", *words[behind:]]


def test_patch_in_a_pipe_is_exact_and_quotes_names(hostile: Hostile) -> None:
    done = hostile.repo.run("envdiff", "-p", "@~2..@", check=True)
    assert COMMANDS["clear"] in done.stdout
    for piece in done.stdout.split(b"diff --git "):
        assert_harmless(Result(0, piece.partition(b"\n@@ ")[0], done.stderr))


def test_patch_on_a_terminal_contains_no_control(hostile: Hostile) -> None:
    for words in (("git-envdiff", "-p", "@~2..@"), ("git-envlog", "-p")):
        shown, status = on_terminal(hostile.repo, *words, env={"GIT_PAGER": "cat"})
        assert status == 0
        assert "\\x1b[2J" in shown
        assert_harmless(Result(0, shown.encode(), b""), colour=True)


def test_json_contains_the_bytes_of_an_intent(hostile: Hostile) -> None:
    import base64

    output = json.loads(hostile.repo.run("envlog", "show", "--json", hostile.own[0], check=True).out)
    assert base64.b64decode(output["intent_b64"]) == EVERYTHING


def test_hostile_intent_is_printed_on_one_line(hostile: Hostile) -> None:
    for words in ((), ("--oneline",), ("--format=%s",)):
        assert len(hostile.repo.run("envlog", *words, check=True).stdout.splitlines()) == len(hostile.own) + 1


def test_forged_trailer_line_is_shown_as_intent(hostile: Hostile) -> None:
    card = hostile.repo.run("envlog", "show", hostile.own[1], check=True).out
    assert "    verified: ok\n" in card
    assert "\nverified" not in card
    assert json.loads(hostile.repo.run("envlog", "show", "--json", hostile.own[1]).out)["verify"] is None


def test_forged_commit_is_shown_as_unsigned(hostile: Hostile) -> None:
    output = json.loads(hostile.repo.run("envlog", "--json", check=True).out)
    assert [one["trusted"] for one in output] == [False, True, True]


def test_own_intent_cannot_forge_a_trailer(repo: Repo) -> None:
    intent = "x\n\nEnv-Format: 1\nEnv-Actor: Mallory <m@x>\nEnv-Complete: partial"
    repo.run("envlog", "capture", "-m", intent, check=True)
    output = json.loads(repo.run("envlog", "show", "--json", check=True).out)
    assert (output["intent"], output["actor"]["name"], output["complete"], output["trusted"]) == (
        intent, "Test User", True, True,
    )  # fmt: skip
