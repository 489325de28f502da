"""Faults in merges and reverts: `python -m tests.crash.mergekills [--seconds N] [--step N] [--command merge|revert]
[--seed N] [kind…]` prints a table.

`changes`: a merge and a revert are killed before each of their changes to the files, then their recovery before any of
its changes, then the second recovery, and the third one ends. `kill` and `errors`: the program is killed, or a call
fails with ENOSPC or EIO, at the first, second, third… system call of each kind. Each time the files must be exactly as
before the command, or as after it; then they are undone and must be as before it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from git_envhist.api import EnvHistory
from git_envhist.errors import Refused
from git_envhist.restore import environment_disk
from tests.crash.campaign import KILL, OPEN_STEP, QUIET, sealed_repo
from tests.crash.faults import CALLS, age_locks, traced
from tests.crash.merge_world import MERGE, VERBS, World, make_world
from tests.crash.restorecut import ENDS, left_behind
from tests.crash.restorekills import SKIPPED, Row
from tests.restore.killed_calls import Dead, DyingCalls
from tests.support.oracle import git_fsck
from tests.support.repository import Result

CONTINUE, ABORT = ENDS
STATES = {CONTINUE: "after", ABORT: "before"}
REFUSED, NOT_EXACT, INTERRUPTED = 3, 5, 128
CANNOT_CONTINUE = "cannot be continued"
FOREVER = 1 << 30
MOST_CHANGES = 60
"""A recovery is killed before one of this many changes."""
ERRORS = ("ENOSPC", "EIO")
KINDS = ("changes", "kill", "errors")


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=1e9, help="time limit of a row")
    words.add_argument("--step", type=int, default=1, help="try every n-th point")
    words.add_argument("--command", choices=VERBS, help="merge or revert (default: both)")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("kinds", nargs="*", help="changes, kill or errors (default: all)")
    asked = words.parse_args()
    print(f"| fault | points | {' | '.join(FIGURES)} | wrong |\n{'| --- ' * (len(FIGURES) + 3)}|", flush=True)
    verbs = VERBS if asked.command is None else (asked.command,)
    wrong = []
    for row in rows(asked.kinds or KINDS, verbs, asked.seconds, asked.step, asked.seed):
        print(shown(row), flush=True)
        wrong += [f"{row.fault}: {line}" for line in row.wrong]
    print("\n".join(wrong))
    return 1 if wrong else 0


FIGURES = ("before", "after", *ENDS, "told")


def shown(row: Row) -> str:
    cells = [row.figures.get(name, 0) for name in FIGURES]
    return f"| {row.fault} | {row.points} | {' | '.join(map(str, cells))} | {len(row.wrong)} |"


def rows(
    kinds: tuple[str, ...] | list[str], verbs: tuple[str, ...], seconds: float, step: int, seed: int
) -> Iterator[Row]:
    for verb in verbs:
        if "changes" in kinds:
            row = Row(f"{verb} killed before each change, three deep")
            with tempfile.TemporaryDirectory(prefix="mergekills-") as place:
                world = make_world(sealed_repo(Path(place)), verb)
                each_change(world, row, random.Random(seed), step, seconds)
            yield row
        for fault in (KILL, *(f"error={error}" for error in ERRORS)):
            if ("kill" if fault == KILL else "errors") in kinds:
                for call in (call for call in CALLS if call not in SKIPPED):
                    yield each_call(verb, call, fault, seconds, step, seed)


# Kills before a change, in this process.


def each_change(world: World, row: Row, chance: random.Random, step: int, seconds: float = 1e9) -> None:
    """Kill the command before every `step`-th change, and its recovery twice."""
    deadline = time.monotonic() + seconds
    left = 0
    while time.monotonic() < deadline:
        if carry_out(world, left):
            judge(world, row, "after", left, f"it did {left} changes")
            return
        goal = recover_three_times(world, chance)
        judge(world, row, STATES.get(goal or ""), left, goal or "it had not begun")
        row.count(goal or world_state(world))
        left += step
    return


def carry_out(world: World, changes: int) -> bool:
    """Run the command in this process; return False if it was killed after some changes."""
    history = opened(world)
    verb, (*_, name) = world.words[1], world.words
    with dying(changes):
        try:
            (history.merge if verb == MERGE else history.revert)(name, conflict="both")
        except Dead:
            return False
    return True


def dying(changes: int) -> patch:  # type: ignore[valid-type]
    calls = DyingCalls(changes)
    return patch.object(environment_disk, "DiskCalls", lambda: calls)  # type: ignore[return-value]


def opened(world: World) -> EnvHistory:
    return EnvHistory.open(str(world.repo.path), workers="here", one_command=True)


def recover_three_times(world: World, chance: random.Random) -> str | None:
    """Recover, killed twice; return the end that the last recovery reached, None if nothing was interrupted."""
    goal = None
    for changes in (chance.randrange(MOST_CHANGES), chance.randrange(MOST_CHANGES), FOREVER):
        if not opened(world).restorer.is_interrupted:
            return goal
        goal = recover(world, chance.choice(ENDS), changes)
    return goal


def recover(world: World, end: str, changes: int) -> str | None:
    """Continue or abort; return the end, or None if the recovery was killed."""
    history = opened(world)
    with dying(changes):
        try:
            (history.continue_restore if end == CONTINUE else history.abort_restore)()
        except Dead:
            return None
        except Refused as refused:
            if CANNOT_CONTINUE not in refused.message:
                raise
            # The first recovery had begun to abort, and no snapshot has the result.
            return recover(world, ABORT, changes)
    return end


def world_state(world: World) -> str:
    return world.state() or "neither"


def judge(world: World, row: Row, expected: str | None, point: int, what: str) -> None:
    """Compare the files with the two states, undo the command, and compare again."""
    found, wrong = world.state(), []
    if found is None or found != (expected or found):
        wrong.append(f"the files are {found}, and not {expected or 'before or after'}")
    if found == "after":
        opened(world).undo()
        if world.state() != "before":
            wrong.append("undo did not lead back")
    # The next capture removes leftovers.
    opened(world).capture(if_changed=True)
    wrong += [f"left behind: {name}" for name in left_behind(world.repo)]
    row.wrong += [f"at {point}: {line} [{what}]" for line in wrong]


# Faults at system calls, in the program.


def each_call(verb: str, call: str, fault: str, seconds: float, step: int, seed: int) -> Row:
    row = Row(f"{verb}: {fault} at {call}")
    chance, deadline = random.Random(seed), time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="mergekills-") as place:
        world = make_world(sealed_repo(Path(place)), verb)
        # Before git-envhist's first line runs, the interpreter reports a failure.
        when = first_open(world) if call == "open" and fault != KILL else 1
        quiet, each = 0, step * (OPEN_STEP if call == "open" else 1)
        while quiet < (5 * QUIET if call == "open" else QUIET) and time.monotonic() < deadline:
            quiet = 0 if one_call(world, row, chance, call, fault, when) else quiet + 1
            when += each
    return row


def first_open(world: World) -> int:
    """Return how many files the interpreter opens before git-envhist's first one, the lock."""
    log = world.repo.path.parent / "opened"
    words = ("strace", "-qq", "-o", str(log), "-e", "trace=openat")
    world.repo.run("envlog", "merge", "-n", "@", prefix=words)
    found = [line for line in log.read_text(errors="replace").splitlines() if "openat(" in line]
    return next(at for at, line in enumerate(found, start=1) if "/envhist/lock" in line)


