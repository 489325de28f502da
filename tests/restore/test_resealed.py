"""Snapshots sealed with different keys: an unchanged secret file is not rewritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo


@pytest.fixture
def another_key(repo: Repo, tmp_path: Path) -> Path:
    """Return a key created elsewhere."""
    other = make_repo(tmp_path / "other")
    other.env["HOME"] = str(tmp_path / "other-home")
    other.env["XDG_CONFIG_HOME"] = str(tmp_path / "other-home/config")
    other.write(".env", "OTHER=1")
    capture(other)
    other.run("envlog", "key", "export", "-o", str(tmp_path / "exported"), check=True)
    return tmp_path / "exported"


def test_file_sealed_with_another_key_is_written_only_if_it_differs(repo: Repo, another_key: Path) -> None:
    repo.write(".env", "TOKEN=12345678")
    repo.write("deep/.env", "TOKEN=1")
    repo.write("plain", "1")
    first = capture(repo)
    before = listing(repo.path, top=True)
    repo.run("envlog", "key", "import", "--use", str(another_key), check=True)
    inode = os.stat(repo.path / ".env").st_ino
    done = repo.run("envrestore", first, check=True)
    assert "nothing to restore" in done.out

    repo.write("deep/.env", "TOKEN=2")
    repo.write("plain", "2")
    done = repo.run("envrestore", first, check=True)
    assert "replace 2" in done.out
    assert listing(repo.path, top=True) == before
    assert os.stat(repo.path / ".env").st_ino == inode
    assert "nothing to restore" in repo.run("envrestore", first, check=True).out


def test_mtime_of_a_resealed_file_is_set_without_writing_it(repo: Repo, another_key: Path) -> None:
    repo.write(".env", "TOKEN=12345678")
    first = capture(repo)
    before = listing(repo.path, top=True)
    repo.run("envlog", "key", "import", "--use", str(another_key), check=True)
    os.utime(repo.path / ".env", (5, 5))
    inode = os.stat(repo.path / ".env").st_ino
    repo.run("envrestore", first, check=True)
    assert listing(repo.path, top=True) == before
    assert os.stat(repo.path / ".env").st_ino == inode


def test_undo_skips_a_state_that_differs_only_in_the_key(repo: Repo, another_key: Path) -> None:
    repo.write(".env", "TOKEN=0")
    capture(repo)
    repo.write(".env", "TOKEN=12345678")
    capture(repo)
    repo.run("envlog", "key", "import", "--use", str(another_key), check=True)
    repo.run("envrestore", "--undo", check=True)
    assert repo.read(".env") == b"TOKEN=0"
    repo.run("envrestore", "--redo", check=True)
    assert repo.read(".env") == b"TOKEN=12345678"


def test_files_that_differ_only_in_the_key_are_equal(repo: Repo, another_key: Path) -> None:
    repo.write(".env", "TOKEN=12345678")
    repo.write("deep/.env", "A=1")
    first = capture(repo)
    repo.run("envlog", "key", "import", "--use", str(another_key), check=True)
    repo.write(".env", "TOKEN=0")
    capture(repo)
    repo.run("envrestore", first, check=True)
    for words in ((), ("--name-only",), ("--json",), ("--quiet",), ("-p",)):
        done = repo.run("envdiff", "--exit-code", *words, first)
        assert done.status == 0, (words, done.out)
    assert repo.run("envdiff", first, "@", check=True).out == ""
    os.chmod(repo.path / ".env", 0o600)
    repo.write("deep/.env", "A=2")
    output = repo.run("envdiff", "--name-status", first, check=True).out
    assert output.splitlines() == ["M\t.env", "M\tdeep/.env"]
    assert "TOKEN" not in repo.run("envdiff", first, check=True).out
