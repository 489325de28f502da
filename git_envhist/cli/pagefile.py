"""Puts a page in its place: written beside, synced, renamed; what a killed run left beside is swept by the next."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress

from git_envhist.store.durable import cannot_write, remove_if_present, sync, write_all
from git_envhist.system import SYSTEM, open_itself

BESIDE = "{}.{}.new"
"""The page, and who writes it."""


def put_page(file: str, data: bytes) -> None:
    """Whoever has the old page open sees it whole until the new one is; its mode stays what somebody made it."""
    whole = os.path.realpath(file)
    try:
        # A device or a pipe is written to, and stays what it is.
        if os.path.lexists(whole) and not os.path.isfile(whole):
            _write_through(whole, data)
        else:
            _sweep(whole)
            _replace(whole, data)
    except OSError as error:
        raise cannot_write(error, file) from error


def _write_through(place: str, data: bytes) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _replace(whole: str, data: bytes) -> None:
    beside = BESIDE.format(whole, os.getpid())
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        # Held until the end: by it another run knows that somebody is still at it.
        if SYSTEM.flock:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(os.stat(whole).st_mode))
        write_all(descriptor, data, 0)
        # Else a power cut could leave an empty file in the place of the old page.
        sync(descriptor)
        os.replace(beside, whole)
    except BaseException:
        remove_if_present(beside)
        raise
    finally:
        os.close(descriptor)


def _sweep(whole: str) -> None:
    """Take away what runs that were killed left beside this page: what bears our name, and is at nobody's hands."""
    if not SYSTEM.flock:
        return
    directory, name = os.path.split(whole)
    ours = re.compile(re.escape(name) + r"\.([0-9]+)\.new")
    with suppress(OSError):
        found = [(one, match[1]) for one in os.listdir(directory) if (match := ours.fullmatch(one))]
        for one in [one for one, process in found if not _lives(int(process))]:
            # One that is not ours to take stays, and keeps none of the others: a page can be drawn all the same.
            with suppress(OSError):
                _take_away(os.path.join(directory, one))


def _take_away(path: str) -> None:
    descriptor = open_itself(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # In another container the process that writes it has a number that is nobody's here.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            remove_if_present(path)
    finally:
        os.close(descriptor)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
