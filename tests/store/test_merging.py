"""Small packs become few, byte for byte; judged by C git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.store.merging import FACTOR, MOST_PACKS, choose, merge_packs
from git_envhist.store.ownpacks import KEEP_MARK
from git_envhist.store.packs import PackWriter
from git_envhist.store.staging import Staging
from tests.store.packing import FORMATS, empty_repo

both_formats = pytest.mark.parametrize("object_format", FORMATS)


def publish(repository: Path, object_format: str, contents: list[bytes]) -> None:
    packs = repository / "objects" / "pack"
    with Staging.create(str(repository / "envhist"), str(packs)) as staging:
        writer = PackWriter(staging.pack_dir, object_format)
        for content in contents:
            writer.add(b"blob", content)
        pack = writer.finish()
        assert pack is not None
        staging.publish([pack])


def packs_of(repository: Path) -> list[Path]:
    return sorted((repository / "objects" / "pack").glob("*.pack"))


def contents_of(repository: Path) -> dict[str, int]:
    listed = subprocess.run(
        ["git", "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[0]: int(line.split()[1]) for line in listed.splitlines()}


@both_formats
def test_many_packs_become_few_and_hold_the_same(tmp_path: Path, object_format: str) -> None:
    repository = empty_repo(tmp_path, object_format).path / ".git"
    for number in range(40):
        publish(repository, object_format, [b"shared", os.urandom(100 + number), b"%d" % number])
    before = contents_of(repository)

    went = merge_packs(str(repository / "envhist"), str(repository / "objects/pack"), object_format)

    assert went == 40
    assert len(packs_of(repository)) == 1
    assert contents_of(repository) == before
    subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)
    for pack in packs_of(repository):
        subprocess.run(["git", "verify-pack", pack], cwd=repository, check=True)
        assert pack.with_suffix(".keep").read_bytes() == KEEP_MARK
    left = {path.stem for path in (repository / "objects/pack").iterdir()}
    assert left == {packs_of(repository)[0].stem}


def test_a_damaged_pack_is_left_as_it_is(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [os.urandom(300), b"%d" % number])
    hurt = packs_of(repository)[7]
    os.chmod(hurt, 0o644)
    data = bytearray(hurt.read_bytes())
    data[40] ^= 1
    hurt.write_bytes(data)

    merge_packs(str(repository / "envhist"), str(repository / "objects/pack"), "sha1")

    assert hurt in packs_of(repository)
    assert hurt.read_bytes() == bytes(data)
    assert len(packs_of(repository)) == 2


def test_packs_of_others_are_no_business_of_ours(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    theirs = packs_of(repository)[:3]
    for pack in theirs:
        os.chmod(pack.with_suffix(".keep"), 0o644)
        pack.with_suffix(".keep").write_bytes(b"somebody's reason\n")

    merge_packs(str(repository / "envhist"), str(repository / "objects/pack"), "sha1")

    assert set(theirs) <= set(packs_of(repository))
    assert len(packs_of(repository)) == 4


def test_a_multi_pack_index_never_names_a_pack_that_went(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    subprocess.run(["git", "multi-pack-index", "write"], cwd=repository, check=True)
    before = contents_of(repository)

    merge_packs(str(repository / "envhist"), str(repository / "objects/pack"), "sha1")

    assert contents_of(repository) == before
    subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)


@given(st.lists(st.integers(1, 1 << 40), max_size=60))
def test_what_is_left_grows_geometrically(sizes: list[int]) -> None:
    ordered = sorted(sizes)
    count = choose(ordered)
    left = ordered if count < 2 else sorted([sum(ordered[:count]), *ordered[count:]])

    if len(ordered) > MOST_PACKS:
        for number, size in enumerate(left[1:], 1):
            assert size >= FACTOR * sum(left[:number]) or left[number - 1] == sum(ordered[:count])
    else:
        assert count == 0
