"""Measure how a history slows down its owner's git: `python -m tests.benchmarks.users_git [--files N] [--snapshots
N]`.

A project is committed and captured many times, and copied without its history. The same commands then take turns in
both, so that a busy machine slows both alike. Prints the median elapsed and CPU times, and the limit (1.1 times as
much). `git gc` is measured separately, as the time that each further snapshot adds.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from git_envhist.api import EnvHistory
from tests.benchmarks.many_snapshots import git, sealed
from tests.benchmarks.runs import Cost, Job, middle, seconds

AT_MOST = 1.1
IN_A_DIRECTORY = 40
CODE = 0.4
"""The part of the files that is committed; the others are ignored, as installed packages are."""
COMMIT_EVERY = 20
GC_RUNS = 3
WIDE = 20_000


@dataclass(frozen=True)
class Place:
    """A repository, with the remote that it fetches from and pushes to."""

    top: Path
    upstream: Path


Prepare = Callable[[Place], None]


def nothing(_: Place) -> None:
    """Do nothing: reading commands need no preparation."""


def edit(place: Place) -> None:
    (place.top / "code" / "d0" / "f0.py").write_text(f"edited = {random.random()}\n")


def one_more_upstream(place: Place) -> None:
    tip = git(place.upstream, "commit-tree", "-m", f"more {random.random()}", "-p", "main", "main^{tree}")
    git(place.upstream, "update-ref", "refs/heads/main", tip)


def one_more_here(place: Place) -> None:
    tip = git(place.top, "commit-tree", "-m", f"more {random.random()}", "-p", "HEAD", "HEAD^{tree}")
    git(place.top, "update-ref", "refs/heads/topic", tip)


COMMANDS: dict[str, tuple[Prepare, tuple[str, ...]]] = {
    "git status": (nothing, ("status", "--porcelain")),
    "git log": (nothing, ("log", "--oneline")),
    "git log -20": (nothing, ("log", "-20", "--stat")),
    "git diff HEAD~1": (nothing, ("diff", "HEAD~1")),
    "git commit": (edit, ("commit", "-q", "-a", "-m", "work")),
    "git fetch, nothing new": (nothing, ("fetch", "-q", "upstream")),
    "git fetch, one commit": (one_more_upstream, ("fetch", "-q", "upstream")),
    "git push, nothing new": (nothing, ("push", "-q", "-f", "upstream", "topic")),
    "git push, one commit": (one_more_here, ("push", "-q", "-f", "upstream", "topic")),
    "git gc --auto": (nothing, ("-c", "gc.auto=6700", "-c", "gc.autoPackLimit=50", "gc", "--auto", "-q")),
}


def make_project(top: Path, files: int, snapshots: int) -> None:
    """Make commits, with captures between them, of a tree with this many files."""
    top.mkdir(parents=True)
    git(top, "init", "-q", "--template=")
    (top / ".gitignore").write_text("/installed/\n")
    for number in range(files):
        kind = "code" if number < files * CODE else "installed"
        path = top / kind / f"d{number // IN_A_DIRECTORY}" / f"f{number % IN_A_DIRECTORY}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {number}\n" + f"value_{number} = {number}\n" * 20)
    (top / "code" / "d0").mkdir(parents=True, exist_ok=True)
    history = EnvHistory.open(str(top), workers="here", one_command=True)
    for step in range(snapshots):
        if step % COMMIT_EVERY == 0:
            (top / "code" / "d0" / "f1.py").write_text(f"step = {step}\n")
            git(top, "add", "-A")
            git(top, "commit", "-q", "-m", f"step {step}")
        _work(top, step)
        history.capture(f"step {step}")


def _work(top: Path, step: int) -> None:
    (top / "installed").mkdir(exist_ok=True)
    (top / "installed" / "state.json").write_text(f'{{"step": {step}}}\n' * 20)
    (top / "code" / "d0" / f"f{2 + step % 30}.py").write_text(f"step = {step}\n")


def as_if_never_captured(top: Path, place: Path) -> Path:
    """Return a copy without the history; both are packed as `git gc` leaves them."""
    shutil.copytree(top, place, symlinks=True)
    refs = git(place, "for-each-ref", "--format=delete %(refname)", "refs/envhist", "refs/notes/envhist")
    subprocess.run(["git", "update-ref", "--stdin"], cwd=place, input=refs + "\n", text=True, check=True)
    # git did not store objects again that it found in a capture's pack, so copy them.
    git(place, "repack", "-q", "-a", "-d", "--pack-kept-objects")
    for kept in (place / ".git" / "objects" / "pack").glob("*.keep"):
        for suffix in (".pack", ".idx", ".keep"):
            kept.with_suffix(suffix).unlink()
    shutil.rmtree(place / ".git" / "envhist")
    for each in (top, place):
        git(each, "gc", "-q")
    return place


def compare(with_history: Path, work: Path, rounds: int) -> bool:
    """Print a row for each command; return whether all stay within the limit."""
    places = []
    for top in (as_if_never_captured(with_history, work / "without"), with_history):
        upstream = work / f"upstream-of-{top.name}"
        git(work, "clone", "-q", "--bare", "--no-local", "--single-branch", str(top), str(upstream))
        git(top, "remote", "add", "upstream", str(upstream))
        git(top, "fetch", "-q", "upstream")
        git(top, "status")  # updates git's index, because copying changed the files' times
        git(top, "branch", "-f", "topic")
        places.append(Place(top, upstream))
    print(
        "| command | without | with | ratio | processors | ratio |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    ratios = [_row(name, places, *COMMANDS[name], rounds) for name in COMMANDS]
    return max(ratios) <= AT_MOST


def _row(name: str, places: list[Place], prepare: Prepare, words: tuple[str, ...], rounds: int) -> float:
    taken: list[list[Cost]] = [[], []]
    for turn in range(rounds + 1):
        for number, place in sorted(enumerate(places), reverse=bool(turn % 2)):
            prepare(place)
            cost = seconds([Job(("git", *words), place.top, os.environ)])
            if turn:  # the first only warms caches
                taken[number].append(cost)
    without, with_ = (middle(costs) for costs in taken)
    processors = [getattr(cost, "processor", 0.0) for cost in (without, with_)]
    wall, work = with_ / without, processors[1] / processors[0]
    print(
        f"| `{name}` | {without * 1000:.1f} ms | {with_ * 1000:.1f} ms | {wall:.2f} "
        f"| {processors[1] * 1000:.1f} ms | {work:.2f} |",
        flush=True,
    )
    return min(wall, work)


def gc_slope(work: Path, files: int, counts: tuple[int, int], *, wide: bool) -> float:
    """Return the milliseconds that `git gc` takes for each further snapshot."""
    taken = []
    top = work / f"gc-{wide}"
    make_project(top, files, 1)
    history = EnvHistory.open(str(top), workers="here", one_command=True)
    done = 0
    for count in counts:
        for step in range(done, count):
            if wide:
                _work_wide(top, step)
            else:
                _work(top, step)
            history.capture(f"gc step {step}")
        done = count
        taken.append(_gc(top, work))
    (first, second), (less, more) = taken, counts
    return (second - first) * 1000 / (more - less)


def _work_wide(top: Path, step: int) -> None:
    wide = top / "installed" / "wide"
    if not step:
        wide.mkdir(parents=True)
        for number in range(WIDE):
            (wide / f"entry-{number:05}.txt").write_text(f"{number}\n")
    (wide / f"entry-{step * 7 % WIDE:05}.txt").write_text(f"changed {step}\n")


def _gc(top: Path, work: Path) -> float:
    costs = []
    for _ in range(GC_RUNS):
        copy = work / "collected"
        shutil.copytree(top, copy, symlinks=True)
        costs.append(seconds([Job(("git", "gc", "-q"), copy, os.environ)]))
        shutil.rmtree(copy)
    return statistics.median(costs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=6_000)
    parser.add_argument("--large", action="store_true", help="100,000 files")
    parser.add_argument("--snapshots", type=int, default=1_000)
    parser.add_argument(
        "--project", type=Path, help="use this repository of an earlier run instead of a new one"
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--gc", action="store_true", help="measure only the time of git gc per snapshot")
    chosen = parser.parse_args()
    files = 100_000 if chosen.large else chosen.files
    with tempfile.TemporaryDirectory(prefix="users-git-") as directory, sealed(Path(directory) / "home"):
        work = Path(directory)
        facts = f"{files:,} files, {chosen.snapshots:,} snapshots, {os.cpu_count()} cores"
        print(f"{facts}, {git(work, '--version')}\n")
        if chosen.gc:
            return print_gc(work, files, chosen.snapshots)
        if chosen.project is None:
            make_project(work / "project", files, chosen.snapshots)
        else:
            shutil.copytree(chosen.project, work / "project", symlinks=True)
        packs = len(list((work / "project/.git/objects/pack").glob("*.keep")))
        print(f"{packs} packs of captures\n")
        return 0 if compare(work / "project", work, chosen.rounds) else 1


def print_gc(work: Path, files: int, snapshots: int) -> int:
    for wide in (False, True):
        # Snapshots of wide trees take longer and show more effect each, so fewer are enough.
        counts = (snapshots // 25, snapshots // 5) if wide else (snapshots // 5, snapshots)
        slope = gc_slope(work, files, counts, wide=wide)
        what = f"one of {WIDE:,} entries of a directory changed" if wide else "three files changed"
        print(f"git gc, {what}: {slope:.2f} ms for each snapshot", flush=True)
    return 0


if __name__ == "__main__":
    subprocess.run(["git", "--version"], check=True, capture_output=True)
    sys.exit(main())
