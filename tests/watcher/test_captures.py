"""Captures with a watcher look only at what may have changed, and find what a full look finds."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

import pytest

from git_envhist._version import __version__
from git_envhist.capture.environment_trees import open_stat_cache
from git_envhist.disk import state_directory
from git_envhist.locks import try_lock
from git_envhist.peers import with_short_path
from git_envhist.watcher import server
from git_envhist.watcher.client import LOCK, SILENT, begin_asking, exchange, socket_path
from git_envhist.watcher.open_files import OpenFiles
from git_envhist.watcher.server import WatcherProcess
from git_envhist.watcher.verify import Differing
from tests.support.repository import Repo
from tests.watcher.helpers import RunningWatcher, asked, full_look, look, open_history, running

NOTE_HIDDEN = OpenFiles._note_hidden
"""The method itself; for each test it is replaced."""


@pytest.fixture
def hidden_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let watchers of the test doubt files whose name is unknown."""
    monkeypatch.setattr(OpenFiles, "_note_hidden", NOTE_HIDDEN)


@pytest.fixture
def watched(repo: Repo) -> Iterator[RunningWatcher]:
    repo.write("a/b/file", "1")
    repo.write("a/other", "1")
    repo.write("c/file", "1")
    with running(str(repo.path)) as watcher:
        capture(repo)
        yield watcher


def capture(repo: Repo) -> str:
    """Capture, compare the tree with that of a full look, and return it."""
    with asked() as told:
        captured = open_history(str(repo.path)).capture("x")
    assert captured.snapshot is not None
    assert look(str(repo.path)) == full_look(str(repo.path))
    capture.told = told[0]  # type: ignore[attr-defined]
    return captured.snapshot.tree


def told() -> object:
    """Return what the last capture was told to scan."""
    return capture.told  # type: ignore[attr-defined]


def verified(watcher: RunningWatcher) -> dict[str, object]:
    """Return the result of a verification."""
    exchange(watcher.state, {"op": "verify"})
    until = time.monotonic() + 60
    while watcher.status().get("verified") is None and time.monotonic() < until:
        time.sleep(0.01)
    return watcher.status()["verified"]  # type: ignore[return-value]


def test_second_capture_scans_nothing(repo: Repo, watched: RunningWatcher) -> None:
    capture(repo)
    assert told() == []


def test_capture_scans_the_directory_that_changed(repo: Repo, watched: RunningWatcher) -> None:
    before = capture(repo)
    repo.write("a/b/file", "2")
    assert capture(repo) != before
    assert told() == [b"a/b"]


ASK = """
import os, sys
from git_envhist.watcher.client import ask_changes, begin_asking
state, cache, naming, top = sys.argv[1:]
print(ask_changes(state, begin_asking(state), cache, naming, {b"": os.fsencode(top)}).directories)
"""


def test_answer_does_not_depend_on_the_encoding_of_paths(repo: Repo, watched: RunningWatcher) -> None:
    repo.write("\N{LATIN SMALL LETTER U WITH DIAERESIS}/file", "1")
    capture(repo)
    repo.write("\N{LATIN SMALL LETTER U WITH DIAERESIS}/file", "2")
    history = open_history(str(repo.path))
    head = open_stat_cache(history.repository).read_head()
    assert head is not None
    words = [watched.state, head.id, history.capturing.read_scope(None).naming, str(repo.path)]
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    found = subprocess.run([sys.executable, "-c", ASK, *words], env=ascii_only, capture_output=True)
    assert found.stdout.decode("ascii").strip() == "[b'\\xc3\\xbc']", found.stderr


def test_first_capture_without_a_change_makes_the_next_one_fast(repo: Repo) -> None:
    repo.write("a/file", "1")
    # Later the cache has the times of all files, so that the next capture needs no new one.
    time.sleep(0.05)
    open_history(str(repo.path)).capture("x")
    with running(str(repo.path)), asked() as told:
        for _ in range(2):
            open_history(str(repo.path)).capture("x", if_changed=True)
    assert told == [None, []]


def test_new_and_removed_directories_are_captured(repo: Repo, watched: RunningWatcher) -> None:
    repo.write("new/in/depth", "x")
    (repo.path / "c/file").unlink()
    (repo.path / "c").rmdir()
    capture(repo)
    assert told() is not None
    repo.write("new/in/depth", "y")
    capture(repo)
    assert told() == [b"new/in"]


def test_capture_without_a_change_needs_no_new_cache(repo: Repo, watched: RunningWatcher) -> None:
    repo.write("a/b/file", "2")
    capture(repo)
    open_history(str(repo.path)).capture("x", if_changed=True)
    capture(repo)
    assert told() == []


