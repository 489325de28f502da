"""The program reads, restores, checks, cleans and continues what every earlier version wrote."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from git_envhist import EnvHistory
from tests.oldhistories.build import ARCHIVES
from tests.support.oracle import git_fsck, kernel_listing
from tests.support.repository import Repo

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz"))


@dataclass
class Kept:
    """A history of an earlier version, unpacked."""

    repo: Repo
    snapshots: list[dict[str, Any]]


@pytest.fixture(params=NAMES)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    with tarfile.open(ARCHIVES / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    home = tmp_path / "home"
    places = {"CONFIG": "config", "DATA": "data", "CACHE": "cache", "STATE": "state"}
    env = {**os.environ, **{f"XDG_{name}_HOME": str(home / place) for name, place in places.items()}}
    env |= {"HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / "gitconfig"), "GIT_ENVHIST_WORKERS": "here"}
    return Kept(Repo(tmp_path / "repo", env), json.loads((tmp_path / "expected.json").read_text()))


def rows(place: Path) -> dict[str, list[Any]]:
    found = kernel_listing(place)
    return {
        path.decode("latin-1"): [one.kind, one.mode, one.mtime_ns, one.sha256, (one.target or b"").decode()]
        for path, one in found.items()
        if path
    }


def written(kept: Kept, snapshot: Mapping[str, Any], place: Path) -> dict[str, list[Any]]:
    history = EnvHistory.open(str(kept.repo.path), environ=kept.repo.env)
    history.write_to(snapshot["id"], place)
    found = rows(place)
    shutil.rmtree(place)
    return found


@pytest.mark.full
def test_every_snapshot_of_an_old_history_is_read_restored_checked_and_cleaned(
    kept: Kept, tmp_path: Path
) -> None:
    repo = kept.repo
    ids = {one["id"] for one in json.loads(repo.run("envlog", "--json", check=True).out)}
    assert ids >= {one["id"] for one in kept.snapshots}
    for snapshot in kept.snapshots:
        assert written(kept, snapshot, tmp_path / "out") == snapshot["paths"]
    repo.run("envlog", "fsck", check=True)
    # An archive stores times only to a fraction of a microsecond.
    now = rows(repo.path)
    repo.run("envrestore", kept.snapshots[1]["id"], check=True)
    assert rows(repo.path) == kept.snapshots[1]["paths"]
    repo.run("envrestore", "--undo", check=True)
    assert rows(repo.path) == now
    repo.run("envlog", "drop", kept.snapshots[2]["id"], check=True)
    repo.run("envlog", "gc", check=True)
    repo.run("envlog", "undrop", "--all", check=True)
    repo.write("more", b"of the present version")
    repo.run("envlog", "capture", "-m", "five", check=True)
    for snapshot in (kept.snapshots[0], kept.snapshots[2]):
        assert written(kept, snapshot, tmp_path / "out") == snapshot["paths"]
    assert git_fsck(repo.path) == ""


def add_newer_snapshot(repo: Repo) -> str:
    """Append a snapshot of format 2, as a later version would, and return its commit."""
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    tip = repo.git("rev-parse", ref)
    raw = repo.run_git("cat-file", "commit", tip).stdout
    head, _, message = raw.partition(b"\n\n")
    parents = b"".join(line + b"\n" for line in head.split(b"\n") if line.startswith(b"tree "))
    author = b"\n".join(line for line in head.split(b"\n") if line.startswith((b"author ", b"committer ")))
    told = message.replace(b"Env-Format: 1\n", b"Env-Format: 2\n")
    data = parents + b"parent " + tip.encode() + b"\n" + author + b"\n\n" + told
    newer = repo.git("hash-object", "-t", "commit", "-w", "--stdin", input=data)
    repo.git("update-ref", ref, newer, tip)
    return newer


def test_snapshot_of_a_newer_format_is_named_and_other_commands_work(repo: Repo, tmp_path: Path) -> None:
    repo.write("data", b"1")
    first = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    newer = add_newer_snapshot(repo)
    repo.write("data", b"2")
    before = rows(repo.path)
    for words in (("envrestore", newer), ("envrestore", newer, "--to", "../out"), ("envlog", "show", newer)):
        done = repo.run(*words)
        assert done.status == 128, words
        assert done.err.startswith("error: "), done.err
        assert "the snapshot is in format '2', this program reads up to '1'" in done.err
        assert done.err.count("\n") == 2, done.err
    assert rows(repo.path) == before
    assert not (tmp_path / "out").exists()
    repo.run("envlog", "capture", "two", check=True)
    repo.run("envlog", "gc", check=True)
    repo.run("envlog", check=True)
    repo.run("envrestore", first, check=True)
    assert repo.read("data") == b"1"
    assert repo.git("cat-file", "-t", newer) == "commit"
    assert git_fsck(repo.path) == ""
