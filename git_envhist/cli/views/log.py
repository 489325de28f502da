"""The list of snapshots: selection, lines, grouping, the graph, the full view, and JSON.

`select` applies range, filters and paths in this order; `select_folded` also groups automatic snapshots of a turn
or a run in one line; `select_graph` adds the lines of `--graph`. `list_lines`, `oneline` and `full_view_lines`
turn snapshots into text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from git_envhist.cli.formats import (
    NOT_CHECKED,
    FormatContext,
    body,
    carried_words,
    check_phrase,
    count,
    effect_words,
    first_line,
    format_date,
    services_phrase,
    story_line,
    symbol,
    unsigned_words,
    verdict_cause,
    verdict_symbol,
)
from git_envhist.cli.main import is_probable_subcommand, unknown_subcommand
from git_envhist.cli.output import Palette
from git_envhist.cli.terminal import pad, shorten, width
from git_envhist.diff.summary import changes_phrase, describe_counts
from git_envhist.errors import EnvhistError, SnapshotNotFound, UsageError
from git_envhist.history.graph import (
    GraphRow,
    LogLine,
    connected,
    draw,
    fold_snapshots,
    parents_of,
    shown_parents,
    sort_for_graph,
)
from git_envhist.history.tasks_and_effects import effects_of, tasks_of
from git_envhist.history.timeline import NO_INTENT, SnapshotFilter, Timeline, filter_snapshots, subject
from git_envhist.history.titles import title
from git_envhist.lazy import dataclass, replace
from git_envhist.model import IntentSource, MissingPath, Snapshot, Verdict
from git_envhist.printable_text import escape, format_duration, plain_output

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.command import Session
    from git_envhist.cli.json_values import Json


# The list as JSON. One git process compares all snapshots; one per snapshot would need two processes each.


def json_values(history: EnvHistory, shown: Sequence[Snapshot], *, most_paths: int) -> Iterator[Json]:
    """Yield the JSON value of each snapshot, in blocks."""
    from git_envhist.cli.json_values import snapshot_json  # loaded late: only JSON needs it
    from git_envhist.cli.views.details import (  # loaded late: only JSON needs it
        details_of,
        with_lists,
        with_outputs,
    )
    from git_envhist.diff.compare_series import AT_ONCE, changes_of  # loaded late: only JSON needs it
    from git_envhist.git.cat_file import CatFile  # loaded late: only JSON needs it

    git = history.repository.git
    with CatFile(git) as reader:
        for start in range(0, len(shown), AT_ONCE):
            snapshots = [with_lists(history, one) for one in shown[start : start + AT_ONCE]]
            steps = changes_of(git, reader, [(one.commit, one.parent) for one in snapshots])
            for snapshot, (_, changes) in zip(snapshots, steps, strict=True):
                details = details_of(history, reader, snapshot, changes)
                yield snapshot_json(with_outputs(history, snapshot), details, most_paths=most_paths)


def print_list(session: Session, shown: list[Snapshot], *, measured: bool) -> None:
    """Print the list as JSON: an array, or one object per line."""
    from git_envhist.cli.json_values import dump  # loaded late: only JSON needs it

    values = map(dump, _json_values(session.history, shown, measured=measured))
    if session.json == "lines":
        for value in values:
            session.line(value)
        return
    session.output.exact("[")
    for number, value in enumerate(values):
        session.output.exact(("," if number else "") + "\n" + value)
    session.line("\n]" if shown else "]")


def _json_values(history: EnvHistory, shown: list[Snapshot], *, measured: bool) -> Iterable[Json]:
    from git_envhist.cli.json_values import PATHS_IN_LISTS  # loaded late: only JSON needs it

    if measured:
        from git_envhist.cli.views.html import json_values_with_sizes  # loaded late: only --stat needs it

        return json_values_with_sizes(history, shown, most_paths=PATHS_IN_LISTS)
    return json_values(history, shown, most_paths=PATHS_IN_LISTS)


SHORTEST_ID = 7
WIDEST_INTENT = 44
NARROWEST_INTENT = 12
LABEL = 11


def id_length(ids: Sequence[str]) -> int:
    """Return how many digits make these ids unique, at least seven."""
    different = len(set(ids))
    length = SHORTEST_ID
    while len({one[:length] for one in ids}) < different:
        length += 1
    return length


def list_lines(
    snapshots: Sequence[Snapshot],
    context: FormatContext,
    palette: Palette,
    columns: int | None,
    *,
    timelines: bool = False,
    indents: Sequence[int] = (),
) -> list[str]:
    """Return one line per snapshot, in columns; with `timelines` each names its timeline.

    `indents` are columns that the graph uses at the left; the summaries stay aligned.
    """
    indents = indents or [0] * len(snapshots)
    deepest = max(indents, default=0)
    times = [context.time(snapshot) for snapshot in snapshots]
    intents = [_named(title(snapshot), snapshot) for snapshot in snapshots]
    stories = [_story(snapshot, context, timelines) for snapshot in snapshots]
    time_width = max(map(width, times), default=0)
    intent_width = min(max(map(width, intents), default=0), WIDEST_INTENT)
    available = None
    if columns is not None:
        # id, time, symbol and the gaps between them have a fixed width.
        available = columns - deepest - context.id_length - time_width - 8
        intent_width = max(NARROWEST_INTENT, min(intent_width, _intent_columns(available, stories)))
    lines = []
    for snapshot, time, intent, story, indent in zip(
        snapshots, times, intents, stories, indents, strict=True
    ):
        more = deepest - indent
        cells = _columns(
            intent, story, intent_width + more, available + more if available is not None else None
        )
        sign = verdict_symbol(snapshot.verdict)
        sign = palette.paint("none" if sign == NOT_CHECKED else _slot(snapshot.verdict), sign)
        head = f"{palette.paint('id', context.short_id(snapshot))}  {palette.paint('time', pad(time, time_width))}"
        after = f"  {palette.paint('story', cells[1])}" if cells[1] else ""
        lines.append(f"{head}  {sign} {palette.paint('intent', cells[0])}{after}")
    return lines


def _story(snapshot: Snapshot, context: FormatContext, timelines: bool) -> str:
    # First, because the end of a long summary is cut off on a terminal.
    parts = (carried_words(snapshot, context), context.signed(story_line(snapshot)))
    story = escape(" · ".join(part for part in parts if part))
    return f"[{escape(snapshot.timeline)}] {story}".rstrip() if timelines else story


def _intent_columns(available: int, stories: Sequence[str]) -> int:
    """Return the width for intents: two thirds, or all that the summaries do not need."""
    return max(available * 2 // 3, available - max(map(width, stories), default=0))


def _columns(intent: str, story: str, intent_width: int, available: int | None) -> tuple[str, str]:
    """Return intent and summary cut to their columns; without a summary the intent gets the whole width."""
    if available is not None:
        intent = shorten(intent, intent_width if story else max(intent_width, available + 2))
        story = shorten(story, available - max(intent_width, width(intent)))
    return (pad(intent, intent_width) if story else intent), story


def _named(words: str, snapshot: Snapshot) -> str:
    names = f" ({', '.join(map(escape, snapshot.names))})" if snapshot.names else ""
    return escape(words) + names


def oneline(snapshot: Snapshot, context: FormatContext, palette: Palette, columns: int | None) -> str:
    """Return id and title, as `git log --oneline`, cut on a terminal only."""
    text = " · ".join(
        part for part in (escape(unsigned_words(snapshot)), _named(title(snapshot), snapshot)) if part
    )
    if columns is not None:
        text = shorten(text, columns - context.id_length - 1)
    return f"{palette.paint('id', context.short_id(snapshot))} {text}"


def full_view_lines(
    snapshot: Snapshot,
    context: FormatContext,
    palette: Palette,
    missing: Sequence[MissingPath] = (),
    story: Sequence[str] = (),
    services: Sequence[str] = (),
) -> list[str]:
    """Return one snapshot in full: author, time, check results, title and intent, changes, outputs, notes."""
    names = f" ({', '.join(map(escape, snapshot.names))})" if snapshot.names else ""
    lines = [palette.paint("id", f"snapshot {snapshot.id}") + palette.paint("name", names)]
    lines += [
        f"{label + ':' if label else ''}".ljust(LABEL) + value
        for label, value in _fields(snapshot, context)
        if value
    ]
    if services:
        lines.append("Services:".ljust(LABEL) + escape(", ".join(services)))
    for label, text in _record_fields(snapshot):
        lines.append(f"{label}:".ljust(LABEL) + escape(text))
    lines += [_verdict_line(verdict, palette) for verdict in snapshot.verdicts]
    lines += ["", *_intent_lines(snapshot), ""]
    lines += [*_state_lines(snapshot, context.signed(changes_phrase(snapshot)), missing, story), ""]
    for verdict in snapshot.verdicts:
        lines += _output_lines(verdict, palette)
    for remark in snapshot.remarks:
        lines += [
            palette.paint("heading", f"Note ({look_time(context, remark.at)}):"),
            *_indented(remark.text),
            "",
        ]
    return lines[:-1]


def _record_fields(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the tasks and effects recorded on a snapshot."""
    if not snapshot.records:
        return []
    tasks = [("Task", f"{task.status.value}: {first_line(task.text)}") for task in tasks_of((snapshot,))]
    return tasks + [("Effect", effect_words(effect)) for effect in effects_of((snapshot,))]


