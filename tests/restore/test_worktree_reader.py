"""Unchanged files of the original working tree are read instead of packs, and verified by hash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.errors import Damaged
from git_envhist.git.process import Git
from git_envhist.model import Entry, EntryKind, EnvPath, ObjectId, StoredAs
from git_envhist.objects.object_readers import Verify
from git_envhist.restore import worktree_reader
from git_envhist.restore.worktree_reader import WorktreeReader
from tests.objects.packing import object_id
from tests.support.repository import Repo

DATA = b"what was there\n" * 100

pytestmark = pytest.mark.skipif(
    not worktree_reader.WITHOUT_WAITING, reason="the system cannot read without blocking"
)


@pytest.fixture
def contents(repo: Repo) -> Iterator[WorktreeReader]:
    """Return a reader of an empty repository: reading from packs is an error."""
    found = WorktreeReader(
        Git(str(repo.path / ".git"), str(repo.path)), str(repo.path / "no packs"), "sha1", verify=Verify.ID
    )
    with closing(found):
        found.use_directory(str(repo.path))
        yield found


def entry_of(path: Path, top: Path, **others: object) -> Entry:
    oid = ObjectId(object_id(b"blob", DATA))
    fields = {"oid": oid, **others}
    name = EnvPath(os.fsencode(path.relative_to(top)))
    return Entry(name, EntryKind.FILE, 0o644, path.lstat().st_mtime_ns, **fields)  # type: ignore[arg-type]


def written(repo: Repo, data: bytes = DATA, name: str = "a/b/file") -> Path:
    path = repo.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def reports_cached_pages(path: Path) -> bool:
    """Return whether the file system reports which pages are cached."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        except OSError:
            return False


def test_unchanged_file_is_read_from_the_working_tree(repo: Repo, contents: WorktreeReader) -> None:
    path = written(repo)
    if not reports_cached_pages(path):
        pytest.skip("the file system does not report cached pages")
    before = path.stat().st_atime_ns
    for _ in range(3):
        assert contents.plain(entry_of(path, repo.path)) == DATA
    assert path.stat().st_atime_ns == before


def test_changed_contents_with_equal_time_are_not_used(repo: Repo, contents: WorktreeReader) -> None:
    path = written(repo, DATA[::-1])
    with pytest.raises(Damaged):
        contents.plain(entry_of(path, repo.path))


def test_file_with_another_time_is_not_read(repo: Repo, contents: WorktreeReader) -> None:
    path = written(repo)
    entry = entry_of(path, repo.path)
    os.utime(path, ns=(0, entry.mtime_ns + 1))
    with pytest.raises(Damaged):
        contents.plain(entry)


@pytest.mark.parametrize("stored", [StoredAs.SEALED, StoredAs.PIECES])
def test_file_stored_in_another_form_is_read_from_the_pack(
    repo: Repo, contents: WorktreeReader, stored: StoredAs
) -> None:
    with pytest.raises(Damaged):
        contents.plain(entry_of(written(repo), repo.path, stored=stored))


def test_link_is_not_followed(repo: Repo, contents: WorktreeReader, tmp_path: Path) -> None:
    path = written(repo)
    entry = entry_of(path, repo.path)
    (repo.path / "a").rename(tmp_path / "elsewhere")
    (repo.path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Damaged):
        contents.plain(entry)
    (repo.path / "a").unlink()
    with pytest.raises(Damaged):
        contents.plain(entry)


def test_pipe_does_not_block(repo: Repo, contents: WorktreeReader) -> None:
    path = repo.path / "pipe"
    os.mkfifo(path)
    with pytest.raises(Damaged):
        contents.plain(entry_of(path, repo.path))


def test_working_tree_is_not_read_after_many_mismatches(repo: Repo, contents: WorktreeReader) -> None:
    path = written(repo)
    entry = entry_of(path, repo.path)
    other = entry_of(written(repo, name="other"), repo.path, oid=ObjectId(b"\1" * 20))
    for _ in range(worktree_reader.MAX_MISMATCHES):
        with pytest.raises(Damaged):
            contents.plain(other)
    with pytest.raises(Damaged):
        contents.plain(entry)
