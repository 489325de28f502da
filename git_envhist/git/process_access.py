"""Decide whether a git process of another user, whose directory the system hides, can have a repository open.

The kernel shows the working directory and the environment of a process to its own user and to root. Of every process
it shows the credentials, the arguments and the mounts. From these follows which repositories the process can open:

- one that a mount of the process shows: a container without the repository's file system is elsewhere;
- one that the permissions of its directories open to the process, for reading or for writing;
- one that git agrees to open. Since 2.35.2 git refuses a repository of another owner, unless `sudo` was called by that
  owner, or `safe.directory` names it. That setting is looked for in the configuration files that can be read. It is
  assumed in a container that mounts the repository, and for a repository whose group may write.

A fact that cannot be read counts as a yes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from git_envhist.platform import PROCESSES, Mount, list_mounts, open_file_only, parent_process

DAC_OVERRIDE, DAC_READ_SEARCH = 1 << 1, 1 << 2
"""Bits of CapEff in /proc/<pid>/status: access without permission, and the same for reading only."""
READ, WRITE, SEARCH = 4, 2, 1
ACL = "system.posix_acl_access"
SYSTEM_CONFIG = "/etc/gitconfig"
USER_CONFIG = (".gitconfig", ".config/git/config")
MAX_CONFIG = 1 << 20
MAX_ANCESTORS = 100


class Access(NamedTuple):
    """Access of a process to a repository."""

    reads: bool
    writes: bool


UNKNOWN = Access(reads=True, writes=True)
NO_ACCESS = Access(reads=False, writes=False)


class Credentials(NamedTuple):
    """The part of a process's status that the kernel checks permissions against."""

    uid: int
    groups: frozenset[int]
    capabilities: int
    ranges: tuple[tuple[int, int], ...] | None
    """(first, count) of the user ids that its user namespace maps; None for all. Capabilities end there."""


def access_of(process: str, common_dir: str, processes: str = PROCESSES) -> Access:
    """Return the access that a process, given its directory in /proc, can have to a repository."""
    try:
        credentials = read_credentials(process, processes)
        mounts = list_mounts(f"{process}/mountinfo")
        ours = list_mounts(f"{processes}/self/mountinfo")
        is_trusted = _trusts(process, credentials, common_dir, processes)
    except (OSError, ValueError, IndexError):
        return UNKNOWN
    found = [
        permissions(credentials, directories)
        for directories, is_mounted_apart in _views(common_dir, mounts, ours)
        if is_trusted or is_mounted_apart
    ]
    return Access(any(one.reads for one in found), any(one.writes for one in found))


def read_credentials(process: str, processes: str = PROCESSES) -> Credentials:
    """Read them from /proc; OSError or ValueError where that fails."""
    fields = {}
    for line in _read(f"{process}/status").splitlines():
        name, _, value = line.partition(b":")
        fields[name] = value.split()
    if not {b"Uid", b"Gid", b"CapEff"} <= fields.keys():
        raise ValueError("no credentials")
    groups = (*fields.get(b"Groups", ()), fields[b"Gid"][3])
    maps = [_read(f"{place}/uid_map") for place in (process, f"{processes}/self")]
    rows = [line.split() for line in maps[0].splitlines()]
    ranges = None if maps[0] == maps[1] else tuple((int(row[1]), int(row[2])) for row in rows)
    return Credentials(
        int(fields[b"Uid"][3]), frozenset(map(int, groups)), int(fields[b"CapEff"][0], 16), ranges
    )


def permissions(credentials: Credentials, directories: list[str]) -> Access:
    """Return the access to a git directory, the first of `directories`, through those above it."""
    git_dir = directories[0]
    if not all(_may(credentials, directory, SEARCH) for directory in directories):
        return NO_ACCESS
    inside = [os.path.join(git_dir, name) for name in ("objects", "refs")]
    writes = any(_may(credentials, place, WRITE | SEARCH) for place in (git_dir, *inside))
    return Access(writes or _may(credentials, inside[0], READ | SEARCH), writes)


