"""dulwich, an independent git in Python, reads a whole timeline: commits, trees, blobs and notes."""

from __future__ import annotations

import json
import stat

import pytest
from dulwich.notes import get_note_path
from dulwich.objects import Blob, Commit, Tree
from dulwich.repo import Repo as DulwichRepo

from tests.end_to_end.captures import capture
from tests.end_to_end.test_capture_is_true import EVERYTHING
from tests.secrets.test_unsigned_snapshots import ref_of
from tests.support.repository import Repo
from tests.support.trees import build


@pytest.fixture
def told(repo: Repo) -> tuple[Repo, list[str]]:
    build(EVERYTHING, repo.path)
    ids = []
    for number in range(4):
        repo.write("counted", str(number))
        ids.append(capture(repo, f"snapshot {number}", "--name", f"n{number}"))
    return repo, ids


def test_dulwich_walks_the_timeline(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    with DulwichRepo(str(repo.path)) as opened:
        tip = opened.refs[ref_of(repo).encode()]
        walked = [entry.commit for entry in opened.get_walker(include=[tip])]
        assert [commit.id.decode() for commit in walked] == ids[::-1]
        assert [commit.message.split(b"\n")[0] for commit in walked] == [
            b"snapshot %d" % n for n in (3, 2, 1, 0)
        ]
        assert all(isinstance(commit, Commit) for commit in walked)


def test_dulwich_finds_every_object_valid(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    with DulwichRepo(str(repo.path)) as opened:
        for number, one in enumerate(ids):
            commit = opened[one.encode()]
            commit.check()
            paths = set()
            for path, mode, oid in opened.object_store.iter_tree_contents(commit.tree, include_trees=True):
                found = opened[oid]
                found.check()
                assert isinstance(found, Tree if stat.S_ISDIR(mode) else Blob)
                paths.add(path)
            assert {b"plain", b"crlf", b".envhist/git-changed"} <= paths
            _, counted = opened[commit.tree].lookup_path(opened.__getitem__, b"counted")
            assert opened[counted].data == b"%d" % number


def test_dulwich_finds_the_notes(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    ref = ref_of(repo).replace("refs/envhist/heads/", "refs/notes/envhist/").encode()
    with DulwichRepo(str(repo.path)) as opened:
        for number, one in enumerate(ids):
            note = opened.notes.get_note(one.encode(), ref)
            assert note is not None
            records = [json.loads(line) for line in note.splitlines()]
            assert {"intent", "name"} == {record["kind"] for record in records}
            assert f"n{number}" in [record.get("name") for record in records]
    assert get_note_path(ids[0].encode(), 1) == f"{ids[0][:2]}/{ids[0][2:]}".encode()
