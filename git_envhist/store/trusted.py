"""The user's private list of the repositories and commands that hooks and agents may use.

It is in the user's data directory, outside of every repository: no clone, archive or fetched history can add to it.

    repository <common directory>       a person captured there
    agent <name> <common directory>     an agent's hooks were installed there
    agent <name> *                      ... or for every repository of this user
    command <common directory> <sha256> a person ran this command for this repository

A command is stored as the hash of the repository's common directory and the command's exact text, which may contain a
password. Losing the list costs nothing but another `git envlog install` or a capture by hand.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from git_envhist.store.durable import cannot_write
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.quoting import quote, unquote

FILE = "trusted"
LARGEST = 4 << 20
EVERYWHERE = b"*"
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class TrustedList:
    """The list of one user."""

    def __init__(self, directory: str) -> None:
        """`directory`: the data directory of this program."""
        self._directory = directory
        self._path = os.path.join(directory, FILE)

    def has_repository(self, common_dir: str) -> bool:
        """Whether hooks may capture a repository: a person captured or installed there."""
        place = _place(common_dir)
        return any(_is_about(line, place) for line in self._read())

    def has_command(self, common_dir: str, command: str) -> bool:
        """Whether a person ran exactly this command for a repository."""
        return _command_line(common_dir, command) in self._read()

    def agents(self, common_dir: str | None) -> set[str]:
        """The agents whose hooks were installed in a repository; None: for every repository."""
        place = EVERYWHERE if common_dir is None else _place(common_dir)
        found = [line.split(b" ") for line in self._read()]
        return {os.fsdecode(words[1]) for words in found if words[0] == b"agent" and words[-1] == place}

    def places_of(self, agent: str | None = None) -> tuple[str | None, ...]:
        """The existing repositories that an agent's hooks, or those of any agent, are installed in; None: every one."""
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
        """The lines; none from a file that another user owns or may write."""
        try:
            with open(self._path, "rb") as file:
                seen = os.fstat(file.fileno())
                if seen.st_uid != os.geteuid() or seen.st_mode & WRITABLE_BY_OTHERS:
                    return ()
                return tuple(file.read(LARGEST).split(b"\n")[:-1])
        except OSError:
            return ()

    def _add(self, line: bytes) -> None:
        if line in self._read():
            return
        state_directory(self._directory)
        try:
            with locked(self._path + ".lock"):
                self._write([*self._read(), line])
        except OSError as error:
            raise cannot_write(error, self._path) from error

    def _remove(self, is_gone: Callable[[bytes], bool]) -> None:
        if not any(map(is_gone, self._read())):
            return
        try:
            with locked(self._path + ".lock"):
                self._write([line for line in self._read() if not is_gone(line)])
        except OSError as error:
            raise cannot_write(error, self._path) from error

    def _write(self, lines: Iterable[bytes]) -> None:
        new = self._path + ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(new, flags, 0o600), "wb") as file:
            file.writelines(line + b"\n" for line in lines)
        os.rename(new, self._path)


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
