"""Write objects byte by byte, including those that git refuses to write."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path


def put_object(git_dir: Path, kind: bytes, data: bytes, object_format: str = "sha1") -> bytes:
    """Write a loose object with any content and return its raw id."""
    whole = b"%b %d\0%b" % (kind, len(data), data)
    oid = hashlib.new(object_format, whole)
    place = git_dir / "objects" / oid.hexdigest()[:2] / oid.hexdigest()[2:]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(zlib.compress(whole, 1))
    return oid.digest()


def put_tree(git_dir: Path, *entries: tuple[bytes, int, bytes], object_format: str = "sha1") -> bytes:
    """Write a tree with any modes and names, in the given order."""
    return put_object(
        git_dir,
        b"tree",
        b"".join(b"%o %b\0%b" % (mode, name, oid) for name, mode, oid in entries),
        object_format,
    )


def put_commit(git_dir: Path, tree: bytes, object_format: str = "sha1") -> str:
    """Write a commit of a tree and return its hash."""
    person = b"Test User <test@example.com> 1767323045 +0000"
    text = b"tree %b\nauthor %b\ncommitter %b\n\na snapshot\n" % (tree.hex().encode(), person, person)
    return put_object(git_dir, b"commit", text, object_format).hex()
