"""Where a capture writes before anything of it exists, and how its packs become the repository's.

A staging is a private directory, laid out as an objects directory, so that git can read from it what nobody else sees
yet. It holds a `lock`, flocked for as long as any process of the capture lives (children of git's included: an
`update-ref` that outlives its killed parent still counts), and a `journal`: which packs it makes visible, which
commits rely on them. Nobody reasons about process ids.

**The story of a kill.** Making and sweeping stagings take turns (`check_lock`, a lock beside them), so that a
directory whose lock is free, or not there, has no living owner. What a kill leaves, step by step:

- Anything up to the first rename, journal or not: files in the staging alone, and perhaps a `.keep` with no pack. The
  sweep finds no published commit, removes the `.keep` files it made (torn ones too: they are in the journal, and their
  names are random and never used twice), and the directory.
- Between `.keep` and the renames, pack first, index last: git sees a pack when its index appears; by then it is marked,
  so no `gc` repacks or drops it, and the journal names it, so no other capture relies on it.
- All packs visible, the ref not moved: no commit of the journal is published. The sweep takes the packs back: git's
  caches that name them, then index, pack, `.keep`; it syncs the directory and only then removes the journal. Killed on
  the way, the next sweep goes on from the same journal.
- The ref moved, the staging not yet removed: a journalled commit is published, so the packs stay and only the
  directory goes. Its journal is durable before the first pack is visible, and a later commit is in it before the call
  that records it returns: a sweep can never take a published pack for a forgotten one.
- While a staging is being removed there is nothing left to decide: either the above, or no journal and no packs.

Who moves or deletes timelines calls `sweep` first, so that "is it published?" is asked of the refs that the capture
knew.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import NamedTuple, Self

from git_envhist.disk import (
    BESIDE_STATE,
    LOCK_TIMEOUT,
    cannot_write,
    lock_file,
    lock_within,
    make_directory,
    read_exactly,
    remove_if_present,
    sync,
    sync_directory,
    sync_files,
    write_all,
)
from git_envhist.objects.own_packs import (
    GONE,
    KEEP_MARK,
    OwnPacks,
    _readable_as,
    drop_broken_index,
    drop_caches_naming,
    forget_second_names,
    is_pack_name,
    link_spare_index,
    restore_lost_indexes,
    restore_undecided,
    spare_beside,
    was_used_since,
    write_keep,
)
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.objects.permissions import bits_of, directory_mode, file_mode, tighten, tighten_directory
from git_envhist.platform import NOFOLLOW, open_cloexec_guarded

# The directories that captures write into before they publish: where they stand, who is alive, what they noted.
#
# They stand beside our other state, or, where that is on another file system than the packs, beside the packs: a pack
# is published by rename, which cannot cross file systems.

BESIDE_PACKS = ".envhist-staging"
TURN = "turn"
KEPT_NAMES = (".nfs", ".fuse_hidden")
"""NFS and FUSE give a removed file such a name until it is closed."""
MAX_JOURNAL = 1 << 24
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
        lock_within(turn, fcntl.LOCK_EX, os.path.join(place, TURN), LOCK_TIMEOUT)
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


class Staging:
    """A private objects directory of one capture, and the door from it into the repository."""

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
        self._rooted = False
        self._published: set[str] = set()
        self._exposed = False

    @classmethod
    def create(cls, common_state: str, pack_dir: str, shared: int = 0) -> Self:
        """A new staging, on the file system of the repository's packs; `shared`: as `core.sharedRepository` says."""
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
        """Record a commit that relies on the packs: before they are published, or at least before its ref moves."""
        self._pending.append(f"commit {commit}")
        if not self._published:
            return  # `publish` writes it, together with the names of the packs
        try:
            self._record([])
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def publish(self, packs: Sequence[StagedPack]) -> None:
        """Make the packs part of the repository, for good; all of them, or none and an error."""
        fresh = {pack.name: pack for pack in packs if pack.name not in self._published}
        if not fresh:
            return
        self._exposed = True
        try:
            # What nobody has written once more has to be on the medium as it is.
            late = [pack for pack in fresh.values() if not pack.durable]
            sync_files(path for pack in late for path in (pack.pack_path, pack.index_path))
            self._record([f"pack {name}" for name in fresh])
            self._make_visible(fresh.values())
        except BaseException as error:
            # No ref can rely on them yet; what cannot be taken back now is in the journal for the next sweep.
            with suppress(OSError):
                _take_back(self._common_state, self._target, fresh, ())
                self._exposed = bool(self._published)
            if isinstance(error, OSError):
                raise cannot_write(error, self._target) from error
            raise
        self._published.update(fresh)

    def holds_others(self) -> None:
        """From here on an error leaves it to the next sweep: packs are put aside here that may have to come back."""
        self._exposed = True

    def settle(self) -> None:
        """Have what was published stay, for good, whatever becomes of the staging: no journal speaks of it any more."""
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
        if not self._rooted:
            # The names on the way to the journal must be as durable as what stands in it.
            place = os.path.dirname(self.path)
            above = os.path.dirname(place)
            for directory in (self.path, place, above, os.path.dirname(above)):
                sync_directory(directory)
            self._rooted = True

    def _make_visible(self, packs: Iterable[StagedPack]) -> None:
        target = os.stat(self._target)
        bits = bits_of(target, self._shared)
        for pack in packs:
            base = os.path.join(self._target, pack.name)
            write_keep(base + ".keep", target)
            for staged, suffix in ((pack.pack_path, ".pack"), (pack.index_path, ".idx")):
                share(staged, target, file_mode(bits))
                if suffix == ".idx":
                    link_spare_index(staged, spare_beside(os.path.dirname(self.path)), pack.name)
                os.rename(staged, base + suffix)
        tighten(self._target, self._shared)
        sync_directory(self._target)

    def close(self) -> None:
        """Remove the staging; what was published stays."""
        # A sweep may help, and whatever cannot be removed now is the next one's: nothing of it matters any more.
        with suppress(OSError):
            if not all(os.path.exists(os.path.join(self._target, f"{name}.idx")) for name in self._published):
                restore_lost_indexes(self._common_state, self._target)
            self._close_journal()
            remove_tree(self.path, self._release)
        self._release()

    def abandon(self) -> None:
        """Leave the staging as a killed process would: the next sweep sees from the refs what is to stay."""
        self._release()

    def _close_journal(self) -> None:
        descriptor, self._journal = self._journal, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _release(self) -> None:
        # Marked first: a signal that comes between would have it closed twice, with an error in the signal's place.
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
        # Once packs are visible, an error may have come before or after the ref moved.
        if kind is not None and self._exposed:
            self.abandon()
        else:
            self.close()


