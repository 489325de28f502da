"""A plain and slow capture: the expected git tree of a directory, made by one walk without a cache.

It shares no code with the scanner, the cache or the trees that it checks: it opens every file, hashes it completely,
and keeps a dictionary.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator

from tests.support.repository import Repo

Found = dict[bytes, tuple[str, str]]
"""Path -> git's mode, and the id of the blob."""


def plain_entries(top: str | os.PathLike[str], object_format: str = "sha1") -> Found:
    """Return every file and link below a directory, except its own `.git`."""
    root = os.fsencode(top)
    return {
        path: (mode, hashlib.new(object_format, b"blob %d\0%b" % (len(data), data)).hexdigest())
        for path, mode, data in _walk(root, b"")
    }


def stored_entries(repo: Repo, commit: str) -> Found:
    """Return every file and link of a snapshot under its true name, as plain git lists them."""
    found = {}
    for line in repo.run_git("ls-tree", "-r", "-z", "--full-tree", commit).stdout.split(b"\0")[:-1]:
        words, _, path = line.partition(b"\t")
        mode, _, oid = words.decode("ascii").split(" ")
        if not path.startswith(b".envhist/"):
            found[re.sub(rb"%([0-9a-f]{2})", lambda two: bytes.fromhex(two[1].decode()), path)] = (mode, oid)
    return found


def _walk(root: bytes, directory: bytes) -> Iterator[tuple[bytes, str, bytes]]:
    for name in os.listdir(os.path.join(root, directory)):
        path = os.path.join(directory, name)
        if path == b".git":
            continue
        full = os.path.join(root, path)
        seen = os.lstat(full)
        if stat.S_ISDIR(seen.st_mode):
            yield from _walk(root, path)
        elif stat.S_ISLNK(seen.st_mode):
            yield path, "120000", os.readlink(full)
        elif stat.S_ISREG(seen.st_mode):
            with open(full, "rb") as file:
                yield path, "100755" if seen.st_mode & 0o100 else "100644", file.read()
