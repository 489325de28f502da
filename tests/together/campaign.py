"""Take a thousand captures during git's own maintenance: `python -m tests.together.campaign [--captures N]` prints a
table.

The first run is next to one person who types one git command after another: none of these commands may fail. The
second is next to three people at once, who disturb each other: the failures of their commands are printed, and as a
control the failures of the same three without captures. After each run, `git fsck` must be clean, every snapshot must
be listed and return the bytes that were captured, no temporary files may be left, and there must be few packs. Any
violation ends the program with status 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from git_envhist.maintenance.merge_packs import MAX_PACKS
from tests.crash.campaign import sealed_repo
from tests.crash.faults import debris
from tests.support.repository import Repo
from tests.together.content import Taken
from tests.together.neighbours import Failure, Neighbour, a_crowd, beside, one_person, upstream

BY_COMMAND = 10
"""One capture in this many is taken by the program, the others in this process."""


@dataclass
class Outcome:
    """A line of the table."""

    beside: str
    captures: int = 0
    seconds: float = 0.0
    commands: int = 0
    failures: list[Failure] = field(default_factory=list)
    packs: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        cells = (self.beside, self.captures, f"{self.seconds:.0f} s", self.commands, len(self.failures),
                 self.packs, len(self.wrong))  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--captures", type=int, default=1000)
    words.add_argument("kinds", nargs="*", help="person, crowd or control (default: all)")
    asked = words.parse_args()
    kinds = asked.kinds or ["person", "crowd", "control"]
    print("| concurrent with | captures | time | git commands | failed | packs | wrong |", flush=True)
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    outcomes = []
    took = 60.0
    for kind in kinds:
        outcome = control(took) if kind == "control" else captures(kind, asked.captures)
        took = outcome.seconds
        print(outcome, flush=True)
        outcomes.append(outcome)
    for outcome in outcomes:
        tell(outcome)
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


CAST: dict[str, Callable[[Repo], list[Neighbour]]] = {"person": one_person, "crowd": a_crowd}


def captures(kind: str, number: int) -> Outcome:
    """Take this many captures next to one person or next to three."""
    outcome = Outcome(kind)
    with tempfile.TemporaryDirectory(prefix="together-") as place:
        repo = sealed_repo(Path(place))
        upstream(repo)
        run(repo, CAST[kind](repo), number, outcome)
    return outcome


def run(repo: Repo, neighbours: list[Neighbour], number: int, outcome: Outcome) -> None:
    """Capture while the neighbours run, then check the results."""
    taken = Taken(repo)
    start = time.monotonic()
    with beside(neighbours):
        for step in range(number):
            taken.write(step)
            try:
                taken.capture(step, by_command=step % BY_COMMAND == 0)
            except Exception as error:  # every failure counts, of any kind
                outcome.wrong.append(f"capture {step}: {type(error).__name__}: {error}")
        outcome.seconds = time.monotonic() - start
    outcome.captures = len(taken.snapshots)
    _count(outcome, neighbours)
    outcome.packs = own_packs(repo)
    outcome.wrong += taken.wrong()
    settle(taken, number)
    outcome.wrong += left_behind(repo, outcome.failures)
    outcome.wrong += taken.wrong(read_every=number)
    # A single person's commands must all succeed. In a crowd, only failures that name a pack of git-envhist count.
    ours = [
        failure for failure in outcome.failures
        if outcome.beside == "person" or any(name in failure.said for name in taken.packs)
    ]  # fmt: skip
    outcome.wrong += [f"failed because of us: {failure}" for failure in ours]


def control(seconds: float) -> Outcome:
    """Run the three people for the same time without captures."""
    outcome = Outcome("crowd, no capture", seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="together-") as place:
        repo = sealed_repo(Path(place))
        upstream(repo)
        neighbours = a_crowd(repo)
        with beside(neighbours):
            time.sleep(seconds)
    _count(outcome, neighbours)
    return outcome


def _count(outcome: Outcome, neighbours: list[Neighbour]) -> None:
    outcome.commands = sum(sum(neighbour.runs.values()) for neighbour in neighbours)
    outcome.failures = [failure for neighbour in neighbours for failure in neighbour.failures]


def own_packs(repo: Repo) -> int:
    return len(list((repo.path / ".git/objects/pack").glob("*.keep")))


def settle(taken: Taken, step: int) -> None:
    """Capture twice with nothing else running, so that packs are merged and leftovers removed; then run a full git
    gc."""
    for more in range(2):
        taken.write(step + more)
        taken.capture(step + more)
    # Next to a crowd, git may have lost objects of a branch and then cannot collect. That is not checked here.
    taken.repo.git("reflog", "expire", "--expire=now", "--all", check=False)
    taken.repo.git("gc", "-q", "--prune=now", check=False)


def left_behind(repo: Repo, failures: list[Failure]) -> list[str]:
    """Return a line for each file that is left behind, except the locks and files of a git command that failed."""
    left = [name for name in debris(repo) if not is_gits_own(name)]
    wrong = [f"left behind: {name}" for name in left]
    if not failures and (more := set(debris(repo)) - set(left)):
        wrong.append(f"left behind by git, although no git command failed: {sorted(more)}")
    if (packs := own_packs(repo)) > MAX_PACKS + 2:
        wrong.append(f"{packs} packs are left")
    return wrong


def is_gits_own(name: str) -> bool:
    """Return whether git, and not git-envhist, makes files of this name."""
    own = ("envhist/", "refs/envhist/", "refs/notes/envhist/", "objects/.envhist-staging/")
    return not name.startswith(own) and not name.endswith(".keep")


def tell(outcome: Outcome) -> None:
    """Print the failures, equal messages once with their count."""
    said = Counter(f"git {failure.words[0]}: {_first_line(failure.said)}" for failure in outcome.failures)
    for text, times in said.most_common():
        print(f"\n{outcome.beside}: {times} times {text}")
    for line in outcome.wrong:
        print(f"\n{outcome.beside}: WRONG: {line}")


def _first_line(said: str) -> str:
    line = next(iter(said.splitlines()), "no word")
    return re.sub(r"'/[^']*/", "'", re.sub(r"[0-9a-f]{40}", "…", re.sub(r"\.tmp-\d+-", "", line)))


if __name__ == "__main__":
    sys.exit(main())
