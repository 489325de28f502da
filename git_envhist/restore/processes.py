"""Who else uses the environment: processes that hold its files open, and those that run on in it.

Read from `/proc`, as far as it may be read; where there is none, nothing is known and nothing is said.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import NamedTuple

from git_envhist.diff.classes import INSTALLED
from git_envhist.git.process import COMMAND
from git_envhist.git.refs import callers
from git_envhist.model import RestorePlan
from git_envhist.platform import START, parent_process
from git_envhist.probes.processes import (
    GONE,
    PROC,
    is_serving,
    open_files,
    others,
    places,
    target,
    words_of,
)

MAX_COMMAND = 60
OUR_GIT = [word.encode() for word in COMMAND]
OUR_STARTS = (b"git_envhist.", START.partition("{")[0].encode())
"""A word of a worker, and of a program that another one of ours has started, e.g. the daily cleaning, begins so."""
OUR_PROGRAM = re.compile(rb"(?:\A|/)git-env(?:log|diff|restore|hist)\Z|/git_envhist/")
"""The path of one of our programs, or of a module that is run as a file."""
MAX_WORDS = 4
INTERPRETER = re.compile(
    rb"(?:python|pypy|node|deno|bun|ruby|perl|php|java|dotnet|beam\.smp|lua|julia|R|Rscript|guile|erl)[-0-9.a-z]*"
)
"""Programs that run code of the directory they were started in."""
SHOWING = re.compile(
    rb"(?:(?:n|g|e)?vi(?:m|ew)?(?:\.[a-z]+)?|nvim|nano|pico|micro|hx|kak|emacs(?:-[a-z0-9-]+)?|ed|ex|joe|code|codium"
    rb"|less|more|most|man|tail|head|cat|watch|bat|tmux(?:: [a-z]+)?|screen|zellij|xterm|[a-z-]*terminal[a-z-]*|kitty"
    rb"|ssh|sshd|script|mc|ranger|fzf|top|htop)"
)
"""Programs that show or edit files and run none of them."""
MAX_ABOVE = 4
"""So many generations a process is looked at for a git of ours."""
PACKAGE_FILES = (
    *(
        b".git",
        b"package.json",
        b"pyproject.toml",
        b"setup.py",
        b"setup.cfg",
        b"requirements.txt",
        b"manage.py",
    ),
    *(b"Cargo.toml", b"go.mod", b"Gemfile", b"composer.json", b"pom.xml", b"build.gradle", b"mix.exs"),
    *(b"Makefile", b"CMakeLists.txt", b"Dockerfile", b"compose.yaml", b"docker-compose.yml"),
)
"""What stands at the top of something that is started as one."""


class Process(NamedTuple):
    """A process, as one would tell somebody of it."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"'{self.command}' ({self.pid})"


def holders(paths: Collection[bytes]) -> dict[bytes, Process]:
    """For each of these real paths that a process other than this one has open, one such process."""
    wanted = frozenset(paths)
    found: dict[bytes, Process] = {}
    if wanted:
        for pid in others():
            for path in wanted.intersection(open_files(pid)):
                found.setdefault(path, _describe(pid))
    return found


class AffectedPaths(NamedTuple):
    """What a restore changes, by real paths."""

    tops: tuple[bytes, ...]
    """Of the environment."""
    paths: tuple[bytes, ...]
    """All of it, sorted."""
    replaced: frozenset[bytes]
    """Those that stood there before."""

    @classmethod
    def by(cls, plan: RestorePlan, bases: Mapping[bytes, bytes]) -> AffectedPaths:
        tops = {root: os.path.realpath(base) for root, base in bases.items()}
        paths = {os.path.join(tops[step.root], step.path): step.before is not None for step in plan.steps}
        replaced = frozenset(path for path, stood in paths.items() if stood)
        return cls(tuple(sorted(tops.values())), tuple(sorted(paths)), replaced)

    def holds(self, directory: bytes) -> bool:
        """Whether any of it lies in a directory."""
        inside = directory.rstrip(b"/") + b"/"
        at = bisect_left(self.paths, inside)
        return at < len(self.paths) and self.paths[at].startswith(inside)


