from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from git_envhist.errors import Damaged, GitFailed
from git_envhist.git.cat_file import CatFile
from tests.git.loose import LooseWriter, git_of
from tests.support.repository import Repo


@pytest.fixture
def objects(repo: Repo) -> Iterator[CatFile]:
    with CatFile(git_of(repo)) as reader:
        yield reader


def test_cat_file_reads_by_hash_ref_and_path_and_returns_none_for_missing_objects(
    repo: Repo, objects: CatFile
) -> None:
    blob = repo.git("rev-parse", "HEAD:app.py")
    assert objects.read(blob) == ("blob", b"print('hello')\n")
    assert objects.read(b"HEAD:app.py") == ("blob", b"print('hello')\n")
    assert objects.read("0" * 40) is None
    assert objects.read("HEAD:no such file") is None
    assert objects.read("") is None
    commit = objects.read("HEAD")
    assert commit is not None
    assert commit.kind == "commit"


def test_object_name_with_line_break_is_refused(objects: CatFile) -> None:
    for name in ("HEAD\nHEAD", b"HEAD\0"):
        with pytest.raises(Damaged, match="line break"):
            objects.read(name)
    assert objects.read("HEAD") is not None


def test_read_many_returns_objects_of_every_size_in_order(repo: Repo, objects: CatFile) -> None:
    writer = LooseWriter(repo)
    contents = [b"", b"\n", b"x missing\n", os.urandom(1 << 16), os.urandom(3 << 20), b"last"]
    oids = [writer.add(b"blob", content).hex() for content in contents]
    assert [found and found.data for found in objects.read_many(oids)] == contents


def test_read_many_of_large_objects_does_not_deadlock(repo: Repo, objects: CatFile) -> None:
    writer = LooseWriter(repo)
    oids = [writer.add(b"blob", b"%d" % number * 30_000).hex() for number in range(50)]
    names = [*oids, "0" * 40, "n" * 10_000] * 40
    signal.alarm(60)
    found = list(objects.read_many(names))
    signal.alarm(0)
    assert [answer is None for answer in found] == [name not in oids for name in names]


def test_read_many_allows_other_reads_in_between_and_may_be_abandoned(repo: Repo, objects: CatFile) -> None:
    writer = LooseWriter(repo)
    oids = [writer.add(b"blob", b"%d" % number).hex() for number in range(300)]
    first, second = objects.read_many(oids), objects.read_many(reversed(oids))
    seen = []
    for one, other in zip(first, second, strict=True):
        seen.append((one and one.data, other and other.data))
        assert objects.read(oids[7]) == ("blob", b"7")
    assert seen == [(b"%d" % number, b"%d" % (299 - number)) for number in range(300)]
    left = objects.read_many(oids)
    next(left)
    left.close()
    assert objects.read(oids[9]) == ("blob", b"9")


def test_killed_cat_file_raises_once_and_is_restarted(repo: Repo, objects: CatFile) -> None:
    assert objects.read("HEAD") is not None
    # Request more than fits into a pipe, so that git cannot have answered everything before it is killed.
    answers = objects.read_many(["HEAD"] * 5_000)
    next(answers)
    assert objects._child is not None
    os.kill(objects._child._process, signal.SIGKILL)
    time.sleep(0.1)
    # git may have answered one name or all three before it was killed; the error is the same.
    with pytest.raises(GitFailed, match="cannot be read"):
        [objects.read("HEAD") for _ in range(3)]
    assert objects.read("HEAD") is not None
    with pytest.raises(GitFailed, match="has ended"):
        list(answers)


def test_damaged_object_does_not_affect_others(repo: Repo, objects: CatFile) -> None:
    oid = LooseWriter(repo).add(b"blob", b"to be damaged" * 100).hex()
    place = repo.path / ".git/objects" / oid[:2] / oid[2:]
    place.write_bytes(place.read_bytes()[:20])
    with contextlib.suppress(GitFailed):
        assert objects.read(oid) is None
    assert objects.read("HEAD") is not None


def test_object_above_the_limit_is_not_read_into_memory(repo: Repo) -> None:
    oid = LooseWriter(repo).add(b"blob", bytes(9 << 20)).hex()
    with CatFile(git_of(repo), max_size=1 << 20) as objects:
        with pytest.raises(Damaged, match="more than the limit"):
            objects.read(oid)
        assert len(objects._buffer) < 1 << 20
        assert objects.read("HEAD") is not None


def test_close_ends_git_within_an_answer(repo: Repo) -> None:
    oid = LooseWriter(repo).add(b"blob", bytes(9 << 20)).hex()
    objects = CatFile(git_of(repo))
    objects._ask([oid.encode() + b"\n"])
    assert objects._child is not None
    process = objects._child._process
    objects.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    objects.close()
