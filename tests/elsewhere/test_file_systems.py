"""File systems that differ from Linux's own: they fold case, decompose names, or fail to read."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from git_envhist.worktree.read_file import CLOCK_GRANULARITY_NS, SECOND_NS, timestamp_granularity
from tests.cli.test_terminal_session import on_terminal
from tests.end_to_end.captures import assert_holds, capture
from tests.support.mounts import Room, private_mounts
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, make_repo
from tests.support.snapshot import read_back
from tests.support.trees import File, Link, build


@pytest.fixture
def room() -> Iterator[Room]:
    with private_mounts() as there:
        yield there


@pytest.fixture
def shown(tmp_path: Path) -> Repo:
    """Return a working tree whose files are served by another file system, and whose repository is on this one."""
    (tmp_path / "behind").mkdir()
    place = make_repo(tmp_path / "place")
    place.git("init", "-q", "--separate-git-dir", str(tmp_path / "repository"))
    (tmp_path / "place/.git").rename(tmp_path / "behind/.git")
    (tmp_path / "place/app.py").rename(tmp_path / "behind/app.py")
    return place


def behind(repo: Repo) -> Path:
    return repo.path.parent / "behind"


def missing(repo: Repo, commit: str) -> str:
    return repo.run_git("--git-dir=../repository", "show", f"{commit}:.envhist/missing", check=False).out


def test_unreadable_file_does_not_affect_other_files(shown: Repo, room: Room) -> None:
    build(
        {
            b"dir/a": File(b"1"),
            b"dir/rotten": File(b"2"),
            b"dir/rotten big": File(bytes(9 << 20)),
            b"dir/z": File(b"3"),
            b"rotten.db": File(b"SQLite format 3\0" + bytes(4080)),
            b"rotten.db-wal": File(b"4"),
        },
        behind(shown),
    )
    room.serve("failing", behind(shown), shown.path)
    done = room.capture(shown)
    assert "warning" in done.err
    shown.path = shown.path.parent / "repository"
    found = read_back(shown, done.out.strip()).listing
    assert {b"dir/a", b"dir/z", b"app.py"} <= set(found)
    assert not [path for path in found if b"rotten" in path]
    output = missing(shown, done.out.strip())
    assert output.count("io-error") == 4
    shown.path = shown.path.parent / "place"
    refused = room.capture(shown, "--strict", check=False)
    assert refused.status == 3


def without_extras(found: Listing) -> Listing:
    return {path: replace(entry, xattrs=(), uid=0, gid=0) for path, entry in found.items()}


def test_attributes_that_cannot_be_stored_are_reported_and_the_rest_is_restored(
    repo: Repo, room: Room
) -> None:
    build(
        {b"dir/a": File(b"1", xattrs=(("user.note", b"2"),)), b"dir/b": File(b"3"), b"l": Link(b"a")},
        repo.path,
    )
    if not listing(repo.path)[b"dir/a"].xattrs:
        pytest.skip("no attributes here either")
    first, wanted = capture(repo), listing(repo.path, top=True)
    there = repo.path.parent / "there"
    there.mkdir()
    room.mount("-t", "ramfs", "none", there)
    words = ("envrestore", "--json", "--to", str(there / "new"), first)
    done = repo.run(*words, prefix=room.inside(repo.path))
    assert done.status == 5, done.err
    losses = {(loss["path"], loss["why"]) for loss in json.loads(done.out)["losses"]}
    # In an ordinary user's namespace, only one owner can be set.
    owners = {loss for loss in losses if os.geteuid() != 0 and loss[1] == "its owner could not be set"}
    assert losses - owners == {("dir/a", "its attributes could not be set")}
    found = room.listing(there / "new")
    assert without_extras(found) == without_extras(wanted)
    assert {entry.xattrs for entry in found.values()} == {()}


THERE_AND_BACK = """\
set -e
git init -q repo && cd repo && mkdir dir && echo 1 > dir/a && echo 1 > b
first=$(git-envlog capture --porcelain -m first)
test "$(git show "$first:dir/a")" = 1
echo 2 > dir/a && rm b
test "$(git-envlog capture --json -m second | grep -c '"missing": \\[\\]')" = 1
git-envrestore -q "$first" && test "$(cat dir/a b | tr -d '\\n')" = 11
git-envrestore -q --to ../new "$first" && test "$(cat ../new/dir/a)" = 1
"""


def test_file_system_without_a_size_counts_as_having_enough_space(repo: Repo, room: Room) -> None:
    there = repo.path.parent / "there"
    there.mkdir()
    room.mount("-t", "ramfs", "none", there)
    assert os.statvfs(room.seen(there)).f_blocks == 0
    done = repo.execute(*room.inside(there), "sh", "-c", THERE_AND_BACK, check=False)
    assert (done.status, done.err) == (0, "")


def test_owner_that_only_root_can_set_is_reported_and_the_rest_is_restored(
    repo: Repo, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    user = as_ordinary_user()
    build({b"dir/theirs": File(b"1", mode=0o644), b"dir/ours": File(b"2")}, repo.path)
    os.chown(repo.path / "dir/theirs", 12345, 12345)
    os.chmod(repo.path / "dir/theirs", 0o4755)
    first, wanted = capture(repo), listing(repo.path, top=True)
    repo.write("dir/ours", b"changed")
    (repo.path / "dir/theirs").unlink()
    there = tmp_path / "there"
    for words, top in ((("--to", str(there)), there), ((), repo.path)):
        done = repo.run("envrestore", *words, first, prefix=user)
        assert done.status == 5, done.err
        assert done.err.splitlines() == [
            "warning: not restored exactly: 'dir/theirs': its owner could not be set"
        ]
        found = listing(top, top=True)
        theirs = found[b"dir/theirs"]
        # A set-user-id file must not run as a different owner, so the bit is removed.
        assert (theirs.uid, theirs.mode & 0o7777) == (os.geteuid(), 0o755)
        without = {path: entry for path, entry in found.items() if path != b"dir/theirs"}
        assert without == {path: entry for path, entry in wanted.items() if path != b"dir/theirs"}


def test_file_read_in_short_pieces_is_read_to_the_end(shown: Repo, room: Room) -> None:
    build({b"small": File(b"0123456789" * 500), b"big": File(os.urandom(9 << 20))}, behind(shown))
    room.serve("stuttering", behind(shown), shown.path)
    taken = room.capture(shown).out.strip()
    wanted = listing(behind(shown))
    shown.path = shown.path.parent / "repository"
    found = read_back(shown, taken).listing
    assert {path: entry.sha256 for path, entry in found.items() if entry.kind == "f"} == {
        path: entry.sha256 for path, entry in wanted.items()
    }


def test_slow_capture_shows_its_progress_on_a_terminal(shown: Repo, room: Room) -> None:
    build({b"f%d" % number: File(b"%d" % number) for number in range(30)}, behind(shown))
    room.serve("slow", behind(shown), shown.path)
    said, status = on_terminal(shown, *room.inside(shown.path), "git-envlog", "capture", "-m", "slow")
    assert status == 0
    assert "capturing" in said
    assert re.search(r"[1-9]\d* files", said)
    # The last line left on the terminal is the result, not the progress.
    assert "slow" in said[said.rindex("capturing") :]


def test_repository_is_recognized_in_any_case_when_case_is_folded(shown: Repo, room: Room) -> None:
    (behind(shown) / ".git").rename(behind(shown) / ".GIT")
    names = [b"Name", "na\u0308me".encode(), b"vendor/.Git/HEAD", b"vendor/.GITATTRIBUTES"]
    build({name: File(name) for name in names}, behind(shown))
    room.serve("folding", behind(shown), shown.path)
    assert room.run("test", "-e", shown.path / "nAME", check=False).status == 0
    first, second = (room.capture(shown).out.strip() for _ in range(2))
    shown.path = shown.path.parent / "repository"
    for taken in (first, second):
        found = read_back(shown, taken).listing
        assert {path for path, entry in found.items() if entry.kind == "f"} == {b"app.py", *names}
    assert git_fsck(shown.path) == ""


def test_another_spelling_of_git_is_an_ordinary_name_when_case_counts(repo: Repo) -> None:
    repo.write(".GIT/HEAD", b"1")
    repo.write("Name", b"1")
    repo.write("name", b"2")
    commit = repo.run("envlog", "capture", "--porcelain", check=True).out.strip()
    assert_holds(repo, commit)
    assert {b".GIT/HEAD", b"Name", b"name"} <= set(read_back(repo, commit).listing)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_are_kept_as_the_file_system_lists_them(repo: Repo, form: str) -> None:
    name = unicodedata.normalize(form, "résumé ångström").encode()
    repo.write(name, b"1")
    commit = repo.run("envlog", "capture", "--porcelain", check=True).out.strip()
    assert_holds(repo, commit)
    assert name in read_back(repo, commit).listing


@pytest.mark.parametrize(
    ("time_ns", "wanted"),
    [
        (1_700_000_001 * SECOND_NS + 1, CLOCK_GRANULARITY_NS),
        (1_700_000_001 * SECOND_NS, SECOND_NS + CLOCK_GRANULARITY_NS),
        (1_700_000_000 * SECOND_NS, 2 * SECOND_NS + CLOCK_GRANULARITY_NS),
    ],
    ids=["fine", "whole seconds", "every other second, as on FAT"],
)
def test_file_counts_as_recent_for_longer_on_a_coarser_clock(time_ns: int, wanted: int) -> None:
    assert timestamp_granularity(time_ns) == wanted
