"""Something is waited for while something else is done: by a thread that does nothing but wait in the kernel."""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background_thread(wait: Callable[[], None]) -> Iterator[None]:
    """Wait while the body runs; what failed of the waiting is raised behind it. The body must start no process of
    ours: a copy would not have the thread."""
    ended, failed = allocate_lock(), list[BaseException]()
    ended.acquire()

    def run() -> None:
        try:
            wait()
        except BaseException as error:  # whatever it is, it is raised where it is waited for
            failed.append(error)
        finally:
            ended.release()

    try:
        start_new_thread(run, ())
    except RuntimeError:  # the system has no more, or the interpreter ends
        run()
    try:
        yield
    finally:
        ended.acquire()
    if failed:
        raise failed[0]
