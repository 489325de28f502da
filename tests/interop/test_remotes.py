"""Timelines pushed with plain git to a strict remote over every transport, and fetched into a new clone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture, tip
from tests.end_to_end.test_capture_is_true import EVERYTHING
from tests.interop.servers import http_server, ssh_server
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo, make_repo
from tests.support.trees import build

OURS = ("refs/envhist/heads/*:refs/envhist/heads/*", "refs/notes/envhist/*:refs/notes/envhist/*")


@dataclass(frozen=True)
class Told:
    """A repository with two snapshots of a tree with every kind of file, a name and a note."""

    repo: Repo
    first: str
    second: str
    seen: Listing


@pytest.fixture
def told(repo: Repo) -> Told:
    build(EVERYTHING, repo.path)
    repo.write(".env", "A=1\n")
    first = capture(repo, "the first snapshot")
    repo.write("config/app.toml", b"a = 1\n")
    second = capture(repo, "the second", "--name", "done")
    repo.run("envlog", "note", "-m", "it went well", check=True)
    return Told(repo, first, second, listing(repo.path, top=True))


@pytest.fixture(params=["file", "ssh", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path, repo: Repo) -> Iterator[tuple[Repo, str]]:
    """Create a bare repository that checks received objects; return it and its address."""
    bare = make_repo(tmp_path / "srv" / "remote.git", bare=True)
    for key in ("receive.fsckObjects", "transfer.fsckObjects", "http.receivepack"):
        bare.git("config", key, "true")
    if request.param == "file":
        yield bare, f"file://{bare.path}"
    elif request.param == "ssh":
        (tmp_path / "ssh").mkdir()
        with ssh_server(tmp_path / "ssh") as command:
            repo.env["GIT_SSH_COMMAND"] = command
            yield bare, f"ssh://loopback{bare.path}"
    else:
        with http_server(tmp_path / "srv") as address:
            yield bare, f"{address}/remote.git"


def fresh_clone(told: Told, address: str, place: Path) -> Repo:
    clone = Repo(place, told.repo.env)
    told.repo.git("push", "-q", address, "HEAD:refs/heads/main")
    told.repo.git("clone", "-q", address, str(place))
    return clone


def test_timeline_is_pushed_to_a_strict_remote_and_fetched_by_a_clone(
    told: Told, remote: tuple[Repo, str], tmp_path: Path
) -> None:
    bare, address = remote
    told.repo.git("push", "-q", address, *OURS)
    assert tip(bare) == told.second
    bare.git("gc", "-q", "--prune=now")
    assert git_fsck(bare.path) == ""

    clone = fresh_clone(told, address, tmp_path / "clone")
    assert "envhist" not in clone.git("for-each-ref"), "a clone does not fetch our refs"
    clone.git("fetch", "-q", address, *OURS)
    assert clone.git("show", f"{told.second}:config/app.toml") == "a = 1"
    assert clone.run_git("show", f"{told.first}:crlf").stdout == b"a\r\nb\r\n"
    assert_holds(clone, told.second, told.seen)
    assert git_fsck(clone.path) == ""
    assert "it went well" in clone.git("log", "-1", "--notes=envhist/*/*", told.second)


def test_fetched_timeline_is_listed_and_compared(
    told: Told, remote: tuple[Repo, str], tmp_path: Path
) -> None:
    _, address = remote
    told.repo.git("push", "-q", address, *OURS)
    clone = fresh_clone(told, address, tmp_path / "clone")
    clone.git("fetch", "-q", address, *OURS)
    listed = clone.run("envlog", "--all", "--format=%H %(name)", check=True).out.splitlines()
    assert listed == [f"{told.second} done", f"{told.first} "]
    assert clone.run("envlog", "show", "done", "--", "config/app.toml", check=True).out == "a = 1\n"
    assert "config/app.toml" in clone.run("envdiff", "--name-only", told.first, told.second, check=True).out


def test_second_push_sends_only_new_objects(told: Told, remote: tuple[Repo, str]) -> None:
    bare, address = remote
    told.repo.git("push", "-q", address, *OURS)
    before = set(bare.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())
    told.repo.write("config/app.toml", b"a = 2\n")
    third = capture(told.repo, "the third")
    told.repo.git("push", "-q", address, *OURS)
    after = set(bare.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())
    assert tip(bare) == third
    assert len(after - before) < 20
    assert git_fsck(bare.path) == ""


def test_git_gc_on_both_sides_loses_nothing(told: Told, tmp_path: Path) -> None:
    bare = make_repo(tmp_path / "remote.git", bare=True)
    told.repo.git("push", "-q", str(bare.path), *OURS)
    for repo in (told.repo, bare):
        repo.git("repack", "-q", "-a", "-d", "-f")
        repo.git("gc", "-q", "--prune=now", "--aggressive")
        repo.git("prune", "--expire=now")
        assert_holds(repo, told.second, told.seen)
        assert git_fsck(repo.path) == ""
    # The remote's copy does not depend on the local repository.
    shutil.rmtree(told.repo.path / ".git")
    assert_holds(bare, told.second, told.seen)
