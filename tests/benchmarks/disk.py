"""Measure restores on a disk: `python -m tests.benchmarks.disk [--real] [--middle | --small] [--systems ext4 xfs]`.

Makes a file system in an image file on the disk (root, losetup), with the environment and the repository of each
program in it, and another one that each restore of everything writes to. Programs take turns; a ratio is one of the
same turn.

Two kinds of work: everything is restored into a new directory of an empty file system, and a directory with about half
of the files was removed and is brought back. "cold": the file systems are mounted again before each program, so
that all data and names come from the disk; the programs themselves stay in memory. "written" is the time until the disk
has everything, which no program waits for when it restores everything.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmarks.corpus import FULL, MIDDLE, SMALL, build, shape, walk
from tests.benchmarks.disk_image import DiskImage
from tests.benchmarks.peers import Borg, Git, Ours, Restic, Setting, is_installed, surroundings
from tests.benchmarks.real import build_real
from tests.benchmarks.runs import Cost, Failed, Job, seconds

GIGA = 1 << 30
PART = 0.47
"""The part of the files that the removed directory should have, as 47,000 of 100,000."""
WARM, COLD = "warm", "cold"
EVERYTHING, REMOVED = "full", "removed"
OURS, GIT, COPY, TAR = "git-envhist", "git checkout-index", "cp -a", "tar xf"
RESTIC, BORG, RAW = "restic restore", "borg extract", "dd, as many bytes"
PROGRAMS = (OURS, GIT, RESTIC, BORG, COPY, TAR, RAW)


class Sample(NamedTuple):
    """One run of one program."""

    wall: float
    written: float
    """Seconds until everything is on the disk."""
    processor: float
    read_mb: float
    written_mb: float
    flushes: int


@dataclass
class Disk:
    """The environment, the repositories of all programs, and the place to restore to."""

    source: DiskImage
    target: DiskImage
    variables: dict[str, str]
    only: Sequence[str]
    removed: str = ""
    """The directory that is removed and brought back, relative to the top."""
    size: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """The files of everything and of the removed directory."""
    stores: dict[str, Path] = field(default_factory=dict)

    @property
    def top(self) -> Path:
        return self.source.top / "app"

    @property
    def setting(self) -> Setting:
        return Setting(self.top, self.source.top / "app.git", self.variables)

    def prepare(self, environment: Path) -> None:
        """Copy the environment, and capture it with each program."""
        _call("cp", "-a", environment, self.top)
        shutil.move(self.top / ".git", self.source.top / "app.git")
        counts = Counter[str]()
        for place, _ in walk(self.top):
            below = os.path.relpath(place, self.top).split(os.sep)
            counts.update("/".join(below[:depth]) for depth in range(1, min(len(below), 3) + 1))
        found = shape(self.top)
        self.size = found.bytes
        self.removed = min(sorted(counts), key=lambda name: abs(counts[name] - PART * found.files))
        self.counts = {"": found.files, self.removed: counts[self.removed]}
        for program, tool in ((OURS, Ours()), (GIT, Git()), (RESTIC, Restic()), (BORG, Borg())):
            if program in self.only and (program == OURS or is_installed(tool.name)):
                _say(f"{tool.name}: first capture")
                store = self.stores[tool.name] = self.source.top / "stores" / tool.name.split()[0]
                store.mkdir(parents=True)
                tool.prepare(self.setting, store)
                seconds(tool.capture(self.setting, store))
        if TAR in self.only:
            _call("tar", "cf", self.source.top / "all.tar", "-C", self.top, "--exclude=./.git", ".")
            _call("tar", "cf", self.source.top / "removed.tar", "-C", self.top, self.removed)
        if COPY in self.only:
            (self.source.top / "copy" / self.removed).parent.mkdir(parents=True)
            _call("cp", "-a", self.top / self.removed, self.source.top / "copy" / self.removed)

    def jobs(self, work: str, place: Path) -> dict[str, list[Job]]:
        """Return the programs that restore everything into a new place, or the removed directory into the old one."""
        job, full = self.setting.job, work == EVERYTHING
        ways = {
            OURS: [job("git-envrestore", "--to", place, "@") if full else job("git-envrestore", "@")],
            COPY: [job("cp", "-a", self.top if full else self.source.top / "copy" / self.removed,
                       place if full else (place / self.removed).parent)],
            TAR: [job("mkdir", "-p", place),
                  job("tar", "xf", self.source.top / ("all.tar" if full else "removed.tar"), "-C", place)],
            RAW: [job("dd", "if=/dev/zero", f"of={place}", "bs=1M", f"count={self.size >> 20}", "status=none")],
        }  # fmt: skip
        if git := self.stores.get(Git.name):
            words = ("git", "checkout-index", "-a", "-q")
            own = {
                "GIT_DIR": str(git / "git"),
                "GIT_WORK_TREE": str(place),
                "GIT_INDEX_FILE": str(git / "index"),
            }
            ways[GIT] = [job("mkdir", "-p", place), job(*words, **own)]
        if restic := self.stores.get("restic"):
            some = () if full else ("--include", f"/{self.removed}")
            ways[RESTIC] = [
                job("restic", "-q", "-r", restic / "restic", "restore", "latest", "--target", place, *some)
            ]
        if borg := self.stores.get("borg lz4"):
            words = ("borg", "extract", f"{borg / 'borg'}::moment1", *(() if full else (self.removed,)))
            ways[BORG] = [job("mkdir", "-p", place), Job(words, place, self.variables)]
        return {name: ways[name] for name in self.only if name in ways and (full or name != RAW)}

    def measure(self, work: str, cache: str, name: str) -> Sample:
        """Run one program."""
        full = work == EVERYTHING
        place = self.target.top / "app" if full else self.top
        if full:
            self.target.renew()
        else:
            shutil.rmtree(self.top / self.removed)
        image = self.target if full else self.source
        for each in (self.source, self.target):
            each.sync()
        if cache == COLD:
            self.source.forget_cache()
        before, read = image.traffic(), self.source.traffic()
        wall = seconds(self.jobs(work, place)[name], flush=lambda: None)
        after = seconds([self.setting.job("sync", "-f", image.top)], flush=lambda: None)
        moved = image.traffic().since(before)
        self._check(work, place, name)
        assert isinstance(wall, Cost)
        return Sample(
            wall, wall + after, wall.processor, self.source.traffic().since(read).read / 1e6, moved.written / 1e6,
            moved.flushes,
        )  # fmt: skip

    def _check(self, work: str, place: Path, name: str) -> None:
        """Raise Failed if the program did not restore every file."""
        below = self.removed if work == REMOVED else ""
        if name == RAW:
            return
        if (found := shape(place / below).files) != (wanted := self.counts[below]):
            raise Failed(f"{name} restored {found} of {wanted} files")


def report(title: str, samples: dict[str, list[Sample]]) -> Iterator[str]:
    """Yield the lines of a table: medians, and the ratios of the same turns."""
    yield f"\n{title}\n"
    yield "| program | time | until written | processors | read | written | flushes | ours in the same turns |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    ours = samples.get(OURS, [])
    for name, turns in samples.items():
        wall, written, used, read_mb, written_mb, flushes = (
            median(column) for column in zip(*turns, strict=True)
        )
        ratios = sorted(one.wall / other.wall for one, other in zip(ours, turns, strict=False))
        shown = (
            f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios and name != OURS else ""
        )
        yield (
            f"| {name} | {wall:.2f} s | {written:.2f} s | {used:.2f} s | {read_mb:.0f} MB | {written_mb:.0f} MB "
            f"| {flushes:.0f} | {shown} |"
        )


def main(words: Sequence[str]) -> int:
    """Make everything, measure, print tables, remove everything."""
    options = _options(words)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    base = Path(tempfile.mkdtemp(prefix="envhist-disk-", dir=options.place))
    try:
        variables = surroundings(base)
        os.environ.update(
            {name: value for name, value in variables.items() if name.startswith(("GIT_", "HOME"))}
        )
        environment = _environment(options, base)
        found = shape(environment)
        print(f"{found.files:,} files, {found.bytes / 1e9:.2f} GB; load {os.getloadavg()[0]:.1f}", flush=True)
        for kind in options.systems:
            for title, samples in _measure(kind, base, environment, variables, options):
                print("\n".join(report(title, samples)), flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


def _measure(
    kind: str, base: Path, environment: Path, variables: dict[str, str], options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, list[Sample]]]]:
    size = shape(environment).bytes
    with ExitStack() as stack:
        source = stack.enter_context(DiskImage(base, "source", kind, 5 * size + GIGA))
        target = stack.enter_context(DiskImage(base, "target", kind, 2 * size + GIGA // 2))
        disk = Disk(source, target, variables, options.programs)
        disk.prepare(environment)
        # Warm ones first, while everything is in memory that the preparation wrote.
        for cache in sorted(options.caches, reverse=True):
            for work in options.work:
                samples: dict[str, list[Sample]] = defaultdict(list)
                for turn in range(options.turns):
                    names = list(disk.jobs(work, disk.top))
                    for name in names[turn % len(names) :] + names[: turn % len(names)]:
                        samples[name].append(disk.measure(work, cache, name))
                        _say(f"{kind} {work} {cache} {name}: {samples[name][-1].wall:.2f} s")
                what = "everything" if work == EVERYTHING else f"'{disk.removed}', removed before"
                yield (
                    f"{kind}, {cache}: {what}; {options.turns} turns, load {os.getloadavg()[0]:.1f}",
                    samples,
                )


def _environment(options: argparse.Namespace, base: Path) -> Path:
    top: Path = options.keep or base / "environment"
    if top.exists():
        return top
    _say("making the environment")
    if options.real:
        build_real(top, options.files, options.packages or base / "packages")
    else:
        build(top, SMALL if options.small else MIDDLE if options.middle else FULL)
    return top


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.disk", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="2,000 files")
    size.add_argument("--middle", action="store_true", help="20,000 files")
    size.add_argument("--real", action="store_true", help="packages that npm and pip install now")
    parser.add_argument(
        "--files", type=int, default=100_000, help="at least as many real files (default 100,000)"
    )
    parser.add_argument("--packages", type=Path, help="keep the installed packages in this directory")
    parser.add_argument("--keep", type=Path, help="keep the environment in this directory for the next run")
    parser.add_argument("--place", default="/var/tmp", help="a directory on the disk (default /var/tmp)")
    parser.add_argument("--systems", nargs="+", default=["ext4", "xfs"], choices=["ext4", "xfs", "btrfs"])
    parser.add_argument("--work", nargs="+", default=[EVERYTHING, REMOVED], choices=[EVERYTHING, REMOVED])
    parser.add_argument("--caches", nargs="+", default=[WARM, COLD], choices=[WARM, COLD])
    parser.add_argument("--programs", nargs="+", default=PROGRAMS, choices=PROGRAMS)
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args(words)


def _call(*words: str | Path) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except Failed as failure:
        sys.exit(f"error: {failure}")
