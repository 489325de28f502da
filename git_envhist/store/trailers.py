"""The values of a message's trailers, each on its one line (pure)."""

from __future__ import annotations

import re
from functools import lru_cache

from git_envhist.errors import Damaged
from git_envhist.model import Actor
from git_envhist.values import pattern

QUOTED = pattern("%([0-7][0-9a-f])")
ACTOR = pattern(r"([^<>]*) <([^<>]*)>(?:; (.*))?", re.DOTALL)


def quote(value: str, also: str = "") -> str:
    """The value on one line: line breaks, NUL, `%` and the characters of `also` as %xx."""
    if not any(character in value for character in "%\n\r\0" + also):
        return value
    unsafe = frozenset("%\n\r\0" + also)
    return "".join(f"%{ord(character):02x}" if character in unsafe else character for character in value)


def unquote(value: str) -> str:
    return QUOTED.sub(lambda found: chr(int(found[1], 16)), value) if "%" in value else value


def write_actor(actor: Actor) -> str:
    """`Name <address>`, and the agent where there is one."""
    who = f"{quote(actor.name, '<>')} <{quote(actor.email, '<>')}>"
    words = [
        f"{word}={quote(value, ' ;=')}"
        for word, value in (
            ("agent", actor.agent),
            ("version", actor.agent_version),
            ("session", actor.session),
            ("tool", actor.tool),
        )
        if value is not None
    ]
    return f"{who}; {' '.join(words)}" if words else who


# The same few people and agents make all the snapshots of a timeline.
@lru_cache(maxsize=64)
def read_actor(text: str) -> Actor:
    """What `write_actor` wrote."""
    found = ACTOR.fullmatch(text)
    if found is None:
        raise damaged_trailer("Env-Actor")
    words = dict(word.partition("=")[::2] for word in (found[3] or "").split(" "))
    agent, version, session, tool = (
        unquote(words[word]) if word in words else None for word in ("agent", "version", "session", "tool")
    )
    return Actor(unquote(found[1]), unquote(found[2]), agent, version, session, tool)


def damaged_trailer(key: str) -> Damaged:
    """What to raise where a trailer of ours cannot be read."""
    return Damaged(f"the snapshot's trailer '{key}' is not as this program writes it")
