"""What of a fork names the place it was made of, and how that is rewritten.

Looked at are the files that tools keep absolute paths in: the configuration and scripts of virtual environments, the
`bin` and `.bin` of package managers, the lists of editable installations; and every link. Built trees that hold such
paths are told and left: whoever built them builds them again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote

from git_envhist.capture.pipeline import CapturePipeline
from git_envhist.config import read_settings
from git_envhist.discovery import homes_of, open_plain
from git_envhist.errors import EnvhistError, Refused
from git_envhist.git.process import clean_environment, read_all
from git_envhist.git.refs import git_directory_of, is_own
from git_envhist.git.repository import Repository
from git_envhist.model import EntryKind, EnvPath, OutsideReference, PlanStep, RestoreResult, Snapshot
from git_envhist.platform import DIRECTORY, open_itself
from git_envhist.restore.fs import DiskCalls, open_directory
from git_envhist.restore.planning import tracked
from git_envhist.worktree.timeline_name import current_timeline

# Which places a fork may point back to: where the moment was taken, and where the first of these trees stands.

WORKTREE = b"worktree "


def origins_of(source: CapturePipeline, timeline: str, fork: Repository) -> tuple[str, ...]:
    """The working tree at hand, the first one of its repository, and the one that a timeline belongs to."""
    trees = [tree for tree in _trees(source) if tree.root != fork.root]
    first = [tree.root for tree in trees if tree.git_dir == tree.common_dir]
    taken = [tree.root for tree in trees if current_timeline(tree, read_settings(())) == timeline]
    return tuple(dict.fromkeys((source.repository.root, *first, *taken)))


def place_of(source: CapturePipeline, timeline: str) -> str | None:
    """Where the working tree of a timeline stands; None where there is none any more."""
    trees = _trees(source)
    return next((one.root for one in trees if current_timeline(one, read_settings(())) == timeline), None)


def _trees(source: CapturePipeline) -> list[Repository]:
    repository = source.repository
    if repository.plain:
        homes = [home for home in homes_of(source.environ).all() if home.repository == repository.common_dir]
        return [open_plain(home, home.path) for home in homes]
    listed = repository.git.run("worktree", "list", "--porcelain").split(b"\n")
    roots = [line[len(WORKTREE) :] for line in listed if line.startswith(WORKTREE)]
    return [tree for root in roots if (tree := _open(os.fsdecode(root))) is not None]


def _open(root: str) -> Repository | None:
    try:
        return Repository.open(root, clean_environment())
    except EnvhistError:
        # It is gone, or not ours to read.
        return None


# How a file that names one place is made to name another (pure).
#
# A place is named where nothing that could be part of a longer name stands on either side of it: `/srv/app` is not
# named by `/srv/app-2`, nor by `/old/srv/app`.

SPELLED = re.compile(r"[A-Za-z0-9_./+=@:,-]+")
NAME = rb"[\w.+@~%\x80-\xff-]"
MAX_FIRST_LINE = 127
"""What every Linux reads of the line that names an interpreter; newer ones read 255."""
PYTHON = re.compile(rb"#!(\S*/(?:python|pypy)[\w.]*)(?:[ \t]+(\S.*?))?[ \t]*\r?$")
TOO_LONG = "its first line would be too long for the system"


class Relocation(NamedTuple):
    """From some places to one."""

    pattern: re.Pattern[bytes]
    to: bytes

    @classmethod
    def between(cls, origins: Sequence[str], to: str) -> Relocation:
        """The longest of the places is looked for first: one may stand inside another."""
        spellings = {spelling for place in origins for spelling in _spellings(place)}
        words = b"|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True))
        pattern = re.compile(rb"(?<!" + NAME + rb")(?:" + words + rb")(?!" + NAME + rb")")
        return cls(pattern, b"" + to.encode("utf-8", "surrogateescape"))

    def is_named_in(self, data: bytes) -> bool:
        return self.pattern.search(data) is not None

    def rewritten(self, data: bytes) -> bytes:
        return self.pattern.sub(lambda _: self.to, data)


def is_shell_safe(place: str) -> bool:
    """Whether a place can stand in scripts and first lines as it is, without quotes."""
    return SPELLED.fullmatch(place) is not None


def is_text(data: bytes) -> bool:
    return b"\0" not in data


def rewrite(data: bytes, moved: Relocation) -> bytes | None:
    """A file that names the other place; None where its first line would be too long. Of a binary file the first line
    alone is rewritten."""
    line, newline, rest = data.partition(b"\n")
    if is_text(data):
        rest = moved.rewritten(rest)
    if not data.startswith(b"#!"):
        return moved.rewritten(line) + newline + rest if is_text(data) else data
    first = moved.rewritten(line)
    if first != line and len(first) > MAX_FIRST_LINE:
        by_shell = _by_shell(first)
        if by_shell is None:
            return None
        first = by_shell
    return first + newline + rest


def _by_shell(line: bytes) -> bytes | None:
    """Two lines that are shell to a shell, which runs Python, and a string to Python."""
    told = PYTHON.fullmatch(line)
    if told is None:
        return None
    words = b" ".join((told[1], *([told[2]] if told[2] else [])))
    return b"#!/bin/sh\n'''exec' " + words + b' "$0" "$@"\n' + b"' '''"


def _spellings(place: str) -> set[bytes]:
    """As it stands in paths, and in the addresses of files."""
    return {place.encode("utf-8", "surrogateescape"), quote(place, errors="surrogateescape").encode("ascii")}


PROGRAM_DIRECTORIES = frozenset((b"bin", b"sbin", b"Scripts", b".bin"))
NAMES = frozenset((b"pyvenv.cfg", b"direct_url.json", b".modules.yaml"))
ENDINGS = (b".pth", b".egg-link", b".pc")
EDITABLE = b"__editable__"
BUILT = frozenset((b"CMakeCache.txt", b"build.ninja"))
MAX_SIZE = 1 << 22
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
        for entry in entries if not step.root else ():
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
                small = os.fstat(descriptor).st_size <= MAX_SIZE
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


# What is to be said where a restore brought what another working tree had, e.g. the better of two forks.

AS_TOLD = "?"
ACTIVATE = b"/bin/activate"
NAMED = re.compile(rb"^\s*VIRTUAL_ENV=(/[^\n]+|'/[^'\n]+'|\"/[^\"\n]+\")\s*$", re.MULTILINE)
FIRST_PATHS = 3
AGAIN = "git envrestore --undo, and again with --relocate"
NOTHING_CAME = f"nothing came, so nothing was rewritten; where what came before names another place: {AGAIN}"
NAMING = (LINK, TEXT)


def warn_of_foreign_paths(source: CapturePipeline, restored: RestoreResult, *, asked: bool) -> str | None:
    """A word about the paths that came and name the place where they were changed; None where there are none.

    `asked`: they were to be rewritten, which they are as they come."""
    timeline, own = restored.target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return None
    if restored.moment is None:
        return NOTHING_CAME if asked and not restored.plan.steps else None
    root = place_of(source, timeline) or original_path(own, restored.plan.steps)
    if root is None or root == own:
        return None
    moved = Relocation.between([root], own)
    found = [
        one.path
        for one in paths_naming(written_by(restored.plan.steps), source.repository, moved)
        if one.what in NAMING
    ]
    if not found:
        return None
    first = ", ".join(f"'{os.fsdecode(path)}'" for path in found[:FIRST_PATHS])
    more = f" and {len(found) - FIRST_PATHS:,} more" if len(found) > FIRST_PATHS else ""
    advice = "" if restored.relocated else f"; to have it rewritten: {AGAIN}"
    return f"what came with this still names '{root}': {first}{more}{advice}"


def original_path(root: str, steps: Iterable[PlanStep]) -> str | None:
    """Where what came stood, as its virtual environments say; None where none does, or where they disagree."""
    told = {_stood_at(root, path) for path, _ in written_by(steps) if path.endswith(ACTIVATE)} - {None}
    return told.pop() if len(told) == 1 else None


def _stood_at(root: str, activate: EnvPath) -> str | None:
    """From the script that makes an environment the current one: the place it names, less the way to it from there."""
    found = NAMED.search(read_file(root, activate))
    place = found[1].strip(b"'\"") if found is not None else b""
    below = b"/" + activate.removesuffix(ACTIVATE)
    return (
        os.fsdecode(place.removesuffix(below)) if place.endswith(below) and len(place) > len(below) else None
    )


def _may_tell(source: CapturePipeline, target: Snapshot) -> bool:
    listed = source.repository.git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", target.tree)
    return ACTIVATE + b"\0" in listed


def original_root(source: CapturePipeline, target: Snapshot) -> str:
    """The place that what comes names; empty where it was made here, `AS_TOLD` where only what comes knows it."""
    timeline, own = target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return ""
    root = place_of(source, timeline) or (AS_TOLD if _may_tell(source, target) else None)
    if root is None:
        raise Refused(
            f"where '{timeline}' stood is not known: there is no working tree of it, and no virtual environment tells",
            hint="without --relocate all comes as it is",
        )
    if not is_shell_safe(own):
        raise Refused(
            f"scripts cannot name a place like '{own}' everywhere",
            hint="without --relocate all comes as it is",
        )
    return "" if root == own else root


def relocate_here(source: CapturePipeline, origin: str, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
    """Have what some steps brought name this place and no longer that one; what was rewritten."""
    repository = source.repository
    if origin == AS_TOLD:
        steps = tuple(steps)
        origin = original_path(repository.root, steps) or repository.root
    moved = Relocation.between([origin], repository.root)
    found = list(paths_naming(written_by(steps), repository, moved))
    code = frozenset() if repository.plain or not found else tracked(repository.git)
    return relocate(Rewriter(repository.root, moved, code), found)[0]
