"""Write loose objects without packs, and build timelines by git's own commands."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from git_envhist.git.process import Git
from git_envhist.model import Actor, IntentSource, ObjectId, Trigger
from git_envhist.objects.trees import object_id
from git_envhist.snapshots.message import MessageFields, write_message
from tests.support.repository import Repo

AT = datetime(2026, 11, 18, 10, 27, 3, tzinfo=UTC)
TIP = "refs/envhist/heads/laptop/app-123456"
NOTES = "refs/notes/envhist/laptop/app-123456"
IDENTITY = b"Test User <test@example.com> 1794997623 +0000"
DRAFT = MessageFields(
    intent=b"before auth refactor",
    intent_source=IntentSource.GIVEN,
    timeline="laptop/app-123456",
    trigger=Trigger.MANUAL,
    actor=Actor("Test User", "test@example.com"),
)


class LooseWriter:
    """A simple object writer that counts its objects."""

    def __init__(self, repo: Repo, object_format: str = "sha1") -> None:
        self.objects = Path(repo.git("rev-parse", "--absolute-git-dir")) / "objects"
        self.object_format = object_format
        self.added: list[bytes] = []

    def add(self, kind: bytes, data: bytes) -> ObjectId:
        oid = object_id(kind, data, self.object_format)
        place = self.objects / oid.hex()[:2] / oid.hex()[2:]
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(zlib.compress(b"%b %d\0%b" % (kind, len(data), data), 1))
        self.added.append(kind)
        return oid


def git_of(repo: Repo) -> Git:
    return Git(repo.git("rev-parse", "--absolute-git-dir"), os.fspath(repo.path))


def commit_message(
    repo: Repo,
    message: bytes,
    parent: str | None = None,
    *,
    at: str = "1794997623 +0000",
    tree: str | None = None,
) -> str:
    """Write a commit with an arbitrary message and return its hash."""
    tree = tree or repo.git("mktree")
    parents = f"parent {parent}\n" if parent else ""
    header = f"tree {tree}\n{parents}author A <a@b> 1794997623 +0000\ncommitter A <a@b> {at}\n\n"
    return repo.git(
        "hash-object", "-t", "commit", "-w", "--stdin", "--literally", input=header.encode() + message
    )


def make_chain(repo: Repo, intents: Iterable[bytes]) -> list[str]:
    """Create a timeline with these intents, oldest first, and its ref; return the commits."""
    commits: list[str] = []
    for intent in intents:
        message = write_message(replace(DRAFT, intent=intent))
        commits.append(commit_message(repo, message, commits[-1] if commits else None))
    repo.git("update-ref", TIP, commits[-1])
    return commits
