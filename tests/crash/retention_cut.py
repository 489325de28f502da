"""Power failures while snapshots are dropped and purged: `python -m tests.crash.retention_cut [--cuts N] [--rounds N]
[--options …]`.

As root. On a disk that records every write (`disk`), snapshots are captured, dropped, undropped and pruned, a file is
purged, and gc runs. Then the disk is cut at random positions and mounted: timeline and trash must be those before a
step or after it, and those after it once its program had ended; git fsck finds nothing wrong; a purged file is nowhere
once its purge was reported; a snapshot can be restored; the next steps need no help.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.crash.disk import Platter, apply, read_log
from tests.crash.faults import age_locks, debris
from tests.crash.powercut import CannotBeHad, in_own_mounts, mounted, must, on_logged_disk, seal
from tests.crash.retention_kills import Known, read_state
from tests.retention.test_purge import holding
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, make_repo

SECRET = "xyzzy"
STEPS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (0, ("capture", "first", "--name", "first{}")),
    (0, ("capture", "second")),
    (0, ("capture", "third", "--name", "third{}")),
    (0, ("drop", "@~1")),
    (0, ("gc",)),
    (0, ("undrop", "@")),
    (1, ("capture", "fourth")),
    (1, ("drop", "@~1")),
    (2, ("drop", "@~1")),
    (2, ("gc",)),
    (4, ("prune", "--keep-last=2")),
    (4, ("gc", "--prune=now")),
    (4, ("purge", "creds")),
)
"""One round is a week: each step is a day and a command; `undrop` gets the dropped snapshot. The prune merges what
was dropped on two days; after the first gc, git has a list of packs, which is removed with the packs."""
BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
"""A Monday."""
JOINED, LISTED = "joined", "listed"
KNOWN = {"envhist/rewritten", "envhist/rewritten.new", "envhist/packs.json.new"}


@dataclass(frozen=True)
class Act:
    """A step, the state before and after it, and the positions in the log."""

    verb: str
    began: int
    said: int
    before: Known
    after: Known


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cuts", type=int, default=300)
    words.add_argument("--rounds", type=int, default=2)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument(
        "--options", default="defaults", help="mount options of the file system that loses power"
    )
    asked = words.parse_args()
    in_own_mounts("tests.crash.retention_cut")
    seed = asked.seed if asked.seed is not None else int(time.time())
    with tempfile.TemporaryDirectory(prefix="retention_cut-") as place:
        try:
            figures, wrong = campaign(Path(place), asked.rounds, asked.cuts, seed, asked.options)
        except CannotBeHad as reason:
            print(f"cannot be had: {reason}")
            return 77
    print("| mounted with | cuts in | as before | as after | in between | wrong |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for verb in ("capture", "drop", "undrop", "prune", "purge", "gc", "nothing"):
        cells = " | ".join(str(figures[verb, state]) for state in ("before", "after", "between"))
        print(f"| {asked.options} | {verb} | {cells} | {sum(f' {verb}:' in one for one in wrong)} |")
    print("\n".join([f"seed {seed}", *wrong]))
    return 1 if wrong else 0


def campaign(
    place: Path, rounds: int, cuts: int, seed: int, options: str
) -> tuple[Counter[tuple[str, str]], list[str]]:
    chance = random.Random(seed)
    image, log = place / "image", place / "log"
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    must("mkfs.ext4", "-q", "-F", image)
    seal(place)
    with mounted(image, place / "work", options):
        repo = make_repo(place / "work/repo")
        repo.run("envlog", "capture", "begin", check=True)
    shutil.copy(image, place / "platter")
    with on_logged_disk(image, log, place, options) as work:
        acts = take(Repo(work / "repo", dict(os.environ)), rounds, log)
    writes = list(read_log(log))
    figures: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    platter = Platter(place / "platter", writes)
    for at in sorted(chance.randrange(1, len(writes) + 1) for _ in range(cuts)):
        lucky = platter.cut(at, chance)
        subprocess.run(["cp", "--sparse=always", place / "platter", place / "cut"], check=True)
        apply(place / "cut", lucky)
        done = [act for act in acts if act.said <= writes[at - 1].end]
        under = next((act for act in acts if act.began < writes[at - 1].end < act.said), None)
        with mounted(place / "cut", place / "work", options):
            verb = under.verb if under else "nothing"
            found = judge(Repo(place / "work/repo", dict(os.environ)), done, under, acts[0].before, figures)
            wrong += [f"at {at}: {verb}: {line}" for line in found]
    platter.close()
    return figures, wrong


def take(repo: Repo, rounds: int, log: Path) -> list[Act]:
    """Run the steps; record the state before and after each."""
    acts = []
    before = read_state(repo)
    seen: Counter[str] = Counter()
    for number in range(rounds):
        for step, (day, (verb, *words)) in enumerate(STEPS):
            repo.env["GIT_COMMITTER_DATE"] = (
                f"{BEGIN + timedelta(days=7 * number + day, minutes=step):%Y-%m-%dT%H:%M:%SZ}"
            )
            if verb == "capture":
                repo.write("creds", f"{SECRET} {number} {step}")
                repo.write("kept", f"kept {number} {step}" * 50)
            if verb == "purge":
                (repo.path / "creds").unlink()
            if verb == "undrop":
                words = [*before.trash][-1:]
            began = log.stat().st_size
            repo.run("envlog", verb, *(word.format(number) for word in words), check=True)
            said = log.stat().st_size
            after = read_state(repo)
            acts.append(Act(verb, began, said, before, after))
            before = after
            seen[LISTED] += (repo.path / ".git/objects/pack/multi-pack-index").exists()
            seen[JOINED] += verb == "prune" and _shares_a_ref(repo)
    assert seen[LISTED] >= 2 * rounds, seen
    assert seen[JOINED] == rounds, seen
    return acts


def _shares_a_ref(repo: Repo) -> bool:
    """Return whether a bundle of the trash contains snapshots of several days."""
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").split()
    return any(int(repo.git("rev-list", "--count", ref)) > 1 for ref in refs)


def judge(
    repo: Repo, done: list[Act], under: Act | None, begin: Known, figures: Counter[tuple[str, str]]
) -> list[str]:
    """Return the problems after a cut."""
    age_locks(repo)
    wrong = [f"fsck: {complaint}"] if (complaint := git_fsck(repo.path)) else []
    before = done[-1].after if done else begin
    after = under.after if under else before
    found = read_state(repo)
    state = "before" if found == before else "after" if found == after else "between"
    figures[under.verb if under else "nothing", state] += 1
    if state == "between" and not (under and under.verb == "purge"):
        wrong.append(f"neither the state before nor the one after: {found}; before {before}; after {after}")
    wrong += _lost(found, before, after)
    if done and done[-1].verb == "purge" and not under and (left := holding(repo, b"creds", SECRET.encode())):
        wrong.append(f"purged, and still there: {left}")
    return wrong + _goes_on(repo, found)


def _lost(found: Known, before: Known, after: Known) -> list[str]:
    """Return which kept snapshot differs from before."""
    wrong = []
    for one in before.names.keys() & after.names.keys():
        now = {path: row for path, row in found.trees.get(one, {}).items() if path != "creds"}
        was = {path: row for path, row in before.trees[one].items() if path != "creds"}
        if now != was or found.names[one] != before.names[one]:
            wrong.append(f"{one} has changed")
    gone = {*before.names, *before.trash} & {*after.names, *after.trash} - {*found.names, *found.trash}
    return wrong + [f"lost: {one}" for one in sorted(gone)]


def _goes_on(repo: Repo, found: Known) -> list[str]:
    """Return the problems with the steps after a cut."""
    wrong = []
    checked = json.loads(repo.run("envlog", "fsck", "--quick", "--json").out)
    # The stat cache is written last and not synced: the next capture reads every file.
    if checked["broken"] or any(one["kind"] != "cache" for one in checked["faults"]):
        wrong.append(f"fsck --quick: {checked}")
    oldest = [*found.names][-1]
    place = repo.path.parent / "elsewhere"
    done = repo.run("envrestore", "--to", str(place), oldest)
    if done.status != 0:
        wrong.append(f"the oldest cannot be had: {done.err}")
    repo.write("kept", "after the cut")
    for words in (("capture", "after the cut"), ("gc", "--prune=now")):
        done = repo.run("envlog", *words)
        if done.status != 0 or done.err:
            wrong.append(f"{words[0]} ended with {done.status}: {done.err}")
    if complaint := git_fsck(repo.path):
        wrong.append(f"fsck then: {complaint}")
    return wrong + [f"left behind: {name}" for name in debris(repo) if name not in KNOWN]


if __name__ == "__main__":
    sys.exit(main())
