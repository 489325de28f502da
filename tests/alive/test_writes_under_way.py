"""A long write changes the time stamps of a file when it begins, and not when it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from git_envhist.worktree.read_file import open_file, read_streamed

LARGE = 128 << 20


def test_long_write_is_not_captured_half_done(tmp_path: Path) -> None:
    ones = b"\1" * LARGE
    for number in range(3):
        path = tmp_path / f"file{number}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(descriptor, LARGE)
        writer = threading.Thread(target=os.pwrite, args=(descriptor, ones, 0))
        writer.start()
        while os.pread(descriptor, 1, 0) != b"\1":
            pass
        values, stable = _values(path)
        writer.join()
        os.close(descriptor)
        path.unlink()
        assert len(values) == 1 or not stable


def _values(path: Path) -> tuple[set[int], bool]:
    """Return the bytes that a file was read to consist of, and whether it was stable."""
    found: set[int] = set()

    def consume(blocks: Iterator[bytes | int]) -> None:
        found.clear()
        for block in blocks:
            # An integer is the length of a hole.
            found.update((0,) if isinstance(block, int) else (block[0], block[-1]))

    descriptor = open_file(os.fsencode(path))
    try:
        return found, read_streamed(descriptor, consume)[1]
    finally:
        os.close(descriptor)
