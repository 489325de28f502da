"""Write git objects without a git process, thousands in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.objects.objects_by_hand import put_object
from tests.support.repository import Repo

Row = tuple[str, str, str]
"""Mode as git stores it (`40000`, not `040000`), name, and id of an entry of a tree."""

IDENTITY = "Test User <test@example.com> 1767323045 +0000"


def write_object(repo: Repo, kind: str, data: bytes, object_format: str = "sha1") -> str:
    """Write a loose object unchecked, as `git hash-object --literally -w` does, and return its id."""
    return put_object(_git_dir(repo), kind.encode(), data, object_format).hex()


def write_blob(repo: Repo, data: bytes, object_format: str = "sha1") -> str:
    """Write a blob and return its id."""
    return write_object(repo, "blob", data, object_format)


def write_tree(repo: Repo, rows: Sequence[Row], object_format: str = "sha1") -> str:
    """Write a tree with its rows in the given order, and return its id."""
    data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(oid) for mode, name, oid in rows)
    return write_object(repo, "tree", data, object_format)


def write_commit(
    repo: Repo, tree: str, message: str | bytes, parents: Sequence[str] = (), object_format: str = "sha1"
) -> str:
    """Write a commit by the test user and return its id."""
    header = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    header += [f"author {IDENTITY}", f"committer {IDENTITY}"]
    text = message.encode() if isinstance(message, str) else message
    return write_object(repo, "commit", "\n".join(header).encode() + b"\n\n" + text, object_format)


def _git_dir(repo: Repo) -> Path:
    inside = repo.path / ".git"
    return inside if inside.is_dir() else repo.path
