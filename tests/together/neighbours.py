"""Git commands that run next to captures: all that rewrite packs, refs and caches, and a person's everyday commands.

Each neighbour runs its commands in turn, over and over, and records failures. One neighbour alone is a user at one
terminal: no command may fail because of a capture. Several neighbours disturb each other even without captures (a
`gc` prunes objects that a running `commit` has not referenced yet), so `tests.together.campaign` also counts failures
without a capture.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.repository import Repo

Words = tuple[str, ...]

CLEANING: tuple[Words, ...] = (
    ("gc", "-q", "--prune=now"),
    ("repack", "-q", "-a", "-d"),
    ("multi-pack-index", "write"),
    ("multi-pack-index", "repack", "--batch-size=0"),
    ("multi-pack-index", "expire"),
    ("maintenance", "run", "--quiet", "--task=loose-objects", "--task=incremental-repack", "--task=commit-graph"),
    ("prune", "--expire=now"),
    ("pack-refs", "--all", "--prune"),
    ("commit-graph", "write", "--reachable", "--split"),
    ("repack", "-q", "-A", "-d", "--write-midx"),
    ("maintenance", "run", "--quiet", "--task=gc"),
    ("multi-pack-index", "write"),
    ("multi-pack-index", "verify"),
    ("repack", "-q", "-d", "--geometric=2"),
    ("commit-graph", "write", "--reachable"),
    ("envlog", "gc", "--prune=now"),
)  # fmt: skip
LOOKING: tuple[Words, ...] = (
    ("status", "--porcelain"),
    ("log", "--all", "--format=%h", "--stat"),
    ("rev-list", "--all", "--objects", "--quiet"),
    ("fsck", "--full", "--strict", "--no-dangling", "--no-progress"),
    ("count-objects", "-v"),
    ("bundle", "create", "-q", "../all.bundle", "--all"),
    ("clone", "-q", "--mirror", "--no-local", ".", "../mirror"),
)
WORKING: tuple[Words, ...] = (
    ("add", "-A"),
    ("commit", "-q", "--allow-empty", "-m", "work"),
    ("commit", "-q", "--allow-empty", "--amend", "-m", "better work"),
    ("rebase", "-q", "--force-rebase", "--keep-empty", "HEAD~1"),
    ("stash", "-q"),
    ("push", "-q", "-f", "../upstream.git", "main"),
    ("fetch", "-q", "../upstream.git", "main"),
)


@dataclass(frozen=True)
class Failure:
    """A git command that failed, and its error output."""

    words: Words
    status: int
    said: str

    def __str__(self) -> str:
        return f"git {' '.join(self.words)}: {self.status}: {self.said}"


@dataclass
class Neighbour:
    """A user at another terminal of the same repository."""

    repo: Repo
    commands: Sequence[Words]
    runs: Counter[Words] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def work(self, until: threading.Event) -> None:
        """Run the commands over and over, each at least once."""
        while True:
            for words in self.commands:
                if until.is_set() and self.runs[words]:
                    return
                self._run(words)

    def _run(self, words: Words) -> None:
        if words == WORKING[0]:
            self.repo.write("code/main.py", f"step = {self.runs[words]}\n")
        if words[0] == "clone":
            subprocess.run(["rm", "-rf", str(self.repo.path / words[-1])], check=True)
        done = self.repo.run_git(*words, check=False)
        self.runs[words] += 1
        if done.status != 0:
            self.failures.append(Failure(words, done.status, done.err.strip()))


@contextmanager
def beside(neighbours: Sequence[Neighbour]) -> Iterator[None]:
    """Run all neighbours until the block ends."""
    over = threading.Event()
    threads = [threading.Thread(target=neighbour.work, args=(over,)) for neighbour in neighbours]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def one_person(repo: Repo) -> list[Neighbour]:
    """Return one neighbour: a terminal where one command follows another."""
    mixed: list[Words] = []
    for number, words in enumerate(CLEANING):
        mixed += [words, LOOKING[number % len(LOOKING)], *WORKING]
    return [Neighbour(repo, mixed)]


def a_crowd(repo: Repo) -> list[Neighbour]:
    """Return three neighbours: maintenance that prunes only objects older than an hour, reading commands, and
    changes."""
    gently = [tuple(word.replace("=now", "=1.hour.ago") for word in words) for words in CLEANING]
    return [Neighbour(repo, commands) for commands in (gently, LOOKING, WORKING)]


def upstream(repo: Repo) -> None:
    """Make a repository to push to and to fetch from."""
    repo.write(".gitignore", "/env/\n")
    repo.write("code/main.py", "step = 0\n")
    repo.commit("code")
    repo.commit("more code")
    repo.git("clone", "-q", "--bare", ".", "../upstream.git")
