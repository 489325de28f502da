"""`--format`: git's placeholders for snapshots, and words of our own in parentheses.

A template is read once into pieces, each a function from a moment to text, so that a slip in it is told before the
first line is printed. `%(word)` stands for one of WORDS; `%(, word)` puts the text before the word in front of its
value, and is nothing at all where the value is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from git_envhist.cli.dates import format_date
from git_envhist.cli.terminal import escape, for_people
from git_envhist.cli.words import body, story_line, verdict_phrase
from git_envhist.errors import UsageError
from git_envhist.history.intents import title
from git_envhist.history.story import with_ascii_signs
from git_envhist.history.timeline import NO_INTENT, subject
from git_envhist.history.times import DAYS, printed_time
from git_envhist.model import Snapshot
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class FormatContext:
    """What a line needs besides its snapshot: the reader's moment, the style of dates, the length of an id."""

    now: datetime
    date: str | None = None
    id_length: int = 7
    by_day: bool = False
    """Whether a heading names the day."""
    ascii_signs: bool = False
    """Spell the minus signs of summaries in ASCII: the text goes to no terminal."""

    def time(self, snapshot: Snapshot) -> str:
        """Return the time as a list prints it; with the day of the heading, each spelling finds the snapshot."""
        if self.by_day:
            return f"{snapshot.at.astimezone(self.now.tzinfo):%H:%M}"
        return self.printed(snapshot.at)

    @property
    def today(self) -> str:
        """Return the heading of the present day."""
        return f"{self.now.date().isoformat()} {DAYS[self.now.weekday()].capitalize()}, today"

    def day(self, snapshot: Snapshot) -> str:
        """Return the heading of a day: `2026-11-18 Wednesday`."""
        day = snapshot.at.astimezone(self.now.tzinfo).date()
        ago = (self.now.date() - day).days
        near = {0: ", today", 1: ", yesterday"}.get(ago, "")
        return f"{day.isoformat()} {DAYS[day.weekday()].capitalize()}{near}"

    def printed(self, at: datetime) -> str:
        """A moment as a list prints it."""
        return format_date(at, self.date, self.now) if self.date else printed_time(at, self.now)

    def words(self, snapshot: Snapshot) -> str:
        """The words that a list has for a moment."""
        return escape(title(snapshot))

    def signed(self, summary: str) -> str:
        """Return a summary with the signs that its reader expects."""
        return with_ascii_signs(summary) if self.ascii_signs else summary

    def short_id(self, snapshot: Snapshot) -> str:
        return snapshot.id[: self.id_length]


Piece = Callable[[Snapshot, FormatContext], str]

LETTERS: dict[str, Piece] = {
    "H": lambda snapshot, look: snapshot.id,
    "h": lambda snapshot, look: look.short_id(snapshot),
    "T": lambda snapshot, look: snapshot.tree,
    "s": lambda snapshot, look: escape(subject(snapshot.intent)),
    "b": lambda snapshot, look: escape(body(snapshot), lines=True),
    "B": lambda snapshot, look: escape(snapshot.intent or NO_INTENT, lines=True),
    "an": lambda snapshot, look: escape(snapshot.actor.name),
    "ae": lambda snapshot, look: escape(snapshot.actor.email),
    "ad": lambda snapshot, look: format_date(snapshot.at, look.date or "default", look.now),
    "ar": lambda snapshot, look: format_date(snapshot.at, "relative", look.now),
    "ai": lambda snapshot, look: format_date(snapshot.at, "iso", look.now),
    "aI": lambda snapshot, look: format_date(snapshot.at, "iso-strict", look.now),
    "aD": lambda snapshot, look: format_date(snapshot.at, "rfc", look.now),
    "as": lambda snapshot, look: format_date(snapshot.at, "short", look.now),
    "at": lambda snapshot, look: format_date(snapshot.at, "unix", look.now),
    "n": lambda snapshot, look: "\n",
    "%": lambda snapshot, look: "%",
}
# git's second person and second time: a moment has one of each.
LETTERS |= {f"c{letter[1]}": piece for letter, piece in LETTERS.items() if len(letter) > 1}
WORDS: dict[str, Piece] = {
    "time": lambda snapshot, look: look.time(snapshot),
    "verdict": lambda snapshot, look: escape(verdict_phrase(snapshot.verdict)),
    "story": lambda snapshot, look: escape(with_ascii_signs(story_line(snapshot))),
    "name": lambda snapshot, look: escape(", ".join(snapshot.names)),
    "trigger": lambda snapshot, look: snapshot.trigger.value,
    "title": lambda snapshot, look: escape(title(snapshot)),
    "complete": lambda snapshot, look: "complete" if snapshot.complete else "partial",
}
PRESETS = {"oneline": "%h %s"}
TOKEN = re.compile(
    r"%(?:x(?P<byte>[0-9a-fA-F]{2})|\((?P<lead>[^()]*?)(?P<word>[a-z]+)\)|(?P<letter>[ac][a-zA-Z]|[^x(]))|%"
)


def read_format(template: str) -> Callable[[Snapshot, FormatContext], str]:
    """The function that writes a snapshot by a template; an unknown placeholder is a usage error."""
    pieces = list(_pieces(_template(template)))
    return lambda snapshot, look: "".join(piece(snapshot, look) for piece in pieces)


def _template(text: str) -> str:
    for prefix in ("tformat:", "format:"):
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    if "%" in text or not text:
        return text
    if text not in PRESETS:
        raise UsageError(
            f"invalid --format '{text}'", hint="a template like '%h %s', or one of: " + ", ".join(PRESETS)
        )
    return PRESETS[text]


def _pieces(template: str) -> list[Piece]:
    pieces: list[Piece] = []
    at = 0
    for token in TOKEN.finditer(template):
        pieces += [_constant(template[at : token.start()]), _piece(token)]
        at = token.end()
    return [*pieces, _constant(template[at:])]


def _piece(token: re.Match[str]) -> Piece:
    if token["byte"]:
        return _constant(chr(int(token["byte"], 16)))
    if token["word"] in WORDS:
        one = _field(WORDS[token["word"]])
        return _conditional(token["lead"], one) if token["lead"] else one
    if token["letter"] in LETTERS:
        return _field(LETTERS[token["letter"]])
    words = " ".join(f"%({word})" for word in WORDS)
    letters = " ".join(f"%{letter}" for letter in LETTERS)
    # Of `%x` without digits, or `%(`, a letter more says what was meant.
    what = token.string[token.start() : max(token.end(), token.start() + 2)]
    raise UsageError(f"unknown placeholder '{what}' in --format", hint=f"known: {letters} %x00 {words}")


def _field(piece: Piece) -> Piece:
    """A field as it is printed, whatever its own function leaves in it: a template is written exactly."""
    return lambda snapshot, look: for_people(piece(snapshot, look))


def _constant(text: str) -> Piece:
    return lambda snapshot, look: text


def _conditional(lead: str, piece: Piece) -> Piece:
    def write(snapshot: Snapshot, look: FormatContext) -> str:
        value = piece(snapshot, look)
        return lead + value if value else ""

    return write
