"""Faults at every system call of a restore: `python -m tests.crash.restorekills [--seconds N] [--spread]
[--command NAME] [kind…]` prints a table.

A restore, a merge that leads to the other snapshot, and their recovery, is killed (or its call fails) at the first,
second, third… call of each kind, until one ends without a fault; in large numbers, whole process groups are killed at
any time, between random snapshots, and again during recovery. Each time the restore is continued or aborted at random:
the environment must equal one of the two snapshots exactly.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.crash.campaign import ERRORS, KILL, OPEN_STEP, QUIET, sealed_repo
from tests.crash.faults import CALLS, age_locks, traced
from tests.crash.restorecut import ENDS, NOTHING_LEFT, left_behind, prepare
from tests.restore.test_round_trip import CHANGES
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo, Result, make_repo
from tests.support.trees import Edit, Tree, build
from tests.support.trees import apply as edit

SKIPPED = {"lock", "spawn"}
SLOW = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2,unlinkat,fchmod",
        "-e", "inject=renameat2,unlinkat,fchmod:delay_exit=25ms")  # fmt: skip
"""Most of a restore's time passes before its journal; this makes the part after it as long."""
MERGE = "merge"
COMMANDS = ("restore", MERGE, *ENDS)
JOURNALLED = (7, 16)
"""The number of renames with flags in a restore, all of them after the journal is written."""


@dataclass
class Row:
    """A line of the table."""

    fault: str
    points: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def count(self, figure: str) -> None:
        self.points += 1
        self.figures[figure] = self.figures.get(figure, 0) + 1

    def __str__(self) -> str:
        cells = [self.figures.get(name, 0) for name in FIGURES]
        return f"| {self.fault} | {self.points} | {' | '.join(map(str, cells))} | {len(self.wrong)} |"


FIGURES = ("before", "after", *ENDS, "told")
HEADING = "| fault | points | as before | as after | continued | aborted | skipped, reported | wrong |"


class Walk:
    """An environment that is restored between two snapshots."""

    def __init__(
        self, repo: Repo, moments: dict[str, Listing], chance: random.Random, command: str = "restore"
    ) -> None:
        # A merge does not compare which names are one file.
        self.ignores_links = command == MERGE
        self.repo, self.chance = repo, chance
        self.moments = {name: self._compared(files) for name, files in moments.items()}
        # The environment is now in the state of the second snapshot.
        self.there, self.here = self.moments
        self.patience = 2.5
        """The maximum seconds before a process group is killed."""

    @property
    def before(self) -> Listing:
        return self.moments[self.here]

    @property
    def target(self) -> Listing:
        return self.moments[self.there]

    def words(self, command: str) -> tuple[str, ...]:
        """Return the command line of a command; a restore and a merge lead to the other snapshot."""
        if command == MERGE:
            return "envlog", "merge", "--base", self.here, self.there
        return "envrestore", self.there if command == "restore" else command

    def list_files(self) -> Listing:
        return self._compared(listing(self.repo.path, top=True))

    def _compared(self, files: Listing) -> Listing:
        if not self.ignores_links:
            return files
        return {path: replace(one, linked=()) for path, one in files.items()}

    def is_left(self) -> bool:
        inside = self.repo.path / ".git/envhist/restore"
        return any((inside / name).exists() for name in ("journal", "way"))

    def break_off(self) -> None:
        """Leave an interrupted restore."""
        while not self.is_left():
            when = str(self.chance.randint(*JOURNALLED))
            self.repo.run("envrestore", self.there, prefix=traced("renameat2", KILL, when))
            if self.list_files() == self.target and not self.is_left():
                self.turn()

    def turn(self) -> None:
        self.here, self.there = self.there, self.here

    def settle(self, wrong: list[str], depth: int = 0) -> str:
        """Continue or abort, and check the result; return findings."""
        age_locks(self.repo)
        if not self.is_left():
            return self._stands(wrong)
        probe = self.repo.run("envlog", "capture", "--dry-run")
        if probe.status != 128 or "--continue" not in probe.err:
            wrong.append(
                f"the next command did not report the interrupted restore: {probe.status} {probe.err}"
            )
        end = self.chance.choice(ENDS)
        for _ in range(depth):
            self.kill_any_time("envrestore", self.chance.choice(ENDS))
            age_locks(self.repo)
        done = self.repo.run("envrestore", end)
        if done.status == NOTHING_LEFT:
            return self._stands(wrong)
        expected = self.target if end == "--continue" else self.before
        if done.status != 0 or self.list_files() != expected:
            wrong.append(f"{end} had another result: {done.status} {done.err}")
        self._stands(wrong)
        return end

    def _stands(self, wrong: list[str]) -> str:
        found = self.list_files()
        if found not in (self.before, self.target):
            wrong.append("the tree equals neither snapshot")
            self.repo.run("envrestore", self.here)
        wrong += [f"left behind: {name}" for name in left_behind(self.repo)] if self._capture(wrong) else []
        if found != self.target:
            return "before"
        self.turn()
        return "after"

    def _capture(self, wrong: list[str]) -> bool:
        # The next capture removes leftovers.
        done = self.repo.run("envlog", "capture", "next")
        if done.status != 0 or done.err:
            wrong.append(f"the next capture ended with {done.status}: {done.err}")
        return done.status == 0

    def kill_any_time(self, *words: str) -> None:
        """Kill a command with all of its children."""
        running = subprocess.Popen(
            [*SLOW, f"git-{words[0]}", *words[1:]], cwd=self.repo.path, env=self.repo.env, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        began = time.monotonic()
        try:
            running.wait(self.chance.uniform(0.3, self.patience))
            self.patience = max(0.6, 1.2 * (time.monotonic() - began))
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            if not self.is_left():
                # On a busy machine, the command takes longer to start.
                self.patience = min(60.0, 1.3 * self.patience)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=1e9, help="time limit of a row")
    words.add_argument("--spread", action="store_true", help="try calls in random order")
    words.add_argument(
        "--command", choices=COMMANDS, help="restore, merge, --continue or --abort (default: all)"
    )
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("kinds", nargs="*", help="kill, errors or group (default: all)")
    asked = words.parse_args()
    print(f"{HEADING}\n{'| --- ' * HEADING.count(' | ')}| --- |", flush=True)
    wrong = []
    commands = COMMANDS if asked.command is None else (asked.command,)
    kinds = asked.kinds or ["kill", "errors", "group"]
    for row in rows(kinds, asked.seconds, asked.seed, asked.spread, commands):
        print(row, flush=True)
        wrong += [f"{row.fault}: {line}" for line in row.wrong]
    print("\n".join(wrong))
    return 1 if wrong else 0


