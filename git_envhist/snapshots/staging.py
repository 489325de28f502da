"""Staging directories of captures, and publishing their packs.

A staging is a private directory laid out as an objects directory, so that git can read objects from it that no other
process sees. It contains a `lock`, flocked as long as any process of the capture lives (children of git included: an
`update-ref` that outlives its killed parent counts), and a `journal`: which packs it publishes, and which commits need
them. Ownership never depends on process ids.

**After a kill.** Creating and sweeping stagings exclude each other (`take_turn`, a lock next to them), so that a
directory whose lock is free or missing has no living owner. A kill leaves, step by step:

- Before the first rename, with or without a journal: files in the staging only, and perhaps a `.keep` without a pack.
  The sweep finds no published commit and removes the `.keep` files (torn ones too: the journal lists them, and their
  names are random and never reused) and the directory.
- Between `.keep` and the renames, pack first, index last: git sees a pack once its index exists; by then it has its
  `.keep`, so no `gc` repacks or deletes it, and the journal names it, so no other capture deduplicates against it.
- All packs visible, the ref not moved: no commit of the journal is published. The sweep removes the packs: first git's
  caches that name them, then index, pack, `.keep`; it syncs the directory and only then removes the journal. If it is
  killed, the next sweep continues from the same journal.
- The ref moved, the staging not yet removed: a journalled commit is published, so the packs stay and only the directory
  is removed. The journal is durable before the first pack is visible, and a later commit is recorded before
  `journal_commit` returns: a sweep never takes a published pack for an abandoned one.
- While a staging is being removed: either of the above, or no journal and no packs.

Code that moves or deletes timelines calls `sweep` first, so that "is it published?" is answered with the refs that the
capture knew.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from git_envhist.disk import (
    STAGING_IN_STATE,
    can_rename,
    cannot_write,
    make_directory,
    read_exactly,
    remove_if_present,
    sync,
    sync_directory,
    sync_files,
    write_all,
)
from git_envhist.locks import LOCK_TIMEOUT, lock_file, lock_within
from git_envhist.objects.own_packs import (
    GONE,
    KEEP_MARK,
    OwnPacks,
    _readable_as,
    drop_broken_index,
    drop_caches_naming,
    is_pack_name,
    link_spare_index,
    read_mark,
    remove_spare_links,
    restore_lost_indexes,
    restore_undecided,
    spare_directory_for,
    was_used_since,
    write_keep,
)
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.objects.permissions import (
    close_directory,
    close_packs,
    directory_mode,
    file_mode,
    shared_bits_of,
)
from git_envhist.platform import NOFOLLOW, guarded_open

# Stagings are next to our other state, or, if that is on another file system than the packs, next to the packs: a
# pack is published by rename, which cannot cross file systems.

STAGING_NEAR_PACKS = ".envhist-staging"
TURN = "turn"
KEPT_NAMES = (".nfs", ".fuse_hidden")
"""NFS and FUSE rename a removed file like this until it is closed."""
MAX_JOURNAL = 1 << 24
SURELY_OVER = 24 * 3600.0
ID_LENGTHS = (40, 64)
HEX = frozenset("0123456789abcdef")


class StagingJournal(NamedTuple):
    """The packs that a staging published or was about to publish, and the commits that need them."""

    packs: tuple[str, ...]
    commits: tuple[str, ...]
    understood: bool
    """True if every line was one that this version writes."""


def places(common_state: str, pack_dir: str) -> tuple[str, str]:
    """Return the directories that may contain stagings."""
    return os.path.join(common_state, STAGING_IN_STATE), os.path.join(
        os.path.dirname(pack_dir), STAGING_NEAR_PACKS
    )


def choose_place(common_state: str, pack_dir: str, configured: int) -> str:
    """Return the directory for a new staging, created if missing: one from which packs can be renamed."""
    with suppress(FileExistsError):
        os.mkdir(pack_dir)
    seen = os.stat(pack_dir)
    bits = shared_bits_of(seen, configured)
    mode = directory_mode(seen, bits)
    make_directory(common_state, mode)
    close_directory(common_state, bits)
    for place in places(common_state, pack_dir):
        make_directory(place, mode)
        close_directory(place, bits)
        if can_rename(place, pack_dir, partial(_move, place, pack_dir)):
            return place
    return place  # neither works: publishing reports the error


def _move(source: str, target: str, name: str) -> None:
    os.rename(os.path.join(source, name), os.path.join(target, name))


def take_turn(place: str) -> int:
    """Lock creating and sweeping stagings here until the descriptor is closed; wait if another process does it."""
    turn = guarded_open(os.path.join(place, TURN), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(turn).st_uid == os.geteuid():
            os.fchmod(turn, stat.S_IMODE(os.stat(place).st_mode) & 0o666)
        lock_within(turn, fcntl.LOCK_EX, os.path.join(place, TURN), LOCK_TIMEOUT)
    except BaseException:
        os.close(turn)
        raise
    return turn


def make_staging(place: str, pack_dir: str, configured: int) -> tuple[str, int, int]:
    """Create a staging with its lock locked and an empty journal. Return its path and both descriptors."""
    seen = os.stat(pack_dir)
    bits = shared_bits_of(seen, configured)
    path = os.path.join(place, f"{os.getpid()}-{os.urandom(8).hex()}")
    os.mkdir(path, 0o700)
    descriptors: list[int] = []
    try:
        if bits & stat.S_IWGRP:
            # Group members must be able to read which packs this capture may still remove.
            os.chmod(path, stat.S_IMODE(seen.st_mode))
        lock = _make_file(os.path.join(path, "lock"), bits)
        descriptors.append(lock)
        journal = _make_file(os.path.join(path, "journal"), bits)
        descriptors.append(journal)
        lock_file(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Children inherit the lock: a git that outlives this process may still be moving a ref.
        os.set_inheritable(lock, True)
        os.mkdir(os.path.join(path, "pack"))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        remove_tree(path)
        raise
    return path, lock, journal


def _make_file(path: str, bits: int) -> int:
    descriptor = guarded_open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600 | bits & 0o060)
    return descriptor


def stagings(place: str) -> list[str]:
    """Return the paths of all stagings in a directory."""
    try:
        with os.scandir(place) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def lock_if_dead(path: str) -> int | None:
    """Lock a staging if its owner is dead and return the lock, else None. The caller called `take_turn`."""
    # A missing lock was never created, or its owner died while it removed the staging.
    lock = guarded_open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        known = lock_file(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A local lock does not show captures on other machines: there only the age decides.
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
    """Parse a staging's journal. A last line without its end was never acted upon."""
    try:
        descriptor = os.open(
            os.path.join(path, "journal"), os.O_RDONLY | os.O_NONBLOCK | NOFOLLOW | os.O_CLOEXEC
        )
    except FileNotFoundError:
        return StagingJournal((), (), understood=True)
    try:
        text = read_exactly(descriptor, MAX_JOURNAL, 0).decode("ascii", "replace")
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
    """Return every pack of a journal's owner: an upper bound for a journal that we may not read."""
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


