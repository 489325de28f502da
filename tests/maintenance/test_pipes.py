"""A pipe with the name of a file that is read: no command waits for its other end."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.end_to_end.captures import capture
from tests.support.repository import Repo

SECONDS = 30
COMMANDS = {
    "capture": ("git-envlog", "capture"),
    "diff": ("git-envdiff", "@~1", "@"),
    "gc": ("git-envlog", "gc"),
    "purge": ("git-envlog", "purge", "data"),
    "drop": ("git-envlog", "drop", "@~1"),
    "du": ("git-envlog", "du"),
    "restore": ("git-envrestore", "@~1"),
    "fork": ("git-envlog", "fork", "../forked"),
    "export": ("git-envlog", "export", "../exported"),
}
TREE = (
    ".gitattributes",
    "directory/.gitattributes",
    ".gitignore",
    ".envhistignore",
    ".gitmodules",
    ".mailmap",
)
STATE = ("timeline", "packs.json", "fork", "hooks/pending", "rewritten", "left-behind", "staging/turn")


@pytest.fixture
def captured_repo(repo: Repo) -> Repo:
    for version in b"123":
        repo.write("data", bytes([version]) * 2000)
        repo.write("directory/file", bytes([version]) * 3000)
        capture(repo, f"version {version}")
    return repo


def put_pipe(repo: Repo, name: str) -> None:
    path = repo.path / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def finishes(repo: Repo, words: tuple[str, ...]) -> str | None:
    """Return a command's errors, or None if it blocks."""
    try:
        done = subprocess.run(words, cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=SECONDS, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return done.stderr.decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_command_ends_when_every_file_of_git_in_the_tree_is_a_pipe(captured_repo: Repo, command: str) -> None:
    for name in TREE:
        put_pipe(captured_repo, name)
    said = finishes(captured_repo, COMMANDS[command])
    assert said is not None
    assert "unexpected failure" not in said


@pytest.mark.parametrize("name", ["config", "HEAD", "index", "info/exclude"])
def test_command_names_the_pipe_when_every_git_would_wait_for_it(captured_repo: Repo, name: str) -> None:
    put_pipe(captured_repo, f".git/{name}")
    for words in (COMMANDS["capture"], COMMANDS["gc"], ("git-envlog",)):
        said = finishes(captured_repo, words)
        assert said is not None, words
        assert said.startswith("error: git would wait for ever: "), said
        assert f"/.git/{name}' is a pipe" in said


@pytest.mark.full
@pytest.mark.parametrize("name", STATE)
def test_commands_end_when_a_file_of_the_state_is_a_pipe(captured_repo: Repo, name: str) -> None:
    put_pipe(captured_repo, f".git/envhist/{name}")
    for words in (COMMANDS["capture"], COMMANDS["gc"], ("git-envlog",), ("git-envlog", "status")):
        said = finishes(captured_repo, words)
        assert said is not None, words
        assert "unexpected failure" not in said
