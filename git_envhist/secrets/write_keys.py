"""Write key files: atomically, durably, readable by their owner only, under a lock per directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from git_envhist.directories_of_others import require_own
from git_envhist.disk import Durability, make_private_directory, replace_file, sync_directory
from git_envhist.locks import lock_file
from git_envhist.platform import guarded_open
from git_envhist.secrets.keys import KeyDirectory

NEW = ".new-"
"""Prefix of the temporary files of `replace_file`."""
LOCK = "lock"
STALE_SECONDS = 3600


def write_key_file(place: KeyDirectory, name: str, content: bytes) -> None:
    """Write a file of a directory of keys, and create the directory if it does not exist."""
    if place.is_users:
        require_own(place.directory)
    make_private_directory(place.directory)
    place.make_private()
    # The directories may be as new as the file: each has an entry in its parent.
    parent = os.path.dirname(place.directory)
    for directory in (parent, os.path.dirname(parent)):
        sync_directory(directory)
    _sweep(place)
    replace_file(place.path(name), content, durability=Durability.FULL, unique=True)


@contextmanager
def lock_keys(place: KeyDirectory) -> Iterator[None]:
    """Lock a directory of keys; run without a lock if its file cannot be created, which storing a key will report."""
    try:
        make_private_directory(place.directory)
        descriptor = guarded_open(place.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        lock_file(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(place: KeyDirectory) -> None:
    # The temporary file of a killed writer contains a whole secret. A younger one may belong to a living writer.
    for name in os.listdir(place.directory):
        if name.startswith(NEW):
            path = place.path(name)
            try:
                if os.stat(path).st_mtime < time.time() - STALE_SECONDS:
                    os.unlink(path)
            except OSError:
                continue
