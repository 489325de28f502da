"""Change files during a restore: `python -m tests.crash.adversary TREE OUTSIDE SEED`.

Until its standard input ends, this process edits files in place, writes through an open descriptor, saves over files,
deletes them, puts a directory or a link in their place, and adds files to directories. It destroys nothing without a
record: removed entries are moved to OUTSIDE, and overwritten bytes are listed in `OUTSIDE/overwritten`. Everything
else in `OUTSIDE/written` must exist somewhere at the end.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from git_envhist.restore.disk_calls import DiskCalls

BUSY, IDLE = 0.0003, 0.03
"""Seconds between changes: with a journal, and before one."""
EARLY = 4
"""The maximum number of changes before there is a journal. With more, every file changes before it is swapped, or no
file stays unchanged long enough to be saved, and nothing is restored."""
A_TURN = 10_000
"""The seeds of successive runs in one tree differ by this, so that each writes other contents."""
SIZE = 40


def content(word: str, number: int) -> bytes:
    """Return the contents of a file; all have the same length, so that no mixture is left."""
    return f"{word} {number} ".encode().ljust(SIZE, b".")


def note(place: Path, data: bytes) -> None:
    with open(place, "ab") as file:
        file.write(data + b"\n")


class Adversary:
    def __init__(self, tree: Path, outside: Path, seed: int) -> None:
        self.tree, self.outside = tree, outside
        self.chance = random.Random(seed)
        self.names = [path for path in sorted(tree.rglob("*")) if ".git" not in path.parts]
        self.written, self.overwritten = (outside / name for name in ("written", "overwritten"))
        self.number = seed // A_TURN * A_TURN
        self.descriptors: list[int] = []
        self.deeds: tuple[Callable[[Path], None], ...] = (
            self.edit, self.keep_writing, self.save_over, self.take_away,
            self.put_directory, self.put_link, self.add_child,
        )  # fmt: skip

    def act(self) -> None:
        self.number += 1
        with suppress(OSError):
            self.chance.choice(self.deeds)(self.chance.choice(self.names))

    def edit(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self._overwrite(descriptor)
        finally:
            os.close(descriptor)

    def keep_writing(self, path: Path) -> None:
        if len(self.descriptors) < 5:
            self.descriptors.append(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
        self._overwrite(self.chance.choice(self.descriptors))

    def save_over(self, path: Path) -> None:
        mine = self._mine()
        self._write(mine)
        self._put(mine, path)

    def put_directory(self, path: Path) -> None:
        mine = self._mine()
        mine.mkdir()
        self._write(mine / "in it")
        self._put(mine, path)

    def put_link(self, path: Path) -> None:
        mine = self._mine()
        mine.symlink_to(f"nowhere/{self.number}")
        self._put(mine, path)

    def add_child(self, path: Path) -> None:
        self._write((path if path.is_dir() else path.parent) / f"child {self.number}")

    def take_away(self, path: Path) -> None:
        os.rename(path, self._mine())

    def end(self) -> None:
        for descriptor in self.descriptors:
            if os.fstat(descriptor).st_nlink == 0:
                self._excuse(descriptor)

    def _put(self, mine: Path, path: Path) -> None:
        """Put one of this process's entries at a path; move the previous one to OUTSIDE."""
        outside, tree = os.open(mine.parent, os.O_RDONLY), os.open(path.parent, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            with suppress(FileNotFoundError):
                DiskCalls().exchange(outside, os.fsencode(mine.name), tree, os.fsencode(path.name))
        finally:
            os.close(outside)
            os.close(tree)

    def _overwrite(self, descriptor: int) -> None:
        self._excuse(descriptor)
        os.pwrite(descriptor, self._token(), 0)
        note(self.written, self._token())
        if os.fstat(descriptor).st_nlink == 0:
            self._excuse(descriptor)

    def _excuse(self, descriptor: int) -> None:
        note(self.overwritten, os.pread(descriptor, SIZE, 0))

    def _mine(self) -> Path:
        return self.outside / f"mine {self.number}"

    def _write(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, self._token())
        os.close(descriptor)
        note(self.written, self._token())

    def _token(self) -> bytes:
        return content("adversary", self.number)


def main() -> None:
    tree, outside, seed = sys.argv[1:]
    adversary = Adversary(Path(tree), Path(outside), int(seed))
    journal = Path(tree) / ".git/envhist/restore/journal"
    print("ready", flush=True)
    early = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        under_way = journal.exists()
        if under_way or early < EARLY:
            adversary.act()
            early += not under_way
        time.sleep(BUSY if under_way else IDLE)
    adversary.end()


if __name__ == "__main__":
    main()
