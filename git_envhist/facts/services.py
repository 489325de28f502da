"""What listens and runs from the environment: the processes of its user that stand in it, or whose program does.

A service is known by where it stands, its name and its port, and not by its number, which is another one after each
start. As long as the same sockets are listened on, nothing is read anew: the stamp is their list.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.facts.calls import Find, tell_call
from git_envhist.facts.listeners import Listener, namespace, tcp_listeners, unix_listeners
from git_envhist.facts.probe import Keyed, ProbeTarget
from git_envhist.facts.processes import open_files, others, owner_of, parent_of, places, words_of
from git_envhist.model import EnvPath, Fact
from git_envhist.system import SYSTEM

PROBE = "service"
GIT = b".git"
LONGEST_WORD = 1024
OURS = "git-env"
WORDS_THAT_LEAD = 2
"""The program and its script: an interpreter itself may lie anywhere."""


class ListeningProcess(NamedTuple):
    """A process, and what it listens on: the numbers of the sockets."""

    pid: int
    directory: bytes
    program: bytes
    sockets: frozenset[int]


def stamp(place: ProbeTarget) -> str | None:
    """Every socket that may be a service's."""
    proc = _proc(place)
    if proc is None:
        return None
    top = os.path.realpath(place.top)
    numbers = [found.inode for found in _of_users(top, tcp_listeners(proc))]
    numbers += _near(os.fsencode(top), unix_listeners(proc))
    if not numbers:
        return "none"
    return f"{namespace(proc)} {top} {' '.join(map(str, sorted(numbers)))}"


def facts_of(place: ProbeTarget, keyed: Keyed) -> Iterator[Fact]:
    """Every service, once for each port or path at which it listens."""
    proc = _proc(place)
    if proc is None:
        return
    top = os.path.realpath(place.top)
    tcp = {found.inode: found.port for found in _of_users(top, tcp_listeners(proc))}
    unix = _near(os.fsencode(top), unix_listeners(proc))
    wanted = frozenset((*tcp, *unix))
    held = {one.pid: one for one in _holders(os.fsencode(proc), os.fsencode(top), wanted)} if wanted else {}
    for one in held.values():
        above = held.get(parent_of(one.pid, os.fsencode(proc)))
        # What was left to a child is the service of whom it was left by.
        own = one.sockets - (above.sockets if above is not None else frozenset())
        if own:
            yield from _tell(one, own, tcp, unix, os.fsencode(top), os.fsencode(proc))


def _proc(place: ProbeTarget) -> str | None:
    proc = os.path.join(place.root, "proc")
    return proc if SYSTEM.proc and os.path.isdir(proc + "/self") else None


def _users(top: str) -> frozenset[int]:
    """Ours, and whose the environment is: to be told of no other user's programs."""
    return frozenset((os.geteuid(), os.stat(top).st_uid))


def _of_users(top: str, listeners: Iterable[Listener]) -> list[Listener]:
    users = _users(top)
    return [found for found in listeners if found.owner in users]


def _near(top: bytes, paths: dict[int, bytes]) -> dict[int, bytes]:
    """Those in the environment, and those that were spelled from wherever their program stood."""
    return {inode: path for inode, path in paths.items() if not path.startswith(b"/") or _is_in(path, top)}


def _is_in(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top + b"/")


def _holders(proc: bytes, top: bytes, wanted: frozenset[int]) -> Iterator[ListeningProcess]:
    users = _users(os.fsdecode(top))
    for pid in others(proc):
        if owner_of(pid, proc) not in users:
            continue
        directory, program = places(pid, proc)
        if not any(
            _is_in(path, top) for path in (directory, program, *words_of(pid, proc)[:WORDS_THAT_LEAD])
        ):
            continue
        sockets = frozenset(filter(None, map(_socket_number, open_files(pid, proc)))) & wanted
        if sockets:
            yield ListeningProcess(pid, directory, program, sockets)


def _socket_number(target: bytes) -> int:
    number = target.removeprefix(b"socket:[").removesuffix(b"]")
    return int(number) if number != target and number.isdigit() else 0


def _tell(
    one: ListeningProcess,
    sockets: frozenset[int],
    tcp: dict[int, int],
    unix: dict[int, bytes],
    top: bytes,
    proc: bytes,
) -> Iterator[Fact]:
    inside = one.directory[len(top) :].strip(b"/") if _is_in(one.directory, top) else b""
    values = {f":{tcp[number]}" for number in sockets if number in tcp}
    ports = frozenset(value[1:] for value in values)
    for number in sockets & unix.keys():
        path = os.path.normpath(os.path.join(one.directory, unix[number]))
        if _is_in(path, top) and GIT not in path[len(top) :].split(b"/"):
            values.add(os.fsdecode(path[len(top) :].lstrip(b"/")))
    words = [word.decode("utf-8", "replace") for word in words_of(one.pid, proc)]
    called = tell_call(words, os.fsdecode(one.program), ports, _finder(one.directory, top))
    if called.name == "git" or called.name.startswith(OURS):
        return  # at work on the environment, and none of its services
    key = os.fsdecode(inside) + "/" + called.name if inside else called.name
    for value in values:
        yield Fact(PROBE, key, value, EnvPath(inside), by=called.command)


def _finder(directory: bytes, top: bytes) -> Find:
    """Says which words are paths in the environment, and spells them from where a program stands."""

    def find(word: str) -> str | None:
        raw = word.encode("utf-8", "replace")
        if not raw or b"\0" in raw or len(raw) > LONGEST_WORD:
            return None
        path = os.path.normpath(os.path.join(directory, raw))
        if not _is_in(path, top) or not os.path.lexists(path):
            return None
        return os.path.relpath(path, directory).decode("utf-8", "replace")

    return find
