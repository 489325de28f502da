"""Keep a watch on every directory of an environment, and the directories that changed since a token.

Directories are named as in the stat cache: by their path below the top, those of an additional root with its name
before it. Events are handled in the order of the queue. A directory that was created or moved is walked again at its
new place, so when the queue is empty each watch has the present path of its directory: a later change of a path puts
a later event into the queue.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.paths import DOT_GIT, ROOT_PREFIX, is_root_top, join, path_below_root, root_name_of
from git_envhist.watcher.inotify import (
    ATTRIB,
    CREATE,
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
    watch_budget,
)

STRUCTURAL = CREATE | MOVED_FROM | MOVED_TO | DELETE_SELF | MOVE_SELF | OVERFLOW | UNMOUNT | IGNORED
DRAIN_EVERY = 256
"""Number of directories of a walk after which pending events are read, so that the queue does not overflow."""

LINKED = "a hard link was added"
Identity = tuple[int, int] | None
"""Device and inode of a directory; None if it does not exist."""


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
        self._moves: dict[int, tuple[bytes, bool]] = {}
        """Cookie -> old path and whether it is a directory, of the first half of a move."""
        self._unhandled: deque[bytes] = deque()
        """Events that were read and not handled yet."""
        self._has_unseen = False
        """True if a new path was gone before its number of links was read, since the last token."""
        self._has_closed = False
        """True if a directory cannot be read, so that a change of permissions may open it."""
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
        self._must_walk = self._has_closed = False
        before, self._paths, self._watches = self._paths, {}, {}
        for root in self.scope.bases:
            top = ROOT_PREFIX + root if root else b""
            self._walk(top, is_first=True)
            if top not in self._watches:
                raise InotifyUnavailable("a root of the environment cannot be read")
        for watch in before.keys() - self._paths.keys():
            self._inotify.unwatch(watch)
        self.drain()

    def drain(self) -> None:
        """Handle all pending events."""
        self._handle_pending()
        # These were moved out of the environment, or the other half of the move is still to come.
        self._end_moves(b"")

    def changes_since(self, token: int | None) -> Changes:
        """Return what changed since a token, and the next token; all events before this call are counted."""
        self.drain()
        if self._must_walk or self.is_gone:
            return Changes(None, None, self._doubt)
        now = self._interval
        self._interval += 1
        self._has_unseen = False
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
        self.walk_again("the scope of the environment has changed")

    def forget_until(self, token: int) -> None:
        """Forget changes up to a token; no answer will be asked for an earlier one."""
        self._changed = {path: at for path, at in self._changed.items() if at > token}

    def close(self) -> None:
        """End all watches."""
        self._inotify.close()

    def full_path(self, path: bytes) -> bytes:
        """Return the path of a directory in the file system."""
        base, below = self.scope.bases[root_name_of(path)], path_below_root(path)
        # A root may be named by a link; other directories are watched only if they are none.
        return base + b"/" + (below or b".")

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
            elif self._has_closed and mask & ATTRIB and mask & IS_DIRECTORY and path is not None:
                # It may be readable now.
                self._walk(join(path, name) if name else path)
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
        if mask & MOVED_FROM:
            self._moves[cookie] = (join(path, name), bool(mask & IS_DIRECTORY))
            return
        if mask & MOVED_TO:
            self._moves.pop(cookie, None)
        if mask & IS_DIRECTORY:
            self._end_moves(join(path, name))
            if not self._must_walk and not self.scope.is_left_out(path, name):
                self._walk(join(path, name))
        else:
            self._look_at_links(path, name)

    def _end_moves(self, top: bytes) -> None:
        """Forget the directories that were moved away from a path, or from below it, and appeared nowhere."""
        for cookie, (old, is_directory) in list(self._moves.items()):
            if not top or old == top or old.startswith(top + b"/"):
                del self._moves[cookie]
                if self._has_unseen:
                    self.doubt("a path was moved out of the environment: files in it may have other names")
                if is_directory:
                    self._forget_below(old)

    def _look_at_links(self, path: bytes, name: bytes) -> None:
        """A new name of a file changes its other names without an event in their directories."""
        try:
            seen = os.lstat(join(self.full_path(path), name))
        except OSError:
            self._has_unseen = True
            return
        if seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode):
            self.doubt(LINKED)

    # Watches.

    def _walk(self, top: bytes, *, is_first: bool = False) -> None:
        """Watch a directory and everything below it; all of them count as changed.

        `is_first`: no token of before is known, so a hard link makes none unknown.
        """
        waiting, number = [top], 0
        while waiting:
            path = waiting.pop()
            full = self.full_path(path)
            if not self._watch(path, full):
                self._has_unseen = True
                continue
            number += 1
            if number % DRAIN_EVERY == 0:
                self._unhandled.extend(self._inotify.read())
            # The watch exists before the listing: a later subdirectory has an event.
            waiting += self._list(path, full, is_first=is_first)

    def _list(self, path: bytes, full: bytes, *, is_first: bool) -> list[bytes]:
        """Return the subdirectories of a watched directory, and look at its files if it is new."""
        found = []
        try:
            with os.scandir(full) as entries:
                for entry in entries:
                    if self._is_entered(path, entry):
                        found.append(join(path, entry.name))
                    elif not is_first and not entry.is_dir(follow_symlinks=False):
                        # No event told of a link that was added before the watch.
                        self._look_at_links(path, entry.name)
        except OSError:
            self._note_unwatched(path, full)
            self._has_unseen = True
        return found

    def _is_entered(self, path: bytes, entry: os.DirEntry[bytes]) -> bool:
        if not path and entry.name == DOT_GIT:
            return False
        return entry.is_dir(follow_symlinks=False) and not self.scope.is_left_out(path, entry.name)

    def _watch(self, path: bytes, full: bytes) -> bool:
        """Watch a directory; return whether it exists and can be read."""
        watch = self._inotify.watch(full)
        if watch is None:
            self._note_unwatched(path, full)
            return False
        before = self._paths.get(watch)
        if before is not None and before != path and self._watches.get(before) == watch:
            del self._watches[before]
        self._paths[watch] = path
        if len(self._paths) > self._budget:
            raise InotifyUnavailable("it has more directories than half of the inotify watches of a user")
        self._watches[path] = watch
        self._changed[path] = self._interval
        return True

    def _note_unwatched(self, path: bytes, full: bytes) -> None:
        """Note why a directory is not watched: it is gone, cannot be read, or a root is at another place now."""
        root = root_name_of(path)
        if _identity(self.scope.bases[root]) != self._identities[root]:
            self.walk_again("a root of the environment is at another place")
        elif os.path.lexists(full):
            # The record of a directory that cannot be read is incomplete, so each capture looks at it.
            self._has_closed = True

    def _forget_below(self, top: bytes) -> None:
        prefix = top + b"/"
        for path in [path for path in self._watches if path == top or path.startswith(prefix)]:
            watch = self._watches.pop(path)
            if self._paths.pop(watch, None) is not None:
                self._inotify.unwatch(watch)


def _identity(directory: bytes) -> Identity:
    try:
        seen = os.stat(directory)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino
