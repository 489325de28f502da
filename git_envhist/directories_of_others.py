"""Keep root from writing where another account decides what a path means.

With `sudo -E`, or after `su`, `HOME` or an XDG variable can lead to directories of another account. A symbolic link
there, or a directory that is exchanged for one, would make root write to any place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque

from git_envhist.errors import Refused

EVERY_ACCOUNT = [b"0", b"0", b"4294967295"]
"""The map of accounts of a process that is in no user namespace."""
MAX_LINKS = 40
"""The limit of Linux for links in one path."""
HINT = "run the command as that account, or with HOME and the XDG directories of root: sudo -H"


class OthersDirectory(Refused):
    """Another account could redirect what root writes below a path."""

    code = "not-yours"
    usual_hint = HINT


def refuse_others_directory(path: str) -> None:
    """Raise `OthersDirectory` if this process is root and another account could redirect a write below a path."""
    found = others_component(path)
    if found is not None:
        raise OthersDirectory(f"root does not write through '{found}', which another account controls")


def require_own(path: str) -> None:
    """Raise PermissionError where `refuse_others_directory` raises, for callers that report errors of the system."""
    found = others_component(path)
    if found is not None:
        raise PermissionError(errno.EPERM, "another account controls this path", found)


def others_component(path: str) -> str | None:
    """Return the first component of a path that another account can exchange, if this process is root."""
    if os.geteuid() != 0:
        return None
    own = _own_accounts()
    todo, place, links = deque(_names(_absolute(path))), "/", 0
    while True:
        try:
            status = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if status.st_uid not in own or _is_writable_by_others(status):
            return place
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(place)
            todo.extendleft(reversed(_names(target)))
            place = "/" if target.startswith("/") else os.path.dirname(place)
            continue
        if not todo:
            return None
        name = todo.popleft()
        place = os.path.dirname(place) if name == os.pardir else os.path.join(place, name)


def is_trusted_owner(owner: int) -> bool:
    """Return whether this process may obey a file of this owner: root obeys root alone."""
    return os.geteuid() != 0 or owner in _own_accounts()


def make_directories(path: str, mode: int = 0o700) -> None:
    """Create a directory of the user and its missing parents.

    Raise `OthersDirectory` as `refuse_others_directory` does, also for a directory that another account creates
    meanwhile.
    """
    refuse_others_directory(path)
    os.makedirs(path, mode=mode, exist_ok=True)
    refuse_others_directory(path)


def _own_accounts() -> frozenset[int]:
    """Return the accounts that root trusts: itself and, in a user namespace, every account outside of it.

    An ordinary user becomes root in a namespace, e.g. of a sandbox or a container without privileges. Files of all
    accounts outside of it, the system's included, have the overflow id there, and this root may write what that user
    may write.
    """
    try:
        with open("/proc/self/uid_map", "rb") as file:
            if file.read().split() == EVERY_ACCOUNT:
                return frozenset((0,))
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return frozenset((0, int(file.read())))
    except (OSError, ValueError):
        return frozenset((0,))


def _absolute(path: str) -> str:
    """Return an absolute path; `..` after a link leads to the parent of its target, so it stays."""
    return path if path.startswith("/") else os.path.join(os.getcwd(), path)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", os.curdir)]


def _is_writable_by_others(status: os.stat_result) -> bool:
    writable = bool(status.st_mode & stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(status.st_mode) and writable
