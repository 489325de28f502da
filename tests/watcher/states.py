"""The state of directories by `lstat`, to compare what changed with what a watcher claims."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

from git_envhist.paths import join
from git_envhist.watcher.inotify import Inotify
from git_envhist.watcher.watched_directories import WatchedDirectories, WatchedScope

Row = tuple[int, ...]
States = dict[bytes, tuple[Row, dict[bytes, Row]]]


def watch(top: bytes, **roots: bytes) -> WatchedDirectories:
    """Return the watched directories of an environment."""
    bases = {b"": top, **{os.fsencode(name): base for name, base in roots.items()}}
    found = WatchedDirectories(Inotify(), WatchedScope("", bases, lambda _directory, _name: False))
    found.walk()
    return found


def states(top: bytes) -> States:
    """Return the metadata of each directory below a top, and of its entries."""
    found: States = {}
    for directory, _, _ in os.walk(top):
        with suppress(OSError):
            own = os.lstat(directory)
            entries = {name: os.lstat(os.path.join(directory, name)) for name in os.listdir(directory)}
            # The metadata of a subdirectory are in its own record.
            rows = {name: () if stat.S_ISDIR(seen.st_mode) else _row(seen) for name, seen in entries.items()}
            path = os.path.relpath(directory, top)
            found[b"" if path == b"." else path] = (_row(own), rows)
    return found


def _row(seen: os.stat_result) -> tuple[int, ...]:
    # No change time: a link that was added and removed leaves one, and the file is as before.
    return (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_nlink)


def changed(before: States, after: States) -> set[bytes]:
    """Return the directories that exist after a change and differ from before."""
    return {path for path, state in after.items() if before.get(path) != state}


class Storm:
    """Random changes below a directory, with a place outside of it on the same file system."""

    def __init__(self, top: bytes, outside: bytes, seed: int) -> None:
        self.top, self.outside = top, outside
        self._random = random.Random(seed)
        self._number = 0
        self._steps: list[Callable[[], None]] = [
            *[self.write] * 6, *[self.create] * 4, *[self.make_directories] * 3, self.remove, self.remove,
            self.remove_tree, *[self.rename] * 4, *[self.rename_directory] * 4, self.swap_directories,
            self.move_out, self.move_in, self.change_mode, self.change_times, self.link, self.quick_link, self.symlink,
            self.replace, self.replace_directory,
        ]  # fmt: skip

    def step(self) -> None:
        """Make one change; it may fail, e.g. if a name exists."""
        with suppress(OSError, IndexError):
            self._random.choice(self._steps)()

    def write(self) -> None:
        with open(self._file(), "ab") as file:
            file.write(b"x")

    def create(self) -> None:
        with open(join(self._directory(), self._new()), "wb") as file:
            file.write(b"%d" % self._number)

    def make_directories(self) -> None:
        path = join(self._directory(), self._new())
        for _ in range(self._random.randint(1, 4)):
            os.mkdir(path)
            with open(join(path, b"f"), "wb") as file:
                file.write(b"%d" % self._number)
            path = join(path, self._new())

    def remove(self) -> None:
        os.unlink(self._file())

    def remove_tree(self) -> None:
        shutil.rmtree(self._directory(inner=True))

    def rename(self) -> None:
        os.rename(self._file(), join(self._directory(), self._new()))

    def replace(self) -> None:
        new = join(self._directory(), b".new")
        with open(new, "wb") as file:
            file.write(b"replaced")
        os.rename(new, self._file())

    def rename_directory(self) -> None:
        os.rename(self._directory(inner=True), join(self._directory(), self._new()))

    def swap_directories(self) -> None:
        one, other = self._directory(inner=True), self._directory(inner=True)
        aside = join(self.top, self._new())
        os.rename(one, aside)
        os.rename(other, one)
        os.rename(aside, other)

    def replace_directory(self) -> None:
        old = self._directory(inner=True)
        os.rename(old, join(self._directory(), self._new()))
        os.makedirs(join(old, b"again"))

    def move_out(self) -> None:
        os.rename(self._directory(inner=True), join(self.outside, self._new()))

    def move_in(self) -> None:
        moved = sorted(os.listdir(self.outside))
        if moved:
            inside = join(self.outside, self._random.choice(moved))
            with suppress(OSError), open(join(inside, b"f"), "ab") as file:
                file.write(b"outside")
            os.rename(inside, join(self._directory(), self._new()))

    def change_mode(self) -> None:
        os.chmod(
            self._random.choice((self._file(), self._directory())), self._random.choice((0o755, 0o700, 0o744))
        )

    def change_times(self) -> None:
        os.utime(self._random.choice((self._file(), self._directory())), (1, self._random.randint(1, 10**9)))

    def link(self) -> None:
        os.link(self._file(), join(self._directory(), self._new()))

    def quick_link(self) -> None:
        """Change a file through a name that exists only for this, in a directory that is watched."""
        link = join(self.top, self._new())
        os.link(self._file(), link)
        with open(link, "ab") as file:
            file.write(b"x")
        os.unlink(link)

    def symlink(self) -> None:
        os.symlink(b"f", join(self._directory(), self._new()))

    def _new(self) -> bytes:
        self._number += 1
        return b"n%d" % self._random.randint(0, 40)

    def _directory(self, *, inner: bool = False) -> bytes:
        found = [one for one, _ in self._walk()]
        return self._random.choice(found[inner:])

    def _walk(self) -> Iterator[tuple[bytes, list[bytes]]]:
        for directory, below, names in os.walk(self.top):
            if directory == self.top and b".git" in below:
                below.remove(b".git")
            yield directory, names

    def _file(self) -> bytes:
        found = [join(one, name) for one, names in self._walk() for name in names]
        if not found:
            raise FileNotFoundError
        return self._random.choice(found)
