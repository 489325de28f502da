"""zstandard frames with a checksum: for the stat cache and for archives, never for git's objects."""

from __future__ import annotations


def pack(data: bytes) -> bytes:
    """The data as one frame that says how long it is and carries a checksum."""
    import zstandard  # loaded late: not every command meets a frame

    return zstandard.ZstdCompressor(level=1, write_checksum=True, write_content_size=True).compress(data)


def unpack(frame: bytes) -> bytes:
    """The data of a frame; ValueError where it is damaged."""
    import zstandard  # loaded late: not every command meets a frame

    try:
        return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
