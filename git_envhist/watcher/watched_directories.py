"""Keep a watch on every directory of an environment, and the directories that changed since a token.

Directories are named as in the stat cache: by their path below the top, those of an additional root with its name
before it. Events are handled in the order of the queue. A directory that was created or moved is walked again at its
new place, so when the queue is empty each watch has the present path of its directory: a later change of a path puts
a later event into the queue.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.paths import DOT_GIT, ROOT_PREFIX, is_root_top, join
from git_envhist.watcher.inotify import (
    ATTRIB,
    CREATE,
    DELETE,
    DELETE_SELF,
    IGNORED,
    IS_DIRECTORY,
    MOVE_SELF,
    MOVED_FROM,
    MOVED_TO,
    OVERFLOW,
    UNMOUNT,
    Inotify,
    InotifyUnavailable,
    events_in,
    path_of,
    watch_budget,
)
from git_envhist.watcher.new_paths import NewPaths, Taken
from git_envhist.watcher.open_below import DirectoriesBelow, Identity, RootMoved, identity_of

STRUCTURAL = CREATE | DELETE | MOVED_FROM | MOVED_TO | DELETE_SELF | MOVE_SELF | OVERFLOW | UNMOUNT | IGNORED
DRAIN_EVERY = 256
"""Number of directories of a walk after which pending events are read, so that the queue does not overflow."""

LOOKS = 8
"""Times that new paths are looked at if they are moved meanwhile."""
MANY_CHANGED = 10_000
"""Directories that are known to have changed, beyond those that exist: a full look costs less than more of them."""
GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))

LINKED = "a hard link was added"
UNSEEN = "a new path was gone before its hard links were counted"


@dataclass(frozen=True, slots=True)
class WatchedScope:
    """The extent of an environment as a capture determines it."""

    naming: str
    """Digest of the rules that determine the extent: roots, mounts and patterns."""
    bases: Mapping[bytes, bytes]
    is_left_out: Callable[[bytes, bytes], bool]
    """(directory, name) -> whether a capture does not enter this subdirectory."""
    why_not: str = ""
    """Why this environment is not watched."""


class Changes(NamedTuple):
    """Directories that may have changed since a token."""

    token: int | None
    """The token to begin with from now on; None if none can be given."""
    directories: list[bytes] | None
    """None: unknown, look at everything."""
    reason: str = ""


class _Move(NamedTuple):
    """The first half of a move."""

    old: bytes
    is_directory: bool
    new_paths: Taken


class WatchedDirectories:
    """The watches of one environment. Raises `InotifyUnavailable` if a directory cannot be watched."""

    def __init__(self, inotify: Inotify, scope: WatchedScope) -> None:
        self.scope = scope
        self.is_gone = False
        """True once a root was removed, moved or unmounted."""
        self.overflows = 0
        self.events = 0
        self._inotify = inotify
        self._budget = watch_budget()
        self._paths: dict[int, bytes] = {}
        self._watches: dict[bytes, int] = {}
        self._changed: dict[bytes, int] = {}
        """Directory -> the number of the interval in which it changed last."""
        self._interval = 1
        self._valid_from = 1
        """Earlier tokens are unknown."""
        self._doubt = "the watcher has just started"
        self._must_walk = True
        self._moves: dict[int, _Move] = {}
        """By cookie."""
        self._unhandled: deque[bytes] = deque()
        """Events that were read and not handled yet."""
        self._new = NewPaths()
        self._closed: set[bytes] = set()
        """Directories that cannot be read; a change of permissions may open them."""
        self._former: set[int] = set()
        """Watches of another scope, which end with the next walk."""
        self._identities = {root: _identity(base) for root, base in scope.bases.items()}

    def __len__(self) -> int:
        return len(self._paths)

    def paths(self) -> Iterable[bytes]:
        """Return the watched directories."""
        return self._watches.keys()

    @property
    def must_walk(self) -> bool:
        """True if directories may exist that are not watched."""
        return self._must_walk

    def doubt(self, reason: str) -> None:
        """Make all earlier tokens unknown."""
        self._valid_from, self._doubt = self._interval, reason

    def walk_again(self, reason: str) -> None:
        """Make all earlier tokens unknown, and watch every directory again before the next one is given."""
        self.doubt(reason)
        self._must_walk = True

    def walk(self) -> None:
        """Watch every directory of the environment."""
        if not self._must_walk:
            return
        self._must_walk = False
        before = self._former.union(self._paths)
        self._forget_all()
        for root in self.scope.bases:
            top = ROOT_PREFIX + root if root else b""
            self._walk(top, is_first=True)
            if top not in self._watches:
                raise InotifyUnavailable("a root of the environment cannot be read")
        for watch in before - self._paths.keys():
            self._inotify.unwatch(watch)
        self.drain()

    def _forget_all(self) -> None:
        self._paths, self._watches, self._former = {}, {}, set()
        self._moves.clear()
        self._new.clear()
        self._closed.clear()

    def drain(self) -> None:
        """Handle all pending events."""
        self._handle_pending()
        if self._new and not self._must_walk:
            self._look_at_new_paths()
        # These were moved out of the environment, or the other half of the move is still to come.
        self._end_moves(b"")
        if len(self._changed) > len(self._paths) + MANY_CHANGED:
            self._changed.clear()
            self.doubt("very many directories have changed")

    def changes_since(self, token: int | None) -> Changes:
        """Return what changed since a token, and the next token; all events before this call are counted."""
        self.drain()
        if self._must_walk or self.is_gone:
            return Changes(None, None, self._doubt)
        now = self._interval
        self._interval += 1
        if token is None:
            return Changes(now, None, "the stat cache is not that of the last capture")
        if token < self._valid_from:
            return Changes(now, None, self._doubt)
        return Changes(now, [path for path, at in self._changed.items() if at > token])

    def known_since(self, token: int) -> list[bytes] | None:
        """Return what changed since a token without a new one; None if it is unknown."""
        self.drain()
        if self._must_walk or token < self._valid_from:
            return None
        return [path for path, at in self._changed.items() if at > token]

    def identities(self) -> dict[bytes, Identity]:
        """Return the device and inode of each root, as it was when it was first watched."""
        return self._identities

    def watch_other(self, scope: WatchedScope) -> None:
        """Watch another extent of the environment from now on."""
        self.scope = scope
        self._identities = {root: _identity(base) for root, base in scope.bases.items()}
        self._changed.clear()
        before = self._former.union(self._paths)
        self._forget_all()
        # The paths of pending events may be in no root of this scope.
        self._former = before
        self.walk_again("the scope of the environment has changed")

    def forget_until(self, token: int) -> None:
        """Forget changes up to a token; no answer will be asked for an earlier one."""
        self._changed = {path: at for path, at in self._changed.items() if at > token}

    def close(self) -> None:
        """End all watches."""
        self._inotify.close()

    # Events.

    def _handle_pending(self) -> None:
        """Handle all events in their order; a walk meanwhile only reads those that follow."""
        unhandled = self._unhandled
        unhandled.extend(self._inotify.read())
        while unhandled:
            self._handle_events(unhandled.popleft())
            if not unhandled:
                unhandled.extend(self._inotify.read())

    def _handle_events(self, data: bytes) -> None:
        number, interval = 0, self._interval
        for number, (watch, mask, cookie, name) in enumerate(events_in(data), 1):  # noqa: B007
            path = self._paths.get(watch)
            if path is not None:
                self._changed[path] = interval
            if mask & STRUCTURAL:
                self._handle(mask, cookie, name, path, watch)
            elif self._closed and mask & ATTRIB and mask & IS_DIRECTORY and path is not None:
                self._enter_closed(join(path, name) if name else path)
        self.events += number

    def _handle(self, mask: int, cookie: int, name: bytes, path: bytes | None, watch: int) -> None:
        if mask & OVERFLOW:
            self.overflows += 1
            self.walk_again("the queue of events overflowed")
        elif path is None:
            return
        elif mask & IGNORED:
            self._paths.pop(watch, None)
            if self._watches.get(path) == watch:
                del self._watches[path]
        elif mask & (DELETE_SELF | MOVE_SELF | UNMOUNT):
            if is_root_top(path) or mask & UNMOUNT:
                self.is_gone = True
                self.doubt("a root of the environment was removed, moved or unmounted")
        else:
            self._handle_name(mask, cookie, name, path)

    def _handle_name(self, mask: int, cookie: int, name: bytes, path: bytes) -> None:
        """Handle a name that appeared in a directory or disappeared from it by a move."""
        if not path and name == DOT_GIT:
            return
        where, is_directory = join(path, name), bool(mask & IS_DIRECTORY)
        if mask & MOVED_FROM:
            self._moves[cookie] = _Move(where, is_directory, self._new.take(where, is_directory=is_directory))
        elif mask & DELETE:
            if self._new.remove(where):
                self.doubt(UNSEEN)
        elif is_directory:
            self._handle_new_directory(cookie, path, name)
        else:
            if mask & MOVED_TO and self._new.remove(where):
                # The file that had this name until now.
                self.doubt(UNSEEN)
            self._new.add(where)
            self._put_moved(cookie, where)

    def _handle_new_directory(self, cookie: int, path: bytes, name: bytes) -> None:
        where = join(path, name)
        is_left_out = self.scope.is_left_out(path, name)
        if not is_left_out:
            self._put_moved(cookie, where)
        # What was moved to a path that is left out was moved out of the environment.
        self._end_moves(where)
        if not is_left_out and not self._must_walk:
            self._new.add(where)
            self._walk(where)

    def _put_moved(self, cookie: int, where: bytes) -> None:
        """End a move within the environment."""
        move = self._moves.pop(cookie, None) if cookie else None
        if move is not None:
            self._new.put(where, move.new_paths)

    def _end_moves(self, top: bytes) -> None:
        """Forget the directories that were moved away from a path, or from below it, and appeared nowhere."""
        gone: list[bytes] = []
        for cookie, (old, is_directory, new_paths) in list(self._moves.items()):
            if not top or old == top or old.startswith(top + b"/"):
                del self._moves[cookie]
                if new_paths:
                    self.doubt(UNSEEN)
                if is_directory:
                    gone.append(old)
        if gone:
            self._forget_below(gone)

    def _enter_closed(self, top: bytes) -> None:
        """Try again to watch the directories at and below a path that could not be read."""
        for path in [path for path in self._closed if not top or path == top or path.startswith(top + b"/")]:
            self._closed.remove(path)
            self._walk(path)

    # Hard links.

    def _look_at_new_paths(self) -> None:
        """Count the links of new paths: a file of the environment may have changed under its other name.

        A look is certain if no event follows that removes or replaces the name.
        """
        until = self._new.now()
        for _ in range(LOOKS):
            entries = self._new.entries()
            seen = self._count_links(entries)
            self._handle_pending()
            if not self._new.settle(entries, seen):
                self.doubt(UNSEEN)
            # Later ones are looked at by the next call.
            if self._must_walk or not self._new.has_since(until):
                return
        self._new.clear()
        self.doubt(UNSEEN)

    def _count_links(self, paths: Iterable[bytes]) -> set[bytes]:
        """Return those of some paths that exist; doubt if one of them is a file with several links."""
        names: dict[bytes, list[bytes]] = {}
        for path in paths:
            above, name = _split(path)
            names.setdefault(above, []).append(name)
        seen: set[bytes] = set()
        with self._open_below() as directories:
            for above, some in names.items():
                directory = self._open(directories, above)
                if directory is not None:
                    try:
                        seen.update(
                            join(above, name) for name in some if self._is_seen(directory, above, name)
                        )
                        _wait_for_changes(directory)
                    finally:
                        os.close(directory)
        return seen

    def _is_seen(self, directory: int, above: bytes, name: bytes) -> bool:
        try:
            seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        if stat.S_ISDIR(seen.st_mode):
            path = join(above, name)
            return path in self._watches or path in self._closed
        if seen.st_nlink > 1:
            self.doubt(LINKED)
        return True

    # Watches.

    def _walk(self, top: bytes, *, is_first: bool = False) -> None:
        """Watch a directory and everything below it; all of them count as changed.

        `is_first`: no token of before is known, so a hard link makes none unknown.
        """
        waiting, number = [top], 0
        with self._open_below() as directories:
            while waiting:
                path = waiting.pop()
                # Also if it cannot be read: it may be another directory than the recorded one.
                self._changed[path] = self._interval
                directory = self._open(directories, path)
                if directory is None:
                    continue
                try:
                    self._watch(path, directory, directories)
                    number += 1
                    if number % DRAIN_EVERY == 0:
                        self._unhandled.extend(self._inotify.read())
                    # The watch exists before the listing: a later subdirectory has an event.
                    waiting += self._list(path, directory, is_first=is_first)
                finally:
                    os.close(directory)

    def _open_below(self) -> DirectoriesBelow:
        return DirectoriesBelow(self.scope.bases, self._identities)

    def _open(self, directories: DirectoriesBelow, path: bytes) -> int | None:
        """Open a directory; return None if it is gone or cannot be read."""
        try:
            return directories.open(path)
        except RootMoved:
            self.walk_again("a root of the environment is at another place")
        except OSError as error:
            if error.errno == errno.EACCES:
                # The record of a directory that cannot be read is incomplete, so each capture looks at it.
                self._closed.add(path)
            elif error.errno not in GONE:
                raise InotifyUnavailable(error.strerror) from error
        return None

    def _list(self, path: bytes, directory: int, *, is_first: bool) -> list[bytes]:
        """Return the subdirectories of a watched directory; its names are new unless this is the first walk."""
        found: list[bytes] = []
        try:
            with os.scandir(path_of(directory)) as entries:
                for entry in entries:
                    is_directory = entry.is_dir(follow_symlinks=False)
                    if is_directory and self._is_left_out(path, entry.name):
                        continue
                    where = join(path, entry.name)
                    if is_directory:
                        found.append(where)
                    if not is_first:
                        # No event reported a link that was added before the watch.
                        self._new.add(where)
        except OSError as error:
            raise InotifyUnavailable(error.strerror) from error
        return found

    def _is_left_out(self, path: bytes, name: bytes) -> bool:
        return (not path and name == DOT_GIT) or self.scope.is_left_out(path, name)

    def _watch(self, path: bytes, directory: int, directories: DirectoriesBelow) -> None:
        watch = self._inotify.watch(directory)
        before = self._paths.get(watch)
        if before is not None and before != path and self._watches.get(before) == watch:
            own = identity_of(os.fstat(directory))
            if all(_identity_at(directories, one) == own for one in (before, path)):
                # A watch reports one of them only.
                raise InotifyUnavailable("a directory is in the environment under two paths")
            del self._watches[before]
        self._paths[watch] = path
        if len(self._paths) > self._budget:
            raise InotifyUnavailable("it has more directories than half of the inotify watches of a user")
        self._watches[path] = watch

    def _forget_below(self, tops: list[bytes]) -> None:
        exact, prefixes = frozenset(tops), tuple(top + b"/" for top in tops)
        for path in [path for path in self._watches if path in exact or path.startswith(prefixes)]:
            watch = self._watches.pop(path)
            if self._paths.pop(watch, None) is not None:
                self._inotify.unwatch(watch)


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Return the directory of a path, as the stat cache names it, and the name in it."""
    above, slash, name = path.rpartition(b"/")
    return (above, name) if slash else (b"", path)


def _wait_for_changes(directory: int) -> None:
    """Return when the events of all changes of a directory that can be seen are in the queue.

    The system holds the lock of the directory from a change until its event, and takes it to list the directory.
    """
    with suppress(OSError), os.scandir(path_of(directory)) as entries:
        next(entries, None)


def _identity_at(directories: DirectoriesBelow, path: bytes) -> Identity:
    try:
        opened = directories.open(path)
    except (OSError, RootMoved):
        return None
    try:
        return identity_of(os.fstat(opened))
    finally:
        os.close(opened)


def _identity(directory: bytes) -> Identity:
    try:
        seen = os.stat(directory)
    except OSError:
        return None
    return identity_of(seen)
