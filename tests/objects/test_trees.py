"""Trees equal those of git and dulwich, and damaged ones are refused."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
from dulwich.objects import Blob, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.objects.trees import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    GITLINK,
    LINK,
    TreeEntry,
    decode_tree,
    encode_tree,
    object_id,
)
from tests.support.repository import Repo, make_repo

SHA1 = b"\x11" * 20
SHA256 = b"\x22" * 32

names = st.one_of(
    st.sampled_from((b"a", b"a.b", b"a-b", b"a0", b"a b", b"ab", b"a\xff", b"a\x01", b"A")),
    st.binary(min_size=1, max_size=8),
).filter(
    lambda name: (
        name not in (b".", b"..") and b"/" not in name and b"\0" not in name and name.lower() != b".git"
    )
)
modes = st.sampled_from((FILE, EXECUTABLE, LINK, DIRECTORY))


def entries(hash_length: int) -> st.SearchStrategy[list[TreeEntry]]:
    ids = st.binary(min_size=hash_length, max_size=hash_length).filter(any)
    return st.lists(st.tuples(names, modes, ids), max_size=12, unique_by=lambda entry: entry[0])


@given(st.sampled_from((20, 32)).flatmap(lambda length: st.tuples(st.just(length), entries(length))))
def test_tree_decodes_as_encoded_for_any_order(case: tuple[int, list[TreeEntry]]) -> None:
    length, held = case
    data = encode_tree(held)
    assert sorted(decode_tree(data, length)) == sorted(held)
    assert encode_tree(reversed(held)) == data


@given(entries(20))
def test_tree_equals_the_one_dulwich_writes(held: list[TreeEntry]) -> None:
    tree = Tree()
    for name, mode, oid in held:
        tree.add(name, mode, oid.hex().encode())
    assert encode_tree(held) == tree.as_raw_string()
    assert object_id(b"tree", encode_tree(held), "sha1").hex().encode() == tree.id


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_tree_equals_the_one_git_writes(tmp_path: Path, object_format: str) -> None:
    repo = make_repo(tmp_path / "repo", object_format=object_format)
    blob = bytes.fromhex(repo.git("rev-parse", "HEAD:app.py"))
    below = bytes.fromhex(repo.git("rev-parse", "HEAD^{tree}"))

    @settings(max_examples=15)
    @given(entries(len(blob)))
    def judged_by_git(found: list[TreeEntry]) -> None:
        held = [(name, mode, below if mode == DIRECTORY else blob) for name, mode, _ in found]
        kinds = {DIRECTORY: b"tree"}
        lines = [
            b"%06o %b %b\t%b\0" % (mode, kinds.get(mode, b"blob"), oid.hex().encode(), name)
            for name, mode, oid in held
        ]
        made = repo.git("mktree", "-z", input=b"".join(lines))
        data = encode_tree(held)
        assert object_id(b"tree", data, object_format).hex() == made
        assert repo.git("hash-object", "-t", "tree", "--stdin", input=data) == made
        assert repo.run_git("cat-file", "tree", made).stdout == data

    judged_by_git()


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@given(content=st.binary(max_size=200))
def test_blob_id_agrees_with_dulwich(object_format: str, content: bytes) -> None:
    if object_format == "sha1":
        assert object_id(b"blob", content, "sha1").hex().encode() == Blob.from_string(content).id
    else:
        assert len(object_id(b"blob", content, "sha256")) == 32


def test_git_agrees_on_the_id_of_a_blob(repo: Repo) -> None:
    assert object_id(b"blob", b"x\n", "sha1").hex() == repo.git("hash-object", "--stdin", input=b"x\n")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"100644 a\0" + SHA1[:19], "ends in the middle"),
        (b"100644 a", "ends in the middle"),
        (b"100644", "ends in the middle"),
        (b"100644 a\0" + SHA1 + b"x", "ends in the middle"),
        (b"100644 a\0" + SHA1 + b"100644 b\0" + SHA1[:5], "ends in the middle"),
        (b"100664 a\0" + SHA1, "unknown mode"),
        (b"0100644 a\0" + SHA1, "unknown mode"),
        (b"040000 a\0" + SHA1, "unknown mode"),
        (b"160000 a\0" + SHA1, "unknown mode"),
        (b"100600 a\0" + SHA1, "unknown mode"),
        (b"-1 a\0" + SHA1, "unknown mode"),
        (b"100644  a\0" + SHA1 + b"junk100644 b\0" + SHA1, "unknown mode"),
        (b"100644 \0" + SHA1, "impossible name"),
        (b"100644 a/b\0" + SHA1, "impossible name"),
        (b"100644 .\0" + SHA1, "leads out"),
        (b"40000 ..\0" + SHA1, "leads out"),
        (b"100644 b\0" + SHA1 + b"100644 a\0" + SHA1, "not in order"),
        (b"40000 a\0" + SHA1 + b"100644 a.b\0" + SHA1, "not in order"),
        (b"100644 a\0" + SHA1 + b"100644 a\0" + SHA1, "twice"),
        (b"100644 a\0" + SHA1 + b"40000 a\0" + SHA1, "twice"),
        (b"100644 a\0" + bytes(20), "no content"),
    ],
)
def test_damaged_tree_raises_damaged(data: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        decode_tree(data, 20)


def test_tree_with_other_hash_length_raises_damaged() -> None:
    assert decode_tree(b"100644 a\0" + SHA256, 32) == [(b"a", FILE, SHA256)]
    with pytest.raises(Damaged):
        decode_tree(b"100644 a\0" + SHA256, 20)
    with pytest.raises(Damaged):
        decode_tree(b"100644 a\0" + SHA1, 32)


def test_code_tree_may_contain_gitlinks() -> None:
    assert decode_tree(b"160000 a\0" + SHA1, 20, gitlinks=True) == [(b"a", GITLINK, SHA1)]


def test_tree_that_git_refuses_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="twice"):
        encode_tree([(b"a", FILE, SHA1), (b"a", DIRECTORY, SHA1)])
    with pytest.raises(ValueError, match="100600"):
        encode_tree([(b"a", 0o100600, SHA1)])


@given(st.binary(max_size=120), entries(20), st.integers(0, 400), st.integers(0, 255))
def test_arbitrary_bytes_decode_as_tree_or_raise_damaged(
    junk: bytes, held: list[TreeEntry], at: int, byte: int
) -> None:
    data = encode_tree(held)
    for hostile in (junk, data + junk, data[:at], data[:at] + bytes((byte,)) + data[at + 1 :]):
        try:
            found = decode_tree(hostile, 20)
        except Damaged:
            continue
        assert encode_tree(found) == hostile


def test_tree_encoding_takes_linear_time() -> None:
    """The quickest of a few runs, in processor time, which other processes do not affect."""

    def quickest(entries: int) -> tuple[float, float]:
        held = [(b"module_%d.py" % number, FILE, os.urandom(20)) for number in range(entries)]
        random.Random(3).shuffle(held)
        data = encode_tree(held)
        return least(lambda: encode_tree(held)), least(lambda: decode_tree(data, 20))

    for small, large in zip(quickest(2_000), quickest(20_000), strict=True):
        assert large < 40 * small


def least(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(5):
        start = process_time()
        work()
        taken.append(process_time() - start)
    return min(taken)
