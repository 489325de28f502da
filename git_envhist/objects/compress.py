"""zstd frames with a checksum: for the stat cache and for archives, never for git's objects.

By zstandard where it is installed. From Python 3.15 on it need not be, for Python has a zstd of its own, and new
versions of Python come before the wheels do.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from git_envhist.platform import SYSTEM

PYTHONS_OWN = "compression.zstd"


def pack(data: bytes) -> bytes:
    """The data as one frame that says how long it is and carries a checksum."""
    try:
        import zstandard  # loaded late: not every command meets a frame
    except ImportError:
        own = import_module(PYTHONS_OWN)
        packed: bytes = own.compress(data, options=_options(own, 1))
        return packed
    return zstandard.ZstdCompressor(level=1, write_checksum=True, write_content_size=True).compress(data)


def unpack(frame: bytes) -> bytes:
    """The data of a frame; ValueError where it is damaged."""
    try:
        import zstandard  # loaded late: not every command meets a frame
    except ImportError:
        own = import_module(PYTHONS_OWN)
        with _told_as_value(own.ZstdError):
            data: bytes = own.decompress(frame)
        return data
    with _told_as_value(zstandard.ZstdError):
        return zstandard.ZstdDecompressor().decompress(frame)


@contextmanager
def packing(file: IO[bytes], level: int) -> Iterator[Callable[[bytes], object]]:
    """What writes into a file as one frame, which ends with the block."""
    try:
        import zstandard  # loaded late: only an export writes one
    except ImportError:
        own = import_module(PYTHONS_OWN)
        with own.ZstdFile(file, "wb", options=_options(own, level)) as out:
            yield out.write
        return
    maker = zstandard.ZstdCompressor(level=level, write_checksum=True)
    with maker.stream_writer(file, closefd=False) as out:
        yield out.write


@contextmanager
def unpacking(file: IO[bytes], window: int) -> Iterator[Callable[[int], bytes]]:
    """What reads a frame from a file, with no more memory than `window`; ValueError where it is damaged."""
    try:
        import zstandard  # loaded late: only an import reads one
    except ImportError:
        own = import_module(PYTHONS_OWN)
        bounds = {own.DecompressionParameter.window_log_max: window.bit_length() - 1}
        with own.ZstdFile(file, "rb", options=bounds) as stream:
            yield _reader(stream.read, own.ZstdError)
        return
    limited = zstandard.ZstdDecompressor(max_window_size=window)
    with limited.stream_reader(file, read_across_frames=False, closefd=False) as stream:
        yield _reader(stream.read, zstandard.ZstdError)


def _options(own: Any, level: int) -> dict[Any, int]:
    wanted = own.CompressionParameter
    return {wanted.compression_level: level, wanted.checksum_flag: 1}


def _reader(read: Callable[[int], bytes], broken: type[Exception]) -> Callable[[int], bytes]:
    def told(size: int) -> bytes:
        with _told_as_value(broken):
            return read(size)

    return told


@contextmanager
def _told_as_value(broken: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (broken, EOFError) as error:
        raise ValueError(str(error)) from error


# The deflate of git objects: isal where it is installed (four times as fast), else zlib; the streams are alike.

if TYPE_CHECKING:
    from zlib import adler32, compress, crc32, decompress, decompressobj

    InflateError: tuple[type[Exception], ...]
    QUICKEST: int
else:
    try:
        if not SYSTEM.isal:
            raise ImportError
        from isal.isal_zlib import IsalError, adler32, compress, crc32, decompress, decompressobj
    except ImportError:  # no wheel for this machine
        from zlib import adler32, compress, crc32, decompress, decompressobj

        InflateError = (zlib.error,)
        QUICKEST = 1
    else:
        InflateError = (IsalError, zlib.error)
        QUICKEST = 0

__all__ = ["InflateError", "adler32", "compress", "crc32", "decompress", "decompressobj", "deflate_object"]

SMALL = (16 << 10) - 1
"""Up to here the codes of a stream of its own cost a third to three quarters of the time (9 microseconds, whatever the
size), for a quarter to an eighth of the bytes. All that is so small takes a tenth of a pack. A page of a database is
one byte longer: it gains a quarter by them, and there are many."""
WORTH_A_LOOK = 32 << 10
GLANCE, SAMPLE = 256, 2048
MIXED = 130
"""So many values are among 256 random bytes at least; in text they are 40, in machine code 110."""
STORED_BLOCK = 65_535
"""The longest that deflate knows."""
FRAME = 11
"""What a stream adds to bytes that stand in one such block."""


def deflate_object(data: bytes, level: int) -> bytes:
    """A zlib stream of the data: as small as the level makes it, or quickly where that would not make it smaller."""
    if len(data) <= SMALL:
        quickly = compress(data, QUICKEST)
        # Codes that were made for text make what is dense already longer.
        return _stored(data) if data and len(quickly) > len(data) + FRAME else quickly
    if len(data) >= WORTH_A_LOOK and _is_dense(data):
        return _stored(data)
    return compress(data, level)


def _is_dense(data: bytes) -> bool:
    """Whether the data look as if compressed or encrypted already: a glance first, then samples are tried."""
    middle = len(data) // 2
    if len(set(data[middle : middle + GLANCE])) < MIXED:
        return False
    starts = (len(data) // 4, middle, len(data) // 4 * 3)
    sample = b"".join([data[start : start + SAMPLE] for start in starts])
    return len(compress(sample, 1)) > len(sample) * 0.98


def _stored(data: bytes) -> bytes:
    parts, checksum = [b"\x78\x01"], 1
    for start in range(0, len(data), STORED_BLOCK):
        block = data[start : start + STORED_BLOCK]
        size = len(block)
        last = start + size == len(data)
        parts += (b"%c" % last, size.to_bytes(2, "little"), (size ^ 0xFFFF).to_bytes(2, "little"), block)
        # Of what goes into the stream, not of what it was made from: it tells whether bytes changed on the way.
        checksum = adler32(block, checksum)
    parts.append(checksum.to_bytes(4, "big"))
    return b"".join(parts)
