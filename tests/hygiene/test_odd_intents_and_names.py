"""Intents with any bytes and similar file names are stored unchanged and printed safely."""

from __future__ import annotations

import os

import pytest

from tests.end_to_end.captures import assert_holds, capture, history, tip
from tests.support.repository import Repo

INTENTS = {
    "a pipe": b"a | b || c",
    "newlines": b"first\n\nsecond\n\n\nthird",
    "a leading dash": b"--amend -m x",
    "invalid UTF-8": b"caf\xe9 \xff\xfe end",
    "escapes": b"red \x1b[31m and \x1b]0;title\x07 \x9b31m \r gone",
    "right to left": "a \u202e b".encode(),
    "a trailer": b"subject\n\nEnv-Format: 99\nEnv-Complete: no",
    "100 KB": b"word " * 20_000,
    "one long line": b"x" * 100_000,
    "a comment": b"# not a comment\n; nor this",
    "quotes": b"\"'`$(touch RAN)\\",
    "a revision": b"@~1",
}


@pytest.mark.parametrize("kind", INTENTS)
def test_intent_is_stored_unchanged_and_printed_safely(repo: Repo, kind: str) -> None:
    intent = INTENTS[kind]
    snapshot = capture(repo, b"--message=" + intent)
    raw = repo.run_git("cat-file", "commit", snapshot).stdout
    message = raw.partition(b"\n\n")[2]
    assert message.startswith(intent + b"\n\nEnv-Format: 1\n")
    for words in (("--oneline",), (), ("show",), ("--format=%s",)):
        out = repo.run("envlog", *words, check=True).stdout
        assert not {0x1B, 0x07, 0x0D, 0x9B}.intersection(out.replace(b"\xc2\x9b", b"\x9b"))
        assert "\u202e" not in out.decode()
    lines = repo.run("envlog", "--oneline", check=True).out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(snapshot[:7])
    assert not list(repo.path.rglob("RAN"))


def test_names_that_differ_in_case_or_unicode_form_are_captured_separately(repo: Repo) -> None:
    names = ["Makefile", "makefile", "MAKEFILE", "\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a"]
    for name in names:
        repo.write(name, name.encode())
        repo.write(f"dir/{name}/{name}", name.encode())
    if len(os.listdir(repo.path / "dir")) != len(names):
        pytest.skip("this file system treats some of these names as equal")
    repo.git("config", "core.ignoreCase", "true")
    repo.git("config", "core.precomposeUnicode", "true")
    snapshot = capture(repo)
    assert_holds(repo, snapshot)
    for name in names:
        assert repo.git("show", f"{snapshot}:dir/{name}/{name}") == name
        assert repo.run("envlog", "show", "@", "--", f"dir/{name}/{name}", check=True).stdout == name.encode()


def test_history_is_found_through_a_link_and_after_a_move(repo: Repo) -> None:
    first = capture(repo, "here")
    link = repo.path.parent / "link"
    link.symlink_to(repo.path)
    through = Repo(link, {**repo.env, "PWD": str(link)})
    second = capture(through, "through a link")
    moved = Repo(repo.path.parent / "moved elsewhere", repo.env)
    repo.path.rename(moved.path)
    third = capture(moved, "after the move")
    assert history(moved) == [third, second, first]
    (moved.path / "sub").mkdir()
    inside = moved.run("envlog", "--format=%s", cwd="sub", check=True).out.splitlines()
    assert inside == ["after the move", "through a link", "here"]
    assert len(moved.git("for-each-ref", "refs/envhist/heads").splitlines()) == 1
    assert tip(moved) == third
