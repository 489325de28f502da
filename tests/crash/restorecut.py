"""Power failures under restores: `python -m tests.crash.restorecut [--cuts N] [--acts N] [--seed N] [--few] [--options
…]`.

As root. An environment with every kind of change is restored back and forth between two snapshots on a disk that
records every write (`disk`), by complete restores and by ones that are killed and then continued or aborted. The disk
is then cut at random positions, mounted and checked: the environment equals one of the snapshots exactly, or a restore
can be continued or aborted. With `--few` the snapshots differ in few plain files, which are synced one by one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.disk import Platter, Write, apply, read_log
from tests.crash.faults import age_locks, debris, traced
from tests.crash.powercut import CannotBeHad, in_own_mounts, mounted, must, on_logged_disk, seal
from tests.end_to_end.captures import capture
from tests.restore.test_killed import BEFORE, CHANGED
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo, Result, make_repo
from tests.support.trees import Directory, Edit, File, Put, Remove, Tree, build
from tests.support.trees import apply as edit

NOTHING_LEFT = 3
ENDS = ("--continue", "--abort")
T1, T2 = 1_600_000_000_000_000_001, 1_700_000_000_000_000_002
World = tuple[Tree, tuple[Edit, ...]]
MANY: World = (BEFORE, CHANGED)
FEW: World = (
    {
        b"": Directory(mtime_ns=T1),
        b"same": File(b"same", mtime_ns=T1),
        b"edited": File(b"one", 0o640, T1),
        b"touched": File(b"touched", 0o644, T1),
        b"gone": File(b"file", mtime_ns=T1),
        b"in/large": File(b"1" * 100_000, mtime_ns=T1),
        b"in": Directory(0o755, T1),
    },
    (
        Put(b"edited", File(b"two", 0o755, T2)),
        Put(b"touched", File(b"touched", 0o600, T2)),
        Remove(b"gone"),
        Put(b"in/large", File(b"2" * 90_000, mtime_ns=T2)),
        Put(b"new", Directory(0o750, T2)),
        Put(b"new/file", File(b"new", mtime_ns=T2)),
    ),
)
KILLS = {"renameat2": 40, "unlink": 30, "sync": 14, "mode": 40, "write": 60, "mkdir": 12}
"""The calls at which restores are killed, and the latest number of each."""


@dataclass(frozen=True)
class Act:
    """A restore with its recovery, and the positions in the log before and after it."""

    told: str
    began: int
    said: int
    before: Listing
    target: Listing
    after: Listing


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cuts", type=int, default=300)
    words.add_argument("--acts", type=int, default=16)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument("--few", action="store_true", help="use snapshots that differ in few plain files")
    words.add_argument(
        "--options", default="defaults", help="mount options of the file system that loses power"
    )
    asked = words.parse_args()
    in_own_mounts("tests.crash.restorecut")
    seed = asked.seed if asked.seed is not None else int(time.time())
    with tempfile.TemporaryDirectory(prefix="restorecut-") as place:
        try:
            figures, wrong = campaign(
                Path(place), asked.acts, asked.cuts, seed, asked.options, FEW if asked.few else MANY
            )
        except CannotBeHad as reason:
            print(f"cannot be had: {reason}")
            return 77
    print("| mounted with | cuts | as before | as after | continued | aborted | wrong |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    row = [figures[name] for name in ("before", "after", *ENDS)]
    print(f"| {asked.options} | {asked.cuts} | {' | '.join(map(str, row))} | {len(wrong)} |")
    print("\n".join([f"seed {seed}", *wrong]))
    return 1 if wrong else 0


def campaign(
    place: Path, acts: int, cuts: int, seed: int, options: str, world: World = MANY
) -> tuple[Counter[str], list[str]]:
    chance = random.Random(seed)
    image, log = place / "image", place / "log"
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    must("mkfs.ext4", "-q", "-F", image)
    seal(place)
    with mounted(image, place / "work", options):
        moments = prepare(make_repo(place / "work/repo"), world)
    shutil.copy(image, place / "platter")
    with on_logged_disk(image, log, place, options) as work:
        done = list(perform(Repo(work / "repo", dict(os.environ)), moments, acts, chance, log))
    return judge_cuts(place, list(read_log(log)), done, cuts, chance, options)


def judge_cuts(
    place: Path, writes: list[Write], done: list[Act], cuts: int, chance: random.Random, options: str
) -> tuple[Counter[str], list[str]]:
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    platter = Platter(place / "platter", writes)
    first = next(at for at, write in enumerate(writes) if write.end > done[0].began)
    for at in sorted(chance.randrange(first + 1, len(writes) + 1) for _ in range(cuts)):
        lucky = platter.cut(at, chance)
        subprocess.run(["cp", "--sparse=always", place / "platter", place / "cut"], check=True)
        apply(place / "cut", lucky)
        with mounted(place / "cut", place / "work", options):
            repo = Repo(place / "work/repo", dict(os.environ))
            end = chance.choice(ENDS)
            reached = writes[at - 1].end if at else 0
            wrong += [f"at {at}: {line}" for line in judge(repo, done, reached, end, figures)]
    platter.close()
    return figures, wrong


def prepare(repo: Repo, world: World = MANY) -> dict[str, Listing]:
    """Capture two snapshots; return the files of each as `find` shows them."""
    repo.git("config", "envhist.workers", "2")
    repo.write(".env.local", b"API_KEY=1234\n")
    build(world[0], repo.path)
    first, then = capture(repo, "first"), listing(repo.path, top=True)
    edit(world[1], repo.path)
    repo.write(".env.local", b"API_KEY=5678\n")
    return {first: then, capture(repo, "second"): listing(repo.path, top=True)}


def perform(
    repo: Repo, moments: dict[str, Listing], acts: int, chance: random.Random, log: Path
) -> Iterator[Act]:
    """Restore back and forth; every other restore is killed and then continued or aborted."""
    first, second = moments
    here, there = second, first
    for number in range(acts):
        os.sync()
        began = log.stat().st_size
        told, arrived = whole(repo, there, number) if number % 2 == 0 else broken_off(repo, there, chance)
        found = listing(repo.path, top=True)
        after = moments[there] if arrived else moments[here]
        assert found in (after, *(() if arrived is not None else moments.values())), told
        yield Act(told, began, log.stat().st_size, moments[here], moments[there], found)
        if found == moments[there]:
            here, there = there, here


def whole(repo: Repo, target: str, number: int) -> tuple[str, bool]:
    # The first one cannot be undone yet.
    words = ("envrestore", "--undo") if number % 8 == 4 else ("envrestore", target)
    repo.run(*words, check=True)
    return " ".join(words), True


def broken_off(repo: Repo, target: str, chance: random.Random) -> tuple[str, bool | None]:
    """Return the interrupted restore, and whether it arrived; None if unknown."""
    ends = [chance.choice(ENDS) for _ in range(chance.choice((1, 1, 2, 3)))]
    told = [killed(repo, chance, word) for word in (target, *ends[:-1])] + [ends[-1]]
    done = repo.run("envrestore", ends[-1])
    assert done.status in (0, NOTHING_LEFT), done.err
    return " ".join(told), None if done.status == NOTHING_LEFT else ends[-1] == "--continue"


def killed(repo: Repo, chance: random.Random, *words: str) -> str:
    call = chance.choice(list(KILLS))
    when = chance.randint(1, KILLS[call])
    done = repo.run("envrestore", *words, prefix=traced(call, "signal=KILL", str(when)))
    assert "Traceback" not in done.err, done.err
    return f"{' '.join(words)} killed at {call} {when};"


def judge(repo: Repo, done: list[Act], reached: int, end: str, figures: Counter[str]) -> list[str]:
    """Return the problems after a cut."""
    act = next(act for act in reversed(done) if act.began < reached)
    wrong = []
    if complaint := git_fsck(repo.path):
        wrong.append(f"fsck: {complaint}")
    age_locks(repo)
    found = listing(repo.path, top=True)
    ended = repo.run("envrestore", end)
    wrong += wrong_end(repo, act, found, ended, end, is_over=act.said <= reached)
    figures[figure(act, found, ended, end)] += 1
    wrong += wrong_afterwards(repo, act)
    return [f"{act.told} [{end}: {ended.status} {ended.err.strip()}]: {line}" for line in wrong]


def wrong_end(
    repo: Repo, act: Act, found: Listing, ended: Result, end: str, *, is_over: bool
) -> Iterator[str]:
    now = listing(repo.path, top=True)
    if ended.status == NOTHING_LEFT:
        if found not in ((act.after,) if is_over else (act.before, act.target)):
            yield f"the tree equals neither snapshot: {differences(found, act)}"
        if now != found:
            yield "nothing was to be ended, and something changed"
    elif ended.status != 0:
        yield "it cannot be ended"
    elif is_over:
        yield "the restore was reported as complete"
    elif now != (act.target if end == "--continue" else act.before):
        yield f"the restore did not reach its target: {differences(now, act)}"


def wrong_afterwards(repo: Repo, act: Act) -> Iterator[str]:
    """Check that the previous state can be restored, and that a capture needs no help."""
    if listing(repo.path, top=True) == act.target != act.before:
        back = repo.run("envrestore", "--undo")
        if back.status != 0 or listing(repo.path, top=True) != act.before:
            yield f"it cannot be undone: {back.status} {back.err}{differences(listing(repo.path), act)}"
    taken = repo.run("envlog", "capture", "--porcelain", "after the cut")
    if taken.status != 0 or taken.err:
        yield f"the next capture ended with {taken.status}: {taken.err}"
    yield from (f"left behind: {name}" for name in left_behind(repo))


def figure(act: Act, found: Listing, ended: Result, end: str) -> str:
    if ended.status != NOTHING_LEFT:
        return end
    return "before" if found == act.before else "after"


def left_behind(repo: Repo) -> list[str]:
    """Return leftovers that no command will remove: the directory of restores stays, and is empty."""
    inside = repo.path / ".git/envhist/restore"
    left = [f"envhist/restore/{name}" for name in os.listdir(inside)] if inside.is_dir() else []
    return left + [name for name in debris(repo) if name != "envhist/restore"]


def differences(found: Listing, act: Act) -> str:
    """Return the paths that are as in neither snapshot, or in which one."""
    odd = []
    for path in sorted({*found, *act.before, *act.target}):
        sides = [found.get(path) == side.get(path) for side in (act.before, act.target)]
        if not all(sides):
            odd.append(f"{path!r} {'before' if sides[0] else 'target' if sides[1] else found.get(path)}")
    return "; ".join(odd)[:2000]


if __name__ == "__main__":
    sys.exit(main())
