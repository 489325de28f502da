"""Runs a command that sees another directory at a place, as nobody else does: a program by itself, without our package.

    python -IS inside.py <place> <directory> <what is bound> <where in the directory> <words...>

It leaves the mounts of its caller, as root at once, else as the only user of a namespace of its own (the kernel's
permission for that is asked, not assumed), lays the directory over the place, goes there, and becomes the command. What
is bound, where it is not empty, is something that the place would hide. The mounts go with the last process in there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NEWNS, NEWUSER = 0x00020000, 0x10000000
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000
DIE_WITH_PARENT = 1
CANNOT = 125


def main(place: str, directory: str, bound: str, where: str, words: list[str]) -> None:
    """Become the command."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError("whoever asked is gone")
    leave_the_mounts(libc)
    mount(libc, b"none", b"/", RECURSIVE | PRIVATE)
    if bound:
        mount(libc, os.fsencode(bound), os.fsencode(os.path.join(directory, where)), BIND | RECURSIVE)
    mount(libc, os.fsencode(directory), os.fsencode(place), BIND | RECURSIVE)
    os.chdir(place)
    os.execv(words[0], words)


def leave_the_mounts(libc: ctypes.CDLL) -> None:
    """Have mounts of our own."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and libc.unshare(NEWNS) == 0:
        return
    # One user is known in there: root's other users' files would be nobody's.
    if user == 0 or libc.unshare(NEWUSER | NEWNS) != 0:
        raise failure("no mounts of our own")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")


def mount(libc: ctypes.CDLL, source: bytes, target: bytes, flags: int) -> None:
    if libc.mount(source, target, None, ctypes.c_ulong(flags), None) != 0:
        raise failure(os.fsdecode(target))


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        at, laid, what, below, *command = sys.argv[1:]
        main(at, laid, what, below, command)
    except (OSError, AttributeError) as error:
        told = str(error).encode("unicode_escape").decode("ascii")
        print(f"git-envhist: the check cannot be put in its place: {told}", file=sys.stderr)
        sys.exit(CANNOT)
