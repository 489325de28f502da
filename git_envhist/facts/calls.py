"""How a program was called -> what may be told of it: its name, and the words that are nobody's secret (pure).

A word is told where it is known to say nothing else: an option's name, something that lies in the environment, a
port that is listened on, an address of this machine, a module, a verb that many programs have. Any other may be a
password, and stars stand in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
LONGEST = 200
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
    return Call(_name(_base(called), rest, find), told if len(told) <= LONGEST else told[: LONGEST - 1] + "…")


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