def made_by_us(keep_path: str) -> bool:
    """Return whether a journalled pack's `.keep` has our mark, or the part of it that was written before a kill."""
    try:
        return KEEP_MARK.startswith(read_mark(keep_path))
    except FileNotFoundError:
        return False


def share(path: str, pack_dir: os.stat_result, mode: int | None = None) -> None:
    """Give a file its mode and the group of the pack directory; by default the permissions that git would give it."""
    os.chmod(path, _readable_as(pack_dir) if mode is None else mode)
    if pack_dir.st_mode & stat.S_ISGID and os.stat(path).st_gid != pack_dir.st_gid:
        os.chown(path, -1, pack_dir.st_gid)


def remove_tree(path: str, release: Callable[[], None] = lambda: None) -> None:
    """Remove one of our directories recursively; files that another process removes meanwhile are no error.

    `release` releases its lock, and is called when only the lock file is left: on some file systems a removed open
    file keeps a name (`.nfs...`, `.fuse_hidden...`). Names of files that other processes have open stay, with the
    directory; the next sweep removes both.
    """
    with suppress(FileNotFoundError):
        with os.scandir(path) as entries:
            # The lock last: until then other processes see that the staging has an owner.
            for entry in sorted(entries, key=lambda entry: entry.name == "lock"):
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                    continue
                if entry.name == "lock":
                    release()
                _remove_unless_open(entry.path)
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not _is_held_open(path):
                raise


def _remove_unless_open(path: str) -> None:
    try:
        remove_if_present(path)
    except OSError as error:
        if error.errno != errno.EBUSY or not os.path.basename(path).startswith(KEPT_NAMES):
            raise


def _is_held_open(path: str) -> bool:
    """Return whether a directory contains only names of removed files that a process has open."""
    with os.scandir(path) as entries:
        return all(
            entry.name.startswith(KEPT_NAMES)
            or (entry.is_dir(follow_symlinks=False) and _is_held_open(entry.path))
            for entry in entries
        )


