"""Runs a git that talks to a server, which may be anybody's: what it may take is held to by the kernel, what is said is
kept as far as anybody would read it.

A shell waits for a word before it becomes that git: so it is held, and with it whatever it starts, from its first
moment on. What somebody there says without end is read and dropped; only a listing that has no end is an error. Of what
is written over itself, as progress is, the last remains. Whoever says nothing for too long is ended, and so is the git
of a program that is stopped itself: else it would go on behind its back.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import Protocol

from git_envhist import trace
from git_envhist.disk import cannot_write
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.git.process import Git, GitResult
from git_envhist.lazy import dataclass
from git_envhist.platform import free_bytes, keep_below, pipe_ours

# How much a git may take that reads what somebody else made: memory and time, held to by the kernel.
#
# A few bytes of a pack stand for any number of them: a thousand for each where zeros are deflated, without end where
# one object is told as a change of another. git makes room for what it is told. An honest export is well below: what a
# capture stores whole has some 64 MB, and git passes on what is larger without holding it.
#
# Measured on 400,000 objects of six bytes: `git index-pack --strict` takes 60 MB, the walk after it 53.

MEMORY, MEMORY_EACH = 1 << 30, 300
SECONDS, BYTES_A_SECOND = 600, 500_000
FETCH_MEMORY = 2 << 30
SMALLEST_ENTRY = 9
"""A byte that says what it is, and the eight of nothing deflated."""
PACK_HEAD = 12
STREAMED = ("-c", "core.bigFileThreshold=64m")
LISTED = "--batch-check=%(objectsize) %(objecttype) %(objectname)"
LARGE = re.compile(rb"^([1-9][0-9]{8,}) (commit|tree|tag|blob) ([0-9a-f]+)$", re.MULTILINE)
"""100 MB: a directory of two million files. Of blobs those are meant that notes hold."""
NO_ROOM = b"No space left on device"
NO_MEMORY = (b"ut of memory", b"annot allocate memory", b"unable to create thread", b"too large to fit")


class DecompressionBomb(Damaged):
    """What was told is far more than what was there to tell it."""

    code = "too-much"
    usual_hint = "only where you trust whoever made it: tar --zstd -xf FILE, and git fetch history.bundle"


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What one git may take, and each of those that it starts; None: what it likes."""

    memory: int | None = None
    seconds: int | None = None
    file: int | None = None
    """Bytes in one file that it writes."""

    def hold(self, process: int) -> None:
        """From now on."""
        keep_below(process, memory=self.memory, seconds=self.seconds, file=self.file)


