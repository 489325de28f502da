"""`git envlog`: list the timeline, newest first, with the options of git log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import report_running_capture, warn, warn_if_half_way
from git_envhist.cli.formats import FormatContext, read_format
from git_envhist.cli.parser import argument, date_format, diff_formats, option
from git_envhist.cli.views.log import (
    LogQuery,
    full_view_lines,
    id_length,
    list_lines,
    oneline,
    select,
    select_folded,
)
from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.history.timeline import NO_VERDICT, SnapshotFilter
from git_envhist.lazy import dataclass, replace
from git_envhist.model import Snapshot, Trigger, VerdictStatus

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.history.graph import GraphRow


Write = Callable[[Snapshot, FormatContext], str]
VERDICTS = (*(status.value for status in VerdictStatus), NO_VERDICT)
TRIGGERS = tuple(trigger.value for trigger in Trigger)
NARROWEST = 40
"""The columns that details keep next to a graph of any width."""
DIFFS = ("stat", "name_status", "name_only", "patch")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The output options of the list."""

    one_line: bool
    full: bool
    diff: str | None
    """`stat`, `name_status`, `name_only` or `patch`: the changes printed below each line."""
    ended_by_nul: bool
    full_index: bool
    timelines: bool
    graph: bool = False
    page: str | None = None
    """The file of the web page."""

    @property
    def folds(self) -> bool:
        """True if each snapshot is one line, so that one line may represent several."""
        return not (self.full or self.diff or self.graph or self.page)

    @property
    def is_plain(self) -> bool:
        """True for the aligned list, which day headings may interrupt."""
        return not (self.full or self.graph or self.page or self.one_line or self.ended_by_nul)

    @property
    def end(self) -> str:
        return "\0" if self.ended_by_nul else "\n"


@command(
    "envlog", "git envlog [<options>] [<range>] [[--] <pathspec>...]", counts=True, json_lines=True, bare=True
)
@argument("revisions", many=True)
@option("-n", "--max-count", "limit", metavar="<n>", number=True, help="list at most <n>; also -<n>")
@option("--since", "--after", metavar="<time>", help="list snapshots taken at or after <time>")
@option("--until", "--before", metavar="<time>", help="list snapshots taken at or before <time>")
@option("-S", "content", metavar="<text>", help="list those that added or removed <text> in a file")
@option("-G", "content_pattern", metavar="<regex>", help="list those with a changed line that matches")
@option("--reveal", is_flag=True, help="also search the values of sealed files with -S and -G")
@option(
    "--find",
    "summary",
    metavar="<text>",
    help="list those whose summary contains <text>",
)
@option("--grep", metavar="<pattern>", multiple=True, help="list those whose intent, name or note matches")
@option("-i", "--regexp-ignore-case", "ignore_case", is_flag=True, help="ignore case in --grep, -S and -G")
@option(
    "--verdict",
    "verdicts",
    multiple=True,
    metavar="<v>",
    choices=VERDICTS,
    help="check result: pass, fail, error or none; repeatable",
)
@option(
    "--trigger",
    "triggers",
    multiple=True,
    metavar="<kind>",
    choices=TRIGGERS,
    help="cause: manual, commit, agent, ...; repeatable",
)
@option("--session", "sessions", multiple=True, metavar="<id>", help="session of an agent; repeatable")
@option("--agent-id", "agent_ids", multiple=True, metavar="<id>", help="id of a subagent; repeatable")
@option("--all", "every", is_flag=True, help="list the snapshots of all timelines")
@option("--graph", is_flag=True, help="draw lines that show forks and restores")
@option(
    "--no-fold",
    "unfolded",
    is_flag=True,
    help="do not group automatic snapshots in one line",
)
@option("--fold", "folded", is_flag=True, help="group them with --format too")
@option("--reverse", is_flag=True, help="list the oldest first")
@option("--oneline", "one_line", is_flag=True, help="print only id and intent")
@option("--full", is_flag=True, help="print each snapshot in full")
@option(
    "--format",
    "--pretty",
    "template",
    metavar="<template>",
    help="print each with a template: '%h %(time) %s'",
)
@date_format
@diff_formats
@option("--html", "page", metavar="<file>", help="write a web page with charts and search")
@option("-z", "ended_by_nul", is_flag=True, help="end records with NUL, do not quote paths")
def log_command(session: Session, revisions: tuple[str, ...], **options: Any) -> None:
    """List the snapshots of this working tree, newest first. With paths, list only those that changed them."""
    listing = _listing(options)
    revisions = _without_paths(session, revisions)
    write = read_format(options["template"]) if options["template"] is not None else None
    style = session.date_style(options["date"])
    history = session.history
    is_raw = bool(session.json or (write and not options["folded"]) or options["unfolded"])
    try:
        listing, shown, rows = _select(history, _wanted(session, revisions, options), listing, is_raw)
    except SnapshotNotFound as error:
        raise _with_removed_path(error, revisions) from None
    several = len({one.timeline for one in shown}) > 1
    listing = replace(listing, timelines=listing.timelines and several)
    for warning in (*history.problems, *history.warnings):
        warn(warning)
    warn_if_half_way(history)
    if listing.page:
        from git_envhist.cli.views.html import write_page  # loaded late: keeps envlog fast

        write_page(session, listing.page, shown)
    elif session.json:
        from git_envhist.cli.views.log import print_list  # loaded late: only --json needs it

        print_list(session, shown, measured=listing.diff == "stat")
    else:
        report_running_capture(history.repository)
        if not shown:
            from git_envhist.cli import errors  # loaded late: most histories are not empty

            errors.hint_if_empty(session)
        digits = id_length([one.id for one in shown])
        context = FormatContext(history.now, style, digits, ascii_signs=session.columns is None)
        if style is None and listing.is_plain and write is None:
            context = replace(context, by_day=any(context.day(one) != context.today for one in shown))
        session.page()
        # The fields of a template are printed unchanged.
        session.output.plain &= write is None
        _print_all(session, shown, rows, listing, context, write)