def one_call(world: World, row: Row, chance: random.Random, call: str, fault: str, when: int) -> bool:
    """Run the command with a fault, recover and judge; return whether the fault occurred."""
    done = world.repo.run(*world.words, prefix=traced(call, fault, str(when)))
    wrong = [] if fault == KILL else wrongly_reported(done)
    age_locks(world.repo)
    goal = end_by_program(world, chance, wrong)
    found = world.state()
    if done.status == NOT_EXACT and goal is None:
        # Some paths were not changed, and each is named: undo what was.
        goal = "told"
    elif found is None or found != STATES.get(goal or "", found):
        wrong.append(f"the files are {found} after {goal}")
    if done.status == 0 and goal is None and found != "after":
        wrong.append("it is reported as done")
    undo(world, wrong)
    happened = done.status != 0 or bool(done.err)
    if happened:
        row.count(goal or found or "neither")
    row.wrong += [f"at {when}: {line} [{done.status}: {done.err.strip()}]" for line in wrong]
    return happened


def wrongly_reported(done: Result) -> list[str]:
    wrong = []
    if "Traceback" in done.err or "unexpected failure" in done.err:
        wrong.append("reported as a defect")
    if done.status not in (0, REFUSED, 4, NOT_EXACT, INTERRUPTED):
        wrong.append("no such status")
    return wrong


def end_by_program(world: World, chance: random.Random, wrong: list[str]) -> str | None:
    """Continue or abort an interrupted command, killed twice; return the end, None if nothing was interrupted."""
    run, goal = world.repo.run, None
    if run("envlog", "capture", "--if-changed", "probe").status != INTERRUPTED:
        return None
    for kill in (chance.randrange(1, 12), chance.randrange(1, 6), 0):
        goal = chance.choice(ENDS)
        done = run("envrestore", goal, prefix=traced("rename", KILL, str(kill)) if kill else ())
        if kill:
            age_locks(world.repo)
            continue
        if CANNOT_CONTINUE in done.err:
            goal, done = ABORT, run("envrestore", ABORT)
        if done.status == REFUSED:
            # A killed recovery had reached an end.
            return None
        if done.status != 0:
            wrong.append(f"{goal} ended with {done.status}: {done.err}")
    return goal


def undo(world: World, wrong: list[str]) -> None:
    """Lead back to the state before the command."""
    done = world.repo.run("envlog", "capture", "--if-changed", "after the fault")
    if done.status != 0 or done.err:
        wrong.append(f"the next capture ended with {done.status}: {done.err}")
    if world.state() != "before":
        done = world.repo.run("envlog", "undo")
        if world.state() != "before":
            wrong.append(f"undo did not lead back: {done.status} {done.err}")
    wrong += [f"left behind: {name}" for name in left_behind(world.repo)]
    if complaint := git_fsck(world.repo.path):
        wrong.append(f"fsck: {complaint}")


if __name__ == "__main__":
    sys.exit(main())
