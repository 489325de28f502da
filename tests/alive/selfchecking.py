"""Files with versions that can be recognised from their bytes, and a program that keeps changing them.

A version is complete, cut in half, or empty: these are the states that one system call leaves, and no others may ever
be found. `python -m tests.alive.selfchecking DIRECTORY SEED PAUSE` prints a word for each change.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SIZES = (400, 3_000, 20_000, 150_000, 900_000, 3_000_000)
WEIGHTS = (20, 15, 10, 8, 4, 3)
FRESH = ".new"
BURST = 20


def content(name: str, version: int, size: int) -> bytes:
    head = f"{name} {version} {size}\n".encode()
    block = hashlib.sha256(head).digest()
    return (head + block * (size // len(block) + 1))[:size]


def is_whole(name: str, data: bytes) -> bool:
    """Return whether `data` is one state of one version of a file."""
    if not data:
        return True
    try:
        told, version, size = data.partition(b"\n")[0].decode().split(" ")
        full = content(told, int(version), int(size))
    except ValueError:
        return False
    return told == name.removesuffix(FRESH) and data in (full, full[: len(full) // 2])


def plant(directory: Path, files: int, seed: int) -> None:
    """Write some files of many sizes."""
    chance = random.Random(seed)
    for number in range(files):
        path = directory / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = chance.choices(SIZES, WEIGHTS)[0] + chance.randrange(100)
        path.write_bytes(content(path.name, 0, size))


class Changer:
    """Change files, one system call at a time."""

    def __init__(self, paths: list[Path], seed: int) -> None:
        self._chance = random.Random(seed)
        self._sizes = {path: path.stat().st_size for path in paths}
        self._version = seed * 1_000_000_000

    def changes(self) -> Iterator[str]:
        kinds: dict[str, Callable[[Path], None]] = {
            "write": self._write,
            "truncate": self._truncate,
            "empty": self._empty,
            "rename": self._rename,
            "remake": self._remake,
        }
        while True:
            path = self._chance.choice(list(self._sizes))
            kind = self._chance.choices(list(kinds), (6, 3, 1, 3, 1))[0]
            # Sometimes without a pause, so that the file is young at every stat.
            burst = kind == "write" and self._chance.random() < 0.05
            for _ in range(BURST if burst else 1):
                kinds[kind](path)
                yield kind

    def _next(self, path: Path) -> bytes:
        self._version += 1
        return content(path.name, self._version, self._sizes[path])

    def _write(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        data = self._next(path)
        assert os.pwrite(descriptor, data, 0) == len(data)
        os.close(descriptor)

    def _truncate(self, path: Path) -> None:
        if path.stat().st_size == self._sizes[path]:
            os.truncate(path, self._sizes[path] // 2)

    def _empty(self, path: Path) -> None:
        os.truncate(path, 0)
        self._write(path)

    def _rename(self, path: Path) -> None:
        fresh = path.with_name(path.name + FRESH)
        fresh.write_bytes(b"")
        descriptor = os.open(fresh, os.O_WRONLY)
        data = self._next(path)
        assert os.pwrite(descriptor, data, 0) == len(data)
        os.close(descriptor)
        os.replace(fresh, path)

    def _remake(self, path: Path) -> None:
        path.unlink()
        self._write(path)


def main(directory: str, seed: str, share: str, pause: str) -> None:
    mine, of = map(int, share.split("/"))
    # Each file has one writer, because two concurrent writers leave content that neither has written. Another
    # program may be writing a new file next to the one that it replaces.
    found = [path for path in sorted(Path(directory).rglob("f*")) if not path.name.endswith(FRESH)]
    paths = [path for path in found if int(path.name[1:]) % of == mine]
    for kind in Changer(paths, int(seed)).changes():
        print(kind, flush=True)
        time.sleep(random.random() * 2 * float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