def _with_removed_path(error: SnapshotNotFound, revisions: tuple[str, ...]) -> SnapshotNotFound:
    """Return the error; if the word may be a path that was removed, with a hint how to ask about it."""
    word = error.revision
    if word not in revisions or any(sign in word for sign in ("..", "@", "^", ":")):
        return error
    hint = f"'git envlog --no-fold' lists every snapshot; for a removed path: git envlog -- {quote(word)}"
    return SnapshotNotFound(word, hint=hint, message=error.message)


def _select(
    history: EnvHistory, wanted: LogQuery, listing: LogOptions, is_raw: bool
) -> tuple[LogOptions, list[Snapshot], Sequence[GraphRow]]:
    """Return the snapshots, how to print them, and their graph lines; raw output is never grouped."""
    if listing.graph:
        from git_envhist.cli.views.log import select_graph  # loaded late: keeps envlog fast

        shown, rows = select_graph(history, wanted)
        return replace(listing, timelines=len({one.timeline for one in shown}) > 1), shown, rows
    if listing.folds and not (is_raw or wanted.seeks):
        return listing, select_folded(history, wanted), ()
    return listing, [history.judge(snapshot) for snapshot in select(history, wanted)], ()


def _print_all(
    session: Session,
    shown: list[Snapshot],
    rows: Sequence[GraphRow],
    listing: LogOptions,
    context: FormatContext,
    write: Write | None,
) -> None:
    if not listing.graph:
        texts = _texts(session, shown, listing, context, write, [0] * len(shown))
        texts = _with_days(session, shown, texts, context) if context.by_day else texts
        _print(session, shown, texts, listing, write)
        return
    from git_envhist.cli.views.log import rows_with_graph  # loaded late: keeps envlog fast

    texts = _texts(session, shown, listing, context, write, [row.indent for row in rows])
    _print(session, shown, rows_with_graph(rows, texts), listing, write)


def _wanted(session: Session, revisions: tuple[str, ...], options: dict[str, Any]) -> LogQuery:
    choice = SnapshotFilter(
        options["since"],
        options["until"],
        options["grep"],
        options["ignore_case"],
        options["verdicts"],
        options["triggers"],
        options["summary"],
        options["content"],
        options["content_pattern"],
        options["sessions"],
        options["agent_ids"],
        options["reveal"],
    )
    return LogQuery(
        revisions, options["every"], _pathspecs(session), choice, options["limit"], options["reverse"]
    )


