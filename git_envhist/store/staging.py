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

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from git_envhist.store.durable import (
    cannot_write,
    remove_if_present,
    sync,
    sync_directory,
    sync_files,
    write_all,
)
from git_envhist.store.gitcaches import drop_broken_index, drop_caches_naming
from git_envhist.store.openness import bits_of, file_mode, tighten
from git_envhist.store.ownpacks import OwnPacks, is_pack_name
from git_envhist.store.packs import StagedPack
from git_envhist.store.places import (
    choose_place,
    lock_of_the_dead,
    made_by_us,
    make_staging,
    packs_of_owner,
    places,
    read_journal,
    remove_tree,
    share,
    stagings,
    take_turn,
    write_keep,
)
from git_envhist.store.retiring import GONE, restore_undecided, was_used_since
from git_envhist.store.spares import forget_second_names, link_spare_index, restore_lost_indexes, spare_beside


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
