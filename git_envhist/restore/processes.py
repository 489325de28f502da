"""Processes that use the environment: those that have its files open, and those that run from it.

Read from `/proc` as far as permitted; without it, no process is reported.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import NamedTuple

from git_envhist.git.process import COMMAND
from git_envhist.git.running_git import ancestor_processes
from git_envhist.model import RestorePlan
from git_envhist.platform import START, parent_process
from git_envhist.probes import interpreters, manifests, package_directories
from git_envhist.probes.processes import (
    DELETED_SUFFIX,
    PROC,
    command_line,
    directory_and_program,
    is_serving,
    link_target,
    open_files,
    other_processes,
)

MAX_COMMAND = 60
OUR_GIT = [word.encode() for word in COMMAND]
OUR_STARTS = (b"git_envhist.", START.partition("{")[0].encode())
"""Prefixes of a word of our worker processes, and of programs that one of ours started, e.g. daily cleaning."""
OUR_PROGRAM = re.compile(rb"(?:\A|/)git-env(?:log|diff|restore|hist)\Z|/git_envhist/")
"""The path of one of our programs, or of a module that is run as a file."""
WORDS_CHECKED = 4
INTERPRETER = re.compile(
    rb"(?:%b|perl|java|dotnet|beam\.smp|lua|julia|R|Rscript|guile|erl)[-0-9.a-z]*"
    % "|".join(interpreters()).encode()
)
"""Programs that run code of the directory they were started in."""
VIEWERS = re.compile(
    rb"(?:(?:n|g|e)?vi(?:m|ew)?(?:\.[a-z]+)?|nvim|nano|pico|micro|hx|kak|emacs(?:-[a-z0-9-]+)?|ed|ex|joe|code|codium"
    rb"|less|more|most|man|tail|head|cat|watch|bat|tmux(?:: [a-z]+)?|screen|zellij|xterm|[a-z-]*terminal[a-z-]*|kitty"
    rb"|ssh|sshd|script|mc|ranger|fzf|top|htop)"
)
"""Programs that show or edit files and run none of them."""
MAX_ABOVE = 4
"""The number of ancestors of a process that are searched for a git that we started."""
PACKAGE_FILES = (
    *manifests(),
    *(b".git", b"manage.py", b"pom.xml", b"build.gradle", b"mix.exs"),
    *(b"Makefile", b"CMakeLists.txt", b"Dockerfile", b"compose.yaml", b"docker-compose.yml"),
)
"""Files at the top of a package."""


class Process(NamedTuple):
    """A process, as it is printed."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"'{self.command}' ({self.pid})"


def processes_with_open(paths: Collection[bytes]) -> dict[bytes, Process]:
    """Return one other process that has a path open, for each of these real paths that is open."""
    wanted = frozenset(paths)
    found: dict[bytes, Process] = {}
    if wanted:
        for pid in other_processes():
            for path in wanted.intersection(open_files(pid)):
                found.setdefault(path, _describe(pid))
    return found


class AffectedPaths(NamedTuple):
    """The real paths that a restore changes."""

    tops: tuple[bytes, ...]
    """The roots of the environment."""
    paths: tuple[bytes, ...]
    """All changed paths, sorted."""
    replaced: frozenset[bytes]
    """The paths that existed before."""

    @classmethod
    def by(cls, plan: RestorePlan, bases: Mapping[bytes, bytes]) -> AffectedPaths:
        tops = {root: os.path.realpath(base) for root, base in bases.items()}
        paths = {os.path.join(tops[step.root], step.path): step.before is not None for step in plan.steps}
        replaced = frozenset(path for path, stood in paths.items() if stood)
        return cls(tuple(sorted(tops.values())), tuple(sorted(paths)), replaced)

    def holds(self, directory: bytes) -> bool:
        """Return whether a changed path is below a directory."""
        inside = directory.rstrip(b"/") + b"/"
        at = bisect_left(self.paths, inside)
        return at < len(self.paths) and self.paths[at].startswith(inside)


