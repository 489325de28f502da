"""Real mounts in a mount namespace that ends with the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.oracle import Listing, listing
from tests.support.programs import CHECKOUT
from tests.support.repository import Repo, Result

HOLD = ("sh", "-c", "echo held; read _")
"""Keeps the namespace until standard input is closed, so that it ends even if the tests are killed."""
IN_PLACE = ("sh", "-c", 'cd "$0" && exec "$@"')


@dataclass
class Room:
    """A mount namespace; its processes see its mounts, and other processes see them below `seen`."""

    holder: subprocess.Popen[bytes]
    helpers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def inside(self, directory: Path) -> tuple[str, ...]:
        """Return the words before a command that runs it in the namespace."""
        spaces = f"/proc/{self.holder.pid}/ns"
        users = () if os.geteuid() == 0 else (f"--user={spaces}/user", "--preserve-credentials")
        return ("nsenter", *users, f"--mount={spaces}/mnt", "--", *IN_PLACE, str(directory))

    def run(self, *words: str | Path, check: bool = True) -> Result:
        """Run a command as the namespace's root."""
        command = [*self.inside(Path("/")), *map(str, words)]
        done = subprocess.run(command, capture_output=True, check=False)
        if check and done.returncode != 0:
            pytest.skip(f"cannot be done here: {' '.join(map(str, words))}: {done.stderr.decode().strip()}")
        return Result(done.returncode, done.stdout, done.stderr)

    def mount(self, *words: str | Path) -> None:
        """Run `mount` with these words; skip the test if the machine refuses it."""
        self.run("mount", *words)

    def umount(self, place: Path) -> None:
        self.run("umount", place)

    def serve(self, manner: str, source: Path, place: Path) -> None:
        """Mount one of the file systems of `fuse`."""
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            pytest.skip("/dev/fuse is not there, or closed")
        words = [*self.inside(CHECKOUT), sys.executable, "-m", "tests.support.fuse", manner]
        server = subprocess.Popen(
            [*words, str(source), str(place)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.helpers.append(server)
        assert server.stdout is not None
        if server.stdout.readline() != b"ready\n":
            pytest.skip(f"a file system cannot be served here: {server.communicate()[1].decode()[-300:]}")

    def seen(self, path: Path) -> Path:
        """Return the path by which other processes see a path of the namespace."""
        return Path(f"/proc/{self.holder.pid}/root{path}")

    def listing(self, path: Path) -> Listing:
        """Return the oracle's listing of a path, with owners as in the namespace."""
        found = listing(self.seen(path), top=True)
        if os.geteuid() == 0:
            return found
        return {name: replace(entry, uid=0, gid=0) for name, entry in found.items()}

    def capture(self, repo: Repo, *words: str, check: bool = True) -> Result:
        """Take a snapshot in the namespace."""
        # Use a timeout, so that a hanging capture fails the test and does not block the suite.
        prefix = (*self.inside(repo.path), "timeout", "--kill-after=5", "120")
        return repo.run("envlog", "capture", "--porcelain", *words, prefix=prefix, check=check)


@contextmanager
def private_mounts() -> Iterator[Room]:
    """Make a private mount namespace: root's, or an ordinary user's if the system allows it."""
    users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    holder = subprocess.Popen(
        ["unshare", *users, "--mount", "--propagation=private", *HOLD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    room = Room(holder)
    try:
        if holder.stdout.readline() != b"held\n":
            pytest.skip("mount namespaces could not be set")
        yield room
    finally:
        for helper in room.helpers:
            helper.kill()
            helper.communicate()
        holder.communicate()
