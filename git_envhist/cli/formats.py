"""Text for one snapshot: dates, counts and sizes, check results, and `--format` templates.

`read_format` compiles a template once, so that an error in it is reported before the first line is printed. `%(word)`
is one of WORDS; `%(, word)` prints the text before the word only if the word has a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from git_envhist.diff.summary import changes_phrase, with_ascii_signs
from git_envhist.errors import UsageError
from git_envhist.history.timeline import NO_INTENT, subject
from git_envhist.history.times import DAYS, printed_time
from git_envhist.history.titles import title
from git_envhist.lazy import dataclass, pattern
from git_envhist.model import Snapshot, Trigger, Verdict, VerdictStatus
from git_envhist.printable_text import escape, for_people

if TYPE_CHECKING:
    from git_envhist.model import Effect


# The date styles of `--date=`, as in git-log(1).

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MINUTE, HOUR, DAY = 60, 3600, 86400


def format_date(at: datetime, style: str, now: datetime) -> str:
    """Return a time in one of git's styles; raise UsageError for an unknown style."""
    if style.startswith(("format:", "format-local:")):
        word, _, pattern = style.partition(":")
        return (at.astimezone() if word == "format-local" else at).strftime(pattern)
    name = style.removesuffix("-local")
    if name == "local":
        name, style = "default", "default-local"
    spell = STYLES.get(name)
    if spell is None:
        known = ", ".join(STYLES)
        raise UsageError(f"unknown date format '{style}'", hint=f"one of: {known}, local, format:<strftime>")
    local = style.endswith("-local")
    return spell(at.astimezone() if local else at, now, local)


def date_style(given: str | None, configured: str | None, *, terminal: bool) -> str | None:
    """Return the given style, else that of `log.date`; None means the default of each view."""
    style = configured if given is None else given
    if style is not None and style.startswith("auto:"):
        # As in git: this style on a terminal, the default elsewhere.
        return style.removeprefix("auto:") if terminal else None
    return style


