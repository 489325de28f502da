"""Copies of sealed files are sealed: hard links, targets of links, equal contents, also later ones."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.worktree.sealed_copies import LIST
from tests.end_to_end.captures import capture
from tests.support.repository import Repo
from tests.support.snapshot import read_back

SECRET = "TWIN_CANARY=correct-horse-battery\n"


def stored(repo: Repo, commit: str) -> dict[str, str]:
    return {os.fsdecode(path): how for path, how in read_back(repo, commit).stored.items()}


def objects(repo: Repo) -> Iterator[bytes]:
    """Return the content of every object of the repository, reachable or not."""
    listed = repo.run_git("cat-file", "--batch-all-objects", "--batch").stdout
    yield listed


def assert_sealed(repo: Repo, commit: str, *paths: str) -> None:
    found = stored(repo, commit)
    assert {path: found.get(path) for path in paths} == dict.fromkeys(paths, "sealed")
    assert all(SECRET.strip().encode() not in data for data in objects(repo))


def test_copy_hard_link_and_target_of_a_link_are_sealed_with_their_original(repo: Repo) -> None:
    repo.write("z/.env", SECRET)
    repo.write("a-copy", SECRET)
    os.link(repo.path / "z/.env", repo.path / "b-link")
    repo.write("conf/production", "OTHER=" + SECRET)
    os.symlink("conf/production", repo.path / ".env.production")
    repo.write("conf/copy-of-target", "OTHER=" + SECRET)
    repo.write("harmless", "TWIN_CANARY=correct-horse-batterz\n")
    commit = capture(repo)
    assert_sealed(repo, commit, "z/.env", "a-copy", "b-link", "conf/production", "conf/copy-of-target")
    assert "harmless" not in stored(repo, commit) or stored(repo, commit)["harmless"] != "sealed"


def test_copy_made_after_the_capture_of_its_original_is_sealed(repo: Repo) -> None:
    repo.write(".env", SECRET)
    repo.write("conf/production", "OTHER=" + SECRET)
    os.symlink("conf/production", repo.path / ".env.production")
    capture(repo)
    repo.write("later", SECRET)
    repo.write("conf/production", "CHANGED=" + SECRET)
    assert_sealed(repo, capture(repo), "later", "conf/production")


def test_sealed_content_is_sealed_under_a_new_name(repo: Repo) -> None:
    repo.write(".env", SECRET)
    capture(repo)
    os.rename(repo.path / ".env", repo.path / "moved")
    assert_sealed(repo, capture(repo), "moved")
    os.unlink(repo.path / "moved")
    capture(repo)
    repo.write("back again", SECRET)
    repo.write(".env", "OTHER=" + SECRET)
    assert_sealed(repo, capture(repo), "back again", ".env")
    # Copied, and the original changed, between two captures.
    repo.write("kept", "OTHER=" + SECRET)
    repo.write(".env", "THIRD=" + SECRET)
    assert_sealed(repo, capture(repo), "kept")


def test_earlier_contents_are_listed_once_after_current_ones(repo: Repo) -> None:
    for number in range(4):
        repo.write(".env", f"N={number}-correct-horse-battery\n")
        capture(repo)
    rows = json.loads((repo.path / ".git/envhist" / LIST).read_text())[1:]
    assert len(rows) == 4
    assert [bool(row[2]) for row in rows] == [True, False, False, False]
    repo.write(".env", "N=0-correct-horse-battery\n")
    capture(repo)
    rows = json.loads((repo.path / ".git/envhist" / LIST).read_text())[1:]
    assert len({row[4] for row in rows}) == len(rows) == 4


def test_copy_is_sealed_when_the_list_of_originals_was_lost(repo: Repo) -> None:
    repo.write(".env", SECRET)
    capture(repo)
    (repo.path / ".git/envhist" / LIST).unlink()
    repo.write("later", SECRET)
    assert_sealed(repo, capture(repo), "later")


def test_file_below_the_target_of_a_linked_directory_is_sealed(repo: Repo) -> None:
    repo.write("shared/conf/db", SECRET)
    os.symlink("shared/conf", repo.path / "secrets")
    assert_sealed(repo, capture(repo), "shared/conf/db")


def test_copy_of_a_big_sealed_file_is_sealed(repo: Repo) -> None:
    content = os.urandom(9 << 20)
    repo.write("release.jks", content)
    repo.write("app/assets.bin", content)
    found = stored(repo, capture(repo))
    assert found["release.jks"] == found["app/assets.bin"] == "sealed"


def test_excluded_copy_is_not_sealed(repo: Repo) -> None:
    repo.git("config", "--add", "envhist.secret", "!/open")
    repo.git("config", "--add", "envhist.secret", "!/.env.ci")
    repo.write(".env", SECRET)
    repo.write(".env.ci", "CI=" + SECRET)
    repo.write("open", SECRET)
    found = stored(repo, capture(repo))
    assert found[".env"] == "sealed"
    assert found.get("open") != "sealed"
    assert found.get(".env.ci") != "sealed"


def test_staged_copy_of_a_sealed_file_is_sealed(repo: Repo) -> None:
    repo.write(".env", SECRET)
    repo.write("copy", SECRET)
    repo.git("add", "-f", "copy")
    blob = repo.git("rev-parse", ":copy")
    repo.write("copy", "harmless")
    commit = capture(repo)
    listed = repo.git("ls-tree", "-r", commit)
    assert "staged/content" in listed
    assert blob not in listed
    assert blob not in repo.git("show", f"{commit}:.envhist/staged/index")


@pytest.mark.parametrize("content", ["", "\n", "A=1\n", " " * 40])
def test_files_equal_by_chance_are_not_sealed(repo: Repo, content: str) -> None:
    repo.write(".env", content)
    repo.write("src/__init__.py", content)
    found = stored(repo, capture(repo))
    assert found[".env"] == "sealed"
    assert found.get("src/__init__.py") != "sealed"


def test_list_of_originals_has_no_content_and_is_private(repo: Repo) -> None:
    repo.write(".env", SECRET)
    capture(repo)
    path: Path = repo.path / ".git/envhist" / LIST
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    assert zlib.crc32(SECRET.encode()) not in (
        int(word, 16) for word in data.hex().split("20") if 0 < len(word) < 9
    )
    assert SECRET.strip().encode().hex().encode() not in data


def test_copy_is_restored_like_any_file(repo: Repo) -> None:
    repo.write(".env", SECRET)
    repo.write("copy", SECRET)
    commit = capture(repo)
    (repo.path / "copy").unlink()
    repo.run("envrestore", "--yes", commit, "copy", check=False)
    if not (repo.path / "copy").exists():
        repo.run("envrestore", commit, "--", "copy", check=True)
    assert repo.read("copy") == SECRET.encode()


def test_incomplete_list_of_a_killed_capture_is_removed(repo: Repo) -> None:
    repo.run("envlog", "capture", "first", check=True)
    left = repo.path / ".git/envhist/sealed-sources.4242"
    left.write_bytes(b"[")
    repo.run("envlog", "capture", "--if-changed", check=True)
    assert not left.exists()