class Staging:
    """A private objects directory of one capture, and the publishing of its packs."""

    def __init__(
        self, path: str, common_state: str, repository_packs: str, lock: int, journal: int, shared: int
    ) -> None:
        self.path = path
        """An objects directory, for `Git.with_objects`."""
        self._common_state = common_state
        self._target = repository_packs
        self._lock, self._journal = lock, journal
        self._shared = shared
        self._pending: list[str] = []
        self._written = 0
        self._path_synced = False
        self._published: set[str] = set()
        self._exposed = False

    @classmethod
    def create(cls, common_state: str, pack_dir: str, shared: int = 0) -> Self:
        """Create a staging on the file system of the repository's packs.

        `shared`: the mode of `core.sharedRepository`.
        """
        common_state, pack_dir = os.path.abspath(common_state), os.path.abspath(pack_dir)
        try:
            place = choose_place(common_state, pack_dir, shared)
            turn = take_turn(place)
            try:
                path, lock, journal = make_staging(place, pack_dir, shared)
            finally:
                os.close(turn)
        except OSError as error:
            raise cannot_write(error, common_state) from error
        return cls(path, common_state, pack_dir, lock, journal, shared)

    @property
    def pack_dir(self) -> str:
        return os.path.join(self.path, "pack")

    def journal_commit(self, commit: str) -> None:
        """Record a commit that needs the packs: before they are published, or at least before its ref moves."""
        self._pending.append(f"commit {commit}")
        if not self._published:
            return  # `publish` writes it, together with the names of the packs
        try:
            self._record([])
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def publish(self, packs: Sequence[StagedPack]) -> None:
        """Publish the packs: all of them, or none and an error."""
        fresh = {pack.name: pack for pack in packs if pack.name not in self._published}
        if not fresh:
            return
        self._exposed = True
        try:
            # Packs that were not synced when they were written are synced now.
            late = [pack for pack in fresh.values() if not pack.durable]
            sync_files(path for pack in late for path in (pack.pack_path, pack.index_path))
            self._record([f"pack {name}" for name in fresh])
            self._make_visible(fresh.values())
        except BaseException as error:
            # No ref can need them yet; the next sweep removes those that cannot be removed now.
            with suppress(OSError):
                _remove_packs(self._common_state, self._target, fresh, ())
                self._exposed = bool(self._published)
            if isinstance(error, OSError):
                raise cannot_write(error, self._target) from error
            raise
        self._published.update(fresh)

    def keep_after_error(self) -> None:
        """After this, an error leaves the staging to the next sweep: it contains packs that may have to be restored."""
        self._exposed = True

    def make_permanent(self) -> None:
        """Make the published packs permanent, independent of the staging: remove the journal."""
        try:
            remove_if_present(os.path.join(self.path, "journal"))
            sync_directory(self.path)
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def _record(self, lines: Iterable[str]) -> None:
        text = "".join(line + "\n" for line in (*self._pending, *lines)).encode("ascii")
        write_all(self._journal, text, self._written)
        self._written += len(text)
        self._pending.clear()
        sync(self._journal)
        if not self._path_synced:
            # The directories above the journal must be as durable as its contents.
            place = os.path.dirname(self.path)
            above = os.path.dirname(place)
            for directory in (self.path, place, above, os.path.dirname(above)):
                sync_directory(directory)
            self._path_synced = True

    def _make_visible(self, packs: Iterable[StagedPack]) -> None:
        target = os.stat(self._target)
        bits = shared_bits_of(target, self._shared)
        for pack in packs:
            base = os.path.join(self._target, pack.name)
            write_keep(base + ".keep", target)
            for staged, suffix in ((pack.pack_path, ".pack"), (pack.index_path, ".idx")):
                share(staged, target, file_mode(bits))
                if suffix == ".idx":
                    link_spare_index(staged, spare_directory_for(os.path.dirname(self.path)), pack.name)
                os.rename(staged, base + suffix)
        close_packs(self._target, self._shared)
        sync_directory(self._target)

    def close(self) -> None:
        """Remove the staging; published packs stay."""
        # A sweep may run at the same time, and removes what cannot be removed now; nothing in it is needed.
        with suppress(OSError):
            if not all(os.path.exists(os.path.join(self._target, f"{name}.idx")) for name in self._published):
                restore_lost_indexes(self._common_state, self._target)
            self._close_journal()
            remove_tree(self.path, self._release)
        self._release()

    def abandon(self) -> None:
        """Unlock the staging without cleaning up: the next sweep decides by the refs which of its packs to keep."""
        self._release()

    def _close_journal(self) -> None:
        descriptor, self._journal = self._journal, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _release(self) -> None:
        # Clear the fields first: a signal in between would close the descriptors twice and replace the signal by an
        # error.
        descriptors, self._journal, self._lock = (self._journal, self._lock), -1, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock < 0:
            return
        # Once packs are visible, it is unknown whether the error occurred before or after the ref moved.
        if kind is not None and self._exposed:
            self.abandon()
        else:
            self.close()


