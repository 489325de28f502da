"""Run a command that sees another directory at a path, in a mount namespace; a program without the package.

    python -IS sandbox_exec.py <path> <directory> <source to bind> <its target in the directory> <words...>

It unshares mounts (as root, or in a user namespace with one user), binds the directory to the path, and executes the
command there. The bound source, if not empty, is something that the path would hide. The mounts end with the last
process of the namespace.
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


def main(file_path: str, directory: str, bound: str, where: str, words: list[str]) -> None:
    """Set up the mounts and execute the command."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError("the calling process has ended")
    unshare_mounts(libc)
    mount(libc, b"none", b"/", RECURSIVE | PRIVATE)
    if bound:
        mount(libc, os.fsencode(bound), os.fsencode(os.path.join(directory, where)), BIND | RECURSIVE)
    mount(libc, os.fsencode(directory), os.fsencode(file_path), BIND | RECURSIVE)
    os.chdir(file_path)
    os.execv(words[0], words)


def unshare_mounts(libc: ctypes.CDLL) -> None:
    """Unshare the mounts."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and libc.unshare(NEWNS) == 0:
        return
    # A user namespace maps one user only, so root must not use one: files of other users would be inaccessible.
    if user == 0 or libc.unshare(NEWUSER | NEWNS) != 0:
        raise failure("cannot unshare mounts")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")


def mount(libc: ctypes.CDLL, source: bytes, target: bytes, flags: int) -> None:
    if libc.mount(source, target, None, ctypes.c_ulong(flags), None) != 0:
        raise failure(os.fsdecode(target))


def write(file_path: str, text: str) -> None:
    with open(file_path, "w", encoding="ascii") as file:
        file.write(text)


def failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        at, laid, what, below, *command = sys.argv[1:]
        main(at, laid, what, below, command)
    except (OSError, AttributeError) as error:
        message = str(error).encode("unicode_escape").decode("ascii")
        print(f"git-envhist: cannot set up the sandbox: {message}", file=sys.stderr)
        sys.exit(CANNOT)
