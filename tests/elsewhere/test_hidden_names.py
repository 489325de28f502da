"""A file system on which a removed open file keeps a name (`.nfs…`, `.fuse_hidden…`) until it is closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds
from tests.support.mounts import Room, private_mounts
from tests.support.repository import Repo, Result, make_repo


@pytest.fixture
def room() -> Iterator[Room]:
    with private_mounts() as there:
        yield there


@pytest.fixture(params=["hiding", pytest.param("stingy", marks=pytest.mark.full)])
def hiding(tmp_path: Path, room: Room, request: pytest.FixtureRequest) -> Repo:
    """Return a repository with its working tree on such a file system."""
    (tmp_path / "place").mkdir()
    repo = make_repo(tmp_path / "behind" / "repo")
    room.serve(request.param, tmp_path / "behind", tmp_path / "place")
    return Repo(tmp_path / "place" / "repo", repo.env)


def run(repo: Repo, room: Room, program: str, *words: str) -> Result:
    return repo.run(
        program, *words, prefix=(*room.inside(repo.path), "timeout", "--kill-after=5", "120"), cwd="/"
    )


def behind(repo: Repo) -> Path:
    return repo.path.parent.with_name("behind") / "repo"


def left(repo: Repo) -> list[str]:
    """Return the staging directories and hidden names that are left."""
    state = behind(repo) / ".git"
    places = [state / "envhist/staging", state / "objects/.envhist-staging"]
    found = [str(path) for place in places if place.is_dir() for path in place.iterdir() if path.is_dir()]
    return found + [str(path) for path in behind(repo).rglob(".fuse_hidden*")]


def change(repo: Repo, version: int) -> None:
    (behind(repo) / "data").write_text(f"version {version}\n" * 500)
    (behind(repo) / "directory").mkdir(exist_ok=True)
    (behind(repo) / f"directory/file{version}").write_text(f"{version}\n")


FEW = (("envlog", "drop", "@~2"), ("envlog", "gc"))
MORE = (
    ("envlog", "undrop"),
    ("envlog", "prune", "--keep-last", "2"),
    ("envlog", "purge", "directory/file1"),
    ("envlog", "gc", "--empty-trash"),
    ("envrestore", "@~1"),
    ("envlog", "undo"),
    ("envlog", "fsck"),
)


@pytest.mark.parametrize(
    "commands", [FEW, pytest.param(FEW + MORE, marks=pytest.mark.full)], ids=["few", "all"]
)
def test_commands_succeed_and_leave_no_files_when_open_files_keep_a_name(
    hiding: Repo, room: Room, commands: tuple[tuple[str, ...], ...]
) -> None:
    for version in range(4):
        change(hiding, version)
        done = run(hiding, room, "envlog", "capture", "--porcelain", "-m", f"version {version}")
        assert (done.status, done.err) == (0, ""), done.err
    assert_holds(Repo(behind(hiding), hiding.env), done.out.strip())
    for words in commands:
        done = run(hiding, room, *words)
        assert done.status == 0, (words, done.err)
        assert "error: " not in done.err
        assert "clear" not in done.err, (words, done.err)
    done = run(hiding, room, "envlog", "capture", "-m", "last")
    assert done.status == 0
    assert left(hiding) == []


def test_restore_is_complete_when_another_process_has_a_replaced_file_open(hiding: Repo, room: Room) -> None:
    for version in range(2):
        change(hiding, version)
        run(hiding, room, "envlog", "capture", "-m", f"version {version}")
    with open(room.seen(hiding.path / "data")) as held, open(room.seen(hiding.path / "directory/file1")):
        done = run(hiding, room, "envrestore", "@~1")
        assert (done.status, "error: " in done.err) == (0, False), done.err
        assert (behind(hiding) / "data").read_text().startswith("version 0")
        assert held.read().startswith("version 1")
    assert not (behind(hiding) / "directory/file1").exists()
    done = run(hiding, room, "envlog", "capture", "-m", "after the files were closed")
    assert (done.status, done.err) == (0, ""), done.err
    assert left(hiding) == []
