"""A write that lasts: it shows in a file's time stamps when it begins, and is not over for long."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from git_envhist.worktree.read_file import open_file, read_streamed

LARGE = 128 << 20


def test_a_long_write_that_is_under_way_is_not_kept_by_halves(tmp_path: Path) -> None:
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
    """Which bytes a file was read to consist of, and whether it is said to have stood still."""
    found: set[int] = set()

    def consume(blocks: Iterator[bytes | int]) -> None:
        found.clear()
        for block in blocks:
            # A number: so many NULs, which no disk holds.
            found.update((0,) if isinstance(block, int) else (block[0], block[-1]))

    descriptor = open_file(os.fsencode(path))
    try:
        return found, read_streamed(descriptor, consume)[1]
    finally:
        os.close(descriptor)