def runs_no_code(process: str) -> bool:
    """Return whether a process is ending: it has no memory any more, and its directory is hidden from every user."""
    try:
        return b"\nVmSize:" not in _read(f"{process}/status")
    except OSError:
        return not os.path.lexists(process)


def _may(credentials: Credentials, directory: str, wanted: int) -> bool:
    try:
        info = os.stat(directory)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if _is_capable(credentials, info.st_uid, wanted):
        return True
    if credentials.uid == info.st_uid:
        granted = info.st_mode >> 6
    elif _has_list(directory):
        # The bits of the group are the most that any entry of an access list grants.
        granted = info.st_mode >> 3 | info.st_mode
    elif info.st_gid in credentials.groups:
        granted = info.st_mode >> 3
    else:
        granted = info.st_mode
    return granted & wanted == wanted


def _is_capable(credentials: Credentials, owner: int, wanted: int) -> bool:
    ranges = credentials.ranges
    if ranges is not None and not any(first <= owner < first + count for first, count in ranges):
        return False
    if credentials.capabilities & DAC_OVERRIDE:
        return True
    return bool(credentials.capabilities & DAC_READ_SEARCH) and not wanted & WRITE


def _has_list(directory: str) -> bool:
    try:
        return ACL in os.listxattr(directory)
    except OSError:
        return False


def _views(common_dir: str, mounts: list[Mount], ours: list[Mount]) -> Iterator[tuple[list[str], bool]]:
    """Yield, for each mount that shows a repository, its directory and those above it, and whether it is another mount.

    The paths are ours: the process may know the same directories by other names.
    """
    path = os.fsencode(common_dir)
    own = max((mount for mount in ours if _holds(mount.point, path)), key=lambda mount: len(mount.point))
    inner = _join(own.root, path[len(own.point.rstrip(b"/")) :])
    above = [*_upwards(common_dir)]
    for mount in mounts:
        if mount.device == own.device and _holds(mount.root, inner):
            apart = (mount.root, mount.point) != (own.root, own.point)
            yield above[: _depth(inner) - _depth(mount.root) + 1] if apart else above, apart


def _holds(directory: bytes, path: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def _join(root: bytes, rest: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + rest.strip(b"/")


def _depth(path: bytes) -> int:
    return len([name for name in path.split(b"/") if name])


def _upwards(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == os.path.dirname(path):
            return
        path = os.path.dirname(path)


def _trusts(process: str, credentials: Credentials, common_dir: str, processes: str) -> bool:
    """Return whether git opens this repository for that user."""
    owner = os.stat(common_dir).st_uid
    if credentials.uid == owner or os.stat(os.path.join(common_dir, "objects")).st_mode & 0o022:
        return True
    if credentials.uid == 0 and _was_called_by(owner, int(os.path.basename(process)), processes):
        return True
    return any(_names_safe_directories(path) for path in (SYSTEM_CONFIG, *_user_config(credentials.uid)))


def _was_called_by(owner: int, pid: int, processes: str) -> bool:
    """Return whether a user's process is above this one, as above a command of `sudo`."""
    for _ in range(MAX_ANCESTORS):
        pid = parent_process(pid, processes)
        if pid <= 1:
            return False
        with suppress(OSError):
            if os.stat(f"{processes}/{pid}").st_uid == owner:
                return True
    return True


def _user_config(uid: int) -> list[str]:
    import pwd  # loaded late: needed only if another user's git is running

    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        return []
    return [os.path.join(home, name) for name in USER_CONFIG]


def _names_safe_directories(path: str) -> bool:
    try:
        return b"[safe" in _read(path).lower()
    except OSError:
        return False


def _read(path: str) -> bytes:
    with open(path, "rb", opener=open_file_only) as file:
        return file.read(MAX_CONFIG)
