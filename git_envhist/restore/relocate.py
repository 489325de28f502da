"""Rewrite absolute paths in a fork, or in files restored from another working tree.

Searched are files in which tools keep absolute paths (virtual environments, `bin` and `.bin` of package managers,
editable installations) and all links. Built trees with such paths are reported and not changed: they must be built
again.
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
from git_envhist.disk import read_exactly
from git_envhist.errors import EnvhistError, Refused
from git_envhist.git.process import clean_environment, read_all
from git_envhist.git.repository import Repository
from git_envhist.git.submodules import git_directory_of, is_own_submodule
from git_envhist.model import EntryKind, EnvPath, OutsideReference, PlanStep, RestoreResult, Snapshot
from git_envhist.platform import DIRECTORY, open_nofollow
from git_envhist.restore.disk_calls import DiskCalls, open_directory
from git_envhist.restore.planner import tracked_paths
from git_envhist.worktree.timeline_name import current_timeline

# The working trees that a fork may refer to.

WORKTREE = b"worktree "


def origins_of(source: CapturePipeline, timeline: str, fork: Repository) -> tuple[str, ...]:
    """Return this working tree, the main one of its repository, and the one that a timeline belongs to."""
    trees = [tree for tree in _trees(source) if tree.root != fork.root]
    first = [tree.root for tree in trees if tree.git_dir == tree.common_dir]
    taken = [tree.root for tree in trees if current_timeline(tree, read_settings(())) == timeline]
    return tuple(dict.fromkeys((source.repository.root, *first, *taken)))


def working_tree_of(source: CapturePipeline, timeline: str) -> str | None:
    """Return the working tree of a timeline; None if it no longer exists."""
    trees = _trees(source)
    return next((one.root for one in trees if current_timeline(one, read_settings(())) == timeline), None)


def _trees(source: CapturePipeline) -> list[Repository]:
    repository = source.repository
    if repository.plain:
        records = [
            record for record in homes_of(source.environ).all() if record.repository == repository.common_dir
        ]
        return [open_plain(record, record.path) for record in records]
    listed = repository.git.run("worktree", "list", "--porcelain").split(b"\n")
    roots = [line[len(WORKTREE) :] for line in listed if line.startswith(WORKTREE)]
    return [tree for root in roots if (tree := _open(os.fsdecode(root))) is not None]


def _open(root: str) -> Repository | None:
    try:
        return Repository.open(root, clean_environment())
    except EnvhistError:
        # It is gone, or cannot be read.
        return None


# Replacing a path in the contents of a file (pure). The path must not be part of a longer one: `/srv/app` is not in
# `/srv/app-2`, nor in `/old/srv/app`.

SPELLED = re.compile(r"[A-Za-z0-9_./+=@:,-]+")
NAME = rb"[\w.+@~%\x80-\xff-]"
MAX_FIRST_LINE = 127
"""The limit of every Linux for the line that names an interpreter; newer ones read 255 bytes."""
PYTHON = re.compile(rb"#!(\S*/(?:python|pypy)[\w.]*)(?:[ \t]+(\S.*?))?[ \t]*\r?$")
TOO_LONG = "its first line would be too long"


class Relocation(NamedTuple):
    """A replacement of some paths by another."""

    pattern: re.Pattern[bytes]
    to: bytes

    @classmethod
    def between(cls, origins: Sequence[str], to: str) -> Relocation:
        """Return the replacement; longer paths are matched first, because one may contain another."""
        spellings = {spelling for place in origins for spelling in _spellings(place)}
        words = b"|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True))
        pattern = re.compile(rb"(?<!" + NAME + rb")(?:" + words + rb")(?!" + NAME + rb")")
        return cls(pattern, b"" + to.encode("utf-8", "surrogateescape"))

    def occurs_in(self, data: bytes) -> bool:
        return self.pattern.search(data) is not None

    def replaced(self, data: bytes) -> bytes:
        return self.pattern.sub(lambda _: self.to, data)


def is_shell_safe(place: str) -> bool:
    """Return whether a path needs no quotes in scripts and first lines."""
    return SPELLED.fullmatch(place) is not None


def is_text(data: bytes) -> bool:
    return b"\0" not in data


def replace_paths(data: bytes, relocation: Relocation) -> bytes | None:
    """Return a file with replaced paths; None if its first line would be too long. Of a binary file only the first line
    is rewritten."""
    line, newline, rest = data.partition(b"\n")
    if is_text(data):
        rest = relocation.replaced(rest)
    if not data.startswith(b"#!"):
        return relocation.replaced(line) + newline + rest if is_text(data) else data
    first = relocation.replaced(line)
    if first != line and len(first) > MAX_FIRST_LINE:
        by_shell = _exec_by_shell(first)
        if by_shell is None:
            return None
        first = by_shell
    return first + newline + rest


def _exec_by_shell(line: bytes) -> bytes | None:
    """Return two lines that run Python when read by a shell, and are a string when read by Python."""
    match = PYTHON.fullmatch(line)
    if match is None:
        return None
    words = b" ".join((match[1], *([match[2]] if match[2] else [])))
    return b"#!/bin/sh\n'''exec' " + words + b' "$0" "$@"\n' + b"' '''"


def _spellings(place: str) -> set[bytes]:
    """Return a path as in file contents and as in file: URLs."""
    return {place.encode("utf-8", "surrogateescape"), quote(place, errors="surrogateescape").encode("ascii")}


PROGRAM_DIRECTORIES = frozenset((b"bin", b"sbin", b"Scripts", b".bin"))
NAMES = frozenset((b"pyvenv.cfg", b"direct_url.json", b".modules.yaml"))
ENDINGS = (b".pth", b".egg-link", b".pc")
EDITABLE = b"__editable__"
BUILT = frozenset((b"CMakeCache.txt", b"build.ninja"))
MAX_SIZE = 1 << 22
LINK, TEXT = "link", "text"
NO_GIT = (
    "the submodule's git directory belongs to the original: without this file, git treats it as not set up"
)
SHARED_GIT = "it points to the git directory of another working tree: git commands here would act there"
IS_TRACKED = "tracked by HEAD"
IS_BUILT = "built with the other path: build it again"
TEMPORARY = b".git-envhist-link"
REGISTERED = re.compile(rb"(?:^|/)worktrees/[^/]+\Z")
"""The files in which a repository registers its linked worktrees."""


class Rewriter(NamedTuple):
    """The replacement in one working tree; `code`: tracked files, which are not rewritten."""

    root: str
    relocation: Relocation
    code: frozenset[bytes]


class PathReference(NamedTuple):
    """A path that may contain references."""

    path: EnvPath
    is_link: bool


def find_outside_references(
    places: Iterable[PathReference], own: Repository, relocation: Relocation
) -> Iterator[OutsideReference]:
    """Yield the paths that refer to another place."""
    with _opened(own.root) as top:
        for path, is_link in places:
            if is_link:
                if relocation.occurs_in(_read_link(top, path)):
                    yield OutsideReference(path, LINK)
            elif path.endswith(b"/.git"):
                reason = _git_file_problem(own, path, _read(top, path), relocation)
                if reason is not None:
                    yield OutsideReference(path, reason)
            elif _may_name_places(path):
                data = _read(top, path)
                if relocation.occurs_in(data if is_text(data) else _first_line(data)):
                    yield OutsideReference(path, TEXT)


def files_written_by(steps: Iterable[PlanStep]) -> Iterator[PathReference]:
    """Yield the files and links written by some steps."""
    for step in steps:
        entries = (step.after or step.before, *step.below)
        for entry in entries if not step.root else ():
            if entry is not None and entry.kind in (EntryKind.FILE, EntryKind.LINK):
                yield PathReference(entry.path, entry.kind is EntryKind.LINK)


def files_in(root: str) -> Iterator[PathReference]:
    """Yield the files and links of a working tree in path order."""
    top = os.fsencode(root)
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        found: list[os.DirEntry[bytes]] = []
        # A directory its owner cannot enter cannot contain restored files.
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
    """Rewrite references; return the rewritten paths, and the remaining references with reasons."""
    rewritten, remaining = [], []
    with _opened(rewriter.root) as top:
        for one in found:
            reason = _skip_reason(one, rewriter.code)
            if reason is None:
                try:
                    reason = (_rewrite_link if one.what == LINK else _rewrite_file)(
                        top, one.path, rewriter.relocation
                    )
                except OSError as error:
                    reason = (error.strerror or str(error)).lower()
            if reason is None:
                rewritten.append(one.path)
            else:
                remaining.append(OutsideReference(one.path, reason))
    return tuple(rewritten), tuple(remaining)


def _may_name_places(path: EnvPath) -> bool:
    above, _, name = path.rpartition(b"/")
    if name == b"gitdir" and REGISTERED.search(above):
        return True
    if name in NAMES or name in BUILT or name.endswith(ENDINGS) or name.startswith(EDITABLE):
        return True
    return above.rpartition(b"/")[2] in PROGRAM_DIRECTORIES


def _git_file_problem(own: Repository, path: EnvPath, data: bytes, relocation: Relocation) -> str | None:
    """Return why a `.git` file does not point to a git directory of its own working tree; None if it does.

    A relative path from one linked worktree leads to the git directory of the other one, so git commands here would act
    on files there.
    """
    top = os.path.realpath(os.fsencode(own.root))
    git_directory = git_directory_of(os.path.join(top, os.path.dirname(path)), data)
    if (
        git_directory is None
        or _is_inside(git_directory, top)
        or is_own_submodule(git_directory, own.git_dir)
    ):
        return None if git_directory is None or os.path.exists(git_directory) else NO_GIT
    relocated = git_directory_of(top, relocation.replaced(data)) if relocation.occurs_in(data) else None
    if relocated is not None and _is_inside(relocated, top) and os.path.exists(relocated):
        # A linked worktree of a repository that was copied, too.
        return TEXT
    return SHARED_GIT if os.path.exists(git_directory) else NO_GIT


def _is_inside(place: bytes, top: bytes) -> bool:
    return place.startswith(top + b"/")


def _skip_reason(one: OutsideReference, code: frozenset[bytes]) -> str | None:
    if one.what not in (LINK, TEXT):
        return one.what
    if one.path in code:
        return IS_TRACKED
    return IS_BUILT if one.path.rpartition(b"/")[2] in BUILT else None


def read_file(root: str, path: EnvPath) -> bytes:
    """Return the contents of a file that may contain references; empty if it cannot be read."""
    with _opened(root) as top:
        return _read(top, path)


def write_in_place(root: str, path: EnvPath, data: bytes) -> None:
    """Replace the contents of a file in place."""
    with _opened(root) as top:
        _write_file(top, path, lambda _: data)


def _rewrite_file(top: int, path: EnvPath, relocation: Relocation) -> str | None:
    return _write_file(top, path, lambda data: replace_paths(data, relocation))


def _write_file(top: int, path: EnvPath, change: Callable[[bytes], bytes | None]) -> str | None:
    """Rewrite a file in place: its other names, owner, mode and attributes stay."""
    calls = DiskCalls()
    with _inside(top, path) as (directory, name):
        descriptor = _open_file(directory, name)
        try:
            data, mode = read_all(descriptor), stat.S_IMODE(os.fstat(descriptor).st_mode)
            new = change(data)
            if new is None:
                return TOO_LONG
            calls.fchmod(descriptor, mode | stat.S_IWUSR)
            writing = open_nofollow(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
            try:
                calls.write(writing, new, 0)
                calls.truncate(writing, len(new))
                calls.fchmod(writing, mode)
            finally:
                os.close(writing)
        finally:
            os.close(descriptor)
    return None


def _rewrite_link(top: int, path: EnvPath, relocation: Relocation) -> str | None:
    calls = DiskCalls()
    with _inside(top, path) as (directory, name):
        before = os.fstat(directory)
        link = os.stat(name, dir_fd=directory, follow_symlinks=False)
        calls.symlink(relocation.replaced(os.readlink(name, dir_fd=directory)), directory, TEMPORARY)
        if os.geteuid() == 0:
            calls.chown(directory, TEMPORARY, link.st_uid, link.st_gid)
        calls.rename(directory, TEMPORARY, directory, name)
        calls.futime(directory, before.st_mtime_ns)
    return None


def _read(top: int, path: EnvPath) -> bytes:
    try:
        with _inside(top, path) as (directory, name):
            descriptor = _open_file(directory, name)
            try:
                small = os.fstat(descriptor).st_size <= MAX_SIZE
                return read_all(descriptor) if small else read_exactly(descriptor, 4096, 0)
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
    return open_nofollow(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)


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
    """Open the directory of a path without following links; yield it and the last name."""
    above, _, name = path.rpartition(b"/")
    directory = open_directory(top, above)
    try:
        yield directory, name
    finally:
        os.close(directory)


# Warnings about restored files that contain the path of another working tree.

FROM_FILES = "?"
ACTIVATE = b"/bin/activate"
VIRTUAL_ENV = re.compile(rb"^\s*VIRTUAL_ENV=(/[^\n]+|'/[^'\n]+'|\"/[^\"\n]+\")\s*$", re.MULTILINE)
FIRST_PATHS = 3
HOW_TO_RELOCATE = "git envrestore --undo, then {command} again with --relocate"
NOTHING_RESTORED = (
    f"nothing was restored, so nothing was rewritten; to rewrite files restored before: {HOW_TO_RELOCATE}"
)
REWRITABLE = (LINK, TEXT)


def foreign_path_warning(
    source: CapturePipeline, restored: RestoreResult, command: str, *, asked: bool
) -> str | None:
    """Return a warning about restored files that contain another path; None if there are none.

    `command` restored them; `asked`: relocation was requested, which has been done during the restore.
    """
    timeline, own = restored.target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return None
    if restored.snapshot is None:
        return NOTHING_RESTORED.format(command=command) if asked and not restored.plan.steps else None
    root = working_tree_of(source, timeline) or original_path(own, restored.plan.steps)
    if root is None or root == own:
        return None
    relocation = Relocation.between([root], own)
    found = [
        one.path
        for one in find_outside_references(
            files_written_by(restored.plan.steps), source.repository, relocation
        )
        if one.what in REWRITABLE
    ]
    if not found:
        return None
    first = ", ".join(f"'{os.fsdecode(path)}'" for path in found[:FIRST_PATHS])
    more = f" and {len(found) - FIRST_PATHS:,} more" if len(found) > FIRST_PATHS else ""
    advice = "" if restored.relocated else f"; to rewrite them: {HOW_TO_RELOCATE.format(command=command)}"
    return f"restored files still contain '{root}': {first}{more}{advice}"


def original_path(root: str, steps: Iterable[PlanStep]) -> str | None:
    """Return the path that restored virtual environments name; None if none does, or if they differ."""
    match = {_root_named_by(root, path) for path, _ in files_written_by(steps) if path.endswith(ACTIVATE)} - {
        None
    }
    return match.pop() if len(match) == 1 else None


def _root_named_by(root: str, activate: EnvPath) -> str | None:
    """Return the root that an activate script names, given its own path below the root."""
    found = VIRTUAL_ENV.search(read_file(root, activate))
    place = found[1].strip(b"'\"") if found is not None else b""
    below = b"/" + activate.removesuffix(ACTIVATE)
    return (
        os.fsdecode(place.removesuffix(below)) if place.endswith(below) and len(place) > len(below) else None
    )


def _has_virtual_environment(source: CapturePipeline, target: Snapshot) -> bool:
    listed = source.repository.git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", target.tree)
    return ACTIVATE + b"\0" in listed


def original_root(source: CapturePipeline, target: Snapshot) -> str:
    """Return the path to replace; empty if there is none, `AS_TOLD` if it must be read from restored files."""
    timeline, own = target.timeline, source.repository.root
    if timeline == current_timeline(source.repository, source.settings):
        return ""
    root = working_tree_of(source, timeline) or (
        FROM_FILES if _has_virtual_environment(source, target) else None
    )
    if root is None:
        raise Refused(
            f"the directory of '{timeline}' is unknown: it has no working tree, and no virtual environment names it",
            hint="restore without --relocate",
        )
    if not is_shell_safe(own):
        raise Refused(
            f"scripts cannot contain a path like '{own}' without quotes",
            hint="restore without --relocate",
        )
    return "" if root == own else root


def relocate_here(source: CapturePipeline, origin: str, steps: Iterable[PlanStep]) -> tuple[EnvPath, ...]:
    """Replace another working tree's path in the files of some steps; return the rewritten paths."""
    repository = source.repository
    if origin == FROM_FILES:
        steps = tuple(steps)
        origin = original_path(repository.root, steps) or repository.root
    relocation = Relocation.between([origin], repository.root)
    found = list(find_outside_references(files_written_by(steps), repository, relocation))
    code = frozenset() if repository.plain or not found else tracked_paths(repository.git)
    return relocate(Rewriter(repository.root, relocation, code), found)[0]