def sweep(common_state: str, pack_dir: str, is_published: Callable[[str], bool]) -> None:
    """Clear up after captures that died: packs of published commits stay, everything else of theirs goes."""
    # First of all: below an index that misleads, or without one, a published commit would look like one that was not.
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
            continue  # another user's, and theirs to sweep
        try:
            for path in stagings(place):
                _sweep_one(path, common_state, pack_dir, is_published)
        except OSError as error:
            raise cannot_write(error, place) from error
        finally:
            os.close(turn)


def unpublished(common_state: str, pack_dir: str | None = None) -> frozenset[str]:
    """The packs that a capture has made visible, or is about to, and that may yet be taken back."""
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
    """Our packs that no sweep can take away: the ones to deduplicate against."""
    return OwnPacks.open(pack_dir, object_format, lambda: unpublished(common_state, pack_dir))


def _sweep_one(path: str, common_state: str, pack_dir: str, is_published: Callable[[str], bool]) -> None:
    try:
        lock = lock_of_the_dead(path)
    except PermissionError:
        return  # another user's, and theirs to sweep
    if lock is None:
        return
    with ExitStack() as held:
        held.callback(os.close, lock)
        journal = read_journal(path)
        if not journal.understood:
            return  # written by a later version, which knows what to do with it
        if journal.packs and not any(is_published(commit) for commit in journal.commits):
            _take_back(common_state, pack_dir, journal.packs, journal.commits)
        restore_undecided(path, pack_dir)
        _finish_taking_away(path, pack_dir)
        remove_tree(path, held.close)


def _finish_taking_away(path: str, pack_dir: str) -> None:
    """What a merge had replaced by a durable pack, and was taking away when it died: the rest of what it began with."""
    with suppress(FileNotFoundError):
        begun = [name[:-4] for name in os.listdir(os.path.join(path, GONE)) if name.endswith(".idx")]
        for name in filter(is_pack_name, begun):
            for suffix in (".pack", ".keep"):
                remove_if_present(os.path.join(pack_dir, name + suffix))


def _take_back(common_state: str, pack_dir: str, names: Iterable[str], commits: Iterable[str]) -> None:
    ours = [name for name in names if made_by_us(os.path.join(pack_dir, name + ".keep"))]
    if not ours:
        return
    forget_second_names(common_state, pack_dir, ours)
    relied_on = {name for name in ours if was_used_since(os.path.join(pack_dir, name))}
    for name in relied_on:
        # git cleans it away when nothing leads there any more; we never look into it again.
        remove_if_present(os.path.join(pack_dir, name + ".keep"))
    ours = [name for name in ours if name not in relied_on]
    needles = [f"{name}.idx".encode() for name in ours] + [bytes.fromhex(commit) for commit in commits]
    objects_dir = os.path.dirname(pack_dir)
    drop_caches_naming(objects_dir, needles)
    for name in ours:
        # git stops seeing the pack with its index; the mark goes last, so that what is left is still known as ours.
        for suffix in (".idx", ".pack", ".keep"):
            remove_if_present(os.path.join(pack_dir, name + suffix))
    # Once more: git may have written one of them while the packs were still there.
    drop_caches_naming(objects_dir, needles)
    sync_directory(pack_dir)
