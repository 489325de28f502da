"""One worker of a capture: looks at its share of the directories, and takes what changed into a pack of its own.

The only place besides `api` and `capturing` that joins the rooms: what the scan finds goes through sealing into the
store. Its methods are generators of frames; what they do and in which order is told in `capturing`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from git_envhist.capture.attributes import read_xattrs
from git_envhist.capture.content import BudgetExceeded, FileSaver
from git_envhist.capture.descent import display_path, join
from git_envhist.capture.pool import Frame, SharedCounters
from git_envhist.capture.reading import FileVanished, KindChanged, Unreadable, is_gone, open_file, unreadable
from git_envhist.capture.records import COLUMNS, SIZE
from git_envhist.capture.twins import Twins
from git_envhist.capture.visits import ScannedDirectory, ScannedEntry, build_record
from git_envhist.capturing.blobs import Blobs
from git_envhist.capturing.looking import ScanWorker
from git_envhist.capturing.policy import make_policy
from git_envhist.capturing.shards import leaf_modes, shard_of
from git_envhist.capturing.sources import Rows, sources_again, sources_among
from git_envhist.errors import WorkingTreeGone
from git_envhist.model import MissingReason
from git_envhist.store.manifest import format_extras
from git_envhist.store.packs import PackWriter
from git_envhist.store.staging import open_published

CHECK_PARENT_EVERY = 64
Names = list[tuple[bytes, bytes]]
"""The names of one file, each with its directory."""


class CaptureWorker(ScanWorker):
    """Reads what it has looked at, when it is told to."""

    def __init__(self, job: dict[str, Any], shared: SharedCounters, number: int) -> None:
        device = _home_device(job)
        super().__init__(job, shared)
        self._parent = os.getppid()
        self._known = open_published(job["common_state"], job["pack_dir"], job["object_format"])
        self._writer = PackWriter(job["staging_packs"], job["object_format"], self._known.__contains__)
        blobs = Blobs(self._writer, shared, number)
        self._width = 20 if job["object_format"] == "sha1" else 32
        self._policy = make_policy(job)
        self._taker = FileSaver(blobs, format_extras, self._policy, job["budget"], device)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Iterator[Frame]:
        generator: Iterator[Frame] = getattr(self, "do_" + method)(*arguments)
        return generator

    def close(self) -> None:
        """Let go of every file; what was not finished is forgotten."""
        self._descent.close()
        self._known.close()
        self._writer.abort()

    # What the parent asks for, beside what `ScanWorker` answers.

    def do_sources(self, known: Rows) -> Iterator[Frame]:
        """("source", …) for each file that is sealed by its name: among what is to be read, and among `known`."""
        key = self._job["twin"]
        yield from sources_again(key, known, self._job["bases"], self._policy)
        yield from sources_among(key, self._visits, self._descent, self._policy)

    def do_read(self, files: list[Names], twins: tuple[Any, ...]) -> Iterator[Frame]:
        """Take all that is not deferred: ("directory", …) for each one that is complete then. Whoever is done with its
        own goes on with `files`, as `do_large` does: nobody waits for the others.

        `twins`: by what the copies of sealed files are recognised.
        """
        self._taker.twins = Twins(*twins)
        for number, path in enumerate(list(self._visits)):
            if number % CHECK_PARENT_EVERY == 0 and os.getppid() != self._parent:
                raise SystemExit
            if self._read(path):
                yield self._finish(path)
        if files:
            yield from self.do_large(files)

    def do_large(self, files: list[Names] | None) -> Iterator[Frame]:
        """Take deferred files, whoever found them: ("large", directory, name, what was seen).

        All names of a file are one worker's: each would store it anew.
        """
        while files is not None and (ticket := self._shared.take()) is not None:
            for directory, name in files[ticket]:
                yield ("large", directory, name, *self._take_alone(directory, name))

    def do_settle(self, results: list[tuple[Any, ...]]) -> Iterator[Frame]:
        """Finish the directories whose deferred files have been taken."""
        mine: dict[bytes, list[tuple[Any, ...]]] = {}
        for directory, *result in results:
            if directory in self._visits:
                mine.setdefault(directory, []).append(tuple(result))
        for path, taken in mine.items():
            self._visits[path].settle(taken)
            yield self._finish(path)

    def do_pack(self) -> Iterator[Frame]:
        """("pack", …) of what was written; ("objects", …) of what never left memory, for somebody else's pack."""
        few = self._writer.take_out()
        if few is not None:
            yield ("objects", few)
            return
        pack = self._writer.finish()
        if pack is not None:
            yield ("pack", pack.name, pack.pack_path, pack.index_path, pack.objects, pack.size)

    def _read(self, path: bytes) -> bool:
        """Take the files of a directory; whether it is complete then, and not waiting for those that are deferred."""
        visit = self._visits[path]
        if not visit.unread and not visit.units:
            return True
        try:
            self._descent.enter(path)
        except OSError as error:
            self._lost(visit, error)
            return True
        now, later = self._without_deferred(visit)
        lost = [leaf for leaf in now if not self._take(visit, leaf)]
        visit.unread = later
        for database, sidecars in visit.units:
            lost += self._take_unit(visit, database, sidecars)
        visit.drop(lost)
        return not later

    def _take_unit(
        self, visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry]
    ) -> list[ScannedEntry]:
        try:
            descriptor = open_file(database.name)
        except (FileVanished, Unreadable, KindChanged):
            members = [leaf for leaf in (database, *sidecars) if leaf.waits]
            return [leaf for leaf in members if not self._take(visit, leaf)]
        try:
            return self._taker.take_unit(visit, database, sidecars, descriptor)
        except BudgetExceeded:
            visit.miss(
                database.name, MissingReason(self._job["budget_reason"]), f"{database.row[SIZE]} bytes"
            )
            return [database, *sidecars]
        finally:
            os.close(descriptor)

    def _take(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        try:
            return self._taker.take(visit, leaf)
        except BudgetExceeded:
            visit.miss(leaf.name, MissingReason(self._job["budget_reason"]), f"{leaf.row[SIZE]} bytes")
            return False

    def _take_alone(self, directory: bytes, name: bytes) -> tuple[Any, ...]:
        try:
            own = self._descent.enter(directory)
            seen = os.lstat(name)
        except FileNotFoundError:
            return (None, b"", b"", b"", [])
        except OSError as error:
            reason = unreadable(error)
            return (None, b"", b"", b"", [(name, reason.why.value, reason.detail)])
        visit = ScannedDirectory(directory, own)
        leaf = ScannedEntry(name, COLUMNS(seen), True)
        if not self._take(visit, leaf):
            return (None, b"", b"", b"", visit.missing)
        return (leaf.row, leaf.oid, leaf.extras, leaf.pieces, visit.missing)

    def _lost(self, visit: ScannedDirectory, error: OSError) -> None:
        reason = unreadable(error)
        for leaf in visit.pending:
            visit.miss(leaf.name, reason.why, reason.detail)
        visit.drop(visit.pending)
        visit.unread, visit.units = [], []

    def _finish(self, path: bytes) -> Frame:
        visit = self._visits.pop(path)
        own = self._own_extras(visit)
        like = visit.like
        record = build_record(visit, self._started_ns, self._width, own)
        record.shard = self._writer.add(b"blob", shard_of(record, like, visit.fresh, self._read_old))
        record.leaf_modes = leaf_modes(record)
        missing = [(join(path, name) if name else path, why, detail) for name, why, detail in visit.missing]
        missing = [(display_path(name), why, detail) for name, why, detail in missing]
        return ("directory", path, record.encode(), missing, list(record.pieces.values()))

    def _own_extras(self, visit: ScannedDirectory) -> bytes:
        """Return the manifest words of the directory itself: its owner and, if it can be entered, its attributes."""
        xattrs: list[tuple[bytes, bytes]] = []
        unread = ""
        try:
            self._descent.enter(visit.path)
            xattrs, unread = read_xattrs(b".")
        except OSError as error:
            unread = "" if is_gone(error) else unreadable(error).detail
        if unread and not any(not name for name, _, _ in visit.missing):
            visit.miss(b"", MissingReason.ATTRIBUTES, unread)
        return format_extras(uid=visit.own.st_uid, gid=visit.own.st_gid, xattrs=xattrs)

    def _read_old(self, oid: bytes) -> bytes:
        return self._known.read(oid[: self._width])[1]


def _home_device(job: dict[str, Any]) -> int:
    """Return the device of the working tree's top; raise WorkingTreeGone if it was removed."""
    try:
        return os.stat(job["bases"][b""]).st_dev
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkingTreeGone from error
