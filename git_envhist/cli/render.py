"""Snapshots as text: the line a list has for each, and the card that tells one in full. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from git_envhist.cli.colour import Palette
from git_envhist.cli.dates import format_date
from git_envhist.cli.formats import FormatContext
from git_envhist.cli.terminal import escape, pad, shorten, width
from git_envhist.cli.words import (
    NOT_CHECKED,
    claim,
    count,
    effect_words,
    first_line,
    services_phrase,
    story_line,
    symbol,
    verdict_cause,
    verdict_phrase,
    verdict_symbol,
)
from git_envhist.history.doings import effects_of, tasks_of
from git_envhist.history.intents import title
from git_envhist.history.story import changes_phrase
from git_envhist.history.timeline import NO_INTENT, subject
from git_envhist.model import MissingPath, Snapshot, Verdict

SHORTEST_ID = 7
WIDEST_INTENT = 44
NARROWEST_INTENT = 12
LABEL = 11


def id_length(ids: Sequence[str]) -> int:
    """How many digits tell these ids apart: seven, or as many as it takes."""
    different = len(set(ids))
    length = SHORTEST_ID
    while len({one[:length] for one in ids}) < different:
        length += 1
    return length


def list_lines(
    snapshots: Sequence[Snapshot],
    look: FormatContext,
    palette: Palette,
    columns: int | None,
    *,
    timelines: bool = False,
    indents: Sequence[int] = (),
) -> list[str]:
    """One line a snapshot, in columns; `timelines` says on which timeline each stands.

    `indents` are columns that something else takes at the left; what changed stands below what changed all the same.
    """
    indents = indents or [0] * len(snapshots)
    deepest = max(indents, default=0)
    times = [look.time(snapshot) for snapshot in snapshots]
    intents = [_named(title(snapshot), snapshot) for snapshot in snapshots]
    stories = [_story(snapshot, look, timelines) for snapshot in snapshots]
    time_width = max(map(width, times), default=0)
    intent_width = min(max(map(width, intents), default=0), WIDEST_INTENT)
    room = None
    if columns is not None:
        # id, time, symbol and the gaps between them stand in any case.
        room = columns - deepest - look.id_length - time_width - 8
        intent_width = max(NARROWEST_INTENT, min(intent_width, _room_for_intents(room, stories)))
    lines = []
    for snapshot, time, intent, story, indent in zip(
        snapshots, times, intents, stories, indents, strict=True
    ):
        more = deepest - indent
        told = _columns(intent, story, intent_width + more, room + more if room is not None else None)
        sign = verdict_symbol(snapshot.verdict)
        sign = palette.paint("none" if sign == NOT_CHECKED else _slot(snapshot.verdict), sign)
        head = (
            f"{palette.paint('id', look.short_id(snapshot))}  {palette.paint('time', pad(time, time_width))}"
        )
        after = f"  {palette.paint('story', told[1])}" if told[1] else ""
        lines.append(f"{head}  {sign} {palette.paint('intent', told[0])}{after}")
    return lines


def _story(snapshot: Snapshot, look: FormatContext, timelines: bool) -> str:
    parts = (look.signed(story_line(snapshot)), _known_from(snapshot, look))
    story = escape(" · ".join(part for part in parts if part))
    return f"[{escape(snapshot.timeline)}] {story}".rstrip() if timelines else story


def _room_for_intents(room: int, stories: Sequence[str]) -> int:
    """Two thirds, or all that the stories leave."""
    return max(room * 2 // 3, room - max(map(width, stories), default=0))


def _columns(intent: str, story: str, intent_width: int, room: int | None) -> tuple[str, str]:
    """Intent and story, as they fit beside each other; an intent with no story beside it has all the room."""
    if room is not None:
        intent = shorten(intent, intent_width if story else max(intent_width, room + 2))
        story = shorten(story, room - max(intent_width, width(intent)))
    return (pad(intent, intent_width) if story else intent), story


def _known_from(snapshot: Snapshot, look: FormatContext) -> str:
    """`✓ from 10:02`, where the verdict is that of an equal moment before."""
    verdict = snapshot.verdict
    if verdict is None or verdict.carried_from is None:
        return ""
    return f"{symbol(verdict)} from {look.printed(verdict.at)}{services_phrase(verdict)}"


def _named(words: str, snapshot: Snapshot) -> str:
    names = f" ({', '.join(map(escape, snapshot.names))})" if snapshot.names else ""
    return escape(words) + names


def oneline(snapshot: Snapshot, look: FormatContext, palette: Palette, columns: int | None) -> str:
    """Id and intent, as `git log --oneline` has them; cut to the terminal only."""
    text = " · ".join(
        part for part in (escape(claim(snapshot)), _named(subject(snapshot.intent), snapshot)) if part
    )
    if columns is not None:
        text = shorten(text, columns - look.id_length - 1)
    return f"{palette.paint('id', look.short_id(snapshot))} {text}"


def card(
    snapshot: Snapshot,
    look: FormatContext,
    palette: Palette,
    missing: Sequence[MissingPath] = (),
    story: Sequence[str] = (),
    services: Sequence[str] = (),
) -> list[str]:
    """One snapshot in full: who, when, why, what the checks said, what changed, what is not in it."""
    names = f" ({', '.join(map(escape, snapshot.names))})" if snapshot.names else ""
    lines = [palette.paint("id", f"snapshot {snapshot.id}") + palette.paint("name", names)]
    lines += [
        f"{label + ':' if label else ''}".ljust(LABEL) + value
        for label, value in _fields(snapshot, look)
        if value
    ]
    if services:
        lines.append("Services:".ljust(LABEL) + escape(", ".join(services)))
    for label, told in _doings(snapshot):
        lines.append(f"{label}:".ljust(LABEL) + escape(told))
    for verdict in snapshot.verdicts:
        lines += _verdict_lines(verdict, palette)
    lines += _state_lines(snapshot, look.signed(changes_phrase(snapshot)), missing, story)
    lines += ["", *_indented(snapshot.intent or NO_INTENT), ""]
    for remark in snapshot.remarks:
        lines += [
            palette.paint("heading", f"Note ({look_time(look, remark.at)}):"),
            *_indented(remark.text),
            "",
        ]
    return lines[:-1]


def _doings(snapshot: Snapshot) -> list[tuple[str, str]]:
    """What was told while it was the newest."""
    if not snapshot.records:
        return []
    tasks = [("Task", f"{task.status.value}: {first_line(task.text)}") for task in tasks_of((snapshot,))]
    return tasks + [("Effect", effect_words(effect)) for effect in effects_of((snapshot,))]


def _fields(snapshot: Snapshot, look: FormatContext) -> list[tuple[str, str]]:
    actor = f"{snapshot.actor.name} <{snapshot.actor.email}>"
    agent = " ".join(word for word in (snapshot.actor.agent, snapshot.actor.agent_version) if word)
    # Where the chain was rewritten plain git shows another hash than the id, which stays.
    commit = snapshot.commit if snapshot.commit != snapshot.id else ""
    head = " ".join(word for word in (snapshot.head, _branch(snapshot.branch)) if word)
    fields = [
        ("Commit", commit),
        ("Timeline", snapshot.timeline),
        ("Actor", actor if snapshot.trusted is not False else ""),
        ("Claimed", f"by {actor}: no key that is here signed it" if snapshot.trusted is False else ""),
        ("Agent", agent),
        ("Session", snapshot.actor.session or ""),
        ("Tool", snapshot.actor.tool or ""),
        ("Date", look_time(look, snapshot.at)),
        ("Trigger", snapshot.trigger.value),
        ("Head", head),
        ("External", snapshot.external_id or ""),
        *(("Meta", f"{key}={value}") for key, value in snapshot.meta),
        *(("Attached", attachment) for attachment in snapshot.attachments),
        *(
            [("", f"(git envrestore --attachments <directory> {snapshot.id[:7]})")]
            if snapshot.attachments
            else []
        ),
        ("Restored", f"from {snapshot.restored_from}" if snapshot.restored_from else ""),
        ("Forked", f"from {snapshot.forked_from}" if snapshot.forked_from else ""),
    ]
    return [(label, escape(value)) for label, value in fields]


def look_time(look: FormatContext, at: datetime) -> str:
    """A moment in the style of dates that was asked for, git's default one else."""
    return format_date(at, look.date or "default", look.now)


