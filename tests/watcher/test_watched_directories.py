"""The watched directories claim every directory that changed, and doubt what they cannot know."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from git_envhist.watcher import inotify
from git_envhist.watcher.inotify import InotifyUnavailable
from git_envhist.watcher.watched_directories import WatchedDirectories
from tests.watcher.states import States, Storm, changed, states, watch


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "top"
    (made / "a/b/c").mkdir(parents=True)
    (made / "a/b/file").write_text("x")
    (made / "other").mkdir()
    return made


def claimed(watched: WatchedDirectories, token: int | None) -> list[bytes] | None:
    return watched.changes_since(token).directories


def begun(top: Path) -> tuple[WatchedDirectories, int]:
    watched = watch(os.fsencode(top))
    token = watched.changes_since(None).token
    assert token is not None
    return watched, token


def test_more_than_half_of_the_watches_of_a_user_are_not_taken(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "read_limit", lambda _name: 10)
    watched, _ = begun(top)
    assert len(watched) == 5
    (top / "sixth").mkdir()
    with pytest.raises(InotifyUnavailable):
        watched.drain()


def test_nothing_is_claimed_without_a_change(top: Path) -> None:
    watched, token = begun(top)
    (top / "a/b/file").read_text()
    assert claimed(watched, token) == []


def test_written_file_claims_its_directory_only(top: Path) -> None:
    watched, token = begun(top)
    (top / "a/b/file").write_text("y")
    assert claimed(watched, token) == [b"a/b"]


def test_changes_are_claimed_until_a_later_token(top: Path) -> None:
    watched, token = begun(top)
    (top / "a/b/file").write_text("y")
    first = watched.changes_since(token)
    (top / "other/new").write_text("y")
    assert set(claimed(watched, token) or ()) == {b"a/b", b"other"}
    assert claimed(watched, first.token) == [b"other"]


def test_directory_moved_within_is_watched_at_its_new_place(top: Path) -> None:
    watched, _ = begun(top)
    os.rename(top / "a/b", top / "other/b")
    token = watched.changes_since(None).token
    (top / "other/b/c/new").write_text("x")
    assert claimed(watched, token) == [b"other/b/c"]


def test_directory_moved_out_is_not_watched(top: Path, tmp_path: Path) -> None:
    watched, _ = begun(top)
    os.rename(top / "a", tmp_path / "out")
    watched.drain()
    assert len(watched) == 2


def test_directories_created_at_once_are_all_watched(top: Path) -> None:
    watched, _ = begun(top)
    (top / "n/e/w").mkdir(parents=True)
    token = watched.changes_since(None).token
    (top / "n/e/w/file").write_text("x")
    assert claimed(watched, token) == [b"n/e/w"]


def test_new_hard_link_makes_earlier_tokens_unknown(top: Path) -> None:
    watched, token = begun(top)
    os.link(top / "a/b/file", top / "other/link")
    assert claimed(watched, token) is None


def test_file_moved_out_claims_its_directory(top: Path, tmp_path: Path) -> None:
    watched, token = begun(top)
    os.rename(top / "a/b/file", tmp_path / "out")
    assert claimed(watched, token) == [b"a/b"]


def test_hard_link_that_was_moved_out_at_once_makes_earlier_tokens_unknown(top: Path, tmp_path: Path) -> None:
    watched, token = begun(top)
    os.link(top / "a/b/file", top / "other/link")
    os.rename(top / "other/link", tmp_path / "out")
    assert claimed(watched, token) is None


def test_overflow_makes_earlier_tokens_unknown_until_everything_is_watched_again(top: Path) -> None:
    watched, token = begun(top)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(limit + 100):
        os.utime(top / ("a/b" if number % 2 else "other"))
    os.makedirs(top / "lost/during/overflow")
    assert watched.changes_since(token).token is None
    watched.walk()
    found = watched.changes_since(token)
    assert found.directories is None
    (top / "lost/during/overflow/file").write_text("x")
    assert claimed(watched, found.token) == [b"lost/during/overflow"]


def test_additional_roots_are_watched_under_their_names(top: Path, tmp_path: Path) -> None:
    (tmp_path / "more/sub").mkdir(parents=True)
    watched = watch(os.fsencode(top), conf=os.fsencode(tmp_path / "more"))
    token = watched.changes_since(None).token
    (tmp_path / "more/file").write_text("x")
    (tmp_path / "more/sub/file").write_text("x")
    assert set(claimed(watched, token) or ()) == {b"\0conf", b"\0conf/sub"}


def test_root_that_is_a_link_is_watched(top: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(top)
    watched = watch(os.fsencode(tmp_path / "link"))
    token = watched.changes_since(None).token
    (top / "new").write_text("x")
    assert claimed(watched, token) == [b""]


def test_removed_root_ends_the_watch(top: Path) -> None:
    watched, token = begun(top)
    os.rename(top, top.parent / "elsewhere")
    assert watched.changes_since(token).token is None
    assert watched.is_gone


def test_git_directory_of_the_history_is_not_watched(top: Path) -> None:
    (top / ".git").mkdir()
    (top / "a/.git").mkdir()
    watched, token = begun(top)
    (top / ".git/index").write_text("x")
    (top / "a/.git/index").write_text("x")
    assert claimed(watched, token) == [b"a/.git"]


@pytest.mark.parametrize("seed", range(12))
def test_storm_changes_no_directory_that_is_not_claimed(tmp_path: Path, seed: int) -> None:
    compare_claims(tmp_path, seed, rounds=25, steps=12)


def test_storm_beside_the_looks_changes_no_directory_that_is_not_claimed(tmp_path: Path) -> None:
    top, outside = os.fsencode(tmp_path / "top"), os.fsencode(tmp_path / "outside")
    os.mkdir(top)
    os.mkdir(outside)
    watched, storm = watch(top), Storm(top, outside, 99)
    for _ in range(10):
        beside = threading.Thread(target=lambda: [storm.step() for _ in range(60)])
        beside.start()
        time.sleep(0.002)
        token, before = watched.changes_since(None).token, states(top)
        beside.join()
        look(watched, token, before, top)
    watched.close()


def compare_claims(tmp_path: Path, seed: int, rounds: int, steps: int) -> None:
    """Change directories at random, and compare in each round what changed with what is claimed."""
    top, outside = os.fsencode(tmp_path / f"top{seed}"), os.fsencode(tmp_path / f"outside{seed}")
    os.mkdir(top)
    os.mkdir(outside)
    watched, storm = watch(top), Storm(top, outside, seed)
    for _ in range(rounds):
        token, before = watched.changes_since(None).token, states(top)
        for _ in range(steps):
            storm.step()
        look(watched, token, before, top)
    watched.close()


def look(watched: WatchedDirectories, token: int | None, before: States, top: bytes) -> None:
    found = watched.changes_since(token)
    after = states(top)
    if found.directories is not None:
        assert changed(before, after) - linked(before) - linked(after) <= set(found.directories)
    assert {path for path in watched.paths() if path in after} == set(after)


def linked(found: States) -> set[bytes]:
    """Return the directories with files of several hard links, at which each capture looks."""
    return {path for path, (_, rows) in found.items() if any(row and row[4] > 1 for row in rows.values())}
