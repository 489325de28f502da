"""Snapshots that no key here signed, put on a timeline by plain git, and judges of what a restore makes of them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.captures import capture
from tests.secrets.test_foreign_snapshots import forged, message_of, put_on_timeline
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo


@dataclass
class Stranger:
    """A repository whose timeline somebody else can write, and a bird that nobody may touch."""

    repo: Repo
    message: bytes
    tip: str
    canary: Path

    def plant(self, tree: str) -> str:
        """A snapshot of that tree, by somebody else; the timeline goes on from the same tip each time."""
        (ref,) = self.repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").split()
        self.repo.git("update-ref", ref, self.tip)
        return put_on_timeline(self.repo, self.message, tree=tree)

    def state(self) -> object:
        """The environment, and what is outside of it."""
        return listing(self.repo.path, top=True), listing(self.canary, top=True)


def make_stranger(place: Path) -> Stranger:
    repo = make_repo(place / "repo")
    first = capture(repo, "ours")
    (canary := place / "canary").mkdir()
    (canary / "bird").write_bytes(b"alive")
    return Stranger(repo, forged(message_of(repo, first)), first, canary)


def harmful(place: Path) -> list[str]:
    """What find sees below a directory that nobody's word shall bring there; and links that lead out of it."""
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