def still_running(touched: AffectedPaths) -> list[Process]:
    """Return the processes that run or serve what a restore replaces, and did not call this one.

    A process counts that has any of it mapped, open or as its program. So does an interpreter or a server in the
    environment, and a program of the environment itself, where the package around it holds any of it. Editors, pagers
    and terminals show files and run none.
    """
    # This process, and those that wait for it: the shell, git.
    ours = callers()
    found = (pid for pid in others() if pid not in ours and _is_concerned(pid, touched))
    return [_describe(pid) for pid in found if not _listens_to_us(pid) and not _works_for_us(pid)]


def _is_concerned(pid: int, touched: AffectedPaths) -> bool:
    directory, program = places(pid)
    if program in touched.replaced or _maps_any(pid, touched):
        return True
    name = os.path.basename(program)
    if SHOWING.fullmatch(name):
        return False
    if _is_in_touched_package(os.path.dirname(program), touched):
        return True
    if not touched.replaced.isdisjoint(open_files(pid)):
        return True
    if not _is_in_touched_package(directory, touched):
        return False
    return INTERPRETER.fullmatch(name) is not None or is_serving(pid)


def _is_in_touched_package(place: bytes, touched: AffectedPaths) -> bool:
    top = next((top for top in touched.tops if place == top or place.startswith(top + b"/")), None)
    return top is not None and touched.holds(package_of(place, top))


def package_of(place: bytes, top: bytes) -> bytes:
    """The nearest package that a directory is in, at most the top; what was installed belongs to who installed it."""
    names = place[len(top) :].strip(b"/").split(b"/")
    depth = next((depth for depth, name in enumerate(names) if name in INSTALLED), len(names))
    for end in range(depth, 0, -1):
        here = b"/".join((top, *names[:end]))
        if any(os.path.lexists(here + b"/" + name) for name in PACKAGE_FILES):
            return here
    return top


def _maps_any(pid: int, touched: AffectedPaths) -> bool:
    try:
        with open(b"%b/%d/maps" % (PROC, pid), "rb") as file:
            told = file.read()
    except OSError:
        return False  # gone, or somebody else's
    if not any(top in told for top in touched.tops):
        return False
    mapped = {line.split(None, 5)[5].removesuffix(GONE) for line in told.splitlines() if line.count(b"/")}
    return not touched.replaced.isdisjoint(mapped)


def _listens_to_us(pid: int) -> bool:
    """Whether it reads from the pipe that we write to: `git envrestore … | tail`."""
    heard = target(b"%b/%d/fd/0" % (PROC, pid))
    said = {target(b"%b/self/fd/%d" % (PROC, number)) for number in (1, 2)}
    return heard.startswith(b"pipe:") and heard in said


def _works_for_us(pid: int) -> bool:
    """Whether it is one of our workers, or what works behind our programs; others may be a host program's.

    A git of ours and one of our modules are known by their words, whoever has started them.
    """
    words = words_of(pid)
    if any(word.startswith(OUR_STARTS) or OUR_PROGRAM.search(word) for word in words[:MAX_WORDS]):
        return True
    return (parent_process(pid) == os.getpid() and words == words_of(os.getpid())) or _is_our_git(pid)


def _is_our_git(pid: int) -> bool:
    """Whether it is one, or works for one: git starts gits of its own."""
    for _ in range(MAX_ABOVE):
        if words_of(pid)[: len(OUR_GIT)] == OUR_GIT:
            return True
        pid = parent_process(pid)
    return False


def _describe(pid: int) -> Process:
    command = " ".join(word.decode("utf-8", "replace") for word in words_of(pid)) or "a process"
    if len(command) > MAX_COMMAND:
        command = command[: MAX_COMMAND - 1] + "…"
    return Process(pid, command)
