"""A pack index of git-envhist that git deleted as garbage is restored; one that was removed on purpose is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.maintenance.merge_packs import MAX_PACKS, merge_packs
from git_envhist.objects.own_packs import KEEP_MARK, restore_lost_indexes
from git_envhist.snapshots.staging import sweep
from tests.maintenance.test_merge_packs import contents_of, packs_of, publish
from tests.objects.packing import empty_repo
from tests.support.oracle import git_fsck
from tests.support.repository import Repo


def places(tmp_path: Path) -> tuple[Path, str, str]:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    return repository, str(repository / "envhist"), str(repository / "objects/pack")


@pytest.mark.parametrize("gone", [(".idx",), (".idx", ".keep")])
def test_lost_index_is_restored_with_its_keep_file(tmp_path: Path, gone: tuple[str, ...]) -> None:
    repository, state, packs = places(tmp_path)
    publish(repository, "sha1", [b"one", b"two"])
    before = contents_of(repository)
    pack = packs_of(repository)[0]
    index = pack.with_suffix(".idx").read_bytes()
    for suffix in gone:
        pack.with_suffix(suffix).unlink()
    assert contents_of(repository) == {}

    assert restore_lost_indexes(state, packs) == [pack.stem]

    assert pack.with_suffix(".idx").read_bytes() == index
    assert pack.with_suffix(".keep").read_bytes() == KEEP_MARK
    assert contents_of(repository) == before
    assert restore_lost_indexes(state, packs) == []


def test_index_removed_by_git_gc_is_restored(tmp_path: Path) -> None:
    # git sees no pack next to the index. Here the pack is moved away; in reality git reads a directory while it
    # changes.
    repository, state, packs = places(tmp_path)
    publish(repository, "sha1", [b"one", b"two"])
    before = contents_of(repository)
    pack = packs_of(repository)[0]
    pack.rename(tmp_path / "held up")
    subprocess.run(["git", "gc", "-q"], cwd=repository, check=True)
    (tmp_path / "held up").rename(pack)
    assert not pack.with_suffix(".idx").exists()

    restore_lost_indexes(state, packs)

    assert contents_of(repository) == before
    assert pack.with_suffix(".keep").exists()


def test_capture_restores_lost_indexes(repo: Repo) -> None:
    repo.write("app.py", "one\n")
    history = EnvHistory.open(str(repo.path), workers="here")
    first = history.capture("one").snapshot
    assert first is not None
    for index in (repo.path / ".git/objects/pack").glob("*.idx"):
        index.unlink()
    assert git_fsck(repo.path)

    repo.write("app.py", "two\n")
    second = history.capture("two").snapshot

    assert second is not None
    assert not git_fsck(repo.path)
    assert repo.git("show", f"{first.id}:app.py") == "one"
    assert repo.git("rev-parse", f"{second.id}^") == first.id


def test_index_of_a_removed_pack_is_not_restored(tmp_path: Path) -> None:
    repository, state, packs = places(tmp_path)
    for number in range(MAX_PACKS + 1):
        publish(repository, "sha1", [b"%d" % number])
    before = contents_of(repository)
    assert merge_packs(state, packs, "sha1") == MAX_PACKS + 1
    sweep(state, packs, lambda commit: False)

    assert len(packs_of(repository)) == 1
    assert contents_of(repository) == before
    assert os.listdir(repository / "envhist/indexes") == [packs_of(repository)[0].stem]


def test_spare_indexes_are_made_for_own_packs_only(tmp_path: Path) -> None:
    repository, state, packs = places(tmp_path)
    for number in range(3):
        publish(repository, "sha1", [b"%d" % number])
    ours, theirs, gone = packs_of(repository)
    for name in (ours.stem, theirs.stem):
        (repository / "envhist/indexes" / name).unlink()
    theirs.with_suffix(".keep").chmod(0o644)
    theirs.with_suffix(".keep").write_bytes(b"somebody's reason\n")
    for suffix in (".idx", ".pack", ".keep"):
        gone.with_suffix(suffix).unlink()

    assert restore_lost_indexes(state, packs) == []

    assert os.listdir(repository / "envhist/indexes") == [ours.stem]
    assert not gone.with_suffix(".keep").exists()