def test_killed_watcher_costs_a_full_look(repo: Repo, watched: RunningWatcher) -> None:
    watched.signal(signal.SIGKILL)
    watched.wait()
    repo.write("a/b/file", "2")
    capture(repo)
    assert told() is None


def test_another_watcher_knows_no_token(repo: Repo, watched: RunningWatcher) -> None:
    watched.close()
    repo.write("a/b/file", "2")
    with running(str(repo.path)):
        capture(repo)
        assert told() is None
        capture(repo)
        assert told() == []


def test_stopped_watcher_costs_a_full_look(repo: Repo, watched: RunningWatcher) -> None:
    watched.signal(signal.SIGSTOP)
    repo.write("a/b/file", "2")
    capture(repo)
    assert told() is None
    watched.signal(signal.SIGCONT)
    repo.write("a/b/file", "3")
    capture(repo)
    repo.write("a/b/file", "4")
    capture(repo)
    assert told() == [b"a/b"]


def test_cache_of_a_backup_is_unknown(repo: Repo, watched: RunningWatcher) -> None:
    head = repo.path / ".git/envhist/cache/head"
    older = head.read_bytes()
    repo.write("a/b/file", "2")
    capture(repo)
    head.write_bytes(older)
    capture(repo)
    assert told() is None


def test_hard_links_are_looked_at_by_each_capture(repo: Repo, watched: RunningWatcher) -> None:
    outside = repo.path.parent / "outside"
    outside.write_text("1")
    os.link(outside, repo.path / "c/link")
    capture(repo)
    outside.write_text("changed outside")
    capture(repo)
    assert told() == [b"c"]


def test_hard_link_that_was_removed_outside_changes_the_manifest(repo: Repo, watched: RunningWatcher) -> None:
    outside = repo.path.parent / "outside"
    outside.write_text("1")
    os.link(outside, repo.path / "c/link")
    capture(repo)
    outside.unlink()
    capture(repo)
    capture(repo)
    assert told() == []


def test_store_through_a_mapping_is_captured_while_the_mapping_exists(
    repo: Repo, watched: RunningWatcher
) -> None:
    capture(repo)
    with open(repo.path / "c/file", "r+b") as file, mmap.mmap(file.fileno(), 1) as mapped:
        file.close()
        capture(repo)
        mapped[0] = 50
        mapped.flush()
        capture(repo)
        assert told() == [b"c"]


def test_changed_patterns_are_another_scope(repo: Repo, watched: RunningWatcher) -> None:
    repo.write(".envhistignore", "c/\n")
    capture(repo)
    assert told() is None
    capture(repo)
    capture(repo)
    assert told() == []


def test_missing_paths_are_reported_by_each_capture(repo: Repo, watched: RunningWatcher) -> None:
    repo.git("config", "envhist.budget", "10")
    repo.write("c/large", os.urandom(100_000))
    capture(repo)
    assert look(str(repo.path)).missing == ((b"c/large", "budget"),)
    assert b"c" in told()  # type: ignore[operator]


def test_restore_is_followed_by_a_capture_of_what_it_wrote(repo: Repo, watched: RunningWatcher) -> None:
    repo.write("a/b/file", "2")
    repo.write("c/more", "2")
    capture(repo)
    open_history(str(repo.path)).restore("@~1")
    repo.write("a/other", "3")
    capture(repo)
    # A file that the restore moved out before its links were counted makes everything unknown.
    found = told()
    assert found is None or {*found} >= {b"a", b"a/b", b"c"}  # type: ignore[misc]


def test_verification_finds_a_change_that_gave_no_event(repo: Repo, watched: RunningWatcher) -> None:
    capture(repo)
    # A link outside of the environment gives no event in it, and neither does a write through it.
    outside = repo.path.parent / "outside"
    os.link(repo.path / "c/file", outside)
    outside.write_text("changed outside")
    exchange(watched.state, {"op": "verify"})
    until = time.monotonic() + 60
    while watched.status().get("wrong") is None and time.monotonic() < until:
        time.sleep(0.01)
    assert watched.status()["wrong"] == "c"
    capture(repo)
    assert told() is None


def test_watcher_that_was_wrong_is_not_kept_by_questions(repo: Repo) -> None:
    process = WatcherProcess(str(repo.path), lambda: pytest.fail("asked"), 600)
    process._wrong, process._asked = "c", 0.0
    process._answer({"version": __version__, "op": "since"})
    assert process._asked == 0.0


