"""Drives the engine of a restore between two real snapshots of a real directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.diff.walk import differing_directories
from git_envhist.model import DirectoryPair, RestorePlan, SkippedPath, Snapshot
from git_envhist.objects.reader import ObjectReader
from git_envhist.restore.compare_files import prover
from git_envhist.restore.disk import RestoreDisk, open_restore_disk
from git_envhist.restore.finish import ApplyResult, abort, apply, finish
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.journal import RestoreJournal, read_journal, write_journal
from git_envhist.restore.plan import PlanRules, make_plan
from git_envhist.restore.stage import StageResult, stage
from git_envhist.restore.verify import Mismatch, verify
from tests.support.oracle import Listing, listing


@dataclass(frozen=True)
class Outcome:
    """What a whole restore said of itself."""

    prepared: StageResult
    applied: ApplyResult
    differences: tuple[Mismatch, ...]
    kept: tuple[SkippedPath, ...]

    @property
    def left_alone(self) -> dict[bytes, str]:
        return {left.path: left.why for left in (*self.prepared.left_alone, *self.applied.left_alone)}


class Engine:
    """One environment, and a restore's way through it step by step."""

    def __init__(self, top: Path, *, how: str = "here", elsewhere: Path | None = None) -> None:
        self.history = EnvHistory.open(str(top), workers="here", one_command=True)
        self.top = top
        self.how = how
        self.bases = {b"": os.fsencode(elsewhere or top)}
        self.private = os.path.join(self.history.repository.state, "restore")

    def capture(self) -> Snapshot:
        taken = self.history.capture("moment").snapshot
        assert taken is not None
        return taken

    def contents(self) -> ObjectReader:
        repository = self.history.repository
        opens = self.history.open_sealed
        return ObjectReader(repository.git, repository.pack_dir, repository.object_format, opens)

    def pairs(self, before: Snapshot | None, after: Snapshot) -> Iterable[DirectoryPair]:
        contents = self.contents()
        try:
            trees = None if before is None else bytes.fromhex(before.tree), bytes.fromhex(after.tree)
            return list(differing_directories(contents, *trees))
        finally:
            contents.close()

    def plan(self, before: Snapshot | None, after: Snapshot, rules: PlanRules | None = None) -> RestorePlan:
        return make_plan(self.pairs(before, after), rules)

    @contextmanager
    def door(self, hands: DiskCalls | None = None) -> Iterator[RestoreDisk]:
        os.makedirs(self.private, exist_ok=True)
        found = os.stat(self.history.repository.git_dir)
        opened = open_restore_disk(
            self.bases, self.private, hands=hands, forbidden=frozenset({(found.st_dev, found.st_ino)})
        )
        try:
            yield opened
        finally:
            opened.close()

    def prepare(
        self, plan: RestorePlan, hands: DiskCalls | None = None
    ) -> tuple[RestoreJournal, StageResult]:
        """Stage, and write the journal."""
        with self.door(hands) as door:
            prepared = stage(plan, door, self.contents, how=self.how)
        journal = RestoreJournal(prepared.staged, plan.directories, (("by", "a test"),))
        write_journal(self.private, journal)
        return journal, prepared

    def restore(
        self,
        before: Snapshot | None,
        after: Snapshot,
        *,
        rules: PlanRules | None = None,
        hands: DiskCalls | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """The whole way; `meanwhile` happens between the plan and the swaps."""
        plan = self.plan(before, after, rules)
        journal, prepared = self.prepare(plan, hands)
        meanwhile()
        with self.door(hands) as door:
            applied = apply(journal, door, fresh=True)
            left = frozenset(left.path for left in (*prepared.left_alone, *applied.left_alone))
            differences, _ = verify(journal, door, self.contents, without=left, how=self.how)
            with closing(self.contents()) as contents:
                kept = finish(journal, door, self.private, prove=prover(contents))
        assert plan.left_alone == () or rules is not None
        return Outcome(prepared, applied, differences, kept)

    def go_on(self, hands: DiskCalls | None = None) -> tuple[ApplyResult, tuple[SkippedPath, ...]]:
        """What `--continue` does."""
        journal = read_journal(self.private)
        assert journal is not None
        with self.door(hands) as door, closing(self.contents()) as contents:
            applied = apply(journal, door, prove=prover(contents))
            return applied, finish(journal, door, self.private, prove=prover(contents))

    def take_back(self, hands: DiskCalls | None = None) -> tuple[ApplyResult, tuple[SkippedPath, ...]]:
        """What `--abort` does."""
        journal = read_journal(self.private)
        assert journal is not None
        with self.door(hands) as door:
            applied = abort(journal, door)
            return applied, finish(journal, door, self.private, undone=True)

    def look(self) -> Listing:
        """What find and sha256sum see, less the environment's own repository."""
        return listing(os.fsdecode(self.bases[b""]), top=True)

    def debris(self) -> list[str]:
        """What a restore that is over has left."""
        found = os.listdir(self.private) if os.path.isdir(self.private) else []
        return [*found, *(["at the top"] if os.path.lexists(self.top / ".envhist-restore") else [])]


def in_small_helpings(patch: pytest.MonkeyPatch) -> None:
    """From now on the system takes and gives a few bytes at a time, as it may."""
    pwrite, write, pread, read = os.pwrite, os.write, os.pread, os.read
    patch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:70_001], at))
    patch.setattr(os, "write", lambda fd, data: write(fd, data[:701]))
    patch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 50_001), at))
    patch.setattr(os, "read", lambda fd, size: read(fd, min(size, 5001)))
