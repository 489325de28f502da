"""The index reader agrees with `git ls-files`; an invalid index raises Damaged."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.git.status import Index, IndexEntry, parse_index
from tests.capture.helpers import fresh_repo
from tests.support.repository import Repo
from tests.support.strategies import names

FORMATS = ("sha1", "sha256")
LENGTHS = {"sha1": 20, "sha256": 32}
SHAPES = ("--index-version=2", "--index-version=3", "--index-version=4", "--split-index", "--untracked-cache")


def parsed(repo: Repo, object_format: str = "sha1") -> Index:
    return parse_index(repo.read(".git/index"), LENGTHS[object_format])


def stages(index: Index) -> list[tuple[int, str, int, bytes]]:
    return [(entry.mode, entry.oid.hex(), entry.stage, entry.path) for entry in index.entries]


def as_git_lists_it(repo: Repo, *words: str) -> list[tuple[int, str, int, bytes]]:
    rows = []
    for line in repo.run_git("ls-files", "--stage", "-z", *words).stdout.split(b"\0")[:-1]:
        said, _, path = line.partition(b"\t")
        mode, oid, stage = said.decode().split()
        rows.append((int(mode, 8), oid, int(stage), path))
    return rows


def busy(repo: Repo) -> None:
    """Fill a repository with conflicts, flags, unusual and long names, and links."""
    for number in range(20):
        repo.write(f"dir{number % 3}/file {number}", f"{number}")
    repo.write(b"\xff\n\t", b"odd")
    repo.write("n" * 255, b"long")
    repo.write("/".join(["deep" * 10] * 50) + "/4095 is more than twelve bits hold", b"longer")
    (repo.path / "link").symlink_to("nowhere")
    repo.commit("filled")
    repo.git("checkout", "-q", "-b", "other")
    repo.write("app.py", b"theirs")
    repo.commit("theirs")
    repo.git("checkout", "-q", "main")
    repo.write("app.py", b"ours")
    repo.commit("ours")
    repo.git("merge", "-q", "other", check=False)
    repo.write("later", b"1")
    repo.git("add", "-N", "later")
    repo.git("update-index", "--skip-worktree", "dir0/file 0")
    repo.git("update-index", "--assume-unchanged", "dir1/file 1")


@pytest.mark.parametrize("object_format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_index_entries_agree_with_git_ls_files(object_format: str, shape: str) -> None:
    with fresh_repo(object_format) as repo:
        busy(repo)
        word, _, number = shape.partition("=")
        repo.git("update-index", word, *([number] if number else []))
        index = parsed(repo, object_format)
        assert index.split is (shape == "--split-index")
        if not index.split:
            assert stages(index) == as_git_lists_it(repo)
            flags = {entry.path: entry for entry in index.entries}
            assert flags[b"dir0/file 0"].skip_worktree
            assert flags[b"dir1/file 1"].assume_valid
            assert flags[b"later"].intent_to_add
            assert not flags[b"dir2/file 2"].skip_worktree


def test_index_stats_agree_with_git_ls_files_debug(repo: Repo) -> None:
    busy(repo)
    text = repo.git("ls-files", "--stage", "--debug")
    fields = re.findall(
        r"ctime: (\d+):(\d+)\n\s+mtime: (\d+):(\d+)\n\s+dev: (\d+)\tino: (\d+)"
        r"\n\s+uid: (\d+)\tgid: (\d+)\n\s+size: (\d+)",
        text,
    )
    entries = parsed(repo).entries
    assert len(fields) == len(entries)
    for told, entry in zip(fields, entries, strict=True):
        assert tuple(map(int, told)) == without_mode(entry)


def without_mode(entry: IndexEntry) -> tuple[int, ...]:
    return (*entry.stat[:6], *entry.stat[7:])


def test_sparse_index_has_directory_entries(repo: Repo) -> None:
    for number in range(9):
        repo.write(f"d{number % 3}/f{number}", "1")
    repo.commit("filled")
    repo.git("sparse-checkout", "set", "--cone", "--sparse-index", "d1")
    assert stages(parsed(repo)) == as_git_lists_it(repo, "--sparse")
    assert 0o040000 in {entry.mode for entry in parsed(repo).entries}


@settings(max_examples=15)
@given(st.lists(names(top=True), min_size=1, max_size=12, unique=True), st.sampled_from(["2", "4"]))
def test_index_reads_arbitrary_names(wanted: list[bytes], version: str) -> None:
    with fresh_repo() as repo:
        empty = repo.git("hash-object", "-w", "--stdin")
        lines = b"".join(b"100644 %b\t%b\0" % (empty.encode(), name) for name in wanted)
        repo.git("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false",
                 "update-index", "-z", "--index-info", input=lines, check=False)  # fmt: skip
        repo.git("update-index", "--index-version", version)
        assert stages(parsed(repo)) == as_git_lists_it(repo)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from([20, 32]))
def test_arbitrary_bytes_parse_as_index_or_raise_damaged(data: bytes, length: int) -> None:
    for start in (
        b"",
        b"DIRC\0\0\0\x02\0\0\0\x02",
        b"DIRC\0\0\0\x04\0\0\0\x03",
        b"DIRC\0\0\0\x03\xff\xff\xff\xff",
    ):
        parses_or_is_damaged(start + data, length)


def test_index_with_changed_bytes_parses_or_raises_damaged(repo: Repo) -> None:
    busy(repo)
    for version in ("2", "4"):
        repo.git("update-index", "--index-version", version)
        data = repo.read(".git/index")
        for at in range(0, min(len(data), 3000), 7):
            parses_or_is_damaged(data[:at], 20)
            parses_or_is_damaged(data[:at] + b"\xff" + data[at + 1 :], 20)
        with pytest.raises(Damaged):
            parse_index(data[: len(data) // 3], 20)


def parses_or_is_damaged(data: bytes, length: int) -> None:
    try:
        index = parse_index(data, length)
    except Damaged:
        return
    for entry in index.entries:
        assert len(entry.oid) == length
        assert b"\0" not in entry.path


def test_index_name_without_end_uses_little_memory() -> None:
    entry = bytes(62) + os.urandom(8) + b"\xff" * 9 + b"x\0"
    parses_or_is_damaged(b"DIRC\0\0\0\x04\0\0\0\x01" + entry, 20)
