"""Decide what hooks and agents may do without a person: capture a repository, run a command, write to a path.

The user's private list names the repositories and commands that a person used before. It is in the user's data
directory, outside of every repository: no clone, archive or fetched history can add to it.

    repository <common directory>       a person captured there
    agent <name> <common directory>     an agent's hooks were installed there
    agent <name> *                      ... or for every repository of this user
    command <common directory> <sha256> a person ran this command for this repository

A command is stored as the hash of the repository's common directory and the command's exact text, which may contain a
password. Losing the list costs nothing but another `git envlog install` or a capture by hand.

Hooks and the server for agents set GIT_ENVHIST_UNATTENDED for everything that they run. Without a person, a command
from git's configuration runs only if a person ran exactly this command for this repository before: an agent can write
the configuration, and a repository inside a clone or an archive brings its own.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from git_envhist.directories_of_others import make_directories, refuse_others_directory
from git_envhist.discovery import own_data
from git_envhist.disk import Durability, cannot_write, replace_file
from git_envhist.errors import EnvhistError, Refused
from git_envhist.git.current_actor import AGENT, AGENT_SHELLS
from git_envhist.git.repository import Repository
from git_envhist.locks import locked
from git_envhist.snapshots.quoting import quote, unquote

FILE = "trusted"
MAX_SIZE = 4 << 20
EVERYWHERE = b"*"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class TrustedList:
    """The private list of one user."""

    def __init__(self, directory: str) -> None:
        """`directory`: the data directory of this program."""
        self._directory = directory
        self._path = os.path.join(directory, FILE)

    def has_repository(self, common_dir: str) -> bool:
        """Return whether hooks may capture a repository: a person captured or installed there."""
        place = _place(common_dir)
        return any(_is_about(line, place) for line in self._read())

    def has_command(self, common_dir: str, command: str) -> bool:
        """Return whether a person ran exactly this command for a repository."""
        return _command_line(common_dir, command) in self._read()

    def agents(self, common_dir: str | None) -> set[str]:
        """Return the agents with hooks in a repository; None: those with hooks for every repository."""
        place = EVERYWHERE if common_dir is None else _place(common_dir)
        found = [line.split(b" ") for line in self._read()]
        return {os.fsdecode(words[1]) for words in found if words[0] == b"agent" and words[-1] == place}

    def places_of(self, agent: str | None = None) -> tuple[str | None, ...]:
        """Return the existing repositories with hooks of an agent, or of any agent; None means every repository."""
        return tuple(self._places(agent))

    def repositories(self) -> tuple[str, ...]:
        """Return the git directories of the existing repositories that a person captured or installed hooks in."""
        words = (line.split(b" ") for line in self._read())
        found = dict.fromkeys(os.fsdecode(unquote(one[-1])) for one in words if one[-1] != EVERYWHERE)
        return tuple(place for place in found if os.path.isdir(place))

    def add_repository(self, common_dir: str) -> None:
        self._add(b"repository " + _place(common_dir))

    def add_command(self, common_dir: str, command: str) -> None:
        self._add(_command_line(common_dir, command))

    def add_agent(self, agent: str, common_dir: str | None) -> None:
        self._add(_agent_line(agent, common_dir))

    def remove_agent(self, agent: str, common_dir: str | None) -> None:
        """Delete the lines of an agent in a repository, or for every repository."""
        gone = _agent_line(agent, common_dir)
        self._remove(lambda line: line == gone)

    def forget(self, common_dir: str) -> None:
        """Delete all lines of a repository."""
        place = _place(common_dir)
        self._remove(lambda line: place in line.split(b" ")[1:])

    def _places(self, agent: str | None) -> Iterator[str | None]:
        for line in self._read():
            words = line.split(b" ")
            if words[0] != b"agent" or (agent is not None and words[1] != quote(os.fsencode(agent))):
                continue
            if words[-1] == EVERYWHERE:
                yield None
            elif os.path.isdir(place := os.fsdecode(unquote(words[-1]))):
                yield place

    def _read(self) -> tuple[bytes, ...]:
        """Return the lines; none of a file that another user owns or may write."""
        try:
            with open(self._path, "rb") as file:
                seen = os.fstat(file.fileno())
                if seen.st_uid != os.geteuid() or seen.st_mode & WRITABLE_BY_OTHERS:
                    return ()
                return tuple(file.read(MAX_SIZE).split(b"\n")[:-1])
        except OSError:
            return ()

    def _add(self, line: bytes) -> None:
        if line in self._read():
            return
        try:
            make_directories(self._directory)
            with locked(self._path + ".lock"):
                self._write([*self._read(), line])
        except OSError as error:
            raise cannot_write(error, self._path) from error

    def _remove(self, is_gone: Callable[[bytes], bool]) -> None:
        if not any(map(is_gone, self._read())):
            return
        refuse_others_directory(self._directory)
        try:
            with locked(self._path + ".lock"):
                self._write([line for line in self._read() if not is_gone(line)])
        except OSError as error:
            raise cannot_write(error, self._path) from error

    def _write(self, lines: Iterable[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        replace_file(self._path, data, durability=Durability.NONE, exclusive=True)


def _place(common_dir: str) -> bytes:
    return quote(os.fsencode(os.path.realpath(common_dir)))


def _is_about(line: bytes, place: bytes) -> bool:
    words = line.split(b" ")
    return words[0] in (b"repository", b"agent") and words[-1] == place


def _agent_line(agent: str, common_dir: str | None) -> bytes:
    place = EVERYWHERE if common_dir is None else _place(common_dir)
    return b"agent %s %s" % (quote(os.fsencode(agent)), place)


def _command_line(common_dir: str, command: str) -> bytes:
    whole = _place(common_dir) + b"\0" + command.encode("utf-8", "surrogateescape")
    return b"command %s %s" % (_place(common_dir), hashlib.sha256(whole).hexdigest().encode("ascii"))


# Is a person present, and may a command run?

UNATTENDED = "GIT_ENVHIST_UNATTENDED"
AGENT_VARIABLES = (AGENT, "AI_AGENT", *(mark for shell in AGENT_SHELLS for mark in shell.marks))
"""Variables of the shells that agents use; no person typed a command that runs there."""
NOT_APPROVED = "no person ran this command here before, and a hook or an agent runs no other"


def is_unattended(environ: Mapping[str, str]) -> bool:
    """Return whether a hook or the server for agents runs this program."""
    return bool(environ.get(UNATTENDED))


def is_person(environ: Mapping[str, str]) -> bool:
    """Return whether a person, or a program of theirs, runs this program."""
    return not is_unattended(environ) and not any(environ.get(name) for name in AGENT_VARIABLES)


def trusted_list(environ: Mapping[str, str]) -> TrustedList:
    """Return the list of repositories and commands that this user allowed."""
    return TrustedList(own_data(environ))


def may_run(environ: Mapping[str, str], common_dir: str, command: str) -> bool:
    """Return whether a command from the configuration, or recorded in the repository, may run now."""
    return not is_unattended(environ) or trusted_list(environ).has_command(common_dir, command)


def approve_command(environ: Mapping[str, str], common_dir: str, command: str) -> None:
    """Add a command that a person ran to the list; errors are ignored."""
    if is_person(environ):
        with suppress(EnvhistError, OSError):
            trusted_list(environ).add_command(common_dir, command)


def approve_repository(environ: Mapping[str, str], common_dir: str) -> None:
    """Add a repository that a person captured to the list: hooks for every repository may capture it too."""
    if is_person(environ):
        with suppress(EnvhistError, OSError):
            trusted_list(environ).add_repository(common_dir)


# The paths outside of the environment where an agent may write.
#
# An agent decides what a snapshot contains; written into `~/.config/git`, `~/.ssh` or `~/bin` that would be
# configuration or a program of the user. So without a person a file or directory may only be created below
# `envhist.forkPlace`, by default next to the project, and never at a hidden path or on a search path of programs.

FORK_PLACE = "envhist.forkplace"
USERS_OWN = ("system", "global", "command")
PROGRAMS = frozenset(("bin", "sbin", "Library", "Applications"))
"""Names of directories, at any depth, that contain programs or settings."""
SEARCHED = (
    *(
        "PATH",
        "PYTHONPATH",
        "NODE_PATH",
        "LD_LIBRARY_PATH",
        "MANPATH",
        "GOPATH",
        "GOBIN",
        "CARGO_HOME",
        "GNUPGHOME",
    ),
    *(
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "XDG_BIN_HOME",
        "XDG_RUNTIME_DIR",
    ),
    *("XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"),
)
"""Variables that name directories of programs and settings."""


class PlaceRefused(Refused):
    """An agent may not write to a path."""

    code = "place-refused"


def refuse_place(path: str, repository: Repository, environ: Mapping[str, str]) -> None:
    """Raise `PlaceRefused` if no person is present and an agent may not make a file or directory at this path."""
    if not is_unattended(environ):
        return
    root = os.path.realpath(path)
    for why in _objections(root, repository, environ):
        raise PlaceRefused(
            f"an agent may not write to '{path}': {why}",
            hint=f"do it yourself, or allow a directory: git config --global {FORK_PLACE} <directory>",
        )


def _objections(root: str, repository: Repository, environ: Mapping[str, str]) -> Iterator[str]:
    parent = os.path.realpath(os.path.dirname(repository.root))
    chosen = _fork_place(repository)
    top = os.path.realpath(chosen) if chosen else parent
    names = _names_below(root, top)
    if top == "/":
        yield "the project is directly below '/', and envhist.forkPlace is not set"
    if not names:
        yield f"it is not below '{top}'"
    elif chosen is None and len(names) > 1:
        yield f"it is not next to the project, in '{top}'"
    if any(name.startswith(".") for name in names):
        yield "a component of its path begins with a dot"
    home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    if any(name.startswith(".") for name in _names_below(root, home)):
        yield "it is below a hidden directory of the home directory"
    if PROGRAMS.intersection(names) or _is_searched(root, environ):
        yield "programs or settings are searched there"


def _fork_place(repository: Repository) -> str | None:
    """Return the configured directory of the user; an agent can write the repository's own configuration."""
    done = repository.git.try_run("config", "--show-scope", "-z", "--type=path", "--get-all", FORK_PLACE)
    words = os.fsdecode(done.out).split("\0") if done.status == 0 else []
    scoped = zip(words[::2], words[1::2], strict=False)
    return next(iter([place for scope, place in scoped if scope in USERS_OWN and place][::-1]), None)


def _names_below(path: str, top: str) -> list[str]:
    """Return the components of a path below a directory; none if it is not below it."""
    start = top.rstrip("/") + "/"
    return path.removeprefix(start).split("/") if path.startswith(start) and path != start else []


def _is_searched(root: str, environ: Mapping[str, str]) -> bool:
    """Return whether a variable names this directory, a parent of it, or a directory below it."""
    listed = os.pathsep.join(environ.get(name, "") for name in SEARCHED)
    searched = [os.path.realpath(one) for one in listed.split(os.pathsep) if one.startswith("/")]
    return any(f"{one}/".startswith(f"{root}/") or f"{root}/".startswith(f"{one}/") for one in searched)
