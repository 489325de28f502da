"""List services: listening processes of the user that run in the environment, or run a program that is in it.

A service is identified by place, name and port, not by process id. The stamp is the list of listening
sockets, so nothing is read while the same sockets are open. Command lines are masked: only words known to be
harmless are stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from git_envhist.model import EnvPath, Fact
from git_envhist.platform import SYSTEM, parent_process
from git_envhist.probes import interpreters
from git_envhist.probes.base import Keyed, ProbeTarget
from git_envhist.probes.processes import (
    Listener,
    command_line,
    directory_and_program,
    open_files,
    other_processes,
    owner_of,
    socket_namespace_id,
    tcp_listeners,
    unix_listeners,
)

# Name and masked command line of a program.
# A word is kept if it is an option name, a path in the environment, a port that is listened on, a local
# address, a module, or a common verb. Any other word may be a password and is replaced by stars.

STARS = "***"
NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,60}\Z")
INTERPRETER = re.compile(rf"(?:{'|'.join(interpreters())}|perl|java|dotnet|sh|bash|dash|zsh)[0-9.]*\Z")
OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9-]{0,40}\Z|-[A-Za-z]\Z|--\Z")
LONG_WITH_ONE_DASH = frozenset(("-jar", "-cp", "-port", "-addr", "-listen", "-bind", "-http", "-config"))
SECRET_HINT = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|cookie|salt|login|user|header|env", re.IGNORECASE
)
PLACE = re.compile(r"(?:localhost|\*|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:]*\])?(?::?(\d{1,5}))?\Z")
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}(?:\.[A-Za-z_][A-Za-z0-9_]{0,60}){0,8}\Z")
OBJECT = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,8}):[A-Za-z_][A-Za-z0-9_]*(?:\(\))?\Z"
)
VERBS = frozenset(
    (
        *("run", "serve", "server", "start", "dev", "develop", "runserver", "watch", "preview", "web"),
        *("worker", "up", "exec", "http", "main"),
    )
)
MODULE_OPTIONS = ("-m", "--module")
MAX_LENGTH = 200
MAX_HARMLESS_DIGITS = 2
"""A number with at most this many digits is not a secret: worker counts, ports."""

Find = Callable[[str], str | None]
"""Word -> relative path, if the word is a path in the environment."""


class Call(NamedTuple):
    """Name and masked command line."""

    name: str
    command: str


def mask_command_line(words: Sequence[str], program: str, ports: frozenset[str], find: Find) -> Call:
    """Return name and masked command line; `program` is the executable file."""
    if len(words) == 1:
        # The process set its own title.
        words = words[0].split()
    first = words[0] if words else program
    called = find(first) or _base(first)
    if not NAME.match(_base(called)):
        called = _base(program)
    if not NAME.match(_base(called)):
        called = "program"
    rest = list(words[1:])
    masked = " ".join((called, *_mask_words(rest, ports, find, INTERPRETER.match(_base(called)) is not None)))
    return Call(
        _name(_base(called), rest, find),
        masked if len(masked) <= MAX_LENGTH else masked[: MAX_LENGTH - 1] + "…",
    )


def _name(called: str, words: Sequence[str], find: Find) -> str:
    """Return `http.server` for `python3 -m http.server`, `server.js` for `node server.js`, else the program
    name."""
    if not INTERPRETER.match(called):
        return called
    for before, word in zip(("", *words), words, strict=False):
        if before in MODULE_OPTIONS and MODULE.match(word):
            return word
        if before in ("-c", "-e"):
            return called
        if not word.startswith("-") and word not in VERBS:
            name = _base(word)
            if (find(word) or word.startswith("/")) and NAME.match(name):
                return name
    return called


def _mask_words(words: Sequence[str], ports: frozenset[str], find: Find, interpreted: bool) -> list[str]:
    masked: list[str] = []
    before = ""
    for word in words:
        is_script = (
            interpreted and not masked and word.startswith("/") and NAME.match(_base(word)) is not None
        )
        if word.startswith("-") and word != "-":
            masked.append(_mask_option(word, ports, find))
        elif is_script:
            masked.append(find(word) or _base(word))
        elif SECRET_HINT.search(before):
            masked.append(STARS)
        else:
            masked.append(_mask_word(word, before, ports, find))
        before = word if word.startswith("-") and "=" not in word else ""
    return masked


def _mask_option(word: str, ports: frozenset[str], find: Find) -> str:
    option, equals, value = word.partition("=")
    if OPTION.match(option) or option in LONG_WITH_ONE_DASH:
        if not equals:
            return option
        hidden = SECRET_HINT.search(option) is not None
        return f"{option}={STARS if hidden else _mask_word(value, option, ports, find)}"
    # `-p8000` is a port; `-ppassword` looks like a long option of some programs.
    if re.match(r"-[A-Za-z]\d{1,5}\Z", word) and word[2:] in ports:
        return word
    return word[:2] + STARS if re.match(r"-[A-Za-z]", word) else STARS


def _mask_word(word: str, before: str, ports: frozenset[str], find: Find) -> str:
    address = PLACE.match(word)
    if (
        word
        and address is not None
        and (address[1] is None or address[1] in ports or len(address[1]) <= MAX_HARMLESS_DIGITS)
    ):
        return word
    if before in MODULE_OPTIONS and MODULE.match(word):
        return word
    if word in VERBS:
        return word
    found = find(word)
    if found is not None:
        return found
    of_module = OBJECT.match(word)
    if of_module is not None:
        path = of_module[1].replace(".", "/")
        if find(path) is not None or find(path + ".py") is not None:
            return word
    return STARS


def _base(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2].rstrip(":")


PROBE = "service"
GIT = b".git"
MAX_WORD = 1024
OWN_PROGRAMS = "git-env"
AGENTS = frozenset(("claude", "codex", "gemini", "copilot", "cursor-agent", "opencode"))
"""Programs of coding agents; a server that an agent has started is another program."""
LEADING_WORDS = 2
"""The program and its script are examined: an interpreter may be anywhere."""


class ListeningProcess(NamedTuple):
    """A process and the numbers of its listening sockets."""

    pid: int
    directory: bytes
    program: bytes
    sockets: frozenset[int]


def stamp(address: ProbeTarget) -> str | None:
    """Return the numbers of all sockets that may belong to a service."""
    proc = _proc(address)
    if proc is None:
        return None
    top = os.path.realpath(address.top)
    numbers = [found.inode for found in _of_users(top, tcp_listeners(proc))]
    numbers += _in_or_relative(os.fsencode(top), unix_listeners(proc))
    if not numbers:
        return "none"
    return f"{socket_namespace_id(proc)} {top} {' '.join(map(str, sorted(numbers)))}"


def facts_of(address: ProbeTarget, keyed: Keyed) -> Iterator[Fact]:
    """Yield each service once per port or path."""
    proc = _proc(address)
    if proc is None:
        return
    top = os.path.realpath(address.top)
    tcp = {found.inode: found.port for found in _of_users(top, tcp_listeners(proc))}
    unix = _in_or_relative(os.fsencode(top), unix_listeners(proc))
    wanted = frozenset((*tcp, *unix))
    listening = (
        {process.pid: process for process in _holders(os.fsencode(proc), os.fsencode(top), wanted)}
        if wanted
        else {}
    )
    for process in listening.values():
        above = listening.get(parent_process(process.pid, proc))
        # An inherited socket belongs to the parent's service.
        own = process.sockets - (above.sockets if above is not None else frozenset())
        if own:
            yield from _service_facts(process, own, tcp, unix, os.fsencode(top), os.fsencode(proc))


def _proc(address: ProbeTarget) -> str | None:
    proc = os.path.join(address.root, "proc")
    return proc if SYSTEM.proc and os.path.isdir(proc + "/self") else None


def _users(top: str) -> frozenset[int]:
    """Return our user and the owner of the environment; processes of others are not listed."""
    return frozenset((os.geteuid(), os.stat(top).st_uid))


def _of_users(top: str, listeners: Iterable[Listener]) -> list[Listener]:
    users = _users(top)
    return [found for found in listeners if found.owner in users]


def _in_or_relative(top: bytes, paths: dict[int, bytes]) -> dict[int, bytes]:
    """Return sockets in the environment, and those with a relative path."""
    return {inode: path for inode, path in paths.items() if not path.startswith(b"/") or _is_in(path, top)}


def _is_in(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top + b"/")


def _holders(proc: bytes, top: bytes, wanted: frozenset[int]) -> Iterator[ListeningProcess]:
    users = _users(os.fsdecode(top))
    for pid in other_processes(proc):
        if owner_of(pid, proc) not in users:
            continue
        directory, program = directory_and_program(pid, proc)
        if not any(
            _is_in(path, top) for path in (directory, program, *command_line(pid, proc)[:LEADING_WORDS])
        ):
            continue
        sockets = frozenset(filter(None, map(_socket_number, open_files(pid, proc)))) & wanted
        if sockets:
            yield ListeningProcess(pid, directory, program, sockets)


def _socket_number(link_target: bytes) -> int:
    number = link_target.removeprefix(b"socket:[").removesuffix(b"]")
    return int(number) if number != link_target and number.isdigit() else 0


def _service_facts(
    process: ListeningProcess,
    sockets: frozenset[int],
    tcp: dict[int, int],
    unix: dict[int, bytes],
    top: bytes,
    proc: bytes,
) -> Iterator[Fact]:
    inside = process.directory[len(top) :].strip(b"/") if _is_in(process.directory, top) else b""
    values = {f":{tcp[number]}" for number in sockets if number in tcp}
    ports = frozenset(value[1:] for value in values)
    for number in sockets & unix.keys():
        path = os.path.normpath(os.path.join(process.directory, unix[number]))
        if _is_in(path, top) and GIT not in path[len(top) :].split(b"/"):
            values.add(os.fsdecode(path[len(top) :].lstrip(b"/")))
    words = [word.decode("utf-8", "replace") for word in command_line(process.pid, proc)]
    called = mask_command_line(words, os.fsdecode(process.program), ports, _finder(process.directory, top))
    if _works_on_the_environment(called.name, process.program):
        return
    key = os.fsdecode(inside) + "/" + called.name if inside else called.name
    for value in values:
        yield Fact(PROBE, key, value, EnvPath(inside), by=called.command)


def _works_on_the_environment(name: str, program: bytes) -> bool:
    """Return whether a process is git, one of our programs or a coding agent, which are not services."""
    file = os.fsdecode(os.path.basename(program)).removesuffix(".exe")
    return name == "git" or name.startswith(OWN_PROGRAMS) or not AGENTS.isdisjoint((name, file))


def _finder(directory: bytes, top: bytes) -> Find:
    """Return a function that recognises paths in the environment, relative to a directory."""

    def find(word: str) -> str | None:
        raw = word.encode("utf-8", "replace")
        if not raw or b"\0" in raw or len(raw) > MAX_WORD:
            return None
        path = os.path.normpath(os.path.join(directory, raw))
        if not _is_in(path, top) or not os.path.lexists(path):
            return None
        return os.path.relpath(path, directory).decode("utf-8", "replace")

    return find