def rows(
    kinds: list[str], seconds: float, number: int, spread: bool, commands: tuple[str, ...] = COMMANDS
) -> Iterator[Row]:
    each = each_anywhere if spread else each_point
    for command in commands:
        for call in (call for call in CALLS if call not in SKIPPED and "kill" in kinds):
            yield each(f"{command} killed at {call}", command, call, KILL, seconds, number)
    for command in (one for one in commands if one not in ENDS and "errors" in kinds):
        for error in ERRORS:
            for call in ("write", "sync", "rename", "mkdir", "open"):
                if error != "EMFILE" or call == "open":
                    name = f"{error} at {call} of {command}"
                    yield each(name, command, call, f"error={error}", seconds, number)
    if "group" in kinds:
        yield any_time(seconds, number)


def each_point(name: str, command: str, call: str, fault: str, seconds: float, number: int) -> Row:
    row = Row(name)
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="restorekills-") as place:
        repo = sealed_repo(Path(place))
        walk = Walk(repo, prepare(repo), random.Random(number), command)
        # Before git-envhist's first line runs, the interpreter reports a failure.
        when = first_open_of_ours(walk) if call == "open" and fault != KILL else 0
        quiet = 0
        while quiet < (5 * QUIET if call == "open" else QUIET) and time.monotonic() < deadline:
            when += OPEN_STEP if call == "open" else 1
            quiet = 0 if one_point(walk, row, command, call, fault, when) else quiet + 1
    return row


def each_anywhere(name: str, command: str, call: str, fault: str, seconds: float, number: int) -> Row:
    """Try the points in random order until the time is over, so that late calls are tried, too."""
    row = Row(name)
    with tempfile.TemporaryDirectory(prefix="restorekills-") as place:
        repo = sealed_repo(Path(place))
        walk = Walk(repo, prepare(repo), random.Random(number), command)
        first = first_open_of_ours(walk) if call == "open" and fault != KILL else 1
        points = list(range(first, calls_of(walk, command, call) + 1))
        walk.chance.shuffle(points)
        deadline = time.monotonic() + seconds
        while points and time.monotonic() < deadline:
            one_point(walk, row, command, call, fault, points.pop())
    return row


