"""Run git on untrusted data, or against an untrusted server, under limits of memory, time and output.

A few bytes of a pack can inflate to any size, and git allocates what the pack claims. The kernel enforces the limits
(setrlimit); `limit_error` explains a failure. Honest data stays well below: a capture stores whole files up to 64 MB,
and git streams larger ones. Measured with 400,000 objects of six bytes: `git index-pack --strict` takes 60 MB, the
walk after it 53.

`run_limited` starts a shell that waits for a line before it becomes git, so that the limits apply to git and its
children from the start. Unlimited output of a server is read and dropped, except for a listing, where it is an error.
git is killed if it prints nothing for too long, and when this program is stopped.
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

from git_envhist import trace
from git_envhist.disk import cannot_write
from git_envhist.errors import Damaged, EnvhistError
from git_envhist.git.process import Git, GitResult, start
from git_envhist.lazy import dataclass
from git_envhist.platform import free_bytes, guarded_pipe, limit_process

MEMORY, MEMORY_EACH = 1 << 30, 300
SECONDS, BYTES_A_SECOND = 600, 500_000
FETCH_MEMORY = 2 << 30
SMALLEST_ENTRY = 9
"""An entry has a byte for its type, and eight for an empty deflated text."""
PACK_HEAD = 12
STREAMED = ("-c", "core.bigFileThreshold=64m")
LISTED = "--batch-check=%(objectsize) %(objecttype) %(objectname)"
LARGE = re.compile(rb"^([1-9][0-9]{8,}) (commit|tree|tag|blob) ([0-9a-f]+)$", re.MULTILINE)
"""At least 100 MB, i.e. a directory of two million files. Among blobs, only those in notes are limited."""
NO_SPACE = b"No space left on device"
NO_MEMORY = (b"ut of memory", b"annot allocate memory", b"unable to create thread", b"too large to fit")


class DecompressionBomb(Damaged):
    """Untrusted data expands to far more than its own size."""

    code = "too-much"
    usual_hint = "only if you trust its author: tar --zstd -xf FILE, and git fetch history.bundle"


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The limits of a git process and of each of its children; None: unlimited."""

    memory: int | None = None
    seconds: int | None = None
    file: int | None = None
    """The size of a file that it writes."""

    def apply(self, process: int) -> None:
        """Apply the limits to a running process."""
        limit_process(process, memory=self.memory, seconds=self.seconds, file=self.file)


