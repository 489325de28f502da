"""Faults at every system call of a capture: `python -m tests.crash.campaign [--seconds N] [kind…]` prints a table.

For each kind of call, the capture is killed (or the call fails) at the first, second, third… call, until a capture ends
without a fault. Findings of `judge` are printed, and the program ends with status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import sealed_environment
from tests.crash.faults import (
    CALLS,
    age_locks,
    capture_with_fault,
    capture_with_faulty_git,
    change,
    first_open_of_ours,
    judge,
    judge_the_next,
    prepare,
)
from tests.hygiene.test_concurrent_captures import captures_during_cleaning, missing_objects
from tests.support.programs import make_programs
from tests.support.repository import Repo, make_repo

KILL = "signal=KILL"
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT", "EMFILE")
QUIET = 8
"""After this many captures without a fault, there are no further calls of this kind."""
OPEN_STEP = 12
"""An interpreter opens hundreds of files before it runs git-envhist's code, so only every n-th call is tried."""


@dataclass
class Row:
    """A line of the table."""

    fault: str
    points: int = 0
    old: int = 0
    new: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"| {self.fault} | {self.points} | {self.old} | {self.new} | {len(self.wrong)} |"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=1e9, help="time limit of a row")
    words.add_argument("--captures", type=int, default=1000, help="captures during git's own maintenance")
    words.add_argument("kinds", nargs="*", help="kill, git, errors or gc (default: all)")
    asked = words.parse_args()
    kinds = asked.kinds or ["kill", "git", "errors", "gc"]
    print("| fault | points | old tip | new tip | wrong |\n| --- | --- | --- | --- | --- |", flush=True)
    wrong = []
    for row in rows(kinds, asked.seconds, asked.captures):
        print(row, flush=True)
        wrong += [f"{row.fault}: {line}" for line in row.wrong]
    print("\n".join(wrong))
    return 1 if wrong else 0


def rows(kinds: list[str], seconds: float, captures: int) -> Iterator[Row]:
    for call in CALLS:
        if "kill" in kinds:
            yield each_point(f"killed at {call}", call, KILL, seconds)
    for call in ("rename", "write", "open", "unlink"):
        if "git" in kinds:
            yield each_point(f"`git update-ref` killed at {call}", call, KILL, seconds, git="update-ref")
    for error in ERRORS:
        for call in ("write", "sync", "rename", "mkdir", "open") if "errors" in kinds else ():
            if error != "EMFILE" or call == "open":
                yield each_point(f"{error} at {call}", call, f"error={error}", seconds)
    if "gc" in kinds:
        yield beside_gc(captures)


def each_point(name: str, call: str, fault: str, seconds: float, *, git: str | None = None) -> Row:
    row = Row(name)
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        repo = sealed_repo(Path(place))
        prepare(repo)
        is_long = call == "open" and git is None
        # Before git-envhist's first line runs, the interpreter reports a failure.
        when = first_open_of_ours(repo) if is_long and fault != KILL else 0
        quiet = 0
        while quiet < QUIET and time.monotonic() < deadline:
            when += OPEN_STEP if is_long and fault == KILL else 1
            quiet = 0 if one_point(repo, row, call, fault, when, git) else quiet + 1
    return row


def one_point(repo: Repo, row: Row, call: str, fault: str, when: int, git: str | None) -> bool:
    """Return whether the fault occurred."""
    before = change(repo, f"{row.fault} {when}")
    if git is None:
        done = capture_with_fault(repo, call, fault, str(when))
    else:
        done = capture_with_faulty_git(repo, git, call, fault, str(when))
    is_clean = done.status == 0 and not done.err
    killed = fault == KILL
    found = judge(repo, before, None if killed else done)
    age_locks(repo)
    found += judge_the_next(repo)
    row.wrong += [f"at {when}: {line} [{done.status}: {done.err.strip()}]" for line in found]
    if not is_clean:
        row.points += 1
        published = before.known != history_before_next(repo, before.known)
        row.new += published
        row.old += not published
    return not is_clean


def history_before_next(repo: Repo, known: list[str]) -> list[str]:
    faulty = repo.git("log", "--format=%H %s", "--all", "--fixed-strings", "--grep=faulty").splitlines()
    return [line.partition(" ")[0] for line in faulty if line.partition(" ")[0] not in known] + known


def beside_gc(captures: int) -> Row:
    row = Row(f"gc, repack, prune, maintenance in a loop beside {captures} captures", points=captures)
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        repo = sealed_repo(Path(place))
        taken = captures_during_cleaning(repo, captures)
        row.new = len(set(taken))
        if complaint := missing_objects(repo):
            row.wrong.append(complaint)
    return row


def sealed_repo(place: Path) -> Repo:
    (place / "home").mkdir()
    (place / "programs").mkdir()
    programs = make_programs(place / "programs")
    path = os.pathsep.join((str(programs), os.path.dirname(sys.executable), os.environ["PATH"]))
    os.environ.update({**sealed_environment(place / "home"), "PATH": path})
    return make_repo(place / "repo")


if __name__ == "__main__":
    sys.exit(main())
