"""The watcher process of one working tree: read events, answer captures, verify itself, end when nobody asks."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

from git_envhist._version import __version__
from git_envhist.disk import remove_if_present, state_directory
from git_envhist.errors import EnvhistError
from git_envhist.lazy import dataclass
from git_envhist.locks import try_lock
from git_envhist.peers import is_alike, with_short_path
from git_envhist.platform import SYSTEM
from git_envhist.watcher.client import LOCK, path_of_text, socket_path, text_of_path
from git_envhist.watcher.file_systems import EXPORTED, Points, exports_files, points_in, why_unwatchable
from git_envhist.watcher.inotify import Inotify, InotifyUnavailable
from git_envhist.watcher.open_files import OpenFiles, OutOfSight
from git_envhist.watcher.verify import Differing, differing_directories, wrong_claims
from git_envhist.watcher.watched_directories import WatchedDirectories, WatchedScope

TICK = 10.0
"""Seconds between two looks at the socket file and the program."""
GATHER = 0.02
"""Seconds for which events gather in the queue: waking up for each would take more of a processor."""
READ_TIMEOUT = 0.5
"""Seconds in which a request must arrive."""
MAX_REQUEST = 1 << 16
CHECK_EVERY = 600.0
"""Seconds between two comparisons of everything, if captures asked meanwhile."""
RETRY = 60.0
"""Seconds after which a comparison that came to no result is made again."""
NICE = 10
MAX_DESCRIPTORS = 1 << 16
MOUNTS = "/proc/self/mountinfo"
OUT_OF_SIGHT = frozenset((b"\0\0",))
"""The result of a list of open files if one of them cannot be assigned to a directory; no path begins so."""


Place = tuple[int, int] | None
"""Device and inode of the socket; None if it does not exist."""


@dataclass(slots=True)
class Verification:
    """A running comparison of every directory with the stat cache, in a child."""

    child: int
    reading: int
    token: int
    """The stat cache has everything up to this token."""
    began: float
    data: bytes = b""


class WatcherProcess:
    """Watch one working tree and answer its captures."""

    def __init__(
        self,
        state: str,
        read_scope: Callable[[], WatchedScope],
        idle: float,
        check_every: float = CHECK_EVERY,
    ) -> None:
        """`idle`: seconds without a question after which the process ends."""
        self._state = state
        self._read_scope = read_scope
        self._idle = idle
        self._check_every = check_every
        self._name = os.urandom(8).hex()
        self._kept: tuple[str, int] | None = None
        """The id of the stat cache that captures wrote last, and its token."""
        self._began = self._asked = self._checked = time.monotonic()
        self._has_answered = False
        self._stopped = False
        self._question = ""
        """The name of the question for which open files are listed."""
        self._listed: frozenset[bytes] | None = None
        self._listed_at = 0
        """The number of events before that list was made."""
        self._hidden = ""
        """Why a file that is open for writing cannot be assigned to a directory."""
        self._failed = ""
        """Why the environment cannot be watched any more."""
        self._wrong = ""
        """The first directory that changed without the watcher knowing of it."""
        self._last_check: dict[str, object] | None = None
        self._verification: Verification | None = None
        self._inotify: Inotify
        self._watched: WatchedDirectories
        self._open_files: OpenFiles
        self._points: Points

    def run(self) -> str:
        """Answer until the process is to end; return why this environment cannot be watched, or an empty text."""
        state = state_directory(self._state)
        with try_lock(os.path.join(state, LOCK)) as acquired:
            if not acquired:
                return ""
            # A killed watcher left its socket.
            remove_if_present(socket_path(state))
            try:
                return self._watch() or self._run()
            except InotifyUnavailable as error:
                return str(error)

    def _run(self) -> str:
        path = socket_path(self._state)
        with socket(AF_UNIX, SOCK_STREAM) as listening:
            with_short_path(path, listening.bind)
            place = _place_of(path)
            try:
                os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
                listening.listen(16)
                signal.signal(signal.SIGPIPE, signal.SIG_IGN)
                while not self._must_end(path, place):
                    self._wait(listening)
            finally:
                # A repository that was made again at this place may have a watcher of its own.
                if _place_of(path) == place:
                    remove_if_present(path)
        return self._failed

    def _watch(self) -> str:
        """Watch the environment from the beginning; return why it cannot be watched."""
        scope = self._read_scope()
        if why := scope.why_not or why_unwatchable(scope.bases):
            return why
        self._points = points_in(scope.bases.values())
        self._inotify = Inotify()
        self._open_files = OpenFiles(scope.bases)
        self._watched = WatchedDirectories(self._inotify, scope)
        self._watched.walk()
        return ""

    def _must_end(self, path: str, place: Place) -> bool:
        """Return whether nobody asked for long, the environment is gone, or the socket is no longer this process's."""
        if self._stopped or self._watched.is_gone or time.monotonic() > self._asked + self._idle:
            return True
        return place is None or _place_of(path) != place

    # Events.

    def _wait(self, listening: socket) -> None:
        """Wait for a question or an event, and handle it."""
        poll = select.poll()
        with open(MOUNTS, "rb") if SYSTEM.proc else open(os.devnull, "rb") as mounts:
            poll.register(mounts.fileno(), select.POLLPRI)
            poll.register(listening, select.POLLIN)
            poll.register(self._inotify.descriptor, select.POLLIN)
            if self._verification is not None:
                poll.register(self._verification.reading, select.POLLIN)
            # Mounts that changed before this table was opened are seen here, later ones by the poll.
            self._look_at_mounts()
            ready = {number for number, _ in poll.poll(TICK * 1000)}
            if mounts.fileno() in ready:
                self._look_at_mounts()
        if self._verification is not None and self._verification.reading in ready:
            self._read_verification(self._verification)
        if listening.fileno() in ready:
            self._accept(listening)
        elif self._inotify.descriptor in ready:
            self._gather(listening)
        self._watched.drain()
        if self._watched.must_walk:
            self._watched.walk()
        self._begin_verification()

    def _gather(self, listening: socket) -> None:
        poll = select.poll()
        poll.register(listening, select.POLLIN)
        if poll.poll(GATHER * 1000):
            self._accept(listening)

    def _look_at_mounts(self) -> None:
        points = points_in(self._watched.scope.bases.values())
        if points != self._points:
            self._points = points
            self._watched.walk_again("a file system was mounted or unmounted")
        if exports_files():
            self._failed, self._stopped = EXPORTED, True
            self._watched.doubt(EXPORTED)

    # Questions.

    def _accept(self, listening: socket) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            connection, _ = listening.accept()
            with connection:
                if not is_alike(connection):
                    return
                answer = self._answer(json.loads(_read_line(connection)))
                connection.sendall(json.dumps(answer).encode("ascii"))
            if self._question and self._listed is None:
                # The asking process continues meanwhile.
                self._watched.drain()
                self._listed_at = self._watched.events
                self._listed = self._list_open_files()

    def _answer(self, request: Mapping[str, Any]) -> dict[str, object]:
        if request["version"] != __version__:
            # The program was changed: the next capture starts the new one.
            self._stopped = True
            return {}
        operation = request["op"]
        if operation == "since":
            if not self._wrong:
                self._asked = time.monotonic()
            return self._changes(request)
        if operation == "begin":
            self._question, self._listed = request["question"], None
            return {}
        if operation == "keep":
            return self._keep(request["token"], request["cache"])
        if operation == "carry":
            if self._kept is not None and self._kept[0] == request["before"]:
                self._kept = (request["cache"], self._kept[1])
        elif operation == "stop":
            self._stopped = True
        elif operation == "verify":
            self._checked = -self._check_every
            self._has_answered = True
        return self.status()

    def _changes(self, request: Mapping[str, Any]) -> dict[str, object]:
        if self._wrong:
            return {"token": None, "reason": f"it did not notice a change in '{self._wrong}'"}
        if why := self._why_other_scope(request):
            return {"token": None, "reason": why}
        kept = self._kept
        known = kept[1] if kept is not None and kept[0] == request["cache"] else None
        self._look_at_mounts()
        found = self._watched.changes_since(known)
        token = None if found.token is None else f"{self._name}-{found.token}"
        listed = self._listed_for(request["question"])
        if listed == OUT_OF_SIGHT:
            # The file may be written to and closed before the next question, without an event here.
            self._watched.doubt(self._hidden)
            return {"token": None, "reason": self._hidden}
        if found.directories is None:
            return {"token": token, "reason": found.reason}
        self._has_answered = True
        directories = {*found.directories, *listed}
        return {"token": token, "directories": [text_of_path(path) for path in directories]}

    def _listed_for(self, question: str) -> frozenset[bytes]:
        """Return the list made since the process was told of a question, or make it now."""
        listed, self._listed = self._listed, None
        is_made = self._question == question and self._listed_at == self._watched.events
        self._question = ""
        # A name that appeared after the list may be one of a file that was opened by another.
        return listed if is_made and listed is not None else self._list_open_files()

    def _list_open_files(self) -> frozenset[bytes]:
        """Return the directories with files open for writing, or `OUT_OF_SIGHT`."""
        try:
            return frozenset(self._open_files.directories())
        except OutOfSight as error:
            self._hidden = str(error)
            return OUT_OF_SIGHT

    def _why_other_scope(self, request: Mapping[str, Any]) -> str:
        """Return why the environment of a request is another one than the watched; then watch that one."""
        scope = self._watched.scope
        if request["naming"] != scope.naming:
            try:
                scope = self._read_scope()
            except (EnvhistError, OSError):
                return "its scope cannot be read"
            if scope.naming == request["naming"]:
                self._watch_other(scope)
            return "the scope of the environment has changed"
        roots = {path_of_text(name): (device, inode) for name, device, inode in request["roots"]}
        if roots != self._watched.identities():
            # The next capture starts another watcher.
            self._stopped = True
            return "a root of the environment is another directory"
        return ""

    def _watch_other(self, scope: WatchedScope) -> None:
        self._failed = scope.why_not or why_unwatchable(scope.bases)
        if self._failed:
            self._stopped = True
            return
        self._kept = None
        self._points = points_in(scope.bases.values())
        self._open_files = OpenFiles(scope.bases)
        self._watched.watch_other(scope)

    def _keep(self, token: str, cache: str) -> dict[str, object]:
        name, _, number = token.partition("-")
        if name == self._name and cache:
            self._kept = (cache, int(number))
            running = self._verification
            self._watched.forget_until(min(int(number), running.token) if running else int(number))
        return {}

    def status(self) -> dict[str, object]:
        """Return what `git envlog status` prints about this process."""
        return {
            "process": os.getpid(),
            "seconds": time.monotonic() - self._began,
            "directories": len(self._watched),
            "memory": _memory(),
            "processor_seconds": time.process_time(),
            "events": self._watched.events,
            "overflows": self._watched.overflows,
            "verified": self._last_check,
            "wrong": self._wrong or None,
        }

    # Verification.

    def _begin_verification(self) -> None:
        """Start a child that compares everything with the stat cache, if captures relied on this process."""
        now = time.monotonic()
        is_due = self._has_answered and now > self._checked + self._check_every
        if not is_due or self._verification is not None or self._kept is None or self._wrong:
            return
        self._checked, self._has_answered = now, False
        (cache, token), bases = self._kept, self._watched.scope.bases
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                # With the lock and the socket it would keep a new watcher from starting if this process is killed.
                os.closerange(3, writing)
                os.closerange(writing + 1, MAX_DESCRIPTORS)
                os.nice(NICE)
                found = differing_directories(os.path.join(self._state, "cache"), bases, cache)
                paths = None if found is None else [list(map(text_of_path, some)) for some in found]
                with open(writing, "w", encoding="ascii") as file:
                    json.dump(paths, file)
            finally:
                os._exit(0)
        os.close(writing)
        self._verification = Verification(child, reading, token, time.time())

    def _read_verification(self, running: Verification) -> None:
        data = os.read(running.reading, 1 << 16)
        running.data += data
        if data:
            return
        os.close(running.reading)
        with suppress(OSError):
            os.waitpid(running.child, 0)
        self._verification = None
        has_result = False
        with suppress(ValueError):
            found = json.loads(running.data)
            has_result = found is not None and self._judge(
                Differing(*(list(map(path_of_text, some)) for some in found)), running
            )
        if not has_result:
            # A capture wrote the stat cache meanwhile, or changes became unknown.
            self._checked, self._has_answered = time.monotonic() - self._check_every + RETRY, True

    def _judge(self, differing: Differing, running: Verification) -> bool:
        """Compare what a full look found with what the watcher knows; return whether it knows enough."""
        changed = self._watched.known_since(running.token)
        if changed is None:
            return False
        listed = self._list_open_files()
        if listed == OUT_OF_SIGHT:
            return False
        known = {*changed, *listed}
        wrong = wrong_claims(differing.changed, known)
        if wrong_claims(differing.touched, known):
            self._watched.doubt("a change time is new without an event")
        if wrong:
            self._wrong = os.fsdecode(wrong[0]).replace("\0", "") or "."
        self._last_check = {"at": running.began, "result": "wrong" if wrong else "right"}
        return True


def _read_line(connection: socket) -> bytes:
    connection.settimeout(READ_TIMEOUT)
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(1 << 14)
        if not data or len(received) > MAX_REQUEST:
            raise ValueError("incomplete request")
        received += data
    return received


def _place_of(path: str) -> Place:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _memory() -> int:
    """Return the memory of this process that no other process shares, in bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