def _fields(snapshot: Snapshot, context: FormatContext) -> list[tuple[str, str]]:
    actor = f"{snapshot.actor.name} <{snapshot.actor.email}>"
    agent = " ".join(word for word in (snapshot.actor.agent, snapshot.actor.agent_version) if word)
    # After a rewrite, plain git shows another hash than the id.
    commit = snapshot.commit if snapshot.commit != snapshot.id else ""
    head = " ".join(word for word in (snapshot.head, _branch(snapshot.branch)) if word)
    fields = [
        ("Commit", commit),
        ("Timeline", snapshot.timeline),
        ("Actor", actor if snapshot.trusted is not False else ""),
        (
            "Unsigned",
            f"author given as {actor}; none of your keys signed it" if snapshot.trusted is False else "",
        ),
        ("Agent", agent),
        ("Session", snapshot.actor.session or ""),
        ("Tool", snapshot.actor.tool or ""),
        *_call_fields(snapshot),
        ("Date", look_time(context, snapshot.at)),
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
        ("Merged", snapshot.merged or ""),
    ]
    return [(label, escape(value)) for label, value in fields]


def _call_fields(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the calls of tools that ran since the snapshot before, and the one that was about to run."""
    for call in snapshot.calls:
        what = call.command or " ".join(call.paths)
        words = f"{call.tool} {first_line(what)}".rstrip() if what else call.tool
        subagent = f" (subagent {call.subagent_type or call.subagent})" if call.subagent else ""
        failed = ", failed" if call.failed else ""
        yield ("Next" if call.began is None else "Call", words + subagent + failed)


def look_time(context: FormatContext, at: datetime) -> str:
    """Return a time in the chosen date style, else in git's default one."""
    return format_date(at, context.date or "default", context.now)


def _branch(branch: str | None) -> str:
    return f"({branch.removeprefix('refs/heads/')})" if branch else ""


def _state_lines(
    snapshot: Snapshot, summary: str, missing: Sequence[MissingPath], story: Sequence[str]
) -> list[str]:
    lines = ["Summary:".ljust(LABEL) + escape(summary), *story]
    if snapshot.complete:
        return lines
    lines.append("Complete:".ljust(LABEL) + f"no, {count(snapshot.missing_count, 'path')} missing")
    return lines + [f"    {escape(one.path)}: {_why(one)}" for one in missing]


def _why(missing: MissingPath) -> str:
    return f"{missing.why.value} ({escape(missing.detail)})" if missing.detail else missing.why.value


def _intent_lines(snapshot: Snapshot) -> list[str]:
    """Return the title that lists print, and the rest of the intent."""
    intent = snapshot.intent or NO_INTENT
    heading = title(snapshot)
    if heading == subject(intent):
        return _indented(intent)
    if heading.endswith(subject(intent)):
        return _indented(f"{heading}\n\n{body(snapshot)}")
    # A substitute's intent is the subject of a code commit, which is older than the snapshot.
    substitute = snapshot.intent_source in (IntentSource.COMMIT, IntentSource.NONE)
    return _indented(heading if substitute else f"{heading}\n\n{intent}")


def _verdict_line(verdict: Verdict, palette: Palette) -> str:
    remarks = verdict_cause(verdict) or first_line(verdict.command)
    if verdict.duration_ms is not None:
        remarks += f", {format_duration(verdict.duration_ms / 1000)}"
    if verdict.carried_from:
        remarks += f", carried over from {verdict.carried_from[:SHORTEST_ID]}{services_phrase(verdict)}"
    if verdict.changed_something:
        remarks += ", the check changed files after the snapshot"
    head = palette.paint(_slot(verdict), f"{symbol(verdict)} {escape(check_phrase(verdict))}")
    return "Check:".ljust(LABEL) + f"{head} ({escape(remarks)})"


def _output_lines(verdict: Verdict, palette: Palette) -> list[str]:
    output = plain_output(verdict.output_tail)
    if not output:
        return []
    heading = palette.paint("heading", f"Output of {escape(first_line(verdict.command))}:")
    return [heading, *_indented(output), ""]


def _slot(verdict: Verdict | None) -> str:
    return verdict.status.value if verdict else "none"


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in escape(text, lines=True).rstrip("\n").split("\n")]


