"""Permissions of packs and directories: for their owner alone, unless the repository is shared.

git makes its packs readable by all users who can enter the directory. A snapshot contains files of mode 0600 and from
closed directories, so our packs are readable by their owner only; `core.sharedRepository` applies to them as to git's
own files.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from git_envhist.git.current_actor import GROUP, PRIVATE
from git_envhist.objects.own_packs import has_keep_mark

MULTI_PACK_INDEX = "multi-pack-index"


def shared_bits_of(pack_dir: os.stat_result, configured: int) -> int:
    """Return the permissions of files next to the packs; a directory that was made group-writable by hand is shared."""
    shared_by_mode = stat.S_ISGID | stat.S_IWGRP
    return configured or (GROUP if pack_dir.st_mode & shared_by_mode == shared_by_mode else PRIVATE)


def file_mode(bits: int) -> int:
    """Return the mode of a file that is never changed in place."""
    return 0o400 | bits & 0o044


def directory_mode(pack_dir: os.stat_result, bits: int) -> int:
    """Return the mode of a directory next to the packs: in a shared repository that of git's own."""
    return stat.S_IMODE(pack_dir.st_mode) if bits else 0o700


def close_packs(pack_dir: str, configured: int) -> None:
    """Close our packs, and an index over them, that earlier versions left open; a closed one costs a stat."""
    with suppress(OSError):
        bits = shared_bits_of(os.stat(pack_dir), configured)
        closed = ~(file_mode(bits) | 0o200)
        for name in os.listdir(pack_dir):
            base = os.path.join(pack_dir, name.removesuffix(".keep"))
            if name == MULTI_PACK_INDEX:
                _close(base, bits)
            elif name.endswith(".keep") and _mode(base + ".pack") & closed and has_keep_mark(base + ".keep"):
                for suffix in (".pack", ".idx", ".rev", ".bitmap"):
                    _close(base + suffix, bits)


def close_directory(path: str, bits: int) -> None:
    """Close a directory of ours that earlier versions left open to other users."""
    mode = _mode(path)
    allowed = 0o7700 | 0o7070 * bool(bits & 0o040) | 0o7007 * bool(bits & 0o004)
    if mode & ~allowed:
        with suppress(OSError):
            os.chmod(path, mode & allowed)


def _close(path: str, bits: int) -> None:
    mode = _mode(path)
    if mode & ~(file_mode(bits) | 0o200):
        with suppress(OSError):  # it belongs to another user, whose own command closes it
            os.chmod(path, mode & (file_mode(bits) | 0o200))


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0
