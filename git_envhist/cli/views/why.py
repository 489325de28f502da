"""The answers of `git envlog why` as text and as JSON."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from git_envhist.cli.formats import check_phrase, first_line, format_date
from git_envhist.cli.json_values import SCHEMA, Json, call_json, iso_time, path_fields, verdict_json
from git_envhist.cli.terminal import shorten
from git_envhist.history.attribution import RUN, Certainty
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.history.why import Origin, Subject
from git_envhist.model import RestoreRole, Snapshot, ToolCall
from git_envhist.printable_text import escape, escape_invalid

if TYPE_CHECKING:
    from git_envhist.cli.command import Session

LABEL = 11
MAX_CANDIDATES = 8
MAX_COMMAND = 160


def origin_lines(session: Session, origin: Origin, style: str | None) -> Iterator[str]:
    """Yield the lines of one step."""
    snapshot, now = origin.snapshot, session.history.now
    at = printed_time(snapshot.at, now) if style is None else format_date(snapshot.at, style, now)
    yield f"{session.paint('id', snapshot.id[:7])}  {session.paint('time', at)}  {escape(title(snapshot))}"
    for label, value in _fields(origin):
        if value:
            yield f"{label + ':' if label else ''}".ljust(LABEL) + session.signed(value)


def _fields(origin: Origin) -> Iterator[tuple[str, str]]:
    snapshot, found = origin.snapshot, origin.attribution
    yield "Change", escape(origin.change)
    if found.call is not None:
        yield "Call", call_words(found.call)
        yield "", f"({found.reason.value})"
    elif found.certainty is Certainty.RESTORE:
        yield "By", restore_words(snapshot)
    elif found.certainty is Certainty.UNCERTAIN:
        yield "Call", f"uncertain{_between(origin)}: {found.reason.value}"
        for call in found.candidates[:MAX_CANDIDATES]:
            yield "", f"perhaps {call_words(call)}"
        if len(found.candidates) > MAX_CANDIDATES:
            yield "", f"or one of {len(found.candidates) - MAX_CANDIDATES} more"
    else:
        yield "By", found.reason.value
    if found.call is not None:
        yield "Intent", escape(first_line(found.call.intent))
        yield "Session", escape(found.call.session)
    yield "Check", _checks(origin)
    if snapshot.head:
        branch = (snapshot.branch or "").removeprefix("refs/heads/")
        yield "Code", snapshot.head[:12] + (f" ({escape(branch)})" if branch else "")
    if snapshot.trusted is False:
        yield "Unsigned", escape(f"says {snapshot.actor.name}; none of your keys signed it")
    for label, words in commands(origin).items():
        yield LABELS[label], escape(words)


def restore_words(snapshot: Snapshot) -> str:
    """Return `a restore of 9ac31f2`, `an undo to ...`, `a revert of ...`, `a merge of ...`."""
    role = snapshot.restore or RestoreRole.TO
    sources = [snapshot.restored_from] if snapshot.restored_from else []
    # A revert applies the differences from the step to the snapshot before it.
    sources += [before if role is RestoreRole.REVERT else after for before, after in snapshot.applied]
    named = [source[:7] for source in sources if source]
    words = ROLES[role]
    if not named:
        return words.rpartition(" ")[0]
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return f"{words} {named[0]}{more}"


ROLES = {
    RestoreRole.BEFORE: "a restore of",
    RestoreRole.TO: "a restore of",
    RestoreRole.UNDO: "an undo to",
    RestoreRole.REDO: "a redo to",
    RestoreRole.REVERT: "a revert of",
    RestoreRole.MERGE: "a merge of",
}
LABELS = {"look": "Look", "go_back": "Go back", "take_back": "Take back"}


def commands(origin: Origin) -> dict[str, str]:
    """Return the commands that show the step, restore the state before it, and take just this step back."""
    if origin.before is None:
        return {}
    old, new = origin.before.id[:12], origin.snapshot.id[:12]
    named = [shlex.quote(os.fsdecode(path)) for path in (origin.path, origin.renamed) if path is not None]
    path = f" -- {' '.join(named)}" if named else ""
    return {
        "look": f"git envdiff {old} {new}{path}",
        "go_back": f"git envrestore {old}{path}",
        "take_back": f"git envlog revert {new}{path}",
    }


def call_words(call: ToolCall) -> str:
    """Return `Bash pip install flask, by claude-code (subagent tests), call toolu_1, failed`."""
    what = " ".join((call.command or " ".join(call.paths)).split())
    words = shorten(escape(f"{call.tool} {what}".rstrip()), MAX_COMMAND)
    who = f", by {escape(call.agent)}" if call.agent else ""
    subagent = f" (subagent {escape(call.subagent_type or call.subagent)})" if call.subagent else ""
    named = f", call {escape(call.id)}" if call.id and call.tool != RUN else ""
    return f"{words}{who}{subagent}{named}{', failed' if call.failed else ''}"


def _between(origin: Origin) -> str:
    found = origin.attribution
    if found.start is None or found.end is None:
        return ""
    zone = origin.snapshot.at.tzinfo
    start, end = (datetime.fromtimestamp(one, UTC).astimezone(zone) for one in (found.start, found.end))
    day = "" if start.date() == end.date() else f"{start:%Y-%m-%d} "
    return f", between {day}{start:%H:%M:%S} and {'' if not day else f'{end:%Y-%m-%d} '}{end:%H:%M:%S}"


def _checks(origin: Origin) -> str:
    before = _result(origin.before)
    after = _result(origin.snapshot)
    if not before and not after:
        return ""
    return f"{escape(before or 'not checked')} before, {escape(after or 'not checked')} after"


def _result(snapshot: Snapshot | None) -> str:
    verdict = snapshot.verdict if snapshot is not None else None
    return "" if verdict is None else check_phrase(verdict)


def subject_json(subject: Subject) -> Json:
    """Return the subject of a question."""
    value: Json = {"schema": SCHEMA, "subject": subject.kind.value, "name": escape_invalid(subject.name)}
    return value if subject.line is None else {**value, "line": subject.line}


def origin_json(origin: Origin) -> Json:
    """Return one step; `call` is null unless it is certain."""
    snapshot, found = origin.snapshot, origin.attribution
    before = origin.before
    return {
        "snapshot": snapshot.id,
        "before": before and before.id,
        "at": iso_time(snapshot.at),
        "title": escape_invalid(title(snapshot)),
        "intent": escape_invalid(snapshot.intent),
        "trigger": snapshot.trigger.value,
        "trusted": snapshot.trusted,
        "change": escape_invalid(origin.change),
        **({} if origin.path is None else path_fields(origin.path)),
        "line": origin.line,
        "certainty": found.certainty.value,
        "reason": found.reason.value,
        "call": found.call and call_json(found.call),
        "candidates": [call_json(call) for call in found.candidates],
        "between": [_time(found.start), _time(found.end)],
        "agent": snapshot.actor.agent and escape_invalid(snapshot.actor.agent),
        "session": snapshot.actor.session and escape_invalid(snapshot.actor.session),
        "head": snapshot.head,
        "branch": snapshot.branch and escape_invalid(snapshot.branch),
        "check_before": verdict_json(before.verdict) if before is not None and before.verdict else None,
        "check_after": verdict_json(snapshot.verdict) if snapshot.verdict else None,
        "restored_from": snapshot.restored_from,
        "commands": {label: escape_invalid(words) for label, words in commands(origin).items()},
    }


def _time(seconds: float | None) -> str | None:
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )
