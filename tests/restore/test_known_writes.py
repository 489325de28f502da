"""The capture after a restore uses the restore's records of written files, unless files changed since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from git_envhist.api import EnvHistory
from git_envhist.capture.capture_worker import KnownWrites, WrittenFile
from git_envhist.capture.environment_trees import TreeCapture
from git_envhist.capture.pipeline import CaptureOptions
from git_envhist.objects.trees import object_id
from git_envhist.worktree.stat_cache import COLUMNS
from tests.support.repository import Repo


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    for name in ("a", "b", "sub/c", "sub/d"):
        repo.write(name, b"1")
    found = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    found.capture("before")
    return found


def written_file(repo: Repo, name: str, data: bytes) -> WrittenFile:
    """Return stat data as a restore records them."""
    return WrittenFile(COLUMNS(os.lstat(repo.path / name)), object_id(b"blob", data, "sha1"))


def store_file(repo: Repo, history: EnvHistory, name: str, data: bytes) -> WrittenFile:
    """Create a file and capture it, so that its contents are stored; return its record."""
    repo.write(name, data)
    history.capture("store the file")
    return written_file(repo, name, data)


def capture_with_records(
    history: EnvHistory, names: dict[bytes, dict[bytes, WrittenFile | None]]
) -> tuple[bool, str, str]:
    """Capture with records and without; return whether no file was read, and the content id of both."""
    looked: list[object] = []
    tip = history.log(limit=1)[0].commit
    told = {path: frozenset(entries) for path, entries in names.items()}
    capturing = history.capturing
    start = TreeCapture._start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TreeCapture, "_start", lambda self, *words: looked.append(words) or start(self, *words))
        with (
            capturing.locked(CaptureOptions()),
            capturing.capture_tree(CaptureOptions(), KnownWrites(tip, told, names)) as held,
        ):
            found = held.content
    shutil.rmtree(os.path.join(history.repository.state, "cache"))
    with capturing.locked(CaptureOptions()), capturing.capture_tree(CaptureOptions()) as held:
        return not looked, found, held.content


def test_written_files_are_recorded_without_reading(repo: Repo, history: EnvHistory) -> None:
    brought = store_file(repo, history, "sub/c", b"2")
    repo.write("sub/c", b"other")
    history.capture("other")
    repo.write("sub/c", b"2")
    os.chmod(repo.path / "sub" / "c", 0o755)
    again = written_file(repo, "sub/c", b"2")
    assert again.oid == brought.oid
    read_nothing, found, there = capture_with_records(history, {b"sub": {b"c": again}})
    assert read_nothing
    assert found == there


def test_written_and_removed_files_are_recorded(repo: Repo, history: EnvHistory) -> None:
    store_file(repo, history, "sub/new", b"2")
    os.unlink(repo.path / "sub" / "new")
    history.capture("without it")
    repo.write("sub/new", b"2")
    os.unlink(repo.path / "sub" / "d")
    read_nothing, found, there = capture_with_records(
        history, {b"sub": {b"new": written_file(repo, "sub/new", b"2"), b"d": None}, b"": {}}
    )
    assert read_nothing
    assert found == there


def add_a_file(repo: Repo) -> None:
    repo.write("sub/guest", b"3")


def write_a_file(repo: Repo) -> None:
    repo.write("sub/c", b"3")


def add_a_hard_link(repo: Repo) -> None:
    os.link(repo.path / "sub" / "c", repo.path / "second")


def replace_the_directory_by_a_copy(repo: Repo) -> None:
    shutil.copytree(repo.path / "sub", repo.path / "copy", copy_function=shutil.copy2)
    shutil.rmtree(repo.path / "sub")
    os.rename(repo.path / "copy", repo.path / "sub")


def replace_the_directory_by_a_link(repo: Repo) -> None:
    os.rename(repo.path / "sub", repo.path / "elsewhere")
    (repo.path / "sub").symlink_to("elsewhere")


def exclude_a_file(repo: Repo) -> None:
    repo.write(".envhistignore", b"c\n")


@pytest.mark.parametrize(
    "meanwhile",
    [
        add_a_file,
        write_a_file,
        add_a_hard_link,
        replace_the_directory_by_a_copy,
        replace_the_directory_by_a_link,
        exclude_a_file,
    ],
)
def test_changed_file_is_read_by_the_next_capture(
    repo: Repo, history: EnvHistory, meanwhile: Callable[[Repo], None]
) -> None:
    brought = store_file(repo, history, "sub/c", b"2")
    os.utime(repo.path / "sub", None)
    meanwhile(repo)
    read_nothing, found, there = capture_with_records(history, {b"sub": {b"c": brought}, b"": {}})
    assert not read_nothing
    # The capture matches the disk, not the outdated record.
    if meanwhile in (add_a_file, write_a_file):
        assert found == there


def test_file_with_a_secret_name_is_read(repo: Repo, history: EnvHistory) -> None:
    store_file(repo, history, "sub/.env", b"KEY=1")
    read_nothing, found, there = capture_with_records(
        history, {b"sub": {b".env": written_file(repo, "sub/.env", b"KEY=1")}}
    )
    assert not read_nothing
    assert found == there


def test_next_capture_reads_the_written_files(repo: Repo, history: EnvHistory) -> None:
    first = history.capture("one").snapshot
    repo.write("sub/c", b"2")
    history.capture("two")
    assert first is not None
    done = history.restore(first)
    assert done.snapshot is not None
    # The next capture reads the directory again instead of using the recorded ids.
    with history.capturing.capture_tree(CaptureOptions()) as held:
        assert b"sub" in held.environment.scan_result.directories
        assert held.content == done.snapshot.content == first.content
