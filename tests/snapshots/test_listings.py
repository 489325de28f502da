"""The short lists of a snapshot, and the chunks pointer."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath, GitChange, MissingPath, MissingReason, ObjectId
from git_envhist.snapshots.chunks import ChunksPointer, chunks_path, read_pointer, write_pointer
from git_envhist.snapshots.list_texts import (
    read_git_changes,
    read_missing,
    read_rules,
    write_git_changes,
    write_missing,
    write_rules,
)

parts = st.binary(min_size=1, max_size=6).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)
paths = st.lists(parts, max_size=4).map(lambda names: EnvPath(b"/".join(names)))
details = st.binary(max_size=12).map(lambda value: value.decode("utf-8", "surrogateescape"))
below_roots = st.builds(lambda root, path: EnvPath(root + b"://" + path), parts, paths)
missing = st.builds(MissingPath, paths | below_roots, st.sampled_from(MissingReason), details)
changes = st.builds(GitChange, st.sampled_from("MADRTU?!"), paths)

TREE = "5f" * 20


@given(st.lists(missing, max_size=6))
def test_missing_paths_are_read_back_sorted(items: list[MissingPath]) -> None:
    read = read_missing(write_missing(items))
    assert set(read) == set(items)
    assert [item.path for item in read] == sorted(item.path for item in set(items))
    assert write_missing(reversed(read)) == write_missing(items)


@given(st.lists(changes, max_size=6))
def test_git_changes_are_read_back_sorted(items: list[GitChange]) -> None:
    read = read_git_changes(write_git_changes(items))
    assert set(read) == set(items)
    assert write_git_changes(reversed(read)) == write_git_changes(items)


patterns = st.text(min_size=1, max_size=8).filter(lambda text: text.strip() and not text.startswith("#"))


@given(st.lists(patterns, max_size=4), st.lists(patterns, max_size=4))
def test_rules_are_read_back_in_their_order(ignore: list[str], exclude: list[str]) -> None:
    told = write_rules(["# a comment", "", *ignore], exclude)
    assert read_rules(told) == (tuple(ignore), tuple(exclude))


def test_lists_have_the_documented_format() -> None:
    gone = [
        MissingPath(EnvPath(b"b c"), MissingReason.NO_KEY),
        MissingPath(EnvPath(b"a"), MissingReason.BUDGET, "5.2 GiB"),
    ]
    assert write_missing(gone) == b"a budget 5.2%20GiB\nb%20c no-key\n"
    assert write_missing([MissingPath(EnvPath(b""), MissingReason.UNREADABLE)]) == b". unreadable\n"
    assert read_missing(b"nginx:// unreadable\n")[0].path == b"nginx://"
    assert write_missing([]) == b""
    seen = [GitChange("?", EnvPath(b"new file")), GitChange("M", EnvPath(b"app.py"))]
    assert write_git_changes(seen) == b"M app.py\n? new%20file\n"


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"\n",
            b"a\n",
            b"a budget",
            b"a budgets\n",
            b"a  budget\n",
            b"a budget \n",
            b"a budget x y\n",
            b" budget\n",
        ),
        *(
            b"/a budget\n",
            b"a/ budget\n",
            b"../a budget\n",
            b"a/./b budget\n",
            b"a%00 budget\n",
            b"%41 budget\n",
        ),
        *(
            b"b budget\na budget\n",
            b"a budget\n\n",
            b"a BUDGET\n",
            b"a\tbudget\n",
            b"a budget %41\n",
            b"a\r\n",
        ),
    ],
)
def test_damaged_list_of_missing_paths_is_reported(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_missing(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"M\n",
        b"M \n",
        b"MM a\n",
        b"m a\n",
        b"M ../a\n",
        b"M a b\n",
        b"M b\nM a\n",
        b"M a",
        b" a\n",
        b"M /a\n",
    ],
)
def test_damaged_list_of_git_changes_is_reported(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_git_changes(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_list_or_damage(data: bytes) -> None:
    for text in (data, data + b" budget\n", b"M " + data + b"\n"):
        with contextlib.suppress(Damaged):
            read_missing(text)
        with contextlib.suppress(Damaged):
            read_git_changes(text)


@pytest.mark.parametrize("length", [20, 32])
@given(size=st.integers(0, 2**63 - 1), data=st.data())
def test_chunks_pointer_survives_a_round_trip(length: int, size: int, data: st.DataObject) -> None:
    tree = ObjectId(data.draw(st.binary(min_size=length, max_size=length)))
    text = write_pointer(size, tree)
    assert read_pointer(text) == ChunksPointer(size, tree)
    assert chunks_path(tree) == (tree.hex()[:2], tree.hex()[2:])


def test_chunks_pointer_has_the_documented_format() -> None:
    assert write_pointer(7, bytes.fromhex(TREE)) == f"envhist-pieces 1\nsize 7\ntree {TREE}\n".encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "envhist-pieces 1\n",
        f"envhist-pieces 2\nsize 7\ntree {TREE}\n",
        f"envhist-pieces 1\nsize 07\ntree {TREE}\n",
        f"envhist-pieces 1\nsize -7\ntree {TREE}\n",
        f"envhist-pieces 1\nsize 9223372036854775808\ntree {TREE}\n",
        f"envhist-pieces 1\nsize {'9' * 5000}\ntree {TREE}\n",
        f"envhist-pieces 1\nsize 7\ntree {TREE.upper()}\n",
        f"envhist-pieces 1\nsize 7\ntree {TREE}0\n",
        f"envhist-pieces 1\nsize 7\ntree {TREE}",
        f"envhist-pieces 1\nsize 7\ntree {TREE}\n\n",
        f"envhist-pieces 1\r\nsize 7\r\ntree {TREE}\r\n",
    ],
)
def test_damaged_chunks_pointer_is_reported(text: str) -> None:
    with pytest.raises(Damaged):
        read_pointer(text.encode())
