"""The directories that captures write into before they publish: where they stand, who is alive, what they noted.

They stand beside our other state, or, where that is on another file system than the packs, beside the packs: a pack is
published by rename, which cannot cross file systems.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from git_envhist.store.durable import read_exactly, remove_if_present, sync, write_all
from git_envhist.store.locks import LIMIT, lock_file, lock_within
from git_envhist.store.openness import bits_of, directory_mode, tighten_directory
from git_envhist.store.ownpacks import KEEP_MARK, is_pack_name
from git_envhist.system import NOFOLLOW, open_cloexec_guarded

BESIDE_STATE = "staging"
BESIDE_PACKS = ".envhist-staging"
TURN = "turn"
KEPT_NAMES = (".nfs", ".fuse_hidden")
"""NFS and FUSE give a removed file such a name until it is closed."""
LARGEST_JOURNAL = 1 << 24
SURELY_OVER = 24 * 3600.0
ID_LENGTHS = (40, 64)
HEX = frozenset("0123456789abcdef")


class StagingJournal(NamedTuple):
    """What a staging has made visible, or was about to, and the commits that rely on it."""

    packs: tuple[str, ...]
    commits: tuple[str, ...]
    understood: bool
    """Whether each line was one that this version writes."""


def places(common_state: str, pack_dir: str) -> tuple[str, str]:
    """Where stagings can stand."""
    return os.path.join(common_state, BESIDE_STATE), os.path.join(os.path.dirname(pack_dir), BESIDE_PACKS)


def choose_place(common_state: str, pack_dir: str, configured: int) -> str:
    """The place for a new staging, made where it is missing: one from which packs can be renamed."""
    with suppress(FileExistsError):
        os.mkdir(pack_dir)
    seen = os.stat(pack_dir)
    bits = bits_of(seen, configured)
    mode = directory_mode(seen, bits)
    make_directory(common_state, mode)
    tighten_directory(common_state, bits)
    for place in places(common_state, pack_dir):
        make_directory(place, mode)
        tighten_directory(place, bits)
        if _can_rename(place, pack_dir):
            return place
    return place  # neither: publishing will say why


def make_directory(path: str, mode: int) -> None:
    """A directory with that mode, whatever the umask; one that is there stays as it is."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    os.chmod(path, mode)


