"""How much a git may take that reads what somebody else made: memory and time, held to by the kernel.

A few bytes of a pack stand for any number of them: a thousand for each where zeros are deflated, without end where one
object is told as a change of another. git makes room for what it is told. An honest export is well below: what a
capture stores whole has some 64 MB, and git passes on what is larger without holding it.

Measured on 400,000 objects of six bytes: `git index-pack --strict` takes 60 MB, the walk after it 53.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Iterable

from git_envhist.errors import Damaged, EnvhistError
from git_envhist.store.durable import cannot_write
from git_envhist.store.git import Git, GitResult
from git_envhist.system import free_bytes, keep_below
from git_envhist.values import dataclass

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


def refuse_without_room(place: str, size: int) -> None:
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