def limits_for_pack(head: bytes, size: int) -> ResourceLimits:
    """Return the limits for reading a pack of `size` bytes that begins with `head`."""
    count = int.from_bytes(head[8:PACK_HEAD], "big") if head.startswith(b"PACK") else 0
    if count * SMALLEST_ENTRY > size:
        raise DecompressionBomb(f"the archive claims {count:,} objects in {size:,} bytes")
    return ResourceLimits(MEMORY + MEMORY_EACH * count, SECONDS + size // BYTES_A_SECOND)


def limits_for_fetch(memory: int, place: str) -> ResourceLimits:
    """Return the limits of a fetch, whose size is unknown: it may fill neither the disk nor the memory."""
    free, beyond = free_bytes(place, reserve=1 << 62), free_bytes(place, reserve=20)
    return ResourceLimits(memory, None, None if free is None or beyond is None else max(beyond, free // 2))


def refuse_without_space(place: str, size: int) -> None:
    """Raise an error if the disk has no space for `size` bytes."""
    room = free_bytes(place, reserve=1 << 62)
    if room is not None and size > room:
        raise cannot_write(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), place)


def refuse_large(git: Git, notes: Iterable[str], listed: bytes) -> None:
    """Raise DecompressionBomb if an object that is read as a whole is larger than any of ours."""
    found = find_large(git, notes, listed)
    if found is not None:
        raise DecompressionBomb(f"the archive contains {found}")


def find_large(git: Git, notes: Iterable[str], listed: bytes) -> str | None:
    """Return a description of an object too large to be read as a whole, or None.

    `listed` are the sizes of all objects, `notes` the tips of notes.
    """
    blobs: dict[bytes, int] = {}
    for size, kind, oid in LARGE.findall(listed):
        if kind != b"blob":
            return f"a {kind.decode('ascii')} of {int(size):,} bytes"
        blobs[oid] = int(size)
    if not blobs:
        return None
    asked = "".join(f"{oid}\n" for oid in notes).encode("ascii")
    words = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--stdin")
    in_notes = git.run(*words, stdin=asked).split() if asked else []
    return next((f"a note of {blobs[oid]:,} bytes" for oid in in_notes if oid in blobs), None)


def limit_error(done: GitResult, bounds: ResourceLimits, place: str, problem: str) -> EnvhistError:
    """Return the error for a git that failed under limits."""
    if NO_SPACE in done.err:
        return cannot_write(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), place)
    if done.status == -signal.SIGXCPU:
        return DecompressionBomb(f"reading the archive takes longer than the limit ({bounds.seconds:,} s)")
    if any(words in done.err for words in NO_MEMORY):
        return DecompressionBomb(
            f"reading the archive takes more memory than the limit ({bounds.memory:,} bytes)"
        )
    reason = done.complaint.splitlines()[0]
    return Damaged(f"the archive {problem}: {reason}", hint="nothing was imported: have the file sent again")


WAITING = ("sh", "-c", 'read -r now && exec "$@"', "sh")
MAX_OUTPUT = 64 << 20
"""Enough for a hundred thousand refs with long names."""
MAX_ERRORS = 1 << 20
STEP = re.compile(rb"([A-Z][a-z]{1,20}(?: [a-z]{1,20}){1,3}): +([0-9]{1,3})% ")
AT_ONCE = 1 << 16
MAX_END = 5.0
MAX_WAIT = 2_000_000.0
"""Three weeks; the kernel counts milliseconds in 31 bits."""


class NoOutputTimeout(Exception):
    """git printed nothing for longer than the timeout."""


def run_limited(
    words: Sequence[str],
    environment: Mapping[bytes, bytes],
    limits: ResourceLimits,
    stdin: bytes = b"",
    *,
    timeout: float | None = None,
    on_output: Callable[[bytes], None] | None = None,
) -> GitResult:
    """Run a command under limits to its end; raise NoOutputTimeout if it prints nothing for `timeout` seconds.

    `on_output` is called with its error output as it arrives.
    """
    began = trace.now()
    pipes = guarded_pipe(), guarded_pipe(), guarded_pipe()
    # Python's file objects: a signal cannot arrive between closing a descriptor and marking it closed.
    pipe_ends = FileIO(pipes[0][1], "w"), FileIO(pipes[1][0]), FileIO(pipes[2][0])
    child_ends = [pipes[0][0], pipes[1][1], pipes[2][1]]
    try:
        try:
            child = start([*WAITING, *words], environment, child_ends)
        finally:
            for one in child_ends:
                os.close(one)
        try:
            limits.apply(child)
            output, errors = _talk(pipe_ends, b"now\n" + stdin, timeout, on_output)
        except BaseException:
            _terminate(child)
            raise
    finally:
        for file in pipe_ends:
            file.close()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    trace.trace_git(words, began, status)
    if len(output) > MAX_OUTPUT:
        raise Damaged(f"the remote lists more than {MAX_OUTPUT:,} bytes of refs")
    return GitResult(status, output, errors)


def parse_progress(output: bytes) -> str | None:
    """Return the last progress report in git's output, limited to letters and a percentage: a server writes it."""
    found = STEP.findall(output)
    return f"{found[-1][0].decode('ascii').lower()} {int(found[-1][1])} %" if found else None


def _terminate(child: int) -> None:
    """Terminate git, which cleans up after itself; kill it if it does not end."""
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
    pipe_ends: Sequence[FileIO],
    stdin: bytes,
    timeout: float | None,
    on_output: Callable[[bytes], None] | None,
) -> tuple[bytes, bytes]:
    """Write the input, and read both outputs up to their limits."""
    left = memoryview(stdin)
    outputs = {1: bytearray(), 2: bytearray()}
    limits = {1: MAX_OUTPUT + 1, 2: MAX_ERRORS}
    with selectors.DefaultSelector() as selector:
        os.set_blocking(pipe_ends[0].fileno(), False)
        for number, one in enumerate(pipe_ends):
            selector.register(one, selectors.EVENT_READ if number else selectors.EVENT_WRITE, number)
        while selector.get_map():
            ready = selector.select(timeout and min(timeout, MAX_WAIT))
            if not ready:
                raise NoOutputTimeout
            for key, _ in ready:
                if key.data:
                    part = os.read(key.fd, AT_ONCE)
                    room = limits[key.data] - len(outputs[key.data])
                    outputs[key.data] += part[:room]
                    if key.data == 2 and on_output is not None:
                        on_output(part)
                    if key.data == 2 and b"\r" in part:
                        outputs[2] = _without_overwritten(outputs[2])
                    is_done = not part or (key.data == 1 and room <= len(part))
                else:
                    left = _write_some(key.fd, left)
                    is_done = not left
                if is_done:
                    selector.unregister(key.fd)
                    pipe_ends[key.data].close()
    return bytes(outputs[1]), bytes(outputs[2])


def _without_overwritten(output: bytearray) -> bytearray:
    """Return the lines without the parts that carriage returns have overwritten."""
    # Not a regular expression: one that fails at the end of a long line is tried again from each position.
    return bytearray(b"\n".join(map(_last_part, bytes(output).split(b"\n"))))


def _last_part(line: bytes) -> bytes:
    text = line.rstrip(b"\r")
    return text.rpartition(b"\r")[2] + line[len(text) :][:1] if text else b""


def _write_some(pipe: int, left: memoryview) -> memoryview:
    """Write to a pipe as much as it takes; return the rest."""
    try:
        return left[os.write(pipe, left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:  # it has ended; its output says why
        return left[:0]