def limits_for_pack(head: bytes, size: int) -> ResourceLimits:
    """The bounds for a pack of so many bytes that begins so."""
    count = int.from_bytes(head[8:PACK_HEAD], "big") if head.startswith(b"PACK") else 0
    if count * SMALLEST_ENTRY > size:
        raise DecompressionBomb(f"what was exported tells of {count:,} objects in {size:,} bytes")
    return ResourceLimits(MEMORY + MEMORY_EACH * count, SECONDS + size // BYTES_A_SECOND)


def bounds_of_a_fetch(memory: int, place: str) -> ResourceLimits:
    """The bounds where nobody knows before how much comes: a disk is not filled by it, nor is the memory."""
    free, beyond = free_bytes(place, kept_free=1 << 62), free_bytes(place, kept_free=20)
    return ResourceLimits(memory, None, None if free is None or beyond is None else max(beyond, free // 2))


def refuse_without_space(place: str, size: int) -> None:
    """Where a disk cannot hold it, nothing is begun."""
    room = free_bytes(place, kept_free=1 << 62)
    if room is not None and size > room:
        raise cannot_write(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), place)


def refuse_large(git: Git, notes: Iterable[str], listed: bytes) -> None:
    """Of what is read whole, whenever somebody looks at it, nothing is larger than any of ours."""
    found = find_large(git, notes, listed)
    if found is not None:
        raise DecompressionBomb(f"what was exported holds {found}")


def find_large(git: Git, notes: Iterable[str], listed: bytes) -> str | None:
    """What is too large to be read whole, in words; `listed`: the sizes of all there is, `notes`: the tips of notes."""
    blobs: dict[bytes, int] = {}
    for size, kind, oid in LARGE.findall(listed):
        if kind != b"blob":
            return f"a {kind.decode('ascii')} of {int(size):,} bytes"
        blobs[oid] = int(size)
    if not blobs:
        return None
    asked = "".join(f"{oid}\n" for oid in notes).encode("ascii")
    words = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--stdin")
    held = git.run(*words, stdin=asked).split() if asked else []
    return next((f"a note of {blobs[oid]:,} bytes" for oid in held if oid in blobs), None)


def limit_error(done: GitResult, bounds: ResourceLimits, place: str, else_it: str) -> EnvhistError:
    """What it means that a git failed which was held to bounds."""
    if NO_ROOM in done.err:
        return cannot_write(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), place)
    if done.status == -signal.SIGXCPU:
        return DecompressionBomb(f"what was exported takes longer to read than it may ({bounds.seconds:,} s)")
    if any(words in done.err for words in NO_MEMORY):
        return DecompressionBomb(
            f"what was exported takes more memory to read than it may ({bounds.memory:,} bytes)"
        )
    told = done.complaint.splitlines()[0]
    return Damaged(
        f"what was exported {else_it}: {told}", hint="nothing was taken in: have the file sent again"
    )


WAITING = ("sh", "-c", 'read -r now && exec "$@"', "sh")
MAX_TOLD = 64 << 20
"""A hundred thousand refs with long names."""
MAX_SAID = 1 << 20
STEP = re.compile(rb"([A-Z][a-z]{1,20}(?: [a-z]{1,20}){1,3}): +([0-9]{1,3})% ")
AT_ONCE = 1 << 16
MAX_END = 5.0
MAX_WAIT = 2_000_000.0
"""Three weeks: the kernel counts them in 31 bits of milliseconds."""


class Holds(Protocol):
    """What a process may take."""

    def hold(self, process: int) -> None: ...


class NoOutputTimeout(Exception):
    """Nothing was heard for as long as may be."""


def run_limited(
    words: Sequence[str],
    environment: Mapping[bytes, bytes],
    holds: Holds,
    stdin: bytes = b"",
    *,
    patience: float | None = None,
    heard: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Run a command to its end; `NoOutputTimeout` where it says nothing for so many seconds. `heard`: given what it
    says."""
    began = trace.now()
    pipes = pipe_ours(), pipe_ours(), pipe_ours()
    # Files of Python's: what stops this program never comes between the closing of one and its mark.
    ours = FileIO(pipes[0][1], "w"), FileIO(pipes[1][0]), FileIO(pipes[2][0])
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate(theirs)]
    try:
        try:
            child = os.posix_spawnp("sh", [*WAITING, *words], environment, file_actions=actions)
        except FileNotFoundError as missing:
            raise GitFailed("there is no 'sh' on the PATH") from missing
        finally:
            for one in theirs:
                os.close(one)
        try:
            holds.hold(child)
            told, said = _talk(ours, b"now\n" + stdin, patience, heard)
        except BaseException:
            _end(child)
            raise
    finally:
        for mine in ours:
            mine.close()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    trace.tell_git(words, began, status)
    if len(told) > MAX_TOLD:
        raise Damaged(f"more is listed there than {MAX_TOLD:,} bytes hold")
    return GitResult(status, told, said)


def parse_progress(said: bytes) -> str | None:
    """How far a git says it is, here or there; of what comes from elsewhere no more than these few letters."""
    found = STEP.findall(said)
    return f"{found[-1][0].decode('ascii').lower()} {int(found[-1][1])} %" if found else None


def _end(child: int) -> None:
    """End a git, which has to clear up after itself; one that does not is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(child, number)
        until = time.monotonic() + MAX_END
        while number is signal.SIGKILL or time.monotonic() < until:
            with suppress(ChildProcessError):
                if os.waitpid(child, os.WNOHANG)[0] == 0:
                    time.sleep(0.02)
                    continue
            return


def _talk(
    ours: Sequence[FileIO], stdin: bytes, patience: float | None, told: Callable[[bytes], None] | None
) -> tuple[bytes, bytes]:
    """Say one thing, hear two."""
    left = memoryview(stdin)
    heard = {1: bytearray(), 2: bytearray()}
    most = {1: MAX_TOLD + 1, 2: MAX_SAID}
    with selectors.DefaultSelector() as selector:
        os.set_blocking(ours[0].fileno(), False)
        for number, one in enumerate(ours):
            selector.register(one, selectors.EVENT_READ if number else selectors.EVENT_WRITE, number)
        while selector.get_map():
            heard_of = selector.select(patience and min(patience, MAX_WAIT))
            if not heard_of:
                raise NoOutputTimeout
            for key, _ in heard_of:
                if key.data:
                    part = os.read(key.fd, AT_ONCE)
                    room = most[key.data] - len(heard[key.data])
                    heard[key.data] += part[:room]
                    if key.data == 2 and told is not None:
                        told(part)
                    if key.data == 2 and b"\r" in part:
                        heard[2] = _written_over(heard[2])
                    is_done = not part or (key.data == 1 and room <= len(part))
                else:
                    left = _said_of(key.fd, left)
                    is_done = not left
                if is_done:
                    selector.unregister(key.fd)
                    ours[key.data].close()
    return bytes(heard[1]), bytes(heard[2])


def _written_over(said: bytearray) -> bytearray:
    """What is left of lines that were written over; the last may still be."""
    # Line by line, and no pattern: one that fails at the end of a long line is tried from each place of it again.
    return bytearray(b"\n".join(map(_left_of, bytes(said).split(b"\n"))))


def _left_of(line: bytes) -> bytes:
    told = line.rstrip(b"\r")
    return told.rpartition(b"\r")[2] + line[len(told) :][:1] if told else b""


def _said_of(pipe: int, left: memoryview) -> memoryview:
    """What is left to be said after a pipe took what it takes."""
    try:
        return left[os.write(pipe, left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:  # it ended before, and says why
        return left[:0]
