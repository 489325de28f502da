"""Concurrent changes during restores: every file is in the tree, in a snapshot, or reported with its path.

`python -m tests.crash.concurrent [minutes] [seed]` runs it for long, with another adversary per seed.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.adversary import A_TURN, content
from tests.crash.campaign import sealed_repo
from tests.crash.restorecut import ENDS
from tests.end_to_end.captures import capture
from tests.support.oracle import git_fsck
from tests.support.programs import CHECKOUT
from tests.support.repository import Repo, Result
from tests.support.trees import Directory, File, Link, Tree, build

SLOW = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2,unlinkat",
        "-e", "inject=renameat2,unlinkat:delay_enter=6ms:delay_exit=1ms")  # fmt: skip
"""Slows the restore down; without it, everything is swapped before a check."""


def environment(word: str) -> Tree:
    tree: Tree = {b"d%d/f%d" % (n % 4, n): File(content(word, n)) for n in range(24)}
    tree |= {b"%b/only/deep/f%d" % (word.encode(), n): File(content(word, 100 + n)) for n in range(6)}
    return {**tree, b"%b/empty" % word.encode(): Directory(), b"link": Link(word.encode())}


class Desk:
    """A tree that is restored while another process changes it."""

    def __init__(self, repo: Repo, outside: Path) -> None:
        self.repo, self.outside = repo, outside
        outside.mkdir()
        build(environment("first"), repo.path)
        self.first = capture(repo, "first")
        for name in ("first", "link"):
            subprocess.run(["rm", "-r", str(repo.path / name)], check=True)
        build(environment("other"), repo.path)
        self.written = {
            content(word, n) for word in ("first", "other") for n in (*range(24), *range(100, 106))
        }

    def restore_beside_somebody(self, seed: int) -> Result:
        words = [
            sys.executable,
            "-m",
            "tests.crash.adversary",
            str(self.repo.path),
            str(self.outside),
            str(seed),
        ]
        somebody = subprocess.Popen(words, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert somebody.stdout is not None
            assert somebody.stdout.readline() == b"ready\n"
            return self.repo.run("envrestore", self.first, prefix=SLOW)
        finally:
            somebody.communicate()

    def lost(self) -> list[bytes]:
        """Return the contents that were written, not overwritten, and no longer exist anywhere."""
        stored = self._stored()
        wanted = self.written | self._noted("written")
        wanted -= self._noted("overwritten") | self._found(self.repo.path) | self._found(self.outside)
        wanted -= {path.read_bytes() for path in self.kept()}
        return sorted(data for data in wanted if _blob(data) not in stored)

    def untold(self, said: str) -> list[str]:
        """Return the kept files that were not reported."""
        tops = self.repo.path.glob(".git/envhist/restore/realm-/kept/*")
        return [str(path) for path in tops if str(path) not in said]

    def kept(self) -> list[Path]:
        return [
            path for path in self.repo.path.glob(".git/envhist/restore/realm-/kept/**/*") if path.is_file()
        ]

    def _noted(self, name: str) -> set[bytes]:
        place = self.outside / name
        return set(place.read_bytes().split(b"\n")) - {b""} if place.exists() else set()

    def _found(self, place: Path) -> set[bytes]:
        words = ["find", str(place), "-name", ".git", "-prune", "-o", "-type", "f", "-print0"]
        listed = subprocess.run(words, capture_output=True, check=True).stdout.split(b"\0")[:-1]
        return {Path(os.fsdecode(path)).read_bytes() for path in listed}

    def _stored(self) -> set[str]:
        listed = self.repo.git("rev-list", "--objects", "--all").splitlines()
        return {line.partition(" ")[0] for line in listed}


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


REFUSED, TRIES = 3, 6
"""A restore is refused if a file disappears while it is saved; the user would try again."""


def work_and_restore(desk: Desk, seed: int) -> tuple[int, list[str]]:
    """Run one restore; return its result and the problems."""
    for turn in range(TRIES):
        done = desk.restore_beside_somebody(seed + A_TURN * turn)
        if done.status != REFUSED:
            break
    wrong = [f"lost: {data!r}" for data in desk.lost()]
    wrong += [f"untold: {path} in {done.err}" for path in desk.untold(done.err)]
    if done.status not in (0, 3, 5, 128) or "Traceback" in done.err:
        wrong.append(f"ended with {done.status}: {done.err}")
    if desk.untold("") and done.status != 5:
        wrong.append(f"something is kept, and it ended with {done.status}")
    if (desk.repo.path / ".git/envhist/restore/journal").exists():
        ended = desk.repo.run("envrestore", random.Random(seed).choice(ENDS))
        wrong += [f"lost at the end: {data!r}" for data in desk.lost()]
        wrong += [f"cannot be ended: {ended.err}"] if ended.status not in (0, 5) else []
    if complaint := git_fsck(desk.repo.path):
        wrong.append(complaint)
    return done.status, wrong


def main(minutes: float, seed: int) -> int:
    until = time.monotonic() + minutes * 60
    statuses: dict[int, int] = {}
    failures = written = 0
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="beside-") as place:
            desk = Desk(sealed_repo(Path(place)), Path(place) / "outside")
            status, wrong = work_and_restore(desk, seed)
            statuses[status] = statuses.get(status, 0) + 1
            written += (desk.outside / "written").read_bytes().count(b"\n")
            failures += bool(wrong)
            print("\n".join(f"seed {seed}: {line}" for line in wrong), end="\n" if wrong else "", flush=True)
        seed += 1
    told = ", ".join(f"{count} with {status}" for status, count in sorted(statuses.items()))
    print(f"{sum(statuses.values())} restores ({told}) during {written} writes, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    numbers = [*map(float, sys.argv[1:]), 1, 1][:2]
    sys.exit(main(numbers[0], int(numbers[1])))
