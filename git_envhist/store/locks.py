"""Kernel locks: gone with the process that held them, whatever ended it. No file's content means anything."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from git_envhist.store.durable import cannot_write


def state_directory(path: str) -> str:
    """A private directory of ours inside the git directory, made where it is not there yet."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, path) from error
    return path


@contextmanager
def locked(path: str, *, shared: bool = False, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock; `waiting` is called once where somebody else holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot_write(error, path) from error
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked_now(path: str) -> Iterator[bool]:
    """Hold a lock if that is possible without waiting; whether it was."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