def relative_date(at: datetime, now: datetime) -> str:
    """Return how long ago a time was, with git's words and rounding."""
    ago = int(now.timestamp()) - int(at.timestamp())
    if ago < 0:
        return "in the future"
    if ago < 90:
        return _ago(ago, "second")
    minutes = (ago + 30) // 60
    if minutes < 90:
        return _ago(minutes, "minute")
    hours = (minutes + 30) // 60
    if hours < 36:
        return _ago(hours, "hour")
    days = (hours + 12) // 24
    if days < 14:
        return _ago(days, "day")
    if days < 70:
        return _ago((days + 3) // 7, "week")
    if days < 365:
        return _ago((days + 15) // 30, "month")
    if days < 1825:
        return _years_and_months(days)
    return _ago((days + 183) // 365, "year")


def _years_and_months(days: int) -> str:
    total = (days * 12 * 2 + 365) // (365 * 2)
    years, months = divmod(total, 12)
    if not months:
        return _ago(years, "year")
    return f"{_count(years, 'year')}, {_ago(months, 'month')}"


def _ago(number: int, unit: str) -> str:
    return _count(number, unit) + " ago"


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _zone(at: datetime) -> str:
    return at.strftime("%z")[:5]


def _default(at: datetime, now: datetime, local: bool) -> str:
    text = f"{WEEKDAYS[at.weekday()]} {MONTHS[at.month - 1]} {at.day} {at:%H:%M:%S} {at.year}"
    return text if local else f"{text} {_zone(at)}"


def _iso(at: datetime, now: datetime, local: bool) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {_zone(at)}"


def _iso_strict(at: datetime, now: datetime, local: bool) -> str:
    # Newer git writes Z for UTC; one spelling is easier to compare.
    zone = _zone(at)
    return f"{at:%Y-%m-%dT%H:%M:%S}{zone[:3]}:{zone[3:]}"


def _rfc(at: datetime, now: datetime, local: bool) -> str:
    return f"{WEEKDAYS[at.weekday()]}, {at.day} {MONTHS[at.month - 1]} {at:%Y %H:%M:%S} {_zone(at)}"


def _human(at: datetime, now: datetime, local: bool) -> str:
    seen = now.astimezone(at.tzinfo)
    if at.date() == seen.date():
        return relative_date(at, now)
    clock = f"{WEEKDAYS[at.weekday()]} {MONTHS[at.month - 1]} {at.day}"
    return f"{clock} {at:%H:%M}" if at.year == seen.year else f"{MONTHS[at.month - 1]} {at.day} {at.year}"


STYLES: dict[str, Callable[[datetime, datetime, bool], str]] = {
    "default": _default,
    "iso": _iso,
    "iso8601": _iso,
    "iso-strict": _iso_strict,
    "iso8601-strict": _iso_strict,
    "rfc": _rfc,
    "rfc2822": _rfc,
    "short": lambda at, now, local: f"{at:%Y-%m-%d}",
    "raw": lambda at, now, local: f"{int(at.timestamp())} {_zone(at)}",
    "unix": lambda at, now, local: str(int(at.timestamp())),
    "human": _human,
    "relative": lambda at, now, local: relative_date(at, now),
}


# Short texts about a snapshot: check result, changes, sizes and counts.

SYMBOLS = {VerdictStatus.PASS: "✓", VerdictStatus.FAIL: "✗", VerdictStatus.ERROR: "!"}
NOT_CHECKED = "·"
CLAIMED = "?"
PHRASES = {
    VerdictStatus.PASS: "verify passing",
    VerdictStatus.FAIL: "verify failing",
    VerdictStatus.ERROR: "verify gave no result",
}
RESULTS = {VerdictStatus.PASS: "passed", VerdictStatus.FAIL: "failed", VerdictStatus.ERROR: "gave no result"}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def body(snapshot: Snapshot) -> str:
    """Return the intent without its first line."""
    lines = snapshot.intent.lstrip("\n").split("\n")
    for number, line in enumerate(lines):
        if not line.strip():
            return "\n".join(lines[number:]).strip("\n")
    return ""


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def symbol(verdict: Verdict | None) -> str:
    if verdict is None:
        return NOT_CHECKED
    return SYMBOLS[verdict.status] if verdict.claimed_by is None else CLAIMED


def verdict_symbol(verdict: Verdict | None) -> str:
    """Return the symbol before a snapshot in a list; a result carried over from an equal snapshot has none."""
    carried = verdict is not None and verdict.carried_from is not None and verdict.claimed_by is None
    return NOT_CHECKED if carried else symbol(verdict)


def verdict_phrase(verdict: Verdict | None) -> str:
    """Return `verify failing`; an empty text without a check."""
    return "" if verdict is None else PHRASES[verdict.status] + _unsigned_words(verdict)


def check_phrase(verdict: Verdict) -> str:
    """Return `failed`, and the given author if the result is unsigned."""
    return RESULTS[verdict.status] + _unsigned_words(verdict)


def _unsigned_words(verdict: Verdict) -> str:
    return f", unsigned (author given as {verdict.claimed_by})" if verdict.claimed_by is not None else ""


def services_phrase(verdict: Verdict) -> str:
    """Return `, services differ` for a result carried over between different service states, else an empty text."""
    return {"differ": ", services differ", "unknown": ", services not compared"}.get(
        verdict.services or "", ""
    )


def verdict_cause(verdict: Verdict | None) -> str:
    """Return why a check did not pass: `npm test: exit 1`."""
    if verdict is None or verdict.status is VerdictStatus.PASS or verdict.claimed_by is not None:
        return ""
    command = first_line(verdict.command)
    if verdict.timed_out:
        return f"{command}: stopped at the timeout"
    if verdict.signal is not None:
        return f"{command}: signal {verdict.signal}"
    if verdict.exit_code is None:
        return f"{command}: did not run"
    ending = f"exit {verdict.exit_code}"
    return command if command.endswith(ending) else f"{command}: {ending}"


def unfinished_words(snapshot: Snapshot) -> str:
    """Return that the latest check gave no result, for a snapshot that is listed with an earlier one."""
    cause = verdict_cause(snapshot.unfinished_check)
    return f"the last check gave no result ({cause})" if cause else ""


def story_line(snapshot: Snapshot) -> str:
    """Return the text after the intent in a list: changes, the failed check, missing paths."""
    # A narrow terminal cuts the end of the line, and nothing else in it mentions that check.
    parts = [unsigned_words(snapshot), unfinished_words(snapshot)]
    parts += [changes_phrase(snapshot), _ended(snapshot), verdict_cause(snapshot.verdict)]
    if not snapshot.complete:
        parts.append(f"partial: {count(snapshot.missing_count, 'path')} missing")
    return " · ".join(part for part in parts if part)


def _ended(snapshot: Snapshot) -> str:
    """Return `exit 3` for the snapshot after a failed command."""
    if snapshot.trigger is not Trigger.RUN:
        return ""
    status = dict(snapshot.meta).get("exit", "0")
    return f"exit {status}" if status != "0" else ""


def unsigned_words(snapshot: Snapshot) -> str:
    """Return `unsigned (author given as <name>)` if none of the user's keys signed the snapshot, else an empty text."""
    if snapshot.trusted is not False:
        return ""
    return f"unsigned (author given as {snapshot.actor.name or 'unknown'})"


def effect_words(effect: Effect) -> str:
    """Return `deployed to staging (irreversible, exit 1)`."""
    remarks = ["irreversible"] if effect.irreversible else []
    if effect.refused:
        remarks.append("refused, not done")
    elif effect.command is not None and effect.exit_code != 0:
        remarks.append("it did not finish" if effect.exit_code is None else f"exit {effect.exit_code}")
    return first_line(effect.text) + (f" ({', '.join(remarks)})" if remarks else "")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 file`, `1,204 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """Return a number of bytes as `812 B`, `3.4 MiB`."""
    amount = float(number)
    for unit in UNITS:
        if amount < 1000 or unit == UNITS[-1]:
            return f"{int(amount)} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class FormatContext:
    """The settings of a line besides its snapshot: the current time, the date style, the length of ids."""

    now: datetime
    date: str | None = None
    id_length: int = 7
    by_day: bool = False
    """True if a heading names the day."""
    ascii_signs: bool = False
    """True to write minus signs in ASCII, because the output goes to no terminal."""

    def time(self, snapshot: Snapshot) -> str:
        """Return the time as a list prints it; together with the day of the heading it names the snapshot."""
        if self.by_day:
            return f"{snapshot.at.astimezone(self.now.tzinfo):%H:%M}"
        return self.printed(snapshot.at)

    @property
    def today(self) -> str:
        """Return the heading of the current day."""
        return f"{self.now.date().isoformat()} {DAYS[self.now.weekday()].capitalize()}, today"

    def day(self, snapshot: Snapshot) -> str:
        """Return the heading of a day: `2026-11-18 Wednesday`."""
        day = snapshot.at.astimezone(self.now.tzinfo).date()
        ago = (self.now.date() - day).days
        near = {0: ", today", 1: ", yesterday"}.get(ago, "")
        return f"{day.isoformat()} {DAYS[day.weekday()].capitalize()}{near}"

    def printed(self, at: datetime) -> str:
        """Return a time as a list prints it."""
        return format_date(at, self.date, self.now) if self.date else printed_time(at, self.now)

    def words(self, snapshot: Snapshot) -> str:
        """Return the title of a snapshot in a list."""
        return escape(title(snapshot))

    def signed(self, summary: str) -> str:
        """Return a summary with ASCII minus signs if these are wanted."""
        return with_ascii_signs(summary) if self.ascii_signs else summary

    def short_id(self, snapshot: Snapshot) -> str:
        return snapshot.id[: self.id_length]


def carried_words(snapshot: Snapshot, context: FormatContext) -> str:
    """Return `✓ as at 10:02` if an equal snapshot was checked before, else an empty text."""
    verdict = snapshot.verdict
    if verdict is None or verdict.carried_from is None:
        return ""
    return f"{symbol(verdict)} as at {context.printed(verdict.at)}{services_phrase(verdict)}"


Piece = Callable[[Snapshot, FormatContext], str]

LETTERS: dict[str, Piece] = {
    "H": lambda snapshot, context: snapshot.id,
    "h": lambda snapshot, context: context.short_id(snapshot),
    "T": lambda snapshot, context: snapshot.tree,
    "s": lambda snapshot, context: escape(subject(snapshot.intent)),
    "b": lambda snapshot, context: escape(body(snapshot), lines=True),
    "B": lambda snapshot, context: escape(snapshot.intent or NO_INTENT, lines=True),
    "an": lambda snapshot, context: escape(snapshot.actor.name),
    "ae": lambda snapshot, context: escape(snapshot.actor.email),
    "ad": lambda snapshot, context: format_date(snapshot.at, context.date or "default", context.now),
    "ar": lambda snapshot, context: format_date(snapshot.at, "relative", context.now),
    "ai": lambda snapshot, context: format_date(snapshot.at, "iso", context.now),
    "aI": lambda snapshot, context: format_date(snapshot.at, "iso-strict", context.now),
    "aD": lambda snapshot, context: format_date(snapshot.at, "rfc", context.now),
    "as": lambda snapshot, context: format_date(snapshot.at, "short", context.now),
    "at": lambda snapshot, context: format_date(snapshot.at, "unix", context.now),
    "n": lambda snapshot, context: "\n",
    "%": lambda snapshot, context: "%",
}
# git's committer fields: a snapshot has one person and one time.
LETTERS |= {f"c{letter[1]}": piece for letter, piece in LETTERS.items() if len(letter) > 1}
WORDS: dict[str, Piece] = {
    "time": lambda snapshot, context: context.time(snapshot),
    "verdict": lambda snapshot, context: escape(verdict_phrase(snapshot.verdict)),
    "story": lambda snapshot, context: escape(with_ascii_signs(story_line(snapshot))),
    "carried": lambda snapshot, context: escape(carried_words(snapshot, context)),
    "name": lambda snapshot, context: escape(", ".join(snapshot.names)),
    "trigger": lambda snapshot, context: snapshot.trigger.value,
    "title": lambda snapshot, context: escape(title(snapshot)),
    "complete": lambda snapshot, context: "complete" if snapshot.complete else "partial",
}
PRESETS = {"oneline": "%h %s"}
TOKEN = pattern(
    r"%(?:x(?P<byte>[0-9a-fA-F]{2})|\((?P<lead>[^()]*?)(?P<word>[a-z]+)\)|(?P<letter>[ac][a-zA-Z]|[^x(]))|%"
)


def read_format(template: str) -> Callable[[Snapshot, FormatContext], str]:
    """Return the function that formats a snapshot by a template; raise UsageError for an unknown placeholder."""
    pieces = list(_pieces(_template(template)))
    return lambda snapshot, context: "".join(piece(snapshot, context) for piece in pieces)


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
    # Include one letter more of `%x` without digits, or of `%(`, in the error.
    what = token.string[token.start() : max(token.end(), token.start() + 2)]
    raise UsageError(f"unknown placeholder '{what}' in --format", hint=f"known: {letters} %x00 {words}")


def _field(piece: Piece) -> Piece:
    """Return the field with control characters escaped, because templates are printed exactly."""
    return lambda snapshot, context: for_people(piece(snapshot, context))


def _constant(text: str) -> Piece:
    return lambda snapshot, context: text


def _conditional(lead: str, piece: Piece) -> Piece:
    def write(snapshot: Snapshot, context: FormatContext) -> str:
        value = piece(snapshot, context)
        return lead + value if value else ""

    return write
