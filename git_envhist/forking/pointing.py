"""What of a fork names the place it was made of, and how that is rewritten.

Looked at are the files that tools keep absolute paths in: the configuration and scripts of virtual environments, the
`bin` and `.bin` of package managers, the lists of editable installations; and every link. Built trees that hold such
paths are told and left: whoever built them builds them again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from git_envhist.forking.relocation import TOO_LONG, Relocation, is_text, rewrite
from git_envhist.model import EntryKind, EnvPath, OutsideReference, PlanStep
from git_envhist.restore.hands import DiskCalls, open_directory
from git_envhist.store.git import read_all
from git_envhist.store.modules import git_directory_of, is_own
from git_envhist.store.repository import Repository
from git_envhist.system import DIRECTORY, open_itself

PROGRAM_DIRECTORIES = frozenset((b"bin", b"sbin", b"Scripts", b".bin"))
NAMES = frozenset((b"pyvenv.cfg", b"direct_url.json", b".modules.yaml"))
ENDINGS = (b".pth", b".egg-link", b".pc")
EDITABLE = b"__editable__"
BUILT = frozenset((b"CMakeCache.txt", b"build.ninja"))
LARGEST = 1 << 22
LINK, TEXT = "link", "text"
NO_GIT = (
    "the git directory of this submodule is the original's: without this file git takes it for one not set up"
)
SHARED_GIT = "it leads to a git directory that is another's: what git does here, it does there"
IS_CODE = "HEAD tracks it"
IS_BUILT = "it was built there: build it again"
TEMPORARY = b".git-envhist-link"
REGISTERED = re.compile(rb"(?:^|/)worktrees/[^/]+\Z")
"""Where a repository says which linked worktrees it has; what prunes or removes one goes by that."""


class Rewriter(NamedTuple):
    """What is to be rewritten where."""

    root: str
    moved: Relocation
    code: frozenset[bytes]


class PathReference(NamedTuple):
    """A path that may name places."""

    path: EnvPath
    is_link: bool


def paths_naming(
    places: Iterable[PathReference], own: Repository, moved: Relocation
) -> Iterator[OutsideReference]:
    """Every one of some paths that names the other place."""
    with _opened(own.root) as top:
        for path, is_link in places:
            if is_link:
                if moved.is_named_in(_read_link(top, path)):
                    yield OutsideReference(path, LINK)
            elif path.endswith(b"/.git"):
                why = _why_not_its_own(own, path, _read(top, path), moved)
                if why is not None:
                    yield OutsideReference(path, why)
            elif _may_name_places(path):
                data = _read(top, path)
                if moved.is_named_in(data if is_text(data) else _first_line(data)):
                    yield OutsideReference(path, TEXT)


def written_by(steps: Iterable[PlanStep]) -> Iterator[PathReference]:
    """The files and links that some steps brought, or brought back."""
    for step in steps:
        entries = (step.after or step.before, *step.below)
        for entry in entries if not step.realm else ():
            if entry is not None and entry.kind in (EntryKind.FILE, EntryKind.LINK):
                yield PathReference(entry.path, entry.kind is EntryKind.LINK)


def files_in(root: str) -> Iterator[PathReference]:
    """The files and links that stand in a working tree, in the order of their paths."""
    top = os.fsencode(root)
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        found: list[os.DirEntry[bytes]] = []
        # What is closed to its owner holds nothing that was brought.
        with suppress(PermissionError), os.scandir(os.path.join(top, above)) as entries:
            found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        prefix = above + b"/" if above else b""
        waiting += [prefix + entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        for entry in reversed(found):
            is_link = entry.is_symlink()
            if (is_link or entry.is_file(follow_symlinks=False)) and (above or entry.name != b".git"):
                yield PathReference(EnvPath(prefix + entry.name), is_link)


def relocate(
    rewriter: Rewriter, found: Iterable[OutsideReference]
) -> tuple[tuple[EnvPath, ...], tuple[OutsideReference, ...]]:
    """(what was rewritten, what still points back and why)"""
    done, left = [], []
    with _opened(rewriter.root) as top:
        for one in found:
            why = _why_not(one, rewriter.code)
            if why is None:
                try:
                    why = (_point_link if one.what == LINK else _rewrite_file)(top, one.path, rewriter.moved)
                except OSError as error:
                    why = (error.strerror or str(error)).lower()
            if why is None:
                done.append(one.path)
            else:
                left.append(OutsideReference(one.path, why))
    return tuple(done), tuple(left)


def _may_name_places(path: EnvPath) -> bool:
    above, _, name = path.rpartition(b"/")
    if name == b"gitdir" and REGISTERED.search(above):
        return True
    if name in NAMES or name in BUILT or name.endswith(ENDINGS) or name.startswith(EDITABLE):
        return True
    return above.rpartition(b"/")[2] in PROGRAM_DIRECTORIES


def _why_not_its_own(own: Repository, path: EnvPath, data: bytes, moved: Relocation) -> str | None:
    """Why a `.git` file, which says by a path where the git directory is, leads to none of its own.

    From a linked worktree to another one beside it such a path leads to the very same git directory, whose working tree
    is the original's: what is cleaned here is gone there.
    """
    top = os.path.realpath(os.fsencode(own.root))
    leads_to = git_directory_of(os.path.join(top, os.path.dirname(path)), data)
    if leads_to is None or _is_inside(leads_to, top) or is_own(leads_to, own.git_dir):
        return None if leads_to is None or os.path.exists(leads_to) else NO_GIT
    meant = git_directory_of(top, moved.rewritten(data)) if moved.is_named_in(data) else None
    if meant is not None and _is_inside(meant, top) and os.path.exists(meant):
        # A linked worktree of a repository that came along.
        return TEXT
    return SHARED_GIT if os.path.exists(leads_to) else NO_GIT


def _is_inside(place: bytes, top: bytes) -> bool:
    return place.startswith(top + b"/")


def _why_not(one: OutsideReference, code: frozenset[bytes]) -> str | None:
    if one.what not in (LINK, TEXT):
        return one.what
    if one.path in code:
        return IS_CODE
    return IS_BUILT if one.path.rpartition(b"/")[2] in BUILT else None


def read_file(root: str, path: EnvPath) -> bytes:
    """The bytes of a file that may name places; none where they cannot be had."""
    with _opened(root) as top:
        return _read(top, path)


def write_anew(root: str, path: EnvPath, data: bytes) -> None:
    """Let a file hold other bytes; all else about it stays."""
    with _opened(root) as top:
        _write_file(top, path, lambda _: data)


def _rewrite_file(top: int, path: EnvPath, moved: Relocation) -> str | None:
    return _write_file(top, path, lambda data: rewrite(data, moved))


def _write_file(top: int, path: EnvPath, change: Callable[[bytes], bytes | None]) -> str | None:
    """Write it anew in its place: its other names, its owner, mode and attributes stay."""
    hands = DiskCalls()
    with _inside(top, path) as (directory, name):
        descriptor = _open_file(directory, name)
        try:
            data, mode = read_all(descriptor), stat.S_IMODE(os.fstat(descriptor).st_mode)
            new = change(data)
            if new is None:
                return TOO_LONG
            hands.fchmod(descriptor, mode | stat.S_IWUSR)
            writing = open_itself(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
            try:
                hands.write(writing, new, 0)
                hands.truncate(writing, len(new))
                hands.fchmod(writing, mode)
            finally:
                os.close(writing)
        finally:
            os.close(descriptor)
    return None


def _point_link(top: int, path: EnvPath, moved: Relocation) -> str | None:
    hands = DiskCalls()
    with _inside(top, path) as (directory, name):
        before = os.fstat(directory)
        link = os.stat(name, dir_fd=directory, follow_symlinks=False)
        hands.symlink(moved.rewritten(os.readlink(name, dir_fd=directory)), directory, TEMPORARY)
        if os.geteuid() == 0:
            hands.chown(directory, TEMPORARY, link.st_uid, link.st_gid)
        hands.rename(directory, TEMPORARY, directory, name)
        hands.futime(directory, before.st_mtime_ns)
    return None


def _read(top: int, path: EnvPath) -> bytes:
    try:
        with _inside(top, path) as (directory, name):
            descriptor = _open_file(directory, name)
            try:
                small = os.fstat(descriptor).st_size <= LARGEST
                return read_all(descriptor) if small else os.read(descriptor, 4096)
            finally:
                os.close(descriptor)
    except OSError:
        return b""


def _read_link(top: int, path: EnvPath) -> bytes:
    try:
        with _inside(top, path) as (directory, name):
            return os.readlink(name, dir_fd=directory)
    except OSError:
        return b""


def _open_file(directory: int, name: bytes) -> int:
    return open_itself(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)


def _first_line(data: bytes) -> bytes:
    return data.partition(b"\n")[0] if data.startswith(b"#!") else b""


@contextmanager
def _opened(root: str) -> Iterator[int]:
    top = os.open(root, DIRECTORY)
    try:
        yield top
    finally:
        os.close(top)


@contextmanager
def _inside(top: int, path: EnvPath) -> Iterator[tuple[int, bytes]]:
    """The open directory that a path lies in, reached through no link, and its name there."""
    above, _, name = path.rpartition(b"/")
    directory = open_directory(top, above)
    try:
        yield directory, name
    finally:
        os.close(directory)
