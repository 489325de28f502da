"""Locks of those who go one by one: threads of a host that may be copied at any time, and its other processes."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from threading import RLock

from git_envhist.store.locks import locked, state_directory


class ThreadLock:
    """A lock between threads; whoever holds it may take it again, and a copy of the process begins without it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            # Whoever held it there has no thread here, and would hold it for ever.
            self._begin()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        # Of one that was taken before the copy was made nothing is left here.
        if self._process == os.getpid():
            self._lock.release()


class ProcessLock(ThreadLock):
    """A lock for one thread of one process; whoever holds it may take it again."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._held: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        super().__enter__()
        try:
            if not self._held:
                state_directory(self._directory)
            lock = nullcontext() if self._held else locked(os.path.join(self._directory, self._name))
            lock.__enter__()
            self._held.append(lock)
        except BaseException:
            super().__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._process != os.getpid():
            return
        try:
            self._held.pop().__exit__(None, None, None)
        finally:
            super().__exit__()
