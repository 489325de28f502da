"""New directories to write to: a file system for every run where possible, all removed at the end.

ext4 is slower for minutes after a large tree was deleted in it, so a run must not inherit the deletions of the one
before. As root, each run writes to a new ext4 in an image in memory; otherwise to a new directory in memory, and used
directories are deleted at the very end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

MEMORY = Path("/dev/shm")
IMAGE_SIZE = 8 << 30


class Scratch:
    """A directory in memory with new directories in it; all are removed when the `with` ends."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="envhist-bench-", dir=MEMORY if MEMORY.is_dir() else None))
        self.mounts = os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None
        self._mounted: list[Path] = []
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in list(self._mounted):
            self._unmount(place)
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def kind(self) -> str:
        """Return the kind of the directories, for the line of facts."""
        return (
            "a fresh ext4 in memory for each run"
            if self.mounts
            else "a fresh directory in memory for each run"
        )

    def fresh(self, name: str) -> Path:
        """Return an empty directory in which nothing was ever deleted."""
        self._number += 1
        place = self.base / f"{name}-{self._number}"
        place.mkdir()
        if self.mounts and not self._mount(place):
            # In a container, root may not be allowed to mount.
            self.mounts = False
        return place

    def drop(self, place: Path) -> None:
        """Discard a directory that is not used any more."""
        if place in self._mounted:
            self._unmount(place)
        elif MEMORY in place.parents:
            shutil.rmtree(place, ignore_errors=True)

    def _mount(self, place: Path) -> bool:
        image = place.with_suffix(".img")
        with open(image, "xb") as file:
            file.truncate(IMAGE_SIZE)
        options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        made = _quietly("mkfs.ext4", "-q", "-m", "0", "-i", "16384", "-E", options, str(image))
        self._mounted.append(place)
        if made and _quietly("mount", "-o", "loop", str(image), str(place)):
            shutil.rmtree(place / "lost+found", ignore_errors=True)
            return True
        self._mounted.remove(place)
        image.unlink()
        return False

    def _unmount(self, place: Path) -> None:
        if os.path.ismount(place) and not _quietly("umount", str(place)):
            _quietly("umount", "-l", str(place))
        place.with_suffix(".img").unlink(missing_ok=True)
        self._mounted.remove(place)


def du(place: Path) -> int:
    """Return the bytes that a tree uses on its disk."""
    found = {(seen.st_dev, seen.st_ino): seen.st_blocks * 512 for seen in map(os.lstat, _paths(place))}
    return sum(found.values())


def _paths(place: Path) -> list[str]:
    return [
        os.path.join(top, name)
        for top, directories, names in os.walk(place)
        for name in (*directories, *names)
    ]


def _quietly(*words: str) -> bool:
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
