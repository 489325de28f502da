"""What listens and runs from the environment: the processes of its user that stand in it, or whose program does.

A service is known by where it stands, its name and its port, and not by its number, which is another one after each
start. As long as the same sockets are listened on, nothing is read anew: the stamp is their list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from git_envhist.model import EnvPath, Fact
from git_envhist.platform import SYSTEM, parent_process
from git_envhist.probes.base import Keyed, ProbeTarget
from git_envhist.probes.processes import (
    Listener,
    namespace,
    open_files,
    others,
    owner_of,
    places,
    tcp_listeners,
    unix_listeners,
    words_of,
)

# How a program was called -> what may be told of it: its name, and the words that are nobody's secret (pure).
#
# A word is told where it is known to say nothing else: an option's name, something that lies in the environment, a
# port that is listened on, an address of this machine, a module, a verb that many programs have. Any other may be a
# password, and stars stand in its place.

STARS = "***"
NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,60}\Z")
INTERPRETER = re.compile(
    r"(?:python|pypy|node|nodejs|ruby|perl|php|bun|deno|java|dotnet|sh|bash|dash|zsh)[0-9.]*\Z"
)
OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9-]{0,40}\Z|-[A-Za-z]\Z|--\Z")
LONG_WITH_ONE_DASH = frozenset(("-jar", "-cp", "-port", "-addr", "-listen", "-bind", "-http", "-config"))
HINTS_AT_A_SECRET = re.compile(
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
SHORT = 2
"""A number of so many digits is nobody's secret: how many workers, a port of the kernel's choice."""

Find = Callable[[str], str | None]
"""A word -> the path that it is, as seen from where the program stands, if that lies in the environment."""


class Call(NamedTuple):
    """What may be told."""

    name: str
    command: str


def tell_call(words: Sequence[str], program: str, ports: frozenset[str], find: Find) -> Call:
    """Of the words that a program was called with; `program`: the file that runs."""
    if len(words) == 1:
        # Such a one wrote its own title.
        words = words[0].split()
    first = words[0] if words else program
    called = find(first) or _base(first)
    if not NAME.match(_base(called)):
        called = _base(program)
    if not NAME.match(_base(called)):
        called = "program"
    rest = list(words[1:])
    told = " ".join((called, *_tell_words(rest, ports, find, INTERPRETER.match(_base(called)) is not None)))
    return Call(
        _name(_base(called), rest, find), told if len(told) <= MAX_LENGTH else told[: MAX_LENGTH - 1] + "…"
    )


def _name(called: str, words: Sequence[str], find: Find) -> str:
    """`http.server` of `python3 -m http.server`, `server.js` of `node server.js`, else the program's own."""
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


def _tell_words(words: Sequence[str], ports: frozenset[str], find: Find, interpreted: bool) -> list[str]:
    told: list[str] = []
    before = ""
    for word in words:
        is_script = interpreted and not told and word.startswith("/") and NAME.match(_base(word)) is not None
        if word.startswith("-") and word != "-":
            told.append(_tell_option(word, ports, find))
        elif is_script:
            told.append(find(word) or _base(word))
        elif HINTS_AT_A_SECRET.search(before):
            told.append(STARS)
        else:
            told.append(_tell_word(word, before, ports, find))
        before = word if word.startswith("-") and "=" not in word else ""
    return told


def _tell_option(word: str, ports: frozenset[str], find: Find) -> str:
    option, equals, value = word.partition("=")
    if OPTION.match(option) or option in LONG_WITH_ONE_DASH:
        if not equals:
            return option
        hidden = HINTS_AT_A_SECRET.search(option) is not None
        return f"{option}={STARS if hidden else _tell_word(value, option, ports, find)}"
    # `-p8000`; `-ppassword` looks just like a long option of some programs.
    if re.match(r"-[A-Za-z]\d{1,5}\Z", word) and word[2:] in ports:
        return word
    return word[:2] + STARS if re.match(r"-[A-Za-z]", word) else STARS


def _tell_word(word: str, before: str, ports: frozenset[str], find: Find) -> str:
    place = PLACE.match(word)
    if word and place is not None and (place[1] is None or place[1] in ports or len(place[1]) <= SHORT):
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
        above = held.get(parent_process(one.pid, proc))
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
        if not raw or b"\0" in raw or len(raw) > MAX_WORD:
            return None
        path = os.path.normpath(os.path.join(directory, raw))
        if not _is_in(path, top) or not os.path.lexists(path):
            return None
        return os.path.relpath(path, directory).decode("utf-8", "replace")

    return find
