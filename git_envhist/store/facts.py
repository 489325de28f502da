"""The facts of a snapshot as text, one a line, sorted: `.envhist/facts/<probe>` (pure).

    envhist-facts 1 pip 1
    .venv/click 8.1.7 at=.venv/lib/python3.11/site-packages/click-8.1.7.dist-info auto
    .venv/flask 3.0.1 at=.venv/lib/python3.11/site-packages/flask-3.0.1.dist-info

The first line names the format, the probe, and the version of the probe: what two versions say is not compared. A
probe that looked and found nothing leaves that line alone; where there is no file, nothing is known. Such a text may
come from anywhere, so a line that is none is passed over.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath, Fact
from git_envhist.store.quoting import quote, unquote

HEAD = b"envhist-facts 1 "
NO_VALUE = b"-"
LARGEST = 64 << 20
LONGEST_LINE = 1 << 14
SUFFIX = ".sealed"
"""Ends the name of the text that holds a probe's facts of sealed files."""
NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")


class FactText(NamedTuple):
    """The facts of one probe, as they are stored: the version of the probe, and the lines in their order."""

    version: int
    lines: list[bytes]


def fact_line(fact: Fact) -> bytes:
    """The line of one fact, without its end."""
    words = [quote(_raw(fact.key)), quote(_raw(fact.value)) or NO_VALUE]
    words += [b"at=" + quote(fact.at)] if fact.at else []
    words += [b"by=" + quote(_raw(fact.by))] if fact.by else []
    words += [b"auto"] if fact.auto else []
    return b" ".join(words)


def write_facts(probe: str, version: int, lines: Iterable[bytes]) -> bytes:
    """The text of a probe's facts; lines beyond any measure are left out."""
    kept = sorted({line for line in lines if len(line) <= LONGEST_LINE})
    head = HEAD + b"%b %d" % (probe.encode("ascii"), version)
    return b"\n".join([head, *kept, b""])


def read_fact_text(probe: str, data: bytes) -> FactText | None:
    """The lines of a probe's text; None where it is none that this version can read."""
    head, _, rest = data.partition(b"\n")
    opening = HEAD + probe.encode("ascii") + b" "
    version = head.removeprefix(opening)
    if len(data) > LARGEST or not head.startswith(opening) or not (version.isdigit() and len(version) < 9):
        return None
    return FactText(int(version), sorted(line for line in rest.split(b"\n") if line))


def read_fact(probe: str, line: bytes) -> Fact | None:
    """What one line says; None where it is none."""
    key, _, rest = line.partition(b" ")
    value, *words = rest.split(b" ")
    told = dict(word.partition(b"=")[::2] for word in words)
    try:
        return Fact(
            probe,
            _text(unquote(key)),
            "" if value == NO_VALUE else _text(unquote(value)),
            EnvPath(unquote(told.get(b"at", b""))),
            _text(unquote(told.get(b"by", b""))),
            b"auto" in told,
        )
    except Damaged:
        return None


def without(lines: Iterable[bytes], places: Collection[bytes]) -> list[bytes]:
    """The lines less those that these directories say."""
    quoted = {quote(place) for place in places}
    return [line for line in lines if _place(line) not in quoted]


def differing_facts(probe: str, before: bytes, after: bytes) -> tuple[list[Fact], list[Fact]]:
    """The facts that only the earlier text has, and those that only the later one has."""
    old, new = read_fact_text(probe, before), read_fact_text(probe, after)
    if old is None or new is None or old.version != new.version:
        return [], []
    gone = sorted(set(old.lines).difference(new.lines))
    come = sorted(set(new.lines).difference(old.lines))
    return _only_there(probe, gone, new.lines), _only_there(probe, come, old.lines)


def _only_there(probe: str, lines: list[bytes], others: list[bytes]) -> list[Fact]:
    facts = (read_fact(probe, line) for line in lines if not _is_said(line, others))
    return [fact for fact in facts if fact is not None]


def _is_said(line: bytes, others: list[bytes]) -> bool:
    """Whether the same is said there, be it by another directory."""
    said = b" ".join(line.split(b" ", 2)[:2])
    at = bisect_left(others, said)
    return at < len(others) and (others[at] == said or others[at].startswith(said + b" "))


def _place(line: bytes) -> bytes:
    at = line.find(b" at=")
    return b"" if at < 0 else line[at + 4 :].partition(b" ")[0]


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
