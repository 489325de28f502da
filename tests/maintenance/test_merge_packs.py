"""Small packs are merged into few, byte for byte; judged by C git."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.git.running_git import RunningGit
from git_envhist.maintenance import merge_packs as merging
from git_envhist.maintenance.merge_packs import (
    FACTOR,
    MAX_PACKS,
    count_packs_to_merge,
    merge_packs,
    works_from_packs,
)
from git_envhist.objects.own_packs import KEEP_MARK, drop_broken_index
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.snapshots.staging import Staging, sweep
from tests.objects.dying import each_death
from tests.objects.packing import FORMATS, damage, empty_repo, flip

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
def test_merged_packs_contain_the_same_objects(tmp_path: Path, object_format: str) -> None:
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


def test_damaged_pack_is_not_merged(tmp_path: Path) -> None:
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


def test_pack_with_a_wrong_index_is_not_merged(tmp_path: Path) -> None:
    """The entries of the pack are intact, but would be stored under the wrong id."""
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [os.urandom(300), b"%d" % number])
    hurt = packs_of(repository)[7].with_suffix(".idx")
    damage(hurt, lambda content: flip(content, 8 + 1024 + 19))
    data = hurt.read_bytes()

    merge_packs(str(repository / "envhist"), str(repository / "objects/pack"), "sha1")

    assert hurt.read_bytes() == data
    assert len(packs_of(repository)) == 2


def test_one_merge_copies_a_limited_number_of_bytes(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")
    for _ in range(MAX_PACKS + 8):
        publish(repository, "sha1", [os.urandom(9_000)])
    before = contents_of(repository)

    assert merge_packs(state, packs, "sha1", largest=10_000) == 2
    assert [merge_packs(state, packs, "sha1", largest=10_000) for _ in range(4)] == [2, 2, 2, 0]
    assert len(packs_of(repository)) == MAX_PACKS + 4
    assert contents_of(repository) == before


def test_packs_of_other_programs_are_not_merged(tmp_path: Path) -> None:
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


def test_multi_pack_index_never_names_a_removed_pack(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    subprocess.run(["git", "multi-pack-index", "write"], cwd=repository, check=True)
    before = contents_of(repository)

    merge_packs(str(repository / "envhist"), str(repository / "objects/pack"), "sha1")

    assert contents_of(repository) == before
    subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)


def test_merge_killed_at_any_step_loses_no_object_and_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "BATCH", 4)
    model = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(MAX_PACKS + 1):
        publish(model, "sha1", [b"shared", b"%d" % number])
    subprocess.run(["git", "multi-pack-index", "write"], cwd=model, check=True)
    before = contents_of(model)
    repository = tmp_path / "copy" / ".git"
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")

    def merge() -> None:
        merge_packs(state, packs, "sha1")

    def begin_anew() -> None:
        shutil.rmtree(repository, ignore_errors=True)
        shutil.copytree(model, repository)

    begin_anew()
    deaths, steps = 0, 0
    for step in each_death(merge, begin_anew):
        deaths, steps = deaths + 1, step
        assert contents_of(repository) == before
        # A capture sweeps first; the killed merge had published nothing.
        sweep(state, packs, lambda commit: False)
        assert {path.suffix for path in Path(packs).iterdir()} <= {"", ".idx", ".pack", ".keep"}
        # No unreachable and unremoved pack is left either.
        stems = {
            suffix: {path.stem for path in Path(packs).glob(f"*{suffix}")}
            for suffix in (".idx", ".pack", ".keep")
        }
        assert stems[".pack"] == stems[".idx"]
        assert stems[".keep"] == stems[".idx"]
        assert contents_of(repository) == before
        if step % 10 == 0:
            subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)
        begin_anew()
    assert deaths >= 12
    assert steps > 60
    assert len(packs_of(repository)) == 1
    assert contents_of(repository) == before


@pytest.mark.parametrize("command", ["gc", "repack", "fsck", "multi-pack-index", "clone"])
def test_packs_are_not_merged_while_git_works_from_packs(tmp_path: Path, command: str) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")
    running = [RunningGit(1, time.time() - 60, "status"), RunningGit(2, time.time() - 60, command)]

    assert merge_packs(state, packs, "sha1", at_work=lambda: running) == 0
    assert len(packs_of(repository)) == 20
    # The `gc.pid` is so old that git itself would ignore it.
    running[1] = RunningGit(2, time.time() - 13 * 3600, command)
    assert merge_packs(state, packs, "sha1", at_work=lambda: running) == 20


def test_packs_are_kept_when_a_git_starts_during_a_merge(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")
    answers = iter(([], [], [RunningGit(1, time.time(), "repack")]))

    assert merge_packs(state, packs, "sha1", at_work=lambda: next(answers)) == 0
    assert len(packs_of(repository)) == 21
    assert merge_packs(state, packs, "sha1") == 21
    assert len(packs_of(repository)) == 1
    assert len(contents_of(repository)) == 20


def test_packs_are_removed_in_batches_until_a_git_starts(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    number = 2 * merging.BATCH + 2
    for one in range(number):
        publish(repository, "sha1", [b"%d" % one])
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")
    fsck = [RunningGit(1, time.time(), "fsck")]

    def starts_after(some: int) -> list[RunningGit]:
        return fsck if len(packs_of(repository)) <= number + 1 - some else []

    # git starts when the second batch was moved aside: this batch is restored, and the rest is kept.
    assert merge_packs(state, packs, "sha1", at_work=lambda: starts_after(merging.BATCH + 1)) == merging.BATCH
    assert len(packs_of(repository)) == number + 1 - merging.BATCH
    assert len(contents_of(repository)) == number
    assert merge_packs(state, packs, "sha1") == number + 1 - merging.BATCH
    assert len(packs_of(repository)) == 1
    assert len(contents_of(repository)) == number


def test_index_written_during_removal_names_no_removed_pack(tmp_path: Path) -> None:
    repository, writing = _indexed_meanwhile(tmp_path, still_at_work=False)
    before = contents_of(repository)
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")

    assert merge_packs(state, packs, "sha1", at_work=writing) == 20
    assert len(packs_of(repository)) == 1
    assert contents_of(repository) == before
    subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)


def test_packs_are_restored_for_a_git_that_may_have_listed_them(tmp_path: Path) -> None:
    repository, writing = _indexed_meanwhile(tmp_path, still_at_work=True)
    before = contents_of(repository)
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")

    assert merge_packs(state, packs, "sha1", at_work=writing) == 0
    assert len(packs_of(repository)) == 21
    assert all(
        pack.with_suffix(suffix).exists() for pack in packs_of(repository) for suffix in (".idx", ".keep")
    )
    assert contents_of(repository) == before
    subprocess.run(["git", "multi-pack-index", "verify"], cwd=repository, check=True)
    subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)


def _indexed_meanwhile(tmp_path: Path, still_at_work: bool) -> tuple[Path, Callable[[], list[RunningGit]]]:
    """A git that lists all packs unseen, and writes its index after they were moved aside."""
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    index = repository / "objects/pack/multi-pack-index"
    written: list[bytes] = []

    def at_work() -> list[RunningGit]:
        packs = packs_of(repository)
        if len(packs) > 20:
            subprocess.run(["git", "multi-pack-index", "write"], cwd=repository, check=True)
            written[:] = [index.read_bytes()]
            index.unlink()
        elif len(packs) == 1:
            index.write_bytes(written[0])
            return [RunningGit(1, time.time(), "multi-pack-index")] if still_at_work else []
        return []

    return repository, at_work


def test_packs_are_not_merged_while_gits_run_in_quick_succession(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")
    status = RunningGit(1, time.time(), "status")

    assert merge_packs(state, packs, "sha1", at_work=lambda: [status]) == 0
    # A git started during the pause.
    answers = iter(([], [status]))
    assert merge_packs(state, packs, "sha1", at_work=lambda: next(answers)) == 0
    assert len(packs_of(repository)) == 20
    # A parent process that waits for this one starts no git.
    waiting = RunningGit(os.getppid(), time.time(), "commit")
    assert merge_packs(state, packs, "sha1", at_work=lambda: [waiting]) == 20


def test_packs_are_not_merged_during_a_gc_of_another_machine(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    (repository / "gc.pid").write_text("1234 elsewhere.example")
    assert works_from_packs(str(repository), [])
    (repository / "gc.pid").write_text(f"1234 {socket.gethostname()}")
    assert not works_from_packs(str(repository), [])
    # Without a list of processes, the file itself decides.
    assert works_from_packs(str(repository), None)
    os.utime(repository / "gc.pid", (0, 0))
    assert not works_from_packs(str(repository), None)


def test_index_written_from_an_old_list_of_packs_is_deleted(tmp_path: Path) -> None:
    repository = empty_repo(tmp_path, "sha1").path / ".git"
    state, packs = str(repository / "envhist"), str(repository / "objects/pack")
    for number in range(20):
        publish(repository, "sha1", [b"%d" % number])
    before = contents_of(repository)
    subprocess.run(["git", "multi-pack-index", "write"], cwd=repository, check=True)
    index = repository / "objects/pack/multi-pack-index"
    stale = index.read_bytes()
    assert not drop_broken_index(packs)
    assert index.exists()
    merge_packs(state, packs, "sha1")
    index.write_bytes(stale)

    assert drop_broken_index(packs)
    assert not index.exists()
    assert contents_of(repository) == before
    subprocess.run(["git", "fsck", "--strict"], cwd=repository, check=True)


@pytest.mark.parametrize("content", [b"", b"MIDX", b"MIDX\1\1\377\0\0\0\0\1", b"something else" * 9])
def test_unreadable_multi_pack_index_is_left_to_git(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "multi-pack-index").write_bytes(content)
    assert not drop_broken_index(str(tmp_path))
    assert (tmp_path / "multi-pack-index").read_bytes() == content


@given(st.lists(st.integers(1, 1 << 40), max_size=60))
def test_remaining_packs_grow_geometrically(sizes: list[int]) -> None:
    ordered = sorted(sizes)
    count = count_packs_to_merge(ordered)
    left = ordered if count < 2 else sorted([sum(ordered[:count]), *ordered[count:]])

    if len(ordered) > MAX_PACKS:
        for number, size in enumerate(left[1:], 1):
            assert size >= FACTOR * sum(left[:number]) or left[number - 1] == sum(ordered[:count])
    else:
        assert count == 0
