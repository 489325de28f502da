"""Following docs/guide/recovery.md restores every kind of file that it names."""

from __future__ import annotations

import os
import random
import shlex
import sys
from pathlib import Path

import pytest

from tests.rules.source import CHECKOUT
from tests.support.documents import Outcome, blocks, plain_environment, run_commands
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

PAGE = CHECKOUT / "docs" / "guide" / "recovery.md"
APP_TIME = 1_700_000_000_123_456_789
BIG = random.Random(5).randbytes(9 << 20)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repo, list[Outcome]]:
    """Capture a repository with every kind of file, and follow the whole page in it."""
    home = tmp_path_factory.mktemp("recovery")
    repo = make_repo(home / "work")
    repo.env["XDG_CONFIG_HOME"] = str(home / "config")
    repo.env["PYTHONPATH"] = str(CHECKOUT)
    # The page uses python3; the interpreter of the tests has the packages for unsealing.
    repo.env["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), repo.env["PATH"]))
    _fill(repo)
    repo.run("envlog", "capture", "-m", "the moment to come back to", check=True)
    return repo, run_commands(_commands(), repo.path, plain_environment(repo.env))


def _fill(repo: Repo) -> None:
    app = repo.write("config/app.toml", b"crlf = true\r\nname = 'demo'\n", mode=0o640)
    os.utime(app, ns=(APP_TIME, APP_TIME))
    repo.write(".gitattributes", b"* text=auto eol=crlf\n*.txt export-ignore\n")
    repo.write("kept.txt", b"not to be left out\n")
    repo.write(".env", b"API_KEY=hunter2\n")
    repo.write("big.bin", BIG)
    nested = make_repo(repo.path / "vendor" / "lib")
    nested.write("lib.py", b"1\n")


def _commands() -> list[str]:
    # Each block is one command: the preparation, the loss, and the last section.
    found = blocks(PAGE, "sh")
    disaster = (
        "git worktree remove --force ../then && "
        "git for-each-ref --format='delete %(refname)' refs/envhist refs/notes/envhist | git update-ref --stdin"
    )
    return [*found[:-1], disaster, found[-1]]


def _back(repo: Repo) -> Path:
    return repo.path.parent / "back"


def test_every_command_of_the_page_succeeds(followed: tuple[Repo, list[Outcome]]) -> None:
    assert not [outcome for outcome in followed[1] if outcome.status != 0 or "fatal:" in outcome.out]


def test_file_is_restored_with_its_bytes_mode_and_time(followed: tuple[Repo, list[Outcome]]) -> None:
    repo, _ = followed
    file = listing(_back(repo))[b"app.toml"]
    original = listing(repo.path)[b"config/app.toml"]
    assert (file.sha256, file.mode, file.mtime_ns) == (original.sha256, 0o640, APP_TIME)


def test_file_with_an_escaped_name_is_restored(followed: tuple[Repo, list[Outcome]]) -> None:
    repo, _ = followed
    assert (_back(repo) / "gitattributes").read_bytes() == repo.read(".gitattributes")


def test_archive_gives_the_true_bytes_of_every_plain_file(followed: tuple[Repo, list[Outcome]]) -> None:
    repo, _ = followed
    back = listing(_back(repo))
    here = listing(repo.path)
    for path in (b"app.py", b"kept.txt", b"config/app.toml", b"vendor/lib/lib.py"):
        assert back[path].sha256 == here[path].sha256


def test_git_directory_of_a_nested_repository_is_restored(followed: tuple[Repo, list[Outcome]]) -> None:
    repo, _ = followed
    nested = listing(_back(repo) / "nested.git", without=())
    assert nested[b"HEAD"].sha256 == listing(repo.path / "vendor/lib/.git", without=())[b"HEAD"].sha256
    done = repo.execute("git", f"--git-dir={_back(repo) / 'nested.git'}", "log", "--format=%s", check=False)
    assert done.out == "first commit\n"


def test_big_file_is_restored(followed: tuple[Repo, list[Outcome]]) -> None:
    assert (_back(followed[0]) / "big.bin").read_bytes() == BIG


def test_sealed_file_opens_with_the_key_only(followed: tuple[Repo, list[Outcome]]) -> None:
    back = _back(followed[0])
    assert b"hunter2" not in (back / "env.sealed").read_bytes()
    assert (back / "env").read_bytes() == b"API_KEY=hunter2\n"


def test_timeline_without_its_ref_is_found_and_restored(followed: tuple[Repo, list[Outcome]]) -> None:
    repo, outcomes = followed
    assert "the moment to come back to" in outcomes[-1].out
    subject = repo.git("log", "-1", "--format=%s", "refs/envhist/heads/rescued/timeline")
    assert subject == "the moment to come back to"


def test_page_is_followed_by_a_plain_shell() -> None:
    # Only the one marked snippet of the page uses git-envhist.
    programs = [word for block in blocks(PAGE, "sh") for word in shlex.split(block, comments=True)]
    assert not [word for word in programs if word.startswith("git-env") or word in ("envlog", "envdiff")]
