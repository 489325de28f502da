"""Captures while snapshots are removed: `python -m tests.together.removals [--captures N]`; `--waits` measures
times.

During a thousand captures, snapshots are dropped, undropped and pruned, and unneeded objects are collected, over and
over. git runs its own maintenance (`gc --prune=now`, `repack -ad`, `maintenance run`) in a second loop. Afterwards
every snapshot that is listed or in the trash must have the bytes that were captured, and git must miss no object.

`--waits` prints how long captures take alone, during a continuous loop of `git envlog gc`, and next to a busy process
instead.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from git_envhist.api import EnvHistory
from tests.crash.campaign import sealed_repo
from tests.objects.packing import noise
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

GITS = (
    ("gc", "-q", "--prune=now"),
    ("repack", "-q", "-a", "-d"),
    ("maintenance", "run", "--quiet"),
)
OURS = ("drop", "undrop", "prune", "gc", "drop", "gc --prune=now", "fsck", "fsck --quick")
TURN = 25
"""Every this many captures, git's maintenance is switched on or off; git-envhist's own runs all the time."""
PAUSE = 0.1
FIRST = ["chrt", "-f", "10"]


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--captures", type=int, default=1000)
    words.add_argument("--waits", action="store_true")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="removals-") as place:
        repo = sealed_repo(Path(place))
        return waits(repo, asked.captures) if asked.waits else campaign(repo, asked.captures)


class Loop:
    """Call one function over and over in a thread until the block ends."""

    def __init__(self, act: Callable[[], str]) -> None:
        self.done: Counter[str] = Counter()
        self._act = act
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.done[self._act()] += 1


def campaign(repo: Repo, captures: int) -> int:
    taken: dict[str, bytes] = {}
    wrong: list[str] = []
    chance = random.Random(captures)

    def ours() -> str:
        word = chance.choice(OURS)
        done = repo.run("envlog", *_words_of(word, chance, [*taken]))
        # Dropping a snapshot twice and undropping one that is not in the trash are expected to fail.
        if done.status not in (0, 3, 4) or "Traceback" in done.err:
            wrong.append(f"{word}: {done.status}: {done.err}")
        return word if done.status == 0 else f"{word}, nothing to do"

    numbers = iter(range(10**9))

    def gits() -> str:
        if len(taken) // TURN % 2:
            # git-envhist's removal waits until no git command runs, and would hardly ever start.
            time.sleep(PAUSE)
            return "a pause"
        words = GITS[next(numbers) % len(GITS)]
        done = repo.run_git(*words, check=False)
        if done.status != 0:
            wrong.append(f"git {words[0]}: {done.status}: {done.err}")
        return f"git {words[0]}"

    begun = time.monotonic()
    with Loop(ours) as own, Loop(gits) as their:
        for number in range(captures):
            take(repo, number, taken)
    print(f"{captures} captures in {time.monotonic() - begun:.0f} s; {dict(own.done)}; {dict(their.done)}")
    wrong += judge(repo, taken)
    print("\n".join(wrong) or "nothing wrong")
    return 1 if wrong else 0


def _words_of(word: str, chance: random.Random, taken: list[str]) -> tuple[str, ...]:
    one = chance.choice(taken) if taken else "@"
    more = {"drop": (one,), "undrop": (one,), "prune": ("--keep-last=60",)}
    return (*word.split(), *more.get(word, ()))


def take(repo: Repo, number: int, taken: dict[str, bytes]) -> None:
    content = b"%d " % number * 100
    repo.write("state", content)
    repo.write("again", b"%d" % (number % 3) * 200)
    repo.write(f"d{number % 5}/large", noise(20_000, number // 10))
    # Also store the bytes as objects of the user, which git's maintenance may prune at any time.
    repo.git("hash-object", "-w", "state", "again", check=False)
    snapshot = (
        EnvHistory.open(str(repo.path), workers="here", one_command=True).capture(f"step {number}").snapshot
    )
    assert snapshot is not None
    taken[snapshot.id] = content


def judge(repo: Repo, taken: dict[str, bytes]) -> list[str]:
    wrong = [f"fsck: {complaint}"] if (complaint := git_fsck(repo.path)) else []
    repo.git("rev-list", "--objects", "--all", "--quiet")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    listed = {one.id: one.commit for one in history.log()}
    trash = {one.snapshot.id: one.snapshot.commit for one in history.dropper.trash()}
    for number, (one, content) in enumerate(taken.items()):
        commit = listed.get(one) or trash.get(one)
        if commit is None:
            wrong.append(f"step {number}, {one}, is neither listed nor in the trash")
        elif repo.run_git("show", f"{commit}:state").stdout != content:
            wrong.append(f"step {number}, {one}, contains something else")
    print(f"{len(listed)} listed, {len(trash)} in the trash")
    return wrong


def waits(repo: Repo, captures: int) -> int:
    """Time captures at real-time priority; the maintenance has it too, so other processes disturb neither."""
    for number in range(40):
        repo.write(f"d{number % 7}/f{number}", noise(100_000, number))
    print("| concurrent with | captures | median | p95 | longest |")
    print("| --- | ---: | ---: | ---: | ---: |")
    step = 0
    kinds: dict[str, Callable[[Repo], Iterator[None]]] = {
        "nothing": _nobody, "a busy process": _busy, "git envlog gc": _cleanings,
    }  # fmt: skip
    for name, beside in kinds.items():
        times = []
        with contextmanager(beside)(repo):
            for _ in range(captures):
                step += 1
                repo.write("state", b"%d " % step * 100)
                begun = time.monotonic()
                _first("git-envlog", "capture", "-m", f"{step}", repo=repo).communicate()
                times.append((time.monotonic() - begun) * 1000)
        times.sort()
        late = times[int(len(times) * 0.95)]
        print(
            f"| {name} | {captures} | {statistics.median(times):.0f} ms | {late:.0f} ms | {times[-1]:.0f} ms |"
        )
    return 0


def _first(*words: str, repo: Repo) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*FIRST, *words],
        cwd=repo.path,
        env=repo.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )


def _nobody(_: Repo) -> Iterator[None]:
    yield


def _busy(repo: Repo) -> Iterator[None]:
    yield from _beside("while :; do :; done", repo)


def _cleanings(repo: Repo) -> Iterator[None]:
    yield from _beside("while :; do git-envlog gc --prune=now; done", repo)


def _beside(script: str, repo: Repo) -> Iterator[None]:
    running = _first("sh", "-c", script, repo=repo)
    try:
        yield
    finally:
        os.killpg(running.pid, 15)
        running.wait()


if __name__ == "__main__":
    sys.exit(main())
