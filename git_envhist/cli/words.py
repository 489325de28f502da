"""The few words in which a snapshot is told: its verdict, what it changed, sizes and counts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.history.story import changes_phrase
from git_envhist.model import Snapshot, Trigger, Verdict, VerdictStatus

if TYPE_CHECKING:
    from git_envhist.model import Effect

SYMBOLS = {VerdictStatus.PASS: "✓", VerdictStatus.FAIL: "✗", VerdictStatus.ERROR: "!"}
NOT_CHECKED = "·"
CLAIMED = "?"
PHRASES = {
    VerdictStatus.PASS: "verify passing",
    VerdictStatus.FAIL: "verify failing",
    VerdictStatus.ERROR: "verify could not run",
}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def body(snapshot: Snapshot) -> str:
    """What follows the line that a list prints of an intent."""
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
    """The sign before a moment in a list: of a check that ran on it; what an equal one came to is told behind."""
    carried = verdict is not None and verdict.carried_from is not None and verdict.claimed_by is None
    return NOT_CHECKED if carried else symbol(verdict)


def verdict_phrase(verdict: Verdict | None) -> str:
    """`verify failing`; nothing where nothing was checked."""
    if verdict is None:
        return ""
    claimed = f", claimed by {verdict.claimed_by}" if verdict.claimed_by is not None else ""
    return PHRASES[verdict.status] + claimed


def services_phrase(verdict: Verdict) -> str:
    """Return where the services of a verdict carried over stand: `, services differ`; empty where they agree."""
    return {"differ": ", services differ", "unknown": ", services not compared"}.get(
        verdict.services or "", ""
    )


def verdict_cause(verdict: Verdict | None) -> str:
    """What a check that did not pass did: `npm test exit 1`."""
    if verdict is None or verdict.status is VerdictStatus.PASS or verdict.claimed_by is not None:
        return ""
    command = first_line(verdict.command)
    if verdict.timed_out:
        return f"{command} took too long"
    if verdict.signal is not None:
        return f"{command} signal {verdict.signal}"
    if verdict.exit_code is None:
        return f"{command} did not run"
    told = f"exit {verdict.exit_code}"
    return command if command.endswith(told) else f"{command} {told}"


def story_line(snapshot: Snapshot) -> str:
    """What a list tells of a snapshot after its intent: what changed, a failed check, what is missing."""
    parts = [claim(snapshot), changes_phrase(snapshot), _ended(snapshot), verdict_cause(snapshot.verdict)]
    if not snapshot.complete:
        parts.append(f"partial: {count(snapshot.missing_count, 'path')} missing")
    return " · ".join(part for part in parts if part)


def _ended(snapshot: Snapshot) -> str:
    """`exit 3`, of a moment after a command that failed."""
    if snapshot.trigger is not Trigger.RUN:
        return ""
    status = dict(snapshot.meta).get("exit", "0")
    return f"exit {status}" if status != "0" else ""


def claim(snapshot: Snapshot) -> str:
    """Who a snapshot says took it, where no key that is here vouches for that."""
    return f"claimed by {snapshot.actor.name or 'nobody'}" if snapshot.trusted is False else ""


def effect_words(effect: Effect) -> str:
    """`deployed to staging (irreversible, exit 1)`."""
    told = ["irreversible"] if effect.irreversible else []
    if effect.refused:
        told.append("refused, not done")
    elif effect.command is not None and effect.exit_code != 0:
        told.append("it never ended" if effect.exit_code is None else f"exit {effect.exit_code}")
    return first_line(effect.text) + (f" ({', '.join(told)})" if told else "")


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `1,204 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """Bytes as people read them: `812 B`, `3.4 MiB`."""
    amount = float(number)
    for unit in UNITS:
        if amount < 1000 or unit == UNITS[-1]:
            return f"{int(amount)} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def seconds(duration: float) -> str:
    """`0.31 s`, `4.2 s`, `2 min 05 s`."""
    if duration < 10:
        return f"{duration:.2f} s" if duration < 1 else f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
