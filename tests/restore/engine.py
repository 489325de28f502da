"""Run the restore modules between two real snapshots of a real directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.diff.snapshot_walker import differing_directories
from git_envhist.model import DirectoryPair, RestorePlan, SkippedPath, Snapshot
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.restore.apply_journal import ApplyResult, abort, apply, finish
from git_envhist.restore.compare_files import content_checker
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.environment_disk import EnvironmentDisk, open_environment_disk
from git_envhist.restore.journal import RestoreJournal, read_journal, write_journal
from git_envhist.restore.plan_steps import PlanRules, make_plan
from git_envhist.restore.stage import StageResult, stage
from git_envhist.restore.verify import Mismatch, verify_restored_files
from tests.support.oracle import Listing, listing


@dataclass(frozen=True)
class Outcome:
    """The result of a complete restore."""

    prepared: StageResult
    applied: ApplyResult
    differences: tuple[Mismatch, ...]
    kept: tuple[SkippedPath, ...]

    @property
    def skipped(self) -> dict[bytes, str]:
        return {left.path: left.why for left in (*self.prepared.skipped, *self.applied.skipped)}


class Engine:
    """An environment and the steps of a restore in it."""

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

    def contents(self, verify: Verify = Verify.ID) -> ObjectReader:
        repository = self.history.repository
        opens = self.history.open_sealed
        return ObjectReader(
            repository.git, repository.pack_dir, repository.object_format, opens, verify=verify
        )

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
    def disk(self, calls: DiskCalls | None = None) -> Iterator[EnvironmentDisk]:
        os.makedirs(self.private, exist_ok=True)
        found = os.stat(self.history.repository.git_dir)
        opened = open_environment_disk(
            self.bases, self.private, calls=calls, forbidden=frozenset({(found.st_dev, found.st_ino)})
        )
        try:
            yield opened
        finally:
            opened.close()

    def prepare(
        self, plan: RestorePlan, calls: DiskCalls | None = None
    ) -> tuple[RestoreJournal, StageResult]:
        """Stage the files and write the journal."""
        with self.disk(calls) as disk:
            prepared = stage(plan, disk, self.contents, how=self.how)
        journal = RestoreJournal(prepared.staged, plan.directories, (("by", "a test"),))
        write_journal(self.private, journal)
        return journal, prepared

    def restore(
        self,
        before: Snapshot | None,
        after: Snapshot,
        *,
        rules: PlanRules | None = None,
        calls: DiskCalls | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Run a complete restore; `meanwhile` is called between the plan and the swaps."""
        plan = self.plan(before, after, rules)
        journal, prepared = self.prepare(plan, calls)
        meanwhile()
        with self.disk(calls) as disk:
            applied = apply(journal, disk, fresh=True)
            left = frozenset(left.path for left in (*prepared.skipped, *applied.skipped))
            differences, _ = verify_restored_files(journal, disk, self.contents, skipped=left, how=self.how)
            with closing(self.contents()) as contents:
                kept = finish(journal, disk, self.private, check_content=content_checker(contents))
        assert plan.skipped == () or rules is not None
        return Outcome(prepared, applied, differences, kept)

    def continue_restore(self, calls: DiskCalls | None = None) -> tuple[ApplyResult, tuple[SkippedPath, ...]]:
        """Do what `--continue` does."""
        journal = read_journal(self.private)
        assert journal is not None
        with self.disk(calls) as disk, closing(self.contents()) as contents:
            applied = apply(journal, disk, check_content=content_checker(contents))
            return applied, finish(journal, disk, self.private, check_content=content_checker(contents))

    def abort_restore(self, calls: DiskCalls | None = None) -> tuple[ApplyResult, tuple[SkippedPath, ...]]:
        """Do what `--abort` does."""
        journal = read_journal(self.private)
        assert journal is not None
        with self.disk(calls) as disk:
            applied = abort(journal, disk)
            return applied, finish(journal, disk, self.private, undone=True)

    def list_files(self) -> Listing:
        """Return the files as find and sha256sum show them, without the repository."""
        return listing(os.fsdecode(self.bases[b""]), top=True)

    def debris(self) -> list[str]:
        """Return leftovers of a completed restore."""
        found = os.listdir(self.private) if os.path.isdir(self.private) else []
        return [*found, *(["at the top"] if os.path.lexists(self.top / ".envhist-restore") else [])]


def transfer_few_bytes(patch: pytest.MonkeyPatch) -> None:
    """Make reads and writes return few bytes at a time, as the system may."""
    pwrite, write, pread, read = os.pwrite, os.write, os.pread, os.read
    patch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:70_001], at))
    patch.setattr(os, "write", lambda fd, data: write(fd, data[:701]))
    patch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 50_001), at))
    patch.setattr(os, "read", lambda fd, size: read(fd, min(size, 5001)))