def calls_of(walk: Walk, command: str, call: str) -> int:
    """Return how often a run without a fault makes a call, in the process with most calls."""
    if command in ENDS:
        walk.break_off()
    log = walk.repo.path.parent / "calls"
    words = ("strace", "-f", "-qq", "-o", str(log), "-e", f"trace={CALLS[call]}", "-e", "signal=none")
    walk.repo.run(*walk.words(command), prefix=words, check=True)
    walk.settle([])
    made = Counter(line.split(None, 1)[0] for line in log.read_text(errors="replace").splitlines())
    return max(made.values(), default=0)


def one_point(walk: Walk, row: Row, command: str, call: str, fault: str, when: int) -> bool:
    """Return whether the fault occurred."""
    if command in ENDS:
        walk.break_off()
    done = walk.repo.run(*walk.words(command), prefix=traced(call, fault, str(when)))
    if done.status == 0 and not done.err:
        walk.settle(row.wrong)
        return False
    wrong = [] if fault == KILL else badly_told(walk, done)
    found = "told" if done.status == 5 else walk.settle(wrong)
    if found == "told":
        wrong += left_out(walk)
    if complaint := git_fsck(walk.repo.path):
        wrong.append(f"fsck: {complaint}")
    row.count(found)
    row.wrong += [f"at {when}: {line} [{done.status}: {done.err.strip()}]" for line in wrong]
    return True


def badly_told(walk: Walk, done: Result) -> list[str]:
    """Return the problems with the text of a refusal."""
    wrong = []
    if "Traceback" in done.err or "unexpected failure" in done.err:
        wrong.append("reported as a defect")
    if done.status not in (0, 3, 4, 5, 128):
        wrong.append("no such status")
    if walk.is_left() and "--continue" not in done.err:
        wrong.append("a journal is left, and the message does not mention it")
    if done.status in (3, 128) and not walk.is_left() and walk.list_files() != walk.before:
        wrong.append("something was changed")
    if done.status == 0 and walk.list_files() != walk.target:
        wrong.append("it is reported as done")
    return wrong


def left_out(walk: Walk) -> list[str]:
    """Restore again after some paths were skipped; return the problems."""
    again = walk.repo.run("envrestore", walk.there)
    if again.status != 0 or walk.list_files() != walk.target:
        return [f"once more did not help: {again.status} {again.err}"]
    walk.turn()
    return []


def first_open_of_ours(walk: Walk) -> int:
    """Return how many files the interpreter opens before git-envhist's first one, the lock."""
    log = walk.repo.path.parent / "opened"
    words = ("strace", "-qq", "-o", str(log), "-e", "trace=openat")
    walk.repo.run("envrestore", walk.there, prefix=words, check=True)
    walk.turn()
    opened = [line for line in log.read_text(errors="replace").splitlines() if "openat(" in line]
    return next(at for at, line in enumerate(opened) if "/envhist/lock" in line)


def any_time(seconds: float, number: int) -> Row:
    """Kill whole process groups between random snapshots, up to three times each."""
    row = Row("the whole process group, at any time, three deep")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with tempfile.TemporaryDirectory(prefix="restorekills-") as place:
            sealed_repo(Path(place))
            between_arbitrary_moments(Path(place), row, number)
        number += 1
    return row


def between_arbitrary_moments(place: Path, row: Row, number: int) -> None:
    @seed(number)
    @settings(max_examples=2, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(CHANGES)
    def die(change: tuple[Tree, tuple[Edit, ...]]) -> None:
        repo = make_repo(Path(tempfile.mkdtemp(dir=place)) / "repo", commit=False)
        walk = Walk(repo, arbitrary(repo, *change), random.Random(number))
        for turn in range(4):
            walk.kill_any_time("envrestore", walk.there)
            wrong: list[str] = []
            row.count(walk.settle(wrong, depth=turn % 3))
            row.wrong += [f"seed {number}: {line}" for line in wrong]

    die()


def arbitrary(repo: Repo, tree: Tree, changes: tuple[Edit, ...]) -> dict[str, Listing]:
    found = {}
    build(tree, repo.path)
    for words in ("first", "second"):
        taken = repo.run("envlog", "capture", "--porcelain", words, check=True).out.strip()
        found[taken] = listing(repo.path, top=True)
        if words == "first":
            edit(changes, repo.path)
    return found


if __name__ == "__main__":
    sys.exit(main())
