"""Hostile remotes and export files: each is refused with one line or harmless, and no local ref or file changes.

`tests/restore/hostile.py` makes the snapshots. By default a sample of them is fetched and another sample imported;
with `HOSTILE_EVERY=1`, all are fetched and imported.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.remote.conftest import refs
from tests.remote.test_export_and_import import write_tar
from tests.restore.hostile import Smith, hostile
from tests.restore.unsigned import Stranger, harmful, make_stranger
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

CASES = dict(hostile())
EVERY = int(os.environ.get("HOSTILE_EVERY", "72"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    return make_stranger(tmp_path_factory.mktemp("evil"))


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory, stranger: Stranger) -> Repo:
    place = tmp_path_factory.mktemp("victim")
    repo = make_repo(place / "repo")
    repo.env["XDG_CONFIG_HOME"] = str(place / "config")
    repo.git("remote", "add", "origin", f"file://{stranger.repo.path}")
    stranger.repo.git("config", "uploadpack.allowFilter", "true")
    stranger.repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repo.run("envlog", "capture", "mine", check=True)
    return repo


def after_fetch(victim: Repo, line: str, _place: Path) -> str:
    """Fetch the timeline from the remote; return its local name."""
    judge(victim, "envlog", "fetch")
    return f"origin/{line}"


def after_import(victim: Repo, line: str, place: Path) -> str:
    """Import the timeline from a file made with plain git and tar; return its local name."""
    source = victim.git("config", "remote.origin.url").removeprefix("file://")
    words = ("-C", source, "bundle", "create", "-q", str(place / "b"), f"refs/envhist/heads/{line}")
    if victim.run_git(*words, check=False).status != 0:
        pytest.skip("git does not put this into a bundle")
    file = str(place / "came.envhist.tar.zst")
    write_tar(file, ("envhist-export", b"envhist-export 1\n"), ("history.bundle", (place / "b").read_bytes()))
    fetched = victim.path / ".git/envhist/fetched.git"
    if fetched.exists():
        # Remove the timeline of an earlier case: the import would be refused because the name is taken.
        victim.git("--git-dir", str(fetched), "update-ref", "-d", f"refs/envhist/remotes/came/{line}")
    judge(victim, "envlog", "import", "--as", "came", file)
    return f"came/{line}"


WAYS = {"fetch": after_fetch, "import": after_import}
CHOSEN = [("fetch", name) for name in list(CASES)[5 % EVERY :: EVERY]] + [
    ("import", name) for name in list(CASES)[29 % EVERY :: EVERY]
]


@pytest.mark.parametrize(("way", "name"), CHOSEN)
def test_hostile_history_is_refused_or_harmless(
    stranger: Stranger, victim: Repo, tmp_path: Path, way: str, name: str
) -> None:
    stranger.plant(CASES[name](Smith(stranger.repo)))
    (ref,) = refs(stranger.repo, "refs/envhist/heads")
    before = refs(victim), listing(victim.path, top=True), listing(stranger.canary, top=True)
    line = WAYS[way](victim, ref.removeprefix("refs/envhist/heads/"), tmp_path)
    there = str(tmp_path / "there")
    for words in (
        ("envlog", "--all"),
        ("envlog", "show", line),
        ("envdiff", f"{line}..now"),
        ("envrestore", "--to", there, line),
        ("envlog", "export", str(tmp_path / "file"), line),
    ):
        judge(victim, *words)
    assert harmful(Path(there)) == []
    assert (refs(victim), listing(victim.path, top=True), listing(stranger.canary, top=True)) == before


def judge(victim: Repo, *words: str) -> None:
    """Run a command; it must fail only with our own errors and print no terminal escape sequence."""
    done = victim.run(*words)
    assert done.status in (0, 3, 4, 5, 128), (words, done.err)
    assert "unexpected" not in done.err, (words, done.err)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\x07" not in done.stdout + done.stderr