def _listing(options: dict[str, Any]) -> LogOptions:
    diffs = [diff for diff in DIFFS if options[diff]]
    if len(diffs) > 1:
        text = " and ".join("--" + diff.replace("_", "-") for diff in diffs[:2])
        raise UsageError(f"{text} exclude each other")
    for other in ("reverse", *diffs) if options["graph"] else ():
        if options[other]:
            raise UsageError(f"--graph and --{other.replace('_', '-')} exclude each other")
    if options["page"] == "":
        raise UsageError("no file given for the web page", hint="git envlog --html history.html")
    return LogOptions(
        options["one_line"],
        options["full"],
        diffs[0] if diffs else None,
        options["ended_by_nul"],
        options["full_index"],
        options["every"],
        options["graph"],
        options["page"],
    )


def _without_paths(session: Session, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the revisions; make the paths after them the paths of the list, as git log does."""
    if not words or session.paths is not None:
        return words
    from git_envhist.cli.path_arguments import split_operands  # loaded late: keeps envlog fast

    return split_operands(session, words)


def _pathspecs(session: Session) -> tuple[bytes, ...]:
    if not session.paths:
        return ()
    from git_envhist.cli.views.details import anchored_paths  # loaded late: keeps envlog fast

    return anchored_paths(session)


def _texts(
    session: Session,
    shown: list[Snapshot],
    listing: LogOptions,
    context: FormatContext,
    write: Write | None,
    indents: Sequence[int],
) -> Iterable[str]:
    """Yield the text of each snapshot without its end; `indent` columns at the left are used by the graph."""
    palette = session.palette
    if write is not None:
        return (write(snapshot, context) for snapshot in shown)
    if listing.full:
        return (
            "\n".join([*_full_card(session, one, context, indent), ""])
            for one, indent in zip(shown, indents, strict=True)
        )
    columns = session.columns
    if listing.one_line:
        return (
            oneline(one, context, palette, columns and columns - indent)
            for one, indent in zip(shown, indents, strict=True)
        )
    lines = list_lines(shown, context, palette, columns, timelines=listing.timelines, indents=indents)
    return [_with_observed(line, one, context) for line, one in zip(lines, shown, strict=True)]


def _with_days(
    session: Session, shown: Sequence[Snapshot], texts: Iterable[str], context: FormatContext
) -> Iterator[str]:
    """Yield the lines, with a heading before the first of each day."""
    last = ""
    for snapshot, text in zip(shown, texts, strict=True):
        day = context.day(snapshot)
        if day == last:
            yield text
        else:
            gap = "\n" if last else ""
            yield f"{gap}{session.paint('heading', day)}\n{text}"
        last = day


def _with_observed(line: str, snapshot: Snapshot, context: FormatContext) -> str:
    """Yield the lines; checkpoints of the platform come below the snapshot that was the newest when they were found."""
    if not any(record.kind == "observed" for record in snapshot.records):
        return line
    from git_envhist.cli.commands.observe import below_observed  # loaded late: few platforms

    return below_observed(line, snapshot, context)


def _full_card(session: Session, snapshot: Snapshot, context: FormatContext, indent: int) -> list[str]:
    from git_envhist.cli.terminal import all_wrapped  # loaded late: only a terminal needs it
    from git_envhist.cli.views import details  # loaded late: keeps envlog fast

    history, snapshot = session.history, details.with_outputs(session.history, snapshot)
    story = details.fact_lines(session, details.facts_of(history, snapshot))
    missing, services = details.missing_of(history, snapshot), details.services_of(history, snapshot)
    lines = full_view_lines(snapshot, context, session.palette, missing, story, services)
    return lines if session.columns is None else all_wrapped(lines, max(NARROWEST, session.columns - indent))


def _print(
    session: Session, shown: list[Snapshot], texts: Iterable[str], listing: LogOptions, write: Write | None
) -> None:
    # The fields of a template are escaped already; the text around them is not changed.
    put = session.output.write if write is None else session.output.exact
    if listing.diff is None:
        for text in texts:
            put(text)
            session.output.exact(listing.end)
        return
    from git_envhist.cli.views.details import diff_source, make_diff_style  # loaded late: keeps envlog fast
    from git_envhist.cli.views.patch import print_diff  # loaded late: only a diff needs it

    diff_style = make_diff_style(session, ended_by_nul=listing.ended_by_nul, full_index=listing.full_index)
    pathspecs = _pathspecs(session)
    for number, (snapshot, text) in enumerate(zip(shown, texts, strict=True)):
        session.output.exact(listing.end * (number > 0))
        put(text)
        session.output.exact(listing.end)
        print_diff(
            session.output, listing.diff, diff_source(session.history, snapshot, pathspecs), diff_style
        )
