"""Read objects through one running `git cat-file --batch`.

git's own reader handles packs, alternates and promised objects, and checks every hash. Starting the child takes 2 ms,
an object about 20 µs. `read_many` writes names ahead of the answers, but at most `WINDOW` bytes: if git waited for us
to read while we waited for it to read a name, neither would continue.

`HeaderReader` and `known_sizes` return types and sizes only; `blob_blocks` streams blobs that are too large for
memory.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from git_envhist.errors import FSCK_HINT, Damaged, GitFailed, GitKilled
from git_envhist.git.process import READ_SIZE, Git, GitStream

# The smallest capacity of a pipe, also for a user with many pipes (pipe(7), pipe-user-pages-soft).
WINDOW = 4096

NO_OBJECT = (b" missing", b" ambiguous", b" submodule")


class GitObject(NamedTuple):
    """The type and content of an object."""

    kind: str
    data: bytes


class CatFile:
    """A reader of objects by any name that git accepts: hashes, refs, `<commit>:<path>`."""

    def __init__(self, git: Git, *, max_size: int | None = None) -> None:
        """With `max_size`, a larger object raises Damaged and is not read into memory."""
        self._git = git
        self._max_size = max_size
        self._child: GitStream | None = None
        self._buffer = bytearray()
        self._ahead: _ReadAhead | None = None

    def __enter__(self) -> CatFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start git now because it will be needed soon."""
        if self._child is None:
            self._child = GitStream(self._git, "cat-file", "--batch", talks=True)

    def read(self, name: str | bytes) -> GitObject | None:
        """Return an object by name; None if it does not exist."""
        self._store_answers()
        self._ask([_line(name)])
        return _open(self._receive())

    def read_many(self, names: Iterable[str | bytes]) -> Iterator[GitObject | None]:
        """Yield the objects of these names in order, requested ahead; other reads may come in between."""
        ahead = _ReadAhead()
        waiting = (_line(name) for name in names)
        following = next(waiting, None)
        try:
            while following is not None or ahead.asked or ahead.early:
                lines: list[bytes] = []
                # Names are written in batches, because each write wakes git.
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
                self._store_answers()

    def close(self) -> None:
        """End git; a later read starts it again."""
        child, self._child, self._ahead = self._child, None, None
        self._buffer.clear()
        if child is not None:
            child.close()

    def _take_turn(self, ahead: _ReadAhead) -> None:
        if self._ahead is not ahead:
            self._store_answers()
            self._ahead = ahead

    def _store_answers(self) -> None:
        # git answers in order, so answers that another `read_many` will return are stored in it.
        ahead = self._ahead
        if ahead is not None:
            while ahead.asked:
                ahead.early.append(self._next(ahead))
        self._ahead = None

    def _next(self, ahead: _ReadAhead) -> GitObject | Damaged | None:
        if self._ahead is not ahead:
            raise GitFailed("objects cannot be read: git has ended")
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
            # The name was not sent completely, so its answer may never arrive.
            self.close()
            raise

    def _receive(self) -> GitObject | Damaged | None:
        try:
            return self._receive_one()
        except BaseException:
            # The rest of this answer would be read as the next one.
            self.close()
            raise

    def _receive_one(self) -> GitObject | Damaged | None:
        header = self._read_line()
        if header.endswith(NO_OBJECT):
            return None
        oid, _, rest = header.partition(b" ")
        kind, _, size = rest.partition(b" ")
        if not size.isdigit():
            raise self._died()
        if self._max_size is not None and int(size) > self._max_size:
            self._skip(int(size) + 1)
            return Damaged(f"object '{oid.decode('ascii')}' has {int(size)} bytes, more than the limit")
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
        """Return the next `size` bytes without the last, the line feed after an object."""
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
        # The next read starts git again: one damaged object must not hide the others.
        child, self._child, self._ahead = self._child, None, None
        self._buffer.clear()
        if child is None:
            return GitFailed("objects cannot be read")
        done = child.close()
        # Without a reader git ends by SIGPIPE; that is a failure, not a kill.
        if done.status < 0 and done.status != -signal.SIGPIPE:
            return GitKilled(-done.status, "objects cannot be read: git was")
        return GitFailed(f"objects cannot be read: {done.complaint}")


class _ReadAhead:
    """The requests of one `read_many` that are sent, and the answers stored for it."""

    __slots__ = ("asked", "early", "size")

    def __init__(self) -> None:
        self.asked: deque[int] = deque()
        self.early: deque[GitObject | Damaged | None] = deque()
        self.size = 0

    def has_room(self, line: bytes) -> bool:
        # Stored answers are returned first, or reads in between would let them grow without limit.
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
        raise Damaged(f"the name of an object contains a line break: '{line.decode('utf-8', 'replace')!a}'")
    return line + b"\n"


def _open(answer: GitObject | Damaged | None) -> GitObject | None:
    if isinstance(answer, Damaged):
        raise answer
    return answer


# Types and sizes, read before untrusted objects are inflated.

FORMAT = "--batch-check=%(objectname) %(objecttype) %(objectsize)"


class ObjectHeader(NamedTuple):
    """The type and size of an object."""

    kind: str
    size: int


class HeaderReader:
    """Read the headers of objects by their raw ids; call `close` at the end."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._child: GitStream | None = None
        self._known: dict[bytes, ObjectHeader] = {}

    def of(self, oid: bytes) -> ObjectHeader:
        """Return the header of an object; raise Damaged if it does not exist."""
        if oid not in self._known:
            self._known[oid] = _read_line(oid, self._ask(oid))
        return self._known[oid]

    def of_many(self, oids: Iterable[bytes]) -> dict[bytes, ObjectHeader]:
        """Return the headers of all objects asked for so far, after reading these in one batch."""
        wanted = sorted(set(oids) - self._known.keys())
        lines = _header_lines(self._git, wanted)
        if len(lines) != len(wanted):
            raise GitFailed("git did not return the sizes of all objects")
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
            # The answer to this name would be taken for that of the next one.
            self.close()
            raise
        if not line.endswith(b"\n"):
            self.close()  # one damaged object must not hide the others
        return line


def known_sizes(git: Git, oids: Iterable[bytes]) -> dict[bytes, int]:
    """Return the sizes of those objects that exist here; some objects of a fetched snapshot may not."""
    rows = (line.split() for line in _header_lines(git, sorted(set(oids))))
    return {bytes.fromhex(words[0].decode("ascii")): int(words[2]) for words in rows if len(words) == 3}


def _header_lines(git: Git, oids: Collection[bytes]) -> list[bytes]:
    """Return git's line about each object."""
    asked = b"".join(oid.hex().encode("ascii") + b"\n" for oid in oids)
    return git.run("cat-file", FORMAT, stdin=asked).splitlines() if asked else []


def _read_line(oid: bytes, line: bytes) -> ObjectHeader:
    words = line.split()
    if len(words) != 3 or not words[2].isdigit():
        raise Damaged(f"an object is missing: {oid.hex()}", hint=FSCK_HINT)
    return ObjectHeader(words[1].decode("ascii"), int(words[2]))


# Blobs that are too large for memory.

# Below this threshold git itself would read the whole blob into memory.
STREAMED = ("-c", "core.bigFileThreshold=1m")


def blob_blocks(git: Git, oid: str) -> Iterator[bytes]:
    """Yield the content of a blob in blocks."""
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


# By the length of an id in hex; git knows this tree without having it.
EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


def empty_tree(git: Git, like: str) -> str:
    """The tree without entries, in the hash of a repository that has the object `like`."""
    return EMPTY_TREES[len(git.run("rev-parse", "--verify", "--end-of-options", like).strip())]