# Selection of the snapshots of a list.


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The filters of a list, in the order in which they are applied."""

    revisions: tuple[str, ...]
    every: bool
    pathspecs: tuple[bytes, ...]
    choice: SnapshotFilter
    limit: int | None
    reverse: bool

    @property
    def seeks(self) -> bool:
        """True if single snapshots are searched, so that nothing may be grouped."""
        choice = self.choice
        searches = choice.summary is not None or choice.searches_content
        by_agent = choice.sessions or choice.agent_ids
        return bool(self.pathspecs or searches or choice.verdicts or choice.triggers or by_agent)


def select(history: EnvHistory, wanted: LogQuery) -> list[Snapshot]:
    """Return the selected snapshots in the order of output."""
    whole = not (wanted.revisions or wanted.pathspecs or wanted.choice.restricts or wanted.every)
    # Only the whole timeline shows where a name was given last; notes can be on any snapshot.
    found = _recent(history, wanted.limit) if whole else _reached(history, wanted)
    if wanted.pathspecs:
        changed = _that_changed(history, found, wanted.pathspecs)
        found = [snapshot for snapshot in found if snapshot.commit in changed]
    shown = filter_snapshots(found, wanted.choice, history.now) if wanted.choice.restricts else found
    if wanted.choice.summary is not None:
        from git_envhist.history.timeline import filter_by_summary  # loaded late: keeps envlog fast

        shown = filter_by_summary(history.repository.git, shown, wanted.choice.summary, history.keys.opening)
    if wanted.choice.searches_content:
        from git_envhist.context import (  # loaded late: only -S and -G need it
            refuse_oversized_trees,
            version_reader,
        )
        from git_envhist.history.search import filter_by_content  # loaded late: only -S and -G need it

        refuse_oversized_trees(history, shown)
        shown = filter_by_content(
            history.repository.git, shown, wanted.choice, wanted.pathspecs, version_reader(history)
        )
    if wanted.limit is not None and wanted.limit >= 0:
        shown = shown[: wanted.limit]
    return shown[::-1] if wanted.reverse else shown


def _recent(history: EnvHistory, limit: int | None) -> list[Snapshot]:
    name = history.timeline
    if name is None:
        return []
    return list(Timeline.of(name, history.log(limit if limit is None or limit >= 0 else None)).snapshots)


def _reached(history: EnvHistory, wanted: LogQuery) -> list[Snapshot]:
    if wanted.every:
        if wanted.revisions:
            raise UsageError("--all and a range exclude each other")
        if (
            wanted.limit is not None
            and wanted.limit >= 0
            and not (wanted.pathspecs or wanted.choice.restricts)
        ):
            newest = history.newest(wanted.limit)
            if newest is not None:
                return newest
        # A fetched copy of a local timeline is listed once.
        everything: dict[str, Snapshot] = {}
        for line in history.catalog.timelines():
            for snapshot in line.snapshots:
                everything.setdefault(snapshot.id, snapshot)
        return sorted(everything.values(), key=lambda snapshot: snapshot.at, reverse=True)
    if not wanted.revisions:
        return list(history.catalog.own.snapshots)
    return _range(history, wanted.revisions)


def _range(history: EnvHistory, revisions: tuple[str, ...]) -> list[Snapshot]:
    from git_envhist.history.resolve import (  # loaded late: keeps envlog fast
        resolve_range,
        snapshots_in_range,
    )

    try:
        span = resolve_range(revisions[0], history.catalog, history.now)
    except SnapshotNotFound:
        if is_probable_subcommand(revisions[0]):
            raise unknown_subcommand(revisions[0]) from None
        raise
    if len(revisions) > 1:
        raise UsageError(f"one range at a time: '{revisions[1]}'", hint="paths go after '--'")
    return list(snapshots_in_range(span, history.catalog.own))


def _that_changed(
    history: EnvHistory, found: Sequence[Snapshot], pathspecs: tuple[bytes, ...]
) -> frozenset[str]:
    from git_envhist.context import refuse_oversized_trees  # loaded late: keeps envlog fast
    from git_envhist.diff.compare_series import commits_changing_paths  # loaded late: only paths need it

    refuse_oversized_trees(history, found)
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    return commits_changing_paths(history.repository.git, steps, pathspecs)


# Grouping: each line has the summary of all snapshots that it represents.

FOLDED_AT_ONCE = 8
"""The factor by which more snapshots are read until there are enough lines."""


def select_folded(history: EnvHistory, wanted: LogQuery) -> list[Snapshot]:
    """Return the selected snapshots; of a turn or a run only the newest, with the summary of all of it."""
    lines = _lines(history, wanted)
    turns = any(line.is_turn for line in lines)
    shown = _merged(history, lines) if turns else [_summed(line) for line in lines]
    return shown[::-1] if wanted.reverse else shown


def _lines(history: EnvHistory, wanted: LogQuery) -> list[LogLine]:
    most = wanted.limit if wanted.limit is None or wanted.limit >= 0 else None
    # One more shows whether the last line is complete.
    asked = None if most is None else most + 1
    while True:
        found = select(history, replace(wanted, limit=asked, reverse=False))
        lines = fold_snapshots((history.judge(snapshot) for snapshot in found), history.now.tzinfo)
        if most is None or asked is None:
            return lines
        if len(lines) > most or len(found) < asked:
            return lines[:most]
        asked *= FOLDED_AT_ONCE


def _merged(history: EnvHistory, lines: Sequence[LogLine]) -> list[Snapshot]:
    from git_envhist.context import refuse_oversized_trees  # loaded late: keeps envlog fast

    folded = [line for line in lines if line.is_turn]
    try:
        refuse_oversized_trees(history, (line.newest for line in folded))
        stories = dict(_stories(history, [line.step for line in folded]))
    except EnvhistError:
        # Damage is reported by fsck; the list shows as much as possible.
        stories = {}
    return [
        _as_one(line, stories.get(line.newest.commit)) if line.is_turn else _summed(line) for line in lines
    ]


def _summed(line: LogLine) -> Snapshot:
    """Return the newest snapshot of a line; for a run with the counts of all its snapshots."""
    if not line.is_run:
        return line.newest
    words = f"{describe_counts(line.changed)} · {count(1 + len(line.earlier), 'snapshot')}"
    return replace(line.newest, story=words)


def _as_one(line: LogLine, story: str | None) -> Snapshot:
    parts = (story or line.newest.story, count(1 + len(line.earlier), "capture"))
    return replace(line.newest, story=" · ".join(part for part in parts if part))


def _stories(history: EnvHistory, steps: Sequence[tuple[str, str | None]]) -> Iterator[tuple[str, str]]:
    from git_envhist.diff.compare_series import changes_of  # loaded late: only a turn needs it
    from git_envhist.diff.facts import compare_facts  # loaded late: keeps envlog fast
    from git_envhist.diff.summary import (
        count_changes,  # loaded late: only a turn needs it
        summarize,  # loaded late: only a turn needs it
    )
    from git_envhist.git.cat_file import CatFile  # loaded late: only a turn needs it
    from git_envhist.probes import kinds  # loaded late: only a turn needs it

    git, before = history.repository.git, dict(steps)
    with CatFile(git) as reader:
        for commit, changes in changes_of(git, reader, steps):
            older = before[commit]
            facts = compare_facts(reader, older, commit, history.keys.opening) if older else ()
            yield commit, summarize(facts, count_changes(changes), kinds(), first=older is None)


# `git envlog --graph`: the snapshots that it contains, and the lines at their left.


def select_graph(history: EnvHistory, wanted: LogQuery) -> tuple[list[Snapshot], list[GraphRow]]:
    """Return the selected snapshots, those that forks and restores connect to them, and a graph row for each."""
    everything: dict[str, Snapshot] = {}
    for line in history.catalog.timelines():
        for snapshot in line.snapshots:
            everything.setdefault(snapshot.id, snapshot)
    parents = parents_of(everything.values())
    chosen = select(history, replace(wanted, limit=None, every=wanted.every or not wanted.revisions))
    if not wanted.every and not wanted.revisions:
        tied = connected((one.id for one in history.catalog.own.snapshots), parents)
        chosen = [one for one in chosen if one.id in tied]
    shown = [history.judge(one) for one in sort_for_graph(chosen, parents)]
    if wanted.limit is not None and wanted.limit >= 0:
        shown = shown[: wanted.limit]
    ids = [one.id for one in shown]
    # Below a limited list the graph lines continue, as in git.
    known = {**shown_parents([one.id for one in chosen], parents)}
    return shown, list(draw(ids, known))


def rows_with_graph(rows: Sequence[GraphRow], texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts with the lines of the graph at their left."""
    for row, text in zip(rows, texts, strict=True):
        first, *more = text.split("\n")
        lines = [
            *row.before,
            f"{row.mark} {first}",
            *(f"{row.continued} {line}" for line in more),
            *row.after,
        ]
        yield "\n".join(line.rstrip() for line in lines)


# Titles of single snapshots.


def format_context(history: EnvHistory) -> FormatContext:
    """Return the style of titles and times in messages about single snapshots."""
    from git_envhist.cli.formats import FormatContext  # loaded late: a list has its own

    return FormatContext(history.now)


def title_of(snapshot: Snapshot) -> str:
    """Return the title that a list will print for a new snapshot."""
    if snapshot.intent_source is IntentSource.GIVEN:
        return subject(snapshot.intent)
    from git_envhist.history.titles import title  # loaded late: most snapshots have an intent

    return title(snapshot)
