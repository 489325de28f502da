"""Unsigned snapshots, written to a timeline without git-envhist, and checks of restored files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.captures import capture
from tests.objects.objects_by_hand import put_object
from tests.secrets.test_unsigned_snapshots import forged, message_of, ref_of
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

MALLORY = b"Mallory <mallory@example.com> 1767323045 +0000"


@dataclass
class Stranger:
    """A repository with a timeline that another user can write, and a canary file that must not change."""

    repo: Repo
    message: bytes
    ref: str
    tip: str
    canary: Path

    def plant(self, tree: str) -> str:
        """Replace the timeline's tip by an unsigned commit of this tree; return its hash."""
        git_dir = self.repo.path / ".git"
        text = b"tree %b\nparent %b\n" % (tree.encode(), self.tip.encode())
        text += b"author %b\ncommitter %b\n\n%b" % (MALLORY, MALLORY, self.message)
        commit = put_object(git_dir, b"commit", text).hex()
        (git_dir / self.ref).write_text(commit + "\n")
        return commit

    def state(self) -> object:
        """Return the environment and the canary directory as find and sha256sum show them."""
        return listing(self.repo.path, top=True), listing(self.canary, top=True)

    def stamps(self) -> dict[str, tuple[int, ...]]:
        """Return inode and times of every path outside `.git`: any write changes one of them."""
        return {
            path: (found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode)
            for top in (self.repo.path, self.canary)
            for path, found in _walk(str(top))
        }


def _walk(place: str) -> Iterator[tuple[str, os.stat_result]]:
    yield place, os.lstat(place)
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                yield from _walk(entry.path)
            elif entry.name != ".git":
                yield entry.path, entry.stat(follow_symlinks=False)


def make_stranger(place: Path) -> Stranger:
    repo = make_repo(place / "repo")
    first = capture(repo, "ours")
    (canary := place / "canary").mkdir()
    (canary / "bird").write_bytes(b"alive")
    return Stranger(repo, forged(message_of(repo, first)), ref_of(repo), first, canary)


def harmful(place: Path) -> list[str]:
    """Return files that an unsigned snapshot must not write, and links that lead outside."""
    if not place.exists():
        return []
    words = (
        "(",
        "!",
        "-type",
        "l",
        "-perm",
        "/7002",
        ")",
        "-o",
        "-type",
        "b",
        "-o",
        "-type",
        "c",
        "-o",
        "-type",
        "s",
    )
    found = subprocess.run(
        ["find", place, *words, "-o", "!", "-uid", str(os.geteuid())], capture_output=True, check=True
    )
    top = os.path.realpath(os.fsencode(place))
    links = subprocess.run(["find", place, "-type", "l", "-print0"], capture_output=True, check=True).stdout
    out = [
        link for link in links.split(b"\0")[:-1]
        if os.readlink(link).startswith(b"/") or not (os.path.realpath(link) + b"/").startswith(top + b"/")
    ]  # fmt: skip
    return [os.fsdecode(path) for path in (*found.stdout.splitlines(), *out)]