def _can_rename(source: str, target: str) -> bool:
    if os.stat(source).st_dev != os.stat(target).st_dev:
        return False
    # The kernel compares the mounts before it looks for the file: nothing needs to exist for the question.
    nothing = f"absent-{os.urandom(8).hex()}"
    try:
        os.rename(os.path.join(source, nothing), os.path.join(target, nothing))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def take_turn(place: str) -> int:
    """Wait until nobody else makes or sweeps a staging here; closing the descriptor ends the turn."""
    turn = open_cloexec_guarded(os.path.join(place, TURN), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(turn).st_uid == os.geteuid():
            os.fchmod(turn, stat.S_IMODE(os.stat(place).st_mode) & 0o666)
        lock_within(turn, fcntl.LOCK_EX, os.path.join(place, TURN), LIMIT)
    except BaseException:
        os.close(turn)
        raise
    return turn


def make_staging(place: str, pack_dir: str, configured: int) -> tuple[str, int, int]:
    """A new directory with its lock held and its journal empty: its path and the two descriptors."""
    seen = os.stat(pack_dir)
    bits = bits_of(seen, configured)
    path = os.path.join(place, f"{os.getpid()}-{os.urandom(8).hex()}")
    os.mkdir(path, 0o700)
    descriptors: list[int] = []
    try:
        if bits & stat.S_IWGRP:
            # What a colleague's capture may be about to take back, this one must be able to read of.
            os.chmod(path, stat.S_IMODE(seen.st_mode))
        lock = _make_file(os.path.join(path, "lock"), bits)
        descriptors.append(lock)
        journal = _make_file(os.path.join(path, "journal"), bits)
        descriptors.append(journal)
        lock_file(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Children hold it too: a git that outlives us may still be moving a ref.
        os.set_inheritable(lock, True)
        os.mkdir(os.path.join(path, "pack"))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        remove_tree(path)
        raise
    return path, lock, journal


def _make_file(path: str, bits: int) -> int:
    descriptor = open_cloexec_guarded(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600 | bits & 0o060)
    return descriptor


def stagings(place: str) -> list[str]:
    """Every staging in a place."""
    try:
        with os.scandir(place) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def lock_of_the_dead(path: str) -> int | None:
    """The lock, now ours, of a staging without an owner; None where the owner lives. To be asked in one's turn."""
    # A lock that is missing was never made, or its owner died while it removed the staging.
    lock = open_cloexec_guarded(
        os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        known = lock_file(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock of this machine alone says nothing of a capture on another: there only age does.
        if not known and time.time() - os.stat(path).st_mtime < SURELY_OVER:
            raise BlockingIOError
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def read_journal(path: str) -> StagingJournal:
    """What a staging's journal says; a last line without its end was never acted upon."""
    try:
        descriptor = os.open(
            os.path.join(path, "journal"), os.O_RDONLY | os.O_NONBLOCK | NOFOLLOW | os.O_CLOEXEC
        )
    except FileNotFoundError:
        return StagingJournal((), (), understood=True)
    try:
        text = read_exactly(descriptor, LARGEST_JOURNAL, 0).decode("ascii", "replace")
    finally:
        os.close(descriptor)
    packs, commits, understood = [], [], True
    for line in text.split("\n")[:-1]:
        word, _, value = line.partition(" ")
        if word == "pack" and is_pack_name(value):
            packs.append(value)
        elif word == "commit" and len(value) in ID_LENGTHS and HEX.issuperset(value):
            commits.append(value)
        else:
            understood = False
    return StagingJournal(tuple(packs), tuple(commits), understood)


def packs_of_owner(path: str, pack_dir: str) -> list[str]:
    """What a journal that we may not read can name at most: every pack of its owner."""
    try:
        owner = os.lstat(path).st_uid
        keeps = [name for name in os.listdir(pack_dir) if name.endswith(".keep")]
        return [
            name.removesuffix(".keep")
            for name in keeps
            if os.lstat(os.path.join(pack_dir, name)).st_uid == owner
        ]
    except FileNotFoundError:
        return []


def write_keep(path: str, pack_dir: os.stat_result) -> None:
    """Make a new `.keep` with our mark, durable."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, KEEP_MARK, 0)
        os.fchmod(descriptor, _readable_as(pack_dir))
        sync(descriptor)
    finally:
        os.close(descriptor)


def made_by_us(keep_path: str) -> bool:
    """Whether a journalled pack's `.keep` has our mark, or as much of it as a kill let through."""
    try:
        descriptor = os.open(keep_path, os.O_RDONLY | NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return KEEP_MARK.startswith(os.read(descriptor, len(KEEP_MARK) + 1))
    finally:
        os.close(descriptor)


def share(path: str, pack_dir: os.stat_result, mode: int | None = None) -> None:
    """Give a file its mode and the group of the pack directory; by default the readers that git would give it."""
    os.chmod(path, _readable_as(pack_dir) if mode is None else mode)
    if pack_dir.st_mode & stat.S_ISGID and os.stat(path).st_gid != pack_dir.st_gid:
        os.chown(path, -1, pack_dir.st_gid)


def _readable_as(directory: os.stat_result) -> int:
    return 0o400 | directory.st_mode & 0o044


def remove_tree(path: str, release: Callable[[], None] = lambda: None) -> None:
    """Remove a directory of ours and all in it; what another process removes meanwhile is as good.

    `release` lets go of its lock, and is called when nothing but the lock's file is left: on some file systems a
    removed file that is open keeps a name (`.nfs…`, `.fuse_hidden…`). Names of files that other processes have open
    stay, with the directory; the next sweep removes both.
    """
    with suppress(FileNotFoundError):
        with os.scandir(path) as entries:
            # The lock last: as long as anything else is left, it can be seen whose it is.
            for entry in sorted(entries, key=lambda entry: entry.name == "lock"):
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                    continue
                if entry.name == "lock":
                    release()
                _forget_open(entry.path)
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not _is_held_open(path):
                raise


def _forget_open(path: str) -> None:
    try:
        remove_if_present(path)
    except OSError as error:
        if error.errno != errno.EBUSY or not os.path.basename(path).startswith(KEPT_NAMES):
            raise


def _is_held_open(path: str) -> bool:
    """Return whether nothing is left in a directory but names of removed files that a process has open."""
    with os.scandir(path) as entries:
        return all(
            entry.name.startswith(KEPT_NAMES)
            or (entry.is_dir(follow_symlinks=False) and _is_held_open(entry.path))
            for entry in entries
        )