def _branch(branch: str | None) -> str:
    return f"({branch.removeprefix('refs/heads/')})" if branch else ""


def _state_lines(
    snapshot: Snapshot, summary: str, missing: Sequence[MissingPath], story: Sequence[str]
) -> list[str]:
    lines = ["Story:".ljust(LABEL) + escape(summary), *story]
    if snapshot.complete:
        return [*lines, "Complete:".ljust(LABEL) + "yes"]
    lines.append("Complete:".ljust(LABEL) + f"no, {count(snapshot.missing_count, 'path')} missing")
    return lines + [f"    {escape(one.path)}: {_why(one)}" for one in missing]


def _why(missing: MissingPath) -> str:
    return f"{missing.why.value} ({escape(missing.detail)})" if missing.detail else missing.why.value


def _verdict_lines(verdict: Verdict, palette: Palette) -> list[str]:
    told = verdict_cause(verdict) or first_line(verdict.command)
    if verdict.duration_ms is not None:
        told += f", {verdict.duration_ms:,} ms"
    if verdict.carried_from:
        told += f", carried over from {verdict.carried_from[:SHORTEST_ID]}{services_phrase(verdict)}"
    if verdict.changed_something:
        told += ", the check changed the environment"
    head = palette.paint(_slot(verdict), f"{symbol(verdict)} {escape(verdict_phrase(verdict))}")
    lines = ["Verdict:".ljust(LABEL) + f"{head} ({escape(told)})"]
    return lines + (_indented(verdict.output_tail.rstrip("\n")) if verdict.output_tail.strip() else [])


def _slot(verdict: Verdict | None) -> str:
    return verdict.status.value if verdict else "none"


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in escape(text, lines=True).rstrip("\n").split("\n")]
