"""zstandard frames of stat caches and archives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

PYTHONS_OWN = "compression.zstd"


def pack(data: bytes) -> bytes:
    """Return data as one frame that contains its length and a checksum."""
    try:
        import zstandard  # loaded late: not every command meets a frame
    except ImportError:
        own = import_module(PYTHONS_OWN)
        packed: bytes = own.compress(data, options=_options(own, 1))
        return packed
    return zstandard.ZstdCompressor(level=1, write_checksum=True, write_content_size=True).compress(data)


def unpack(frame: bytes) -> bytes:
    """Return the data of a frame; raise ValueError if it is damaged."""
    try:
        import zstandard  # loaded late: not every command meets a frame
    except ImportError:
        own = import_module(PYTHONS_OWN)
        with _as_value_error(own.ZstdError):
            data: bytes = own.decompress(frame)
        return data
    with _as_value_error(zstandard.ZstdError):
        return zstandard.ZstdDecompressor().decompress(frame)


@contextmanager
def packing(file: IO[bytes], level: int) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes to a file as one frame, which ends with the block."""
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
    """Yield a function that reads a frame from a file with at most `window` bytes of memory.

    It raises ValueError if the frame is damaged.
    """
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
    def checked(size: int) -> bytes:
        with _as_value_error(broken):
            return read(size)

    return checked


@contextmanager
def _as_value_error(broken: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (broken, EOFError) as error:
        raise ValueError(str(error)) from error
