"""Fills an empty directory with a moment: it is put in place when it is whole.

Until then it stands in a private directory in there. What a kill leaves is that directory and nothing else; whoever
comes next throws it away, unless somebody is still at work in it: that is told by a lock on it, which dies with the
process.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from git_envhist.errors import Refused
from git_envhist.model import Entry, EntryKind, EnvPath, SkippedPath
from git_envhist.restore.arrived import refuse_if_missing
from git_envhist.restore.dress import AttributeSetter
from git_envhist.restore.fresh import TreeSource, WrittenTree, write_all
from git_envhist.restore.hands import DiskCalls
from git_envhist.restore.looks import from_stat, is_same_thing, look
from git_envhist.restore.make import Contents
from git_envhist.restore.pen import dress_directory
from git_envhist.restore.plan import PRIVATE
from git_envhist.restore.slots import open_private, remove_tree
from git_envhist.restore.stage import cannot_stage
from git_envhist.restore.swap import CAME
from git_envhist.system import DIRECTORY, SYSTEM, list_directory

NEW = b"new"
"""Below the private directory: what else stands there is of a restore in place."""


class FillResult(NamedTuple):
    """What a directory was filled with."""

    own: Entry
    """What it is itself."""
    tops: dict[EnvPath, Entry]
    """What stands at the top, by its name."""
    below: dict[EnvPath, int]
    """How many entries each directory at the top holds."""
    written: int
    """How many paths were written and read back."""
    left_alone: tuple[SkippedPath, ...]
    kept: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...]


def fill_directory(
    directory: bytes,
    source: TreeSource,
    open_contents: Callable[[], Contents],
    *,
    hands: DiskCalls | None = None,
    how: str = "fork",
) -> FillResult:
    """Write a moment into an empty directory; where that fails, it is as empty as it was."""
    hands = hands or DiskCalls()
    top = os.open(directory, DIRECTORY)
    try:
        with private_directory(top, hands) as private:
            fresh = write_all(source, private, hands, open_contents, how)
            kept = _put_in_place(fresh, private, top, hands)
            refuse_if_missing(top, directory, fresh, kept)
        losses = (*fresh.losses, *dress_directory(top, EnvPath(b""), fresh.own, AttributeSetter(hands)))
    except OSError as error:
        raise cannot_stage(error) from error
    finally:
        os.close(top)
    return _filled(fresh, kept, losses)


def is_taken(directory: str) -> bool:
    """Whether something stands in a directory but what a `--to` left there that was killed."""
    names = set(map(os.fsencode, os.listdir(directory)))
    if names - {PRIVATE}:
        return True
    if PRIVATE not in names:
        return False
    try:
        return _holds_anothers(map(os.fsencode, os.listdir(os.path.join(directory, os.fsdecode(PRIVATE)))))
    except NotADirectoryError:
        return True


def unplaced_entries(directory: str) -> int | None:
    """How many entries a `--to` that was killed had not put in place there; None where none was."""
    try:
        return len(os.listdir(os.path.join(os.fsencode(directory), PRIVATE, NEW)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _holds_anothers(names: Iterable[bytes]) -> bool:
    """Return whether a private directory with these entries holds files that a restore in place has put aside."""
    return any(name != NEW for name in names)


@contextmanager
def private_directory(top: int, hands: DiskCalls) -> Iterator[int]:
    """A directory of ours below an open one, empty and nobody else's; it is gone afterwards, with all still in it."""
    process = os.getpid()
    private = _open_alone(hands, top)
    new = -1
    try:
        # What one left that was killed goes first.
        remove_tree(hands, private, NEW)
        new = open_private(hands, private, NEW)
        yield new
    finally:
        try:
            # A worker that is stopped is a copy of this process: it has nothing to clear up.
            if os.getpid() == process:
                # Before its lock is let go: what stands there afterwards is somebody else's.
                remove_tree(hands, private, NEW)
                with suppress(OSError):
                    hands.rmdir(top, PRIVATE)
        finally:
            if new >= 0:
                os.close(new)
            os.close(private)


def _open_alone(hands: DiskCalls, top: int) -> int:
    while True:
        private = open_private(hands, top, PRIVATE)
        try:
            if _is_locked(private):
                raise Refused(
                    "another restore is at work there", hint="name another directory, or wait for it"
                )
            if _holds_anothers(list_directory(private)):
                raise Refused("what a restore has put away stands there", hint="name another directory")
            if _stands_in(top, private):
                return private
        except BaseException:
            os.close(private)
            raise
        # Whoever had the lock until now has taken the directory away.
        os.close(private)


def _stands_in(top: int, private: int) -> bool:
    there = look(top, PRIVATE)
    return there is not None and is_same_thing(there, from_stat(os.fstat(private)))


def _is_locked(private: int) -> bool:
    if not SYSTEM.flock:
        return False
    try:
        fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks are kept here
    return False


def _put_in_place(fresh: WrittenTree, private: int, top: int, hands: DiskCalls) -> list[SkippedPath]:
    """Give everything its name; what somebody has put there meanwhile stays."""
    kept: list[SkippedPath] = []
    done: list[bytes] = []
    try:
        for name in sorted(list_directory(private)):
            try:
                _move(hands, private, name, top)
                done.append(name)
            except FileExistsError:
                kept.append(SkippedPath(EnvPath(name), CAME))
    except BaseException:
        for name in reversed(done):
            with suppress(OSError):
                _move(hands, top, name, private)
        raise
    return kept


def _move(hands: DiskCalls, one: int, name: bytes, other: int) -> None:
    try:
        hands.move(one, name, other, name)
    except PermissionError:
        mode = os.stat(name, dir_fd=one, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IWUSR:
            raise
        # Where a directory stands is written in it: one that its owner may not write to cannot be moved.
        hands.chmod(one, name, stat.S_IMODE(mode) | stat.S_IRWXU)
        hands.move(one, name, other, name)
        hands.chmod(other, name, stat.S_IMODE(mode))


def _filled(fresh: WrittenTree, kept: list[SkippedPath], losses: tuple[tuple[bytes, str], ...]) -> FillResult:
    below = {
        path: fresh.counts[path] for path, entry in fresh.tops.items() if entry.kind is EntryKind.DIRECTORY
    }
    written = len(fresh.tops) + sum(below.values()) - sum(1 + below.get(item.path, 0) for item in kept)
    return FillResult(fresh.own, fresh.tops, below, written, fresh.left_alone, tuple(kept), losses)
