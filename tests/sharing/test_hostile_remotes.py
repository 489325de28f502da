"""A remote made to do harm: what comes of it is refused in one line or harmless, and nothing of ours moves.

`tests/restoring/hostile.py` has the snapshots. Here a part of every sort comes by a fetch; all of them do with
`HOSTILE_EVERY=1`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.restoring.foreign import Stranger, harmful, make_stranger
from tests.restoring.hostile import Smith, hostile
from tests.sharing.conftest import refs
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

CASES = dict(hostile())
EVERY = int(os.environ.get("HOSTILE_EVERY", "48"))
CHOSEN = list(CASES)[5::EVERY]


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


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_fetched_is_refused_or_harmless(
    stranger: Stranger, victim: Repo, tmp_path: Path, name: str
) -> None:
    stranger.plant(CASES[name](Smith(stranger.repo)))
    (ref,) = refs(stranger.repo, "refs/envhist/heads")
    line = f"origin/{ref.removeprefix('refs/envhist/heads/')}"
    before = refs(victim), listing(victim.path, top=True), listing(stranger.canary, top=True)
    there = str(tmp_path / "there")
    for words in (
        ("envlog", "fetch"),
        ("envlog", "--all"),
        ("envlog", "show", line),
        ("envdiff", f"{line}..now"),
        ("envrestore", "--to", there, line),
        ("envlog", "export", str(tmp_path / "file"), line),
    ):
        done = victim.run(*words)
        assert done.status in (0, 3, 4, 5, 128), (words, done.err)
        assert "unexpected" not in done.err, (words, done.err)
        assert b"\x1b" not in done.stdout + done.stderr
        assert b"\x07" not in done.stdout + done.stderr
    assert harmful(Path(there)) == []
    assert (refs(victim), listing(victim.path, top=True), listing(stranger.canary, top=True)) == before
