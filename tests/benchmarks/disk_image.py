"""File systems in images on a disk, mounted without the page cache of the disk below them; root only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

BLOCK = 512
MEGABYTE = 1 << 20
AT_ONCE = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
MAKERS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0", "-i", "16384", "-E", AT_ONCE),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=1"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}  # fmt: skip


class Traffic(NamedTuple):
    """The traffic of a block device."""

    read: int
    """Bytes."""
    written: int
    busy_ms: int
    flushes: int

    def since(self, before: Traffic) -> Traffic:
        """Return the traffic since an earlier reading."""
        return Traffic(*(now - then for now, then in zip(self, before, strict=True)))


class DiskImage:
    """One file of a fixed size on a disk, with a file system that is made again as often as needed."""

    def __init__(self, directory: Path, name: str, kind: str, size: int) -> None:
        self.top = directory / name
        self.kind = kind
        self._file = directory / f"{name}.img"
        self._size = size
        self._device = ""

    def __enter__(self) -> Self:
        try:
            self.top.mkdir()
            _fill(self._file, self._size)
            # Direct, because otherwise the cache of the disk below would hold what a remount is to forget.
            self._device = _run(
                "losetup", "--find", "--show", "--direct-io=on", "--sector-size", "512", str(self._file)
            )
            self.renew()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def renew(self) -> None:
        """Make an empty file system."""
        self._unmount()
        _run(*MAKERS[self.kind], self._device)
        self._mount()

    def forget_cache(self) -> None:
        """Mount the file system again: none of its data and names is in memory afterwards."""
        self._unmount()
        self._mount()

    def sync(self) -> None:
        """Wait until everything is written."""
        _run("sync", "-f", str(self.top))

    def traffic(self) -> Traffic:
        """Return the traffic of the device so far."""
        name = os.path.basename(self._device)
        fields = [int(field) for field in Path(f"/sys/block/{name}/stat").read_text().split()]
        flushes = fields[15] if len(fields) > 15 else 0
        return Traffic(fields[2] * BLOCK, fields[6] * BLOCK, fields[9], flushes)

    def _mount(self) -> None:
        _run("mount", self._device, str(self.top))
        shutil.rmtree(self.top / "lost+found", ignore_errors=True)

    def _unmount(self) -> None:
        if os.path.ismount(self.top):
            _run("umount", str(self.top))

    def _close(self) -> None:
        if os.path.ismount(self.top):
            subprocess.run(["umount", "-l", self.top], check=False)
        if self._device:
            subprocess.run(["losetup", "--detach", self._device], check=False)
        self._file.unlink(missing_ok=True)
        if self.top.is_dir():
            self.top.rmdir()


def _fill(path: Path, size: int) -> None:
    """Write a whole file, so that no later write has to allocate blocks of the disk below."""
    _run(
        "dd",
        "if=/dev/zero",
        f"of={path}",
        f"bs={MEGABYTE}",
        f"count={size // MEGABYTE}",
        "oflag=direct",
        "status=none",
    )


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
