"""Reads objects of the repository through one `git cat-file --batch` that is kept open.

git's own reader knows packs, alternates and promised objects, and checks every hash; one child costs 2 ms once and
some 20 µs an object. Names are written ahead of the answers, but never more than a pipe is sure to hold: a child that
waits for us to read while we wait for it to take another name would wait for ever.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.errors import Damaged, GitFailed, GitKilled
from git_envhist.store.child import READ_SIZE, GitStream
from git_envhist.store.git import Git

# What a pipe holds at the very least, also for a user who has many (pipe(7), pipe-user-pages-soft).
WINDOW = 4096

NOT_THERE = (b" missing", b" ambiguous", b" submodule")


class GitObject(NamedTuple):
    """One object: its type and its bytes."""

    kind: str
    data: bytes


class CatFile:
    """An open reader of objects; names are whatever git takes: hashes, refs, `<commit>:<path>`."""

    def __init__(self, git: Git, *, largest: int | None = None) -> None:
        """`largest`: an object of more bytes is `Damaged`, and is never held in memory."""
        self._git = git
        self._largest = largest
        self._child: GitStream | None = None
        self._buffer = bytearray()
        self._ahead: _ReadAhead | None = None

    def __enter__(self) -> CatFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the child, which will be asked soon; nothing is lost where it never is."""
        if self._child is None:
            self._child = GitStream(self._git, "cat-file", "--batch", talks=True)

    def read(self, name: str | bytes) -> GitObject | None:
        """The object of that name; None where there is none."""
        self._settle()
        self._ask([_line(name)])
        return _open(self._receive())

    def read_many(self, names: Iterable[str | bytes]) -> Iterator[GitObject | None]:
        """The objects of these names in turn, asked for ahead; other reads may come in between."""
        ahead = _ReadAhead()
        waiting = (_line(name) for name in names)
        following = next(waiting, None)
        try:
            while following is not None or ahead.asked or ahead.early:
                lines: list[bytes] = []
                # Many at a time: each write wakes git.
                while following is not None and (lines or ahead.is_low) and ahead.has_room(following):
                    lines.append(following)
                    ahead.push(following)
                    following = next(waiting, None)
                if lines:
                    self._take_turn(ahead)
                    self._ask(lines)
                yield _open(ahead.early.popleft() if ahead.early else self._next(ahead))
        finally:
            if self._ahead is ahead:
                self._settle()

    def close(self) -> None:
        """End the child; a later read starts another."""
        child, self._child, self._ahead = self._child, None, None
        self._buffer.clear()
        if child is not None:
            child.close()

    def _take_turn(self, ahead: _ReadAhead) -> None:
        if self._ahead is not ahead:
            self._settle()
            self._ahead = ahead

    def _settle(self) -> None:
        # Answers come in the order of the questions, so those that somebody is still to fetch are put by for them.
        ahead = self._ahead
        if ahead is not None:
            while ahead.asked:
                ahead.early.append(self._next(ahead))
        self._ahead = None

    def _next(self, ahead: _ReadAhead) -> GitObject | Damaged | None:
        if self._ahead is not ahead:
            raise GitFailed("objects cannot be read: the git that was asked for them has ended")
        answer = self._receive()
        ahead.pop()
        return answer

    def _ask(self, lines: list[bytes]) -> None:
        self.start()
        assert self._child is not None
        try:
            self._child.write(b"".join(lines))
        except BrokenPipeError:
            raise self._died() from None
        except BaseException:
            # Of a question that was not asked no answer comes: to wait for it would be for ever.
            self.close()
            raise

    def _receive(self) -> GitObject | Damaged | None:
        try:
            return self._receive_one()
        except BaseException:
            # Stopped within an answer: the rest of it is none.
            self.close()
            raise

    def _receive_one(self) -> GitObject | Damaged | None:
        header = self._read_line()
        if header.endswith(NOT_THERE):
            return None
        oid, _, rest = header.partition(b" ")
        kind, _, size = rest.partition(b" ")
        if not size.isdigit():
            raise self._died()
        if self._largest is not None and int(size) > self._largest:
            self._skip(int(size) + 1)
            return Damaged(f"object '{oid.decode('ascii')}' has {int(size)} bytes, more than it may")
        data = self._read_exactly(int(size) + 1)
        return GitObject(kind.decode("ascii"), data)

    def _read_line(self) -> bytes:
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _read_exactly(self, size: int) -> bytes:
        """The bytes before the last of `size`, which is the line feed after an object."""
        while len(self._buffer) < size:
            self._fill()
        with memoryview(self._buffer) as view:
            data = bytes(view[: size - 1])
        del self._buffer[:size]
        return data

    def _skip(self, size: int) -> None:
        while len(self._buffer) < size:
            size -= len(self._buffer)
            self._buffer.clear()
            self._fill()
        del self._buffer[:size]

    def _fill(self) -> None:
        chunk = self._child.read(READ_SIZE) if self._child is not None else b""
        if not chunk:
            raise self._died()
        self._buffer += chunk

    def _died(self) -> GitFailed:
        # The next read starts a new one: a single damaged object must not hide all the others.
        child, self._child, self._ahead = self._child, None, None
        self._buffer.clear()
        if child is None:
            return GitFailed("objects cannot be read")
        done = child.close()
        # One that goes on talking while nobody listens any more ends by the last of these, and has failed.
        if done.status < 0 and done.status != -signal.SIGPIPE:
            return GitKilled(-done.status, "objects cannot be read: git was")
        return GitFailed(f"objects cannot be read: {done.complaint}")


class _ReadAhead:
    """The questions of one `read_many` that are asked already, and the answers put by for it."""

    __slots__ = ("asked", "early", "size")

    def __init__(self) -> None:
        self.asked: deque[int] = deque()
        self.early: deque[GitObject | Damaged | None] = deque()
        self.size = 0

    def has_room(self, line: bytes) -> bool:
        # What is put by must be fetched first, or reads in between would let it grow without end.
        return not self.early and (not self.asked or self.size + len(line) <= WINDOW)

    @property
    def is_low(self) -> bool:
        return self.size <= WINDOW // 2

    def push(self, line: bytes) -> None:
        self.asked.append(len(line))
        self.size += len(line)

    def pop(self) -> None:
        self.size -= self.asked.popleft()


def _line(name: str | bytes) -> bytes:
    line = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    if b"\n" in line or b"\0" in line:
        raise Damaged(f"no object has a line break in its name: '{line.decode('utf-8', 'replace')!a}'")
    return line + b"\n"


def _open(answer: GitObject | Damaged | None) -> GitObject | None:
    if isinstance(answer, Damaged):
        raise answer
    return answer
