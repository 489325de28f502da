"""Takes a database and what belongs to it as they are at one moment, while it is held still."""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Callable
from typing import Protocol

from git_envhist.capture.databases import (
    JOURNAL,
    LOG,
    DatabaseBusy,
    DatabaseLock,
    WaitBudget,
    changed_during_lock,
    locked_database,
)
from git_envhist.capture.reading import Unreadable, stat_of
from git_envhist.capture.records import COLUMNS
from git_envhist.capture.visits import ScannedDirectory, ScannedEntry
from git_envhist.model import MissingReason

HOLD_TRIES = 3


class Keeper(Protocol):
    """What takes content into the store."""

    @property
    def patience(self) -> WaitBudget:
        """What is left of the time that locks are waited for."""
        ...

    def take(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        """Take what stands under a name; False where it is no leaf any more."""
        ...

    def take_open(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        """Take an open file."""
        ...

    def forget(self) -> Callable[[], None]:
        """What undoes all that is taken from here on."""
        ...


class DatabaseFiles:
    """An open database with its sidecars.

    Until it is taken nothing else may open the database here: closing it would let go of our locks.
    """

    def __init__(
        self,
        keeper: Keeper,
        visit: ScannedDirectory,
        database: ScannedEntry,
        sidecars: list[ScannedEntry],
        descriptor: int,
    ) -> None:
        self._keeper = keeper
        self._visit = visit
        self._database = database
        self._sidecars = list(sidecars)
        self._descriptor = descriptor
        self._belated: list[ScannedEntry] = []

    def take(self) -> list[ScannedEntry]:
        """Take all of it; those that are no leaves any more."""
        try:
            return self._take()
        except Unreadable as reason:
            self._visit.miss(self._database.name, reason.why, reason.detail)
            return [self._database, *self._sidecars]
        except Exception:
            self._visit.leaves = [leaf for leaf in self._visit.leaves if leaf not in self._belated]
            raise

    def _take(self) -> list[ScannedEntry]:
        noted, undo = len(self._visit.missing), self._keeper.forget()
        moved: str | None = None
        gone: list[ScannedEntry] = []
        for attempt in range(HOLD_TRIES):
            if attempt:
                del self._visit.missing[noted:]
                undo()
            try:
                with locked_database(self._descriptor, self._database.name, self._keeper.patience) as hold:
                    gone = self._take_held(hold)
                    moved = changed_during_lock(self._descriptor, self._database.name, hold)
            except DatabaseBusy as reason:
                gone = self._take_held(None)
                moved = str(reason)
                break
            if moved is None and not self._lacks_a_place(gone):
                return gone
        self._tell(moved or "somebody opened it while it was read")
        return [leaf for leaf in gone if leaf in self._visit.leaves]

    def _take_held(self, hold: DatabaseLock | None) -> list[ScannedEntry]:
        if hold is not None:
            self._find_belated(hold)
        self._take_database()
        return [leaf for leaf in self._sidecars if not self._take_sidecar(leaf, hold)]

    def _find_belated(self, hold: DatabaseLock) -> None:
        """What belongs to the database by now, and did not when the directory was looked at."""
        known = {leaf.name for leaf in self._sidecars}
        for suffix in (LOG, JOURNAL) if hold.is_hot else (LOG,):
            name = self._database.name + suffix
            if name not in known and os.path.lexists(name):
                self._sidecars.append(self._leaf_of(name))

    def _leaf_of(self, name: bytes) -> ScannedEntry:
        visit = self._visit
        leaf = next((leaf for leaf in visit.leaves if leaf.name == name), None)
        if leaf is None:
            leaf = ScannedEntry(name, ())
            self._belated.append(leaf)
            # A file that is taken alone has no directory here that the others could be put in.
            if self._database in visit.leaves:
                insort(visit.leaves, leaf, key=lambda other: other.name)
        elif leaf in visit.unread:
            visit.unread.remove(leaf)
        leaf.grows = name.endswith(LOG)
        return leaf

    def _lacks_a_place(self, gone: list[ScannedEntry]) -> bool:
        return self._database not in self._visit.leaves and any(leaf not in gone for leaf in self._belated)

    def _take_database(self) -> None:
        leaf = self._database
        if not leaf.waits:
            seen = stat_of(self._descriptor)
            if COLUMNS(seen) == leaf.row:
                return  # as it was at the last capture
            leaf.waits, leaf.row = True, COLUMNS(seen)
        self._keeper.take_open(self._visit, leaf, self._descriptor)

    def _take_sidecar(self, leaf: ScannedEntry, hold: DatabaseLock | None) -> bool:
        if hold is not None and not hold.is_hot and leaf.name.endswith(JOURNAL):
            return False
        try:
            leaf.row = COLUMNS(os.lstat(leaf.name))
        except OSError as error:
            self._visit.miss_for(error, leaf.name)
            return False
        leaf.waits = True
        return self._keeper.take(self._visit, leaf)

    def _tell(self, what: str) -> None:
        self._visit.miss(self._database.name, MissingReason.UNSTABLE, f"its database is in use: {what}")
        for leaf in (self._database, *self._sidecars):
            # However still it stands from now on, what was read is no state of it: to be read afresh next time.
            leaf.row = (0, *leaf.row[1:])
