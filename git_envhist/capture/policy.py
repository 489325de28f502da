"""What is to become of the bytes of a path, and what the store must offer to those who bring them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from git_envhist.capture.reading import Block
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """How the bytes of a path are to be kept."""

    secret_name: Callable[[bytes], bool]
    secret_names: Callable[[bytes], Callable[[bytes], bool]]
    """(directory) -> the same for the names of the files right in it."""
    scans_content: Callable[[bytes], bool]
    secret_content: Callable[[bytes, bytes], bool]
    excluded: Callable[[bytes], bool]
    """The user said that a path is not secret."""
    fingerprinted: Callable[[bytes], bool] | None
    seal: Callable[[bytes, bytes], bytes] | None
    """(path, bytes) -> sealed bytes; None where no key can be had."""
    keyed_hash: Callable[[bytes], bytes] | None
    big_file: int
    holds_databases: bool
    """Locks may be taken: this process is ours alone."""
    scan_limit: int = 64 << 10


Mark = tuple[int, int, int]


class BlobStore(Protocol):
    """Where bytes go; all that this room needs to know of the store."""

    def add_blob(self, data: bytes) -> bytes:
        """Keep some bytes; their id."""
        ...

    def add_big(self, blocks: Iterator[Block]) -> tuple[int, bytes, bytes]:
        """Keep a big file in pieces: its size, the id of the pointer that stands for it, and of its pieces' tree."""
        ...

    def mark(self) -> Mark:
        """This moment, for `forget`."""
        ...

    def forget(self, mark: Mark) -> None:
        """Undo everything that was added since."""
        ...

    def added_bytes(self) -> int:
        """How many bytes this capture has stored so far, in all of its processes."""
        ...
