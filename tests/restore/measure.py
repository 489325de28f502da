"""Measure restores: `python -m tests.restore.measure [files] [megabytes] [directory]`.

A full restore into an empty directory compared with `git checkout-index -a` and `cp -a`, with and without sync, and one
of a thousand files; each the best of three. CPU time is printed with wall-clock time, because a busy machine affects it
less.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from git_envhist.api import EnvHistory
from git_envhist.diff.snapshot_walker import differing_directories
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.restore.apply_journal import apply, finish
from git_envhist.restore.environment_disk import open_environment_disk
from git_envhist.restore.journal import RestoreJournal, write_journal
from git_envhist.restore.plan_steps import make_plan
from git_envhist.restore.stage import stage
from git_envhist.restore.verify import verify_restored_files

T = TypeVar("T")
A_DIRECTORY = 14
TIMES = 3


def make_environment(top: Path, files: int, megabytes: int) -> None:
    """Write files of many sizes in a few thousand directories; half of the bytes are text."""
    chance = random.Random(1)
    words = [
        bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randrange(2, 9))) for _ in range(5000)
    ]
    mean = megabytes * (1 << 20) // files
    for number in range(files):
        place = top / f"d{number // A_DIRECTORY % 97}" / f"d{number // A_DIRECTORY}"
        place.mkdir(parents=True, exist_ok=True)
        size = int(chance.expovariate(1 / mean))
        text = b" ".join(chance.choices(words, k=min(size // 12 + 1, 2000)))
        data = (text * (size // (2 * len(text)) + 1))[: size // 2] + chance.randbytes(size // 2)
        (place / f"f{number}").write_bytes(data)


class Restore:
    """A restore between two snapshots, with the CPU time of each part."""

    def __init__(self, history: EnvHistory, how: str) -> None:
        self.history, self.how = history, how
        self.parts: dict[str, float] = {}

    def contents(self) -> ObjectReader:
        repository = self.history.repository
        return ObjectReader(
            repository.git,
            repository.pack_dir,
            repository.object_format,
            self.history.open_sealed,
            verify=Verify.ID,
        )

    def run(
        self, before: str | None, after: str, top: Path, *, durable: bool, verified: bool = True
    ) -> float:
        begun = time.perf_counter()
        private = os.path.join(self.history.repository.state, "restore")
        os.makedirs(private, exist_ok=True)
        contents = self.contents()
        trees = None if before is None else bytes.fromhex(before), bytes.fromhex(after)
        plan = self._timed("plan", lambda: make_plan(differing_directories(contents, *trees)))
        contents.close()
        disk = open_environment_disk({b"": os.fsencode(top)}, private)
        prepared = self._timed(
            "stage", lambda: stage(plan, disk, self.contents, how=self.how, durable=durable)
        )
        journal = RestoreJournal(prepared.staged, plan.directories)
        self._timed("journal", lambda: write_journal(private, journal))
        self._timed("apply", lambda: apply(journal, disk, fresh=True))
        if verified:
            differences = self._timed(
                "verify",
                lambda: verify_restored_files(journal, disk, self.contents, how=self.how).differences,
            )
            assert not differences, differences[:5]
        self._timed("finish", lambda: finish(journal, disk, private))
        disk.close()
        assert not prepared.skipped, prepared.skipped[:5]
        return time.perf_counter() - begun

    def _timed(self, part: str, do: Callable[[], T]) -> T:
        begun = worked_so_far()
        try:
            return do()
        finally:
            self.parts[part] = worked_so_far() - begun


class Took(NamedTuple):
    """Wall-clock seconds, and CPU seconds with children."""

    clock: float
    work: float

    def __str__(self) -> str:
        return f"{self.clock:6.2f} s ({self.work:5.2f} of work)"


def best(do: Callable[[], object], clean: Callable[[], object] = lambda: None) -> Took:
    """Return the shortest of a few runs."""
    return min(timed(do, clean) for _ in range(TIMES))


def timed(do: Callable[[], object], clean: Callable[[], object]) -> Took:
    clean()
    begun, worked = time.perf_counter(), worked_so_far()
    do()
    return Took(time.perf_counter() - begun, worked_so_far() - worked)


def worked_so_far() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(files: int, megabytes: int, place: str | None) -> None:
    top = Path(tempfile.mkdtemp(dir=place))
    try:
        measure(top, files, megabytes)
    finally:
        shutil.rmtree(top)


def measure(base: Path, files: int, megabytes: int) -> None:
    top, target = base / "repo", base / "target"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    make_environment(top, files, megabytes)
    history = EnvHistory.open(str(top), workers="fork", one_command=True)
    first = history.capture("first").snapshot
    assert first is not None
    git = ["git", "-C", str(top), "-c", "core.autocrlf=false"]
    subprocess.run([*git, "add", "-A"], check=True)

    def clean() -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()

    def by_git() -> None:
        subprocess.run([*git, "checkout-index", "-a", f"--prefix={target}/"], check=True)

    told("git checkout-index -a", git_time := best(by_git, clean))
    told(
        "cp -a (with .git)",
        best(lambda: subprocess.run(["cp", "-a", f"{top}/.", str(target)], check=True), clean),
    )
    for words, how, durable, verified in WAYS:
        restore = Restore(history, how)
        run = partial(restore.run, None, first.tree, target, durable=durable, verified=verified)
        told(f"full, {words}", best(run, clean), git_time, restore.parts)
    measure_a_thousand(history, first.tree, top, git)


WAYS = (
    ("unsynced", "fork", False, True),
    ("unsynced, unverified", "fork", False, False),
    ("synced", "fork", True, True),
    ("unsynced, one process", "here", False, True),
)


def told(what: str, took: Took, git: Took | None = None, parts: dict[str, float] | None = None) -> None:
    ratio = "" if git is None else f" = {took.clock / git.clock:.2f} ({took.work / git.work:.2f}) x git"
    each = "; " + ", ".join(f"{part} {seconds:.3f}" for part, seconds in parts.items()) if parts else ""
    print(f"{what:30}{took}{ratio}{each}", flush=True)


def measure_a_thousand(history: EnvHistory, first: str, top: Path, git: list[str]) -> None:
    paths = sorted(path for path in top.glob("d*/d*/f*"))[:: max(1, len(list(top.glob("d*/d*/f*"))) // 1000)]

    def change() -> None:
        for path in paths:
            path.write_bytes(b"changed")

    def back_by_git() -> None:
        subprocess.run([*git, "checkout-index", "-a", "-f", "-q"], check=True)

    told("1,000 files: git", git_time := best(back_by_git, change))
    change()
    second = history.capture("second").snapshot
    assert second is not None
    restore = Restore(history, "fork")
    restore.run(second.tree, first, top, durable=False)
    there = partial(restore.run, first, second.tree, top, durable=False, verified=False)
    back = best(partial(restore.run, second.tree, first, top, durable=True), there)
    told("1,000 files: restored", back, git_time, restore.parts)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(
        int(words[0]) if words else 20_000,
        int(words[1]) if len(words) > 1 else 400,
        words[2] if len(words) > 2 else None,
    )
