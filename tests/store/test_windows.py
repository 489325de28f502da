"""Many objects read from our packs, one after another: each is what its id says, wherever it lies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.errors import Damaged
from git_envhist.store import windows
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.windows import Windows
from tests.store.packing import noise, object_id, pack_of, put_into
from tests.support.repository import Repo


@pytest.fixture(params=[1 << 17, 1 << 10], ids=["large blocks", "small blocks"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(windows, "BLOCK", request.param)
    monkeypatch.setattr(windows, "OVERLAP", request.param >> 3)
    return int(request.param)


@pytest.fixture(params=[1, 1 << 20], ids=["learned", "looked up"])
def worth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(windows, "WORTH_A_LIST", request.param)
    return int(request.param)


def blobs() -> Iterator[bytes]:
    """Of every size around a block, deflating well, badly and not at all."""
    for number, size in enumerate(
        (0, 1, 700, 900, 1000, 1100, 2000, 5000, 120_000, 131_072, 150_000, 700_000)
    ):
        yield b"%d all work and no play\n" % number * (size // 24)
        yield noise(size, number)


def reader(repo: Repo) -> Windows:
    return Windows(OwnPacks.open(str(repo.path / ".git/objects/pack"), "sha1"), "sha1")


def test_every_object_is_read_whole(repo: Repo, tmp_path: Path, block: int, worth: int) -> None:
    first, second = list(blobs()), [noise(size, 99) for size in range(3, 400)]
    put_into(repo, pack_of(tmp_path / "one", first))
    put_into(repo, pack_of(tmp_path / "two", second))
    asked = [*first, *second] * 2
    random.Random(1).shuffle(asked)
    with closing(reader(repo)) as found:
        for data in asked:
            assert found.read(object_id(b"blob", data)) == (b"blob", data)
        with pytest.raises(KeyError):
            found.read(object_id(b"blob", b"nowhere"))


def test_an_object_that_changed_on_the_disk_is_damaged(
    repo: Repo, tmp_path: Path, block: int, worth: int
) -> None:
    data = [noise(3000, number) for number in range(20)]
    path = put_into(repo, pack_of(tmp_path / "one", data))
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\0\0\0\0")
    told = []
    with closing(reader(repo)) as found:
        for one in data:
            try:
                assert found.read(object_id(b"blob", one)) == (b"blob", one)
            except Damaged:
                told.append(one)
    assert len(told) == 1


def test_a_pack_that_was_cut_off_is_damaged(repo: Repo, tmp_path: Path, block: int, worth: int) -> None:
    data = [noise(3000, number) for number in range(20)]
    path = put_into(repo, pack_of(tmp_path / "one", data))
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.truncate(30_000)
    told = []
    with closing(reader(repo)) as found:
        for one in data:
            try:
                assert found.read(object_id(b"blob", one)) == (b"blob", one)
            except Damaged:
                told.append(one)
    # 9 are whole, and the pack's own reader says of none of the others that it is.
    assert len(told) in (10, 11)