def test_verification_of_a_new_change_time_makes_everything_unknown_once(
    repo: Repo, watched: RunningWatcher
) -> None:
    # The record of a file that is as young as its capture has no change time.
    time.sleep(0.05)
    repo.write("a/b/file", "2")
    capture(repo)
    time.sleep(0.05)
    repo.write("a/b/other", "2")
    capture(repo)
    outside = repo.path.parent / "outside"
    os.link(repo.path / "a/b/file", outside)
    outside.unlink()
    assert verified(watched)["result"] == "right"
    assert watched.status()["wrong"] is None
    capture(repo)
    assert told() is None
    capture(repo)
    assert told() == []


def test_verification_agrees_with_what_is_known(repo: Repo, watched: RunningWatcher) -> None:
    capture(repo)
    repo.write("a/b/file", "2")
    assert verified(watched)["result"] == "right"


def test_stopped_watcher_is_not_waited_for(repo: Repo, watched: RunningWatcher) -> None:
    watched.signal(signal.SIGSTOP)
    assert begin_asking(watched.state) == ""
    assert not Path(watched.state, SILENT).exists()


def test_silent_watcher_is_not_asked_again_at_once(repo: Repo) -> None:
    state = open_history(str(repo.path)).repository.state
    with socket(AF_UNIX, SOCK_STREAM) as listening:
        with_short_path(socket_path(state_directory(state)), listening.bind)
        listening.listen(4)
        listening.setblocking(False)
        for _ in range(2):
            assert begin_asking(state) == ""
        listening.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_verification_ends_although_a_capture_wrote_the_cache(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, end = tmp_path / "began", tmp_path / "end"

    def verify(*_: object) -> Differing:
        began.touch()
        until = time.monotonic() + 30
        while not end.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return Differing([b"a/b"], [])

    monkeypatch.setattr(server, "differing_directories", verify)
    with running(str(repo.path)) as watcher:
        repo.write("a/b/file", "1")
        capture(repo)
        capture(repo)
        exchange(watcher.state, {"op": "verify"})
        while not began.exists():
            time.sleep(0.01)
        repo.write("a/b/file", "2")
        capture(repo)
        end.touch()
        until = time.monotonic() + 10
        while (found := watcher.status()["verified"]) is None and time.monotonic() < until:
            time.sleep(0.01)
    assert found is not None
    assert found["result"] == "right"


def test_lock_is_free_after_a_watcher_was_killed_while_it_verified(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, end = tmp_path / "began", tmp_path / "end"

    def verify(*_: object) -> None:
        began.touch()
        until = time.monotonic() + 30
        while not end.exists() and time.monotonic() < until:
            time.sleep(0.01)

    monkeypatch.setattr(server, "differing_directories", verify)
    with running(str(repo.path)) as watcher:
        capture(repo)
        capture(repo)
        exchange(watcher.state, {"op": "verify"})
        while not began.exists():
            time.sleep(0.01)
    try:
        with try_lock(os.path.join(watcher.state, LOCK)) as acquired:
            assert acquired
        with socket(AF_UNIX, SOCK_STREAM) as connection, pytest.raises(ConnectionRefusedError):
            with_short_path(socket_path(watcher.state), connection.connect)
    finally:
        end.touch()


def test_watcher_leaves_the_socket_of_a_newer_one(repo: Repo, watched: RunningWatcher) -> None:
    path = Path(socket_path(watched.state))
    path.unlink()
    path.write_text("newer")
    repo.write("a/other", "2")
    watched.wait()
    assert path.read_text() == "newer"


def test_watcher_ends_when_its_repository_goes_away(repo: Repo, watched: RunningWatcher) -> None:
    os.rename(repo.path, repo.path.parent / "moved")
    watched.wait()


@pytest.mark.usefixtures("hidden_files")
def test_file_that_is_open_by_a_removed_name_costs_a_full_look_and_the_token(repo: Repo) -> None:
    repo.write("a/file", "1")
    (repo.path / "c").mkdir()
    with running(str(repo.path)):
        descriptor = os.open(repo.path / "a/file", os.O_RDWR)
        os.link(repo.path / "a/file", repo.path / "c/link")
        (repo.path / "a/file").unlink()
        capture(repo)
        capture(repo)
        assert told() is None
        # The events name the directory of the removed name.
        os.write(descriptor, b"changed")
        os.close(descriptor)
        capture(repo)
        assert told() is None


@pytest.mark.usefixtures("hidden_files")
def test_token_of_before_is_unknown_after_a_file_without_a_known_name(
    repo: Repo, watched: RunningWatcher
) -> None:
    capture(repo)
    outside = repo.path.parent / "outside"
    with outside.open("w"):
        os.link(outside, repo.path.parent / "other")
        outside.unlink()
        with asked() as given:
            look(str(repo.path))
    with asked() as after:
        look(str(repo.path))
    assert (given, after) == ([None], [None])