def sweep(common_state: str, pack_dir: str, is_published: Callable[[str], bool]) -> None:
    """Clean up after captures that died: keep packs of published commits, remove everything else of theirs."""
    # Repair indexes first: with a wrong or missing index, a published commit looks unpublished and would be removed.
    try:
        restore_lost_indexes(common_state, pack_dir)
        drop_broken_index(pack_dir)
    except OSError as error:
        raise cannot_write(error, pack_dir) from error
    for place in places(common_state, pack_dir):
        if not stagings(place):
            continue
        try:
            turn = take_turn(place)
        except PermissionError:
            continue  # another user's; they sweep it themselves
        try:
            for path in stagings(place):
                _sweep_one(path, common_state, pack_dir, is_published)
        except OSError as error:
            raise cannot_write(error, place) from error
        finally:
            os.close(turn)


def unpublished(common_state: str, pack_dir: str | None = None) -> frozenset[str]:
    """Return the packs that a capture has published, or will publish, and that it may still remove."""
    packs = pack_dir or os.path.join(os.path.dirname(os.path.abspath(common_state)), "objects", "pack")
    names: set[str] = set()
    for place in places(common_state, packs):
        for path in stagings(place):
            try:
                names.update(read_journal(path).packs)
            except PermissionError:
                names.update(packs_of_owner(path, packs))
    return frozenset(names)


def open_published(common_state: str, pack_dir: str, object_format: str) -> OwnPacks:
    """Open our packs that no sweep can remove: those to deduplicate against."""
    return OwnPacks.open(pack_dir, object_format, lambda: unpublished(common_state, pack_dir))


def _sweep_one(path: str, common_state: str, pack_dir: str, is_published: Callable[[str], bool]) -> None:
    try:
        lock = lock_if_dead(path)
    except PermissionError:
        return  # another user's; they sweep it themselves
    if lock is None:
        return
    with ExitStack() as stack:
        stack.callback(os.close, lock)
        journal = read_journal(path)
        if not journal.understood:
            return  # written by a later version, which will sweep it
        if journal.packs and not any(is_published(commit) for commit in journal.commits):
            _remove_packs(common_state, pack_dir, journal.packs, journal.commits)
        restore_undecided(path, pack_dir)
        _finish_removal(path, pack_dir)
        remove_tree(path, stack.close)


def _finish_removal(path: str, pack_dir: str) -> None:
    """Delete the rest of the packs that a killed merge had replaced by a durable pack."""
    with suppress(FileNotFoundError):
        replaced = [name[:-4] for name in os.listdir(os.path.join(path, GONE)) if name.endswith(".idx")]
        for name in filter(is_pack_name, replaced):
            for suffix in (".pack", ".keep"):
                remove_if_present(os.path.join(pack_dir, name + suffix))


def _remove_packs(common_state: str, pack_dir: str, names: Iterable[str], commits: Iterable[str]) -> None:
    ours = [name for name in names if made_by_us(os.path.join(pack_dir, name + ".keep"))]
    if not ours:
        return
    remove_spare_links(common_state, pack_dir, ours)
    in_use = {name for name in ours if was_used_since(os.path.join(pack_dir, name))}
    for name in in_use:
        # git removes it once it is unreachable; this program no longer treats it as its own.
        remove_if_present(os.path.join(pack_dir, name + ".keep"))
    ours = [name for name in ours if name not in in_use]
    needles = [f"{name}.idx".encode() for name in ours] + [bytes.fromhex(commit) for commit in commits]
    objects_dir = os.path.dirname(pack_dir)
    drop_caches_naming(objects_dir, needles)
    for name in ours:
        # git stops seeing the pack with its index; the mark is removed last, so that the rest is still recognized as
        # ours.
        for suffix in (".idx", ".pack", ".keep"):
            remove_if_present(os.path.join(pack_dir, name + suffix))
    # Again: git may have written one of them while the packs still existed.
    drop_caches_naming(objects_dir, needles)
    sync_directory(pack_dir)
