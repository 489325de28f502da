"""git-envhist's published packs: other packs are ignored, damage is an error and never a crash, deltas are
resolved."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.objects.own_packs import KEEP_MARK, OwnPacks, own_names
from git_envhist.objects.pack_file import apply_delta
from git_envhist.objects.pack_writer import StagedPack
from tests.objects.packing import (
    CONTENTS,
    FORMATS,
    damage,
    empty_repo,
    flip,
    noise,
    object_id,
    pack_of,
    put_into,
)
from tests.support.repository import Repo

both_formats = pytest.mark.parametrize("object_format", FORMATS)


def packs_of(repo: Repo, object_format: str = "sha1", exclude: tuple[str, ...] = ()) -> OwnPacks:
    return OwnPacks.open(str(repo.path / ".git/objects/pack"), object_format, exclude)


@both_formats
@settings(max_examples=15)
@given(blobs=st.lists(CONTENTS, min_size=1, max_size=12))
def test_own_packs_find_and_read_every_object(
    object_format: str, blobs: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("packs")
    repo = empty_repo(place / "repo", object_format)
    put_into(repo, pack_of(place, blobs, object_format))
    packs = packs_of(repo, object_format)
    for blob in blobs:
        oid = object_id(b"blob", blob, object_format)
        assert oid in packs
        assert packs.read(oid) == (b"blob", blob)
    assert object_id(b"blob", b"nowhere", object_format) not in packs
    packs.close()


def test_large_index_is_mapped(tmp_path: Path) -> None:
    repo = empty_repo(tmp_path / "repo")
    blobs = [b"%d" % number for number in range(5000)]
    path = put_into(repo, pack_of(tmp_path, blobs))
    assert path.with_suffix(".idx").stat().st_size > 1 << 16
    packs = packs_of(repo)
    assert all(object_id(b"blob", blob) in packs for blob in blobs)
    assert not any(object_id(b"blob", b"no %b" % blob) in packs for blob in blobs)
    packs.close()


def test_own_packs_skip_unmarked_and_excluded_packs(tmp_path: Path) -> None:
    repo = empty_repo(tmp_path / "repo")
    ours, publishing, theirs, bare, longer = (pack_of(tmp_path, [b"%d" % n]) for n in range(5))
    for pack in (ours, publishing):
        put_into(repo, pack)
    put_into(repo, theirs, keep=b"the user's own\n")
    put_into(repo, longer, keep=b"git-envhist\nand more")
    put_into(repo, bare).with_suffix(".keep").unlink()
    (repo.path / ".git/objects/pack/pack-..keep").write_bytes(b"git-envhist\n")
    packs = packs_of(repo, exclude=(publishing.name,))
    assert packs.names == (ours.name,)
    assert packs.paths == (str(repo.path / ".git/objects/pack" / f"{ours.name}.pack"),)
    found = [object_id(b"blob", b"%d" % n) in packs for n in range(5)]
    assert found == [True, False, False, False, False]


def test_excluded_packs_are_asked_for_between_listing_and_opening(
    tmp_path: Path,
) -> None:
    repo = empty_repo(tmp_path / "repo")
    swept, excluded = pack_of(tmp_path, [b"swept"]), pack_of(tmp_path, [b"excluded"])
    path = put_into(repo, swept)
    put_into(repo, excluded)
    came_later = pack_of(tmp_path, [b"came later"])

    def unpublished() -> tuple[str, ...]:
        put_into(repo, came_later)
        for suffix in (".idx", ".pack", ".keep"):
            path.with_suffix(suffix).unlink()
        return (excluded.name,)

    packs = OwnPacks.open(str(path.parent), "sha1", unpublished)
    assert object_id(b"blob", b"swept") not in packs
    assert object_id(b"blob", b"excluded") not in packs
    assert object_id(b"blob", b"came later") not in packs
    assert packs.damaged == []


def test_repository_without_packs_has_no_own_objects(tmp_path: Path) -> None:
    packs = OwnPacks.open(str(tmp_path / "nowhere"), "sha1")
    assert object_id(b"blob", b"") not in packs
    with pytest.raises(KeyError):
        packs.read(object_id(b"blob", b""))


@both_formats
@pytest.mark.parametrize("base", ["offset", "id"])
def test_deltas_made_by_a_repack_are_read(object_format: str, base: str, tmp_path: Path) -> None:
    repo = empty_repo(tmp_path / "repo", object_format)
    pages = [noise(500, seed).hex().encode() for seed in range(40)]
    blobs = [b"".join(pages[:at]) for at in range(41)]
    put_into(repo, pack_of(tmp_path, blobs, object_format)).with_suffix(".keep").unlink()
    names = "".join(object_id(b"blob", blob, object_format).hex() + "\n" for blob in blobs)
    pack_dir = repo.path / ".git/objects/pack"
    by_offset = ("--delta-base-offset",) if base == "offset" else ()
    words = ("pack-objects", "-q", "--threads=1", "--no-reuse-delta", "--window=2", *by_offset)
    made = repo.git(*words, str(pack_dir / "pack"), input=names)
    assert "chain length = 2:" in repo.git("verify-pack", "-v", str(pack_dir / f"pack-{made}.pack"))
    for name in os.listdir(pack_dir):
        if made not in name:
            os.unlink(pack_dir / name)
    (pack_dir / f"pack-{made}.keep").write_bytes(b"git-envhist\n")
    packs = packs_of(repo, object_format)
    for blob in blobs:
        assert packs.read(object_id(b"blob", blob, object_format)) == (b"blob", blob)
    packs.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[StagedPack, list[bytes]]:
    blobs = [noise(size, size) for size in (0, 10, 300, 20_000)] + [b"line\n" * 4000]
    return pack_of(tmp_path_factory.mktemp("sound"), blobs), blobs


def copy_of(sound: StagedPack, place: Path) -> Path:
    base = place / sound.name
    shutil.copy(sound.pack_path, base.with_suffix(".pack"))
    shutil.copy(sound.index_path, base.with_suffix(".idx"))
    base.with_suffix(".keep").write_bytes(b"git-envhist\n")
    return base


def read_all(place: Path, blobs: list[bytes]) -> list[Exception]:
    """Read every object and compare it; return the errors of damaged and missing ones."""
    packs = OwnPacks.open(str(place), "sha1")
    errors: list[Exception] = []
    for blob in blobs:
        oid = object_id(b"blob", blob)
        try:
            assert packs.read(oid) == (b"blob", blob)
        except (Damaged, KeyError) as error:
            errors.append(error)
    packs.close()
    return errors


@settings(max_examples=150)
@given(data=st.data())
@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("how", ["flip", "cut", "noise"])
def test_damaged_pack_raises_and_never_returns_wrong_bytes(
    how: str,
    suffix: str,
    sound: tuple[StagedPack, list[bytes]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pack, blobs = sound
    place = tmp_path_factory.mktemp("damaged")
    path = copy_of(pack, place).with_suffix(suffix)
    size = path.stat().st_size
    at = data.draw(st.one_of(st.integers(0, min(size, 1200) - 1), st.integers(0, size - 1)))
    some = data.draw(st.binary(min_size=1, max_size=30))
    changes: dict[str, Callable[[bytearray], object]] = {
        "flip": lambda content: flip(content, at),
        "cut": lambda content: content.__delitem__(slice(at, None)),
        "noise": lambda content: content.__setitem__(slice(at, at + len(some)), some),
    }
    damage(path, changes[how])
    errors = read_all(place, blobs)
    if (how, suffix) == ("cut", ".idx"):
        assert len(errors) == len(blobs)


def test_pack_truncated_after_opening_raises_damaged(
    sound: tuple[StagedPack, list[bytes]], tmp_path: Path
) -> None:
    pack, blobs = sound
    base = copy_of(pack, tmp_path)
    packs = OwnPacks.open(str(tmp_path), "sha1")
    assert packs.read(object_id(b"blob", blobs[3])) == (b"blob", blobs[3])
    damage(base.with_suffix(".pack"), lambda content: content.__delitem__(slice(1000, None)))
    with pytest.raises(Damaged, match=r"the pack '.*' is damaged: an object is cut off"):
        packs.read(object_id(b"blob", blobs[3]))


def test_pack_with_damaged_index_counts_as_empty(
    sound: tuple[StagedPack, list[bytes]], tmp_path: Path
) -> None:
    pack, blobs = sound
    base = copy_of(pack, tmp_path)
    damage(base.with_suffix(".idx"), lambda content: content.__delitem__(slice(0, 4)))
    packs = OwnPacks.open(str(tmp_path), "sha1")
    assert object_id(b"blob", blobs[1]) not in packs
    assert [str(error) for error in packs.damaged] == [f"'{base}.idx' is not a pack index"]
    with pytest.raises(Damaged):
        packs.read(object_id(b"blob", blobs[1]))


def test_index_with_unsorted_fan_out_is_damaged(
    sound: tuple[StagedPack, list[bytes]], tmp_path: Path
) -> None:
    base = copy_of(sound[0], tmp_path)
    damage(base.with_suffix(".idx"), lambda content: flip(content, 8 + 4 * 100))
    packs = OwnPacks.open(str(tmp_path), "sha1")
    assert packs.names == ()
    assert "its first table is out of order" in str(packs.damaged[0])


def test_entry_with_impossible_size_raises_damaged(
    sound: tuple[StagedPack, list[bytes]], tmp_path: Path
) -> None:
    pack, blobs = sound
    base = copy_of(pack, tmp_path)
    endless = b"\xbf" + b"\xff" * 20 + b"\x01"
    damage(
        base.with_suffix(".pack"), lambda content: content.__setitem__(slice(12, 12 + len(endless)), endless)
    )
    with pytest.raises(Damaged, match="claims an impossible size"):
        OwnPacks.open(str(tmp_path), "sha1").read(object_id(b"blob", blobs[0]))


def test_object_damaged_in_one_pack_is_read_from_another(tmp_path: Path) -> None:
    repo = empty_repo(tmp_path / "repo")
    bad, good = (put_into(repo, pack) for pack in sorted(twice(tmp_path), key=lambda pack: pack.name))
    damage(bad, lambda content: flip(content, 20))
    assert packs_of(repo).read(object_id(b"blob", b"twice")) == (b"blob", b"twice")
    damage(good, lambda content: flip(content, 20))
    with pytest.raises(Damaged):
        packs_of(repo).read(object_id(b"blob", b"twice"))


def twice(place: Path) -> list[StagedPack]:
    return [pack_of(place, [b"twice"]), pack_of(place, [b"twice"])]


def test_index_without_its_pack_raises_damaged(sound: tuple[StagedPack, list[bytes]], tmp_path: Path) -> None:
    pack, blobs = sound
    copy_of(pack, tmp_path).with_suffix(".pack").unlink()
    with pytest.raises(Damaged, match="cannot read the pack"):
        OwnPacks.open(str(tmp_path), "sha1").read(object_id(b"blob", blobs[0]))


@given(base=st.binary(max_size=40), delta=st.binary(max_size=40))
def test_arbitrary_delta_gives_the_promised_size_or_raises(base: bytes, delta: bytes) -> None:
    try:
        made = apply_delta(base, delta)
    except (ValueError, IndexError):
        return
    assert len(made) < 1 << 20


def test_opening_own_packs_reads_no_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = empty_repo(tmp_path / "repo")
    for number in range(3):
        put_into(repo, pack_of(tmp_path, [b"%d" % number]))
    opened: list[str] = []
    real_open = os.open

    def noted(path: str, *rest: int) -> int:
        opened.append(path)
        return real_open(path, *rest)

    monkeypatch.setattr(os, "open", noted)
    packs = packs_of(repo)
    assert opened == []
    assert object_id(b"blob", b"1") in packs
    assert not [path for path in opened if path.endswith(".pack")]


def test_pack_is_own_only_with_name_and_mark(tmp_path: Path) -> None:
    ours, of_the_user, no_pack = f"pack-{'a' * 40}", f"pack-{'b' * 40}", "notes"
    for name, text in ((ours, KEEP_MARK), (of_the_user, b"kept by hand\n"), (no_pack, KEEP_MARK)):
        (tmp_path / f"{name}.keep").write_bytes(text)
    assert own_names(str(tmp_path)) == [ours]