def still_running(affected: AffectedPaths) -> list[Process]:
    """Return the processes that run or serve replaced files, without those that called this one.

    A process counts if it has a replaced file mapped, open or as its program, or if the package of its program or (for
    interpreters and servers) of its working directory is changed. Editors, pagers and terminals do not count.
    """
    # This process and its ancestors: the shell, git.
    ours = ancestor_processes()
    found = (pid for pid in other_processes() if pid not in ours and _is_concerned(pid, affected))
    return [_describe(pid) for pid in found if not _reads_our_output(pid) and not _is_our_worker(pid)]


def _is_concerned(pid: int, affected: AffectedPaths) -> bool:
    directory, program = directory_and_program(pid)
    if program in affected.replaced or _maps_any(pid, affected):
        return True
    name = os.path.basename(program)
    if VIEWERS.fullmatch(name):
        return False
    if _is_in_touched_package(os.path.dirname(program), affected):
        return True
    if not affected.replaced.isdisjoint(open_files(pid)):
        return True
    if not _is_in_touched_package(directory, affected):
        return False
    return INTERPRETER.fullmatch(name) is not None or is_serving(pid)


def _is_in_touched_package(place: bytes, affected: AffectedPaths) -> bool:
    top = next((top for top in affected.tops if place == top or place.startswith(top + b"/")), None)
    return top is not None and affected.holds(package_of(place, top))


def package_of(place: bytes, top: bytes) -> bytes:
    """Return the nearest package of a directory, at most the root; an installed package belongs to the one that
    installed it."""
    names = place[len(top) :].strip(b"/").split(b"/")
    depth = next((depth for depth, name in enumerate(names) if name in package_directories()), len(names))
    for end in range(depth, 0, -1):
        here = b"/".join((top, *names[:end]))
        if any(os.path.lexists(here + b"/" + name) for name in PACKAGE_FILES):
            return here
    return top


def _maps_any(pid: int, affected: AffectedPaths) -> bool:
    try:
        with open(b"%b/%d/maps" % (PROC, pid), "rb") as file:
            maps = file.read()
    except OSError:
        return False  # it has ended, or belongs to another user
    if not any(top in maps for top in affected.tops):
        return False
    mapped = {
        line.split(None, 5)[5].removesuffix(DELETED_SUFFIX) for line in maps.splitlines() if line.count(b"/")
    }
    return not affected.replaced.isdisjoint(mapped)


def _reads_our_output(pid: int) -> bool:
    """Return whether it reads the pipe that this process writes to: `git envrestore … | tail`."""
    read = link_target(b"%b/%d/fd/0" % (PROC, pid))
    written = {link_target(b"%b/self/fd/%d" % (PROC, number)) for number in (1, 2)}
    return read.startswith(b"pipe:") and read in written


def _is_our_worker(pid: int) -> bool:
    """Return whether it is one of our workers or helpers; other child processes may be a host program's.

    Our git processes and modules are recognized by their command line.
    """
    words = command_line(pid)
    if any(word.startswith(OUR_STARTS) or OUR_PROGRAM.search(word) for word in words[:WORDS_CHECKED]):
        return True
    return (parent_process(pid) == os.getpid() and words == command_line(os.getpid())) or _is_our_git(pid)


def _is_our_git(pid: int) -> bool:
    """Return whether it or an ancestor is a git that we started."""
    for _ in range(MAX_ABOVE):
        if command_line(pid)[: len(OUR_GIT)] == OUR_GIT:
            return True
        pid = parent_process(pid)
    return False


def _describe(pid: int) -> Process:
    command = " ".join(word.decode("utf-8", "replace") for word in command_line(pid)) or "a process"
    if len(command) > MAX_COMMAND:
        command = command[: MAX_COMMAND - 1] + "…"
    return Process(pid, command)
