"""The text of facts, as a snapshot stores them (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import EnvPath, Fact
from git_envhist.snapshots.quoting import quote, unquote

# Facts, one per line, sorted: `.envhist/facts/<probe>`.
#
#     envhist-facts 1 pip 1
#     .venv/click 8.1.7 at=.venv/lib/python3.11/site-packages/click-8.1.7.dist-info auto
#
# The first line names the format, the probe and the probe's version; facts of two versions are not compared. A probe
# that ran and found nothing writes only that line; without a file, nothing is known. Malformed lines are skipped.

HEAD = b"envhist-facts 1 "
NO_VALUE = b"-"
MAX_SIZE = 64 << 20
MAX_LINE = 1 << 14
SUFFIX = ".sealed"
"""Suffix of the text that contains a probe's facts about sealed files."""
NAME = pattern(r"[a-z][a-z0-9-]{0,31}\Z")


class FactText(NamedTuple):
    """The stored facts of one probe: the probe's version, and the sorted lines."""

    version: int
    lines: list[bytes]


def fact_line(fact: Fact) -> bytes:
    """Return the line of one fact, without its line feed."""
    words = [quote(_raw(fact.key)), quote(_raw(fact.value)) or NO_VALUE]
    words += [b"at=" + quote(fact.at)] if fact.at else []
    words += [b"by=" + quote(_raw(fact.by))] if fact.by else []
    words += [b"auto"] if fact.auto else []
    return b" ".join(words)


def write_facts(probe: str, version: int, lines: Iterable[bytes]) -> bytes:
    """Return the text of a probe's facts; lines longer than MAX_LINE are left out."""
    ordered = sorted({line for line in lines if len(line) <= MAX_LINE})
    head = HEAD + b"%b %d" % (probe.encode("ascii"), version)
    return b"\n".join([head, *ordered, b""])


def read_fact_text(probe: str, data: bytes) -> FactText | None:
    """Return the lines of a probe's text, or None if this version cannot read it."""
    head, _, rest = data.partition(b"\n")
    opening = HEAD + probe.encode("ascii") + b" "
    version = head.removeprefix(opening)
    if len(data) > MAX_SIZE or not head.startswith(opening) or not (version.isdigit() and len(version) < 9):
        return None
    return FactText(int(version), sorted(line for line in rest.split(b"\n") if line))


def read_fact(probe: str, line: bytes) -> Fact | None:
    """Return the fact of one line, or None if it is malformed."""
    key, _, rest = line.partition(b" ")
    value, *words = rest.split(b" ")
    extras = dict(word.partition(b"=")[::2] for word in words)
    try:
        return Fact(
            probe,
            _fact_text(unquote(key)),
            "" if value == NO_VALUE else _fact_text(unquote(value)),
            EnvPath(unquote(extras.get(b"at", b""))),
            _fact_text(unquote(extras.get(b"by", b""))),
            b"auto" in extras,
        )
    except Damaged:
        return None


def without_places(lines: Iterable[bytes], places: Collection[bytes]) -> list[bytes]:
    """Return the lines that do not come from one of these directories."""
    quoted = {quote(place) for place in places}
    return [line for line in lines if _place(line) not in quoted]


def differing_facts(probe: str, before: bytes, after: bytes) -> tuple[list[Fact], list[Fact]]:
    """Return the facts that only the earlier text has, and those that only the later one has."""
    old, new = read_fact_text(probe, before), read_fact_text(probe, after)
    if old is None or new is None or old.version != new.version:
        return [], []
    removed = sorted(set(old.lines).difference(new.lines))
    added = sorted(set(new.lines).difference(old.lines))
    return _facts_not_in(probe, removed, new.lines), _facts_not_in(probe, added, old.lines)


def _facts_not_in(probe: str, lines: list[bytes], others: list[bytes]) -> list[Fact]:
    facts = (read_fact(probe, line) for line in lines if not _contains_fact(line, others))
    return [fact for fact in facts if fact is not None]


def _contains_fact(line: bytes, others: list[bytes]) -> bool:
    """Return whether the other text has the same fact, possibly from another directory."""
    start = b" ".join(line.split(b" ", 2)[:2])
    at = bisect_left(others, start)
    return at < len(others) and (others[at] == start or others[at].startswith(start + b" "))


def _place(line: bytes) -> bytes:
    at = line.find(b" at=")
    return b"" if at < 0 else line[at + 4 :].partition(b" ")[0]


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _fact_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
