"""The watched directories claim every directory that changed, and doubt what they cannot know."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from git_envhist.platform import SYSTEM
from git_envhist.watcher import inotify, open_below, watched_directories
from git_envhist.watcher.inotify import Inotify, InotifyUnavailable
from git_envhist.watcher.open_below import DirectoriesBelow, identity_of
from git_envhist.watcher.watched_directories import WatchedDirectories, WatchedScope
from tests.support.privileges import permissions_bind
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


def write_through_link(top: Path, link: str) -> None:
    os.link(top / "a/b/file", top / link)
    (top / link).write_text("changed under its other name")


def test_hard_link_that_was_removed_at_once_makes_earlier_tokens_unknown(top: Path) -> None:
    watched, token = begun(top)
    write_through_link(top, "other/link")
    (top / "other/link").unlink()
    assert claimed(watched, token) is None


def test_hard_link_that_was_replaced_at_once_makes_earlier_tokens_unknown(top: Path) -> None:
    watched, token = begun(top)
    write_through_link(top, "other/link")
    (top / "other/new").write_text("x")
    os.rename(top / "other/new", top / "other/link")
    assert claimed(watched, token) is None


def test_hard_link_in_a_moved_directory_that_was_removed_makes_earlier_tokens_unknown(top: Path) -> None:
    watched, token = begun(top)
    write_through_link(top, "other/link")
    os.rename(top / "other", top / "renamed")
    (top / "renamed/link").unlink()
    assert claimed(watched, token) is None


def test_new_directory_that_was_removed_at_once_makes_earlier_tokens_unknown(top: Path) -> None:
    watched, token = begun(top)
    (top / "n").mkdir()
    write_through_link(top, "n/link")
    shutil.rmtree(top / "n")
    assert claimed(watched, token) is None


def test_removed_hard_link_counts_once(top: Path) -> None:
    watched, _ = begun(top)
    write_through_link(top, "other/link")
    (top / "other/link").unlink()
    token = watched.changes_since(None).token
    (top / "other/new").write_text("x")
    assert claimed(watched, token) == [b"other"]


def test_file_that_was_written_aside_and_renamed_claims_its_directories(top: Path) -> None:
    watched, token = begun(top)
    (top / "other/new").write_text("y")
    os.rename(top / "other/new", top / "a/b/file")
    assert set(claimed(watched, token) or ()) == {b"other", b"a/b"}


def test_directory_that_was_made_aside_and_renamed_claims_its_directories(top: Path) -> None:
    watched, token = begun(top)
    (top / "aside/in").mkdir(parents=True)
    (top / "aside/in/.file").write_text("y")
    os.rename(top / "aside/in/.file", top / "aside/in/file")
    os.rename(top / "aside", top / "other/place")
    found = claimed(watched, token)
    assert found is not None
    assert {b"", b"other", b"other/place", b"other/place/in"} <= set(found)


def test_change_of_a_seen_file_is_no_doubt(top: Path) -> None:
    watched, _ = begun(top)
    (top / "other/new").write_text("y")
    token = watched.changes_since(None).token
    (top / "other/new").unlink()
    assert claimed(watched, token) == [b"other"]


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


def test_directory_that_became_a_link_keeps_the_watch_of_its_target(top: Path) -> None:
    (top / "target/c").mkdir(parents=True)
    (top / "link").mkdir()
    watched, _ = begun(top)
    (top / "link/c").mkdir()
    shutil.rmtree(top / "link")
    (top / "link").symlink_to("target")
    token = watched.changes_since(None).token
    (top / "target/c/file").write_text("x")
    assert claimed(watched, token) == [b"target/c"]


def test_directory_under_two_paths_cannot_be_watched(top: Path) -> None:
    with pytest.raises(InotifyUnavailable, match="two paths"):
        watch(os.fsencode(top), conf=os.fsencode(top / "a/b"))


def test_directory_that_cannot_be_read_is_claimed(top: Path, tmp_path: Path) -> None:
    (tmp_path / "swapped/b").mkdir(parents=True)
    (tmp_path / "swapped/b").chmod(0)
    watched, token = begun(top)
    os.rename(top / "a", tmp_path / "before")
    os.rename(tmp_path / "swapped", top / "a")
    with permissions_bind():
        assert b"a/b" in (claimed(watched, token) or ())


def test_directories_are_watched_once_they_can_be_read(top: Path) -> None:
    (top / "a").chmod(0o644)
    with permissions_bind():
        watched, _ = begun(top)
    (top / "a").chmod(0o755)
    token = watched.changes_since(None).token
    (top / "a/b/c/new").write_text("x")
    assert claimed(watched, token) == [b"a/b/c"]


def test_mode_of_a_directory_claims_nothing_below_after_a_directory_became_a_link(top: Path) -> None:
    watched, _ = begun(top)
    (top / "s").mkdir()
    (top / "s").rmdir()
    (top / "s").symlink_to("a")
    token = watched.changes_since(None).token
    (top / "a").chmod(0o700)
    assert set(claimed(watched, token) or ()) == {b"", b"a"}


def test_events_of_a_root_that_was_removed_from_the_scope_are_ignored(top: Path, tmp_path: Path) -> None:
    (tmp_path / "more/sub").mkdir(parents=True)
    watched = watch(os.fsencode(top), conf=os.fsencode(tmp_path / "more"))
    (tmp_path / "more/sub/new").write_text("x")
    watched.watch_other(WatchedScope("other", {b"": os.fsencode(top)}, lambda _directory, _name: False))
    watched.drain()
    watched.walk()
    token = watched.changes_since(None).token
    (tmp_path / "more/sub/file").write_text("x")
    (top / "other/file").write_text("x")
    assert claimed(watched, token) == [b"other"]
    assert set(watched.paths()) == {b"", b"a", b"a/b", b"a/b/c", b"other"}


def test_directory_moved_to_an_excluded_name_is_not_watched(top: Path) -> None:
    scope = WatchedScope("", {b"": os.fsencode(top)}, lambda _directory, name: name == b"excluded")
    watched = WatchedDirectories(Inotify(), scope)
    watched.walk()
    os.rename(top / "a", top / "excluded")
    watched.drain()
    assert set(watched.paths()) == {b"", b"other"}
    assert len(watched) == 2
    os.rename(top / "excluded", top / "a")
    token = watched.changes_since(None).token
    (top / "a/b/c/new").write_text("x")
    assert claimed(watched, token) == [b"a/b/c"]


def test_very_many_changes_make_earlier_tokens_unknown(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_directories, "MANY_CHANGED", 3)
    watched, token = begun(top)
    for number in range(12):
        (top / f"n{number}").mkdir()
        watched.drain()
        (top / f"n{number}").rmdir()
    assert claimed(watched, token) is None


@pytest.mark.parametrize("openat2", [True, False])
def test_directories_are_opened_without_following_links(
    top: Path, monkeypatch: pytest.MonkeyPatch, openat2: bool
) -> None:
    monkeypatch.setattr(open_below, "SYSTEM", SYSTEM._replace(openat2=openat2))
    (top / "link").symlink_to("a")
    bases = {b"": os.fsencode(top)}
    with DirectoriesBelow(bases, {b"": identity_of(os.stat(top))}) as directories:
        for path in ("", "a", "a/b/c"):
            opened = directories.open(os.fsencode(path))
            assert identity_of(os.fstat(opened)) == identity_of(os.stat(top / path))
            os.close(opened)
        for path in ("link", "link/b", "a/b/file", "gone"):
            with pytest.raises(OSError) as raised:
                directories.open(os.fsencode(path))
            assert raised.value.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT)


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
