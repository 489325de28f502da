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
from git_envhist.git.process import READ_SIZE, Git, GitStream

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


# What objects are and how large, from their headers: asked before anything that somebody else made is inflated.

FORMAT = "--batch-check=%(objectname) %(objecttype) %(objectsize)"


class ObjectHeader(NamedTuple):
    """What the header of an object says."""

    kind: str
    size: int


class HeaderReader:
    """Asks git for the headers of objects by their raw ids; to be closed."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._child: GitStream | None = None
        self._known: dict[bytes, ObjectHeader] = {}

    def of(self, oid: bytes) -> ObjectHeader:
        """The header of one object; `Damaged` where there is none."""
        if oid not in self._known:
            self._known[oid] = _read_line(oid, self._ask(oid))
        return self._known[oid]

    def of_many(self, oids: Iterable[bytes]) -> dict[bytes, ObjectHeader]:
        """Those of many, for less."""
        wanted = sorted(set(oids) - self._known.keys())
        if wanted:
            asked = b"".join(oid.hex().encode("ascii") + b"\n" for oid in wanted)
            lines = self._git.run("cat-file", FORMAT, stdin=asked).splitlines()
            if len(lines) != len(wanted):
                raise GitFailed("git does not say how large objects are")
            self._known.update((oid, _read_line(oid, line)) for oid, line in zip(wanted, lines, strict=True))
        return self._known

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _ask(self, oid: bytes) -> bytes:
        if self._child is None:
            self._child = GitStream(self._git, "cat-file", FORMAT, talks=True)
        line = b""
        try:
            self._child.write(oid.hex().encode("ascii") + b"\n")
            while not line.endswith(b"\n"):
                chunk = self._child.read()
                if not chunk:
                    break
                line += chunk
        except BrokenPipeError:
            pass
        except BaseException:
            # Its answer would be taken for that of the next question.
            self.close()
            raise
        if not line.endswith(b"\n"):
            self.close()  # a single damaged object must not hide all the others
        return line


def known_sizes(git: Git, oids: Iterable[bytes]) -> dict[bytes, int]:
    """How large those objects are that are here; of a fetched moment some may be elsewhere still."""
    asked = sorted(set(oids))
    if not asked:
        return {}
    lines = git.run("cat-file", FORMAT, stdin=b"".join(oid.hex().encode("ascii") + b"\n" for oid in asked))
    told = (line.split() for line in lines.splitlines())
    return {bytes.fromhex(words[0].decode("ascii")): int(words[2]) for words in told if len(words) == 3}


def _read_line(oid: bytes, line: bytes) -> ObjectHeader:
    words = line.split()
    if len(words) != 3 or not words[2].isdigit():
        raise Damaged(
            f"an object is missing: {oid.hex()}", hint="'git envlog fsck' says what else is missing"
        )
    return ObjectHeader(words[1].decode("ascii"), int(words[2]))


# Blobs of the repository that are too large to be held: how large they are, and their bytes as they come.

# git would hold a whole blob in memory, too, unless it takes it for a big one.
STREAMED = ("-c", "core.bigFileThreshold=1m")


def blob_sizes(git: Git, oids: Iterable[str]) -> dict[str, int]:
    """How many bytes each of some blobs has; those that are not there are left out."""
    asked = "".join(f"{oid}\n" for oid in oids).encode("ascii")
    if not asked:
        return {}
    told = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked)
    rows = [line.split(" ") for line in told.decode("ascii", "replace").splitlines()]
    return {oid: int(size) for oid, size in rows if size.isdigit()}


def blob_blocks(git: Git, oid: str) -> Iterator[bytes]:
    """The bytes of a blob, block by block."""
    child = GitStream(git, *STREAMED, "cat-file", "blob", oid)
    try:
        while block := child.read():
            yield block
    except BaseException:
        child.close()
        raise
    done = child.close()
    if done.status != 0:
        raise GitFailed(done.complaint)
