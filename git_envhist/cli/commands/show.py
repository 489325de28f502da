"""`git envlog show`: print one snapshot in full, or a file from it."""

from __future__ import annotations

import os

from git_envhist.cli.command import Session, command
from git_envhist.cli.formats import FormatContext, format_date
from git_envhist.cli.parser import argument, date_format, option
from git_envhist.cli.views.details import (
    fact_lines,
    facts_of,
    file_facts,
    missing_of,
    read_details,
    services_of,
    with_outputs,
)
from git_envhist.cli.views.log import LABEL, full_view_lines
from git_envhist.diff.facts import without_secrets
from git_envhist.diff.summary import count_changes, summarize
from git_envhist.errors import FileUnreadable, SnapshotNotFound, UsageError
from git_envhist.history.revisions import path_splits
from git_envhist.history.timeline import subject
from git_envhist.lazy import replace
from git_envhist.model import EnvPath, Snapshot
from git_envhist.printable_text import escape
from git_envhist.probes import kinds

# `git envlog show now`: the working tree, and its files.

CURRENT_STATE = "now"


def show_now(session: Session, date: str | None) -> None:
    """Print what has changed since the newest snapshot."""
    newest = session.history.resolve("@")
    comparison = session.history.diff(newest, CURRENT_STATE)
    changes, facts = comparison.files, comparison.facts
    counts = count_changes(changes)
    if session.json:
        from git_envhist.cli.json_values import (  # loaded late: only --json needs it
            SCHEMA,
            changed_json,
            fact_json,
            iso_time,
        )

        changed = changed_json(counts, changes)
        at = iso_time(session.history.now)
        timeline = session.history.timeline
        session.print_json(
            {
                "schema": SCHEMA,
                "id": None,
                "timeline": timeline,
                "at": at,
                "since": newest.id,
                "env_changed": changed,
                "story": [fact_json(fact) for fact in without_secrets(facts)],
            }
        )
        return
    fields = [
        ("Timeline", session.history.timeline or ""),
        ("Date", format_date(session.history.now, date or "default", session.history.now)),
        ("Newest", _newest(newest)),
        ("Summary", summarize(facts, counts, kinds())),
    ]
    session.line(session.paint("id", "the working tree now"))
    for label, value in fields:
        session.line(f"{label}:".ljust(LABEL) + escape(value))
    for line in fact_lines(session, facts):
        session.line(line)


def read_present(session: Session, path: EnvPath) -> bytes:
    """Return the bytes of a file of the working tree."""
    place = _place_now(session, path)
    try:
        if os.path.islink(place):
            return os.readlink(place)
        with open(place, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise SnapshotNotFound(os.fsdecode(path), hint="no such file in the working tree") from None
    except OSError as failure:
        hint = "show the newest stored version: git envlog show @ -- <path>"
        raise FileUnreadable(f"cannot read '{os.fsdecode(path)}': {failure.strerror}", hint=hint) from failure


def _place_now(session: Session, path: EnvPath) -> bytes:
    top = os.fsencode(session.history.repository.root)
    name, further, below = path.partition(b"://")
    root = dict(session.history.settings.roots).get(os.fsdecode(name)) if further else None
    if root is None:
        return os.path.join(top, path)
    return os.path.join(top, os.fsencode(os.path.expanduser(root)), below)


def _newest(snapshot: Snapshot) -> str:
    return f"{snapshot.id} {subject(snapshot.intent)}"


NOW = "now"


@command("show", "git envlog show [--versions [--to <directory>]] [<rev>] [-- <path>]", bare=True)
@argument("words", many=True)
@option("--versions", is_flag=True, help="print all versions of one file, the newest first")
@option("--to", metavar="<directory>", help="with --versions: write each version into a file there")
@option("--reveal", is_flag=True, help="with --versions: also print the values of a sealed file")
@date_format
def show(
    session: Session, words: tuple[str, ...], versions: bool, to: str | None, reveal: bool, date: str | None
) -> None:
    """Show a snapshot in full (default: the newest). With a path, print that file from the snapshot."""
    if versions:
        _print_versions(session, words, to, date, reveal=reveal)
        return
    if to is not None or reveal:
        name = "--to" if to is not None else "--reveal"
        raise UsageError(f"{name} needs --versions", hint="git envlog show --versions <path>")
    revision = words[0] if words else None
    if len(words) > 1:
        _take_paths(session, words)
    if revision == NOW and session.paths and session.json:
        raise UsageError("a file of the working tree cannot be printed as JSON", hint="leave out --json")
    if revision == NOW:
        _show_now(session, date)
        return
    try:
        snapshot = session.history.resolve("@" if revision is None else revision)
    except SnapshotNotFound:
        if revision is None or session.paths:
            raise
        if not (_show_file_of(session, revision) or _show_observed(session, revision)):
            raise
        return
    if session.paths:
        _print_file(session, snapshot)
        return
    snapshot = with_outputs(session.history, snapshot)
    if session.json:
        from git_envhist.cli.json_values import snapshot_json  # loaded late: only --json needs it

        details = read_details(session.history, snapshot)
        all_facts = (*details.facts, *file_facts(session.history, snapshot))
        session.print_json(snapshot_json(snapshot, replace(details, facts=all_facts)))
        return
    context = FormatContext(
        session.history.now, session.date_style(date), ascii_signs=session.columns is None
    )
    missing = missing_of(session.history, snapshot)
    facts = (*facts_of(session.history, snapshot), *file_facts(session.history, snapshot))
    story = fact_lines(session, facts)
    services = services_of(session.history, snapshot)
    session.page()
    for line in full_view_lines(snapshot, context, session.palette, missing, story, services):
        session.line(line)


def _print_versions(
    session: Session, words: tuple[str, ...], to: str | None, date: str | None, *, reveal: bool
) -> None:
    from git_envhist.cli.views.versions import print_versions  # loaded late: only --versions needs it

    named = [*words, *(session.paths or ())]
    if not named or len(named) > 2:
        raise UsageError("name one file", hint="git envlog show --versions [<rev>] <path>")
    session.paths = (named[-1],)
    revision = named[0] if len(named) == 2 else "@"
    print_versions(session, revision, _only_path(session), to, date, reveal=reveal)


def _show_file_of(session: Session, text: str) -> bool:
    """Print the file of `<rev>:<path>`; return False if the text is not of this form."""
    if text.startswith(":") or session.json:
        return False
    for revision, place in path_splits(text):
        path = os.fsencode(place)
        try:
            snapshot = session.history.resolve(revision)
        except (SnapshotNotFound, UsageError):
            continue
        from_here = path.startswith((b"./", b"../"))
        inside = session.history.environment_path(path) if from_here else EnvPath(path)
        session.output.content(session.history.read_file(snapshot, inside))
        return True
    return False


def _take_paths(session: Session, words: tuple[str, ...]) -> None:
    from git_envhist.cli.path_arguments import take_paths  # loaded late: most paths go after '--'

    take_paths(
        session,
        words[1:],
        session.history.resolve("@" if words[0] == NOW else words[0]),
        "git envlog show [<rev>]",
    )


def _show_observed(session: Session, external_id: str) -> bool:
    """Print a checkpoint of the platform; return False if the word names none."""
    from git_envhist.cli.commands.observe import observed_details  # loaded late: few platforms
    from git_envhist.cli.json_values import observed_json  # loaded late: few platforms

    found = session.history.observed.find(external_id)
    if found is not None and session.json:
        session.print_json({"schema": 1, "observed": [observed_json(found)]})
    elif found is not None:
        for line in observed_details(session, found):
            session.line(line)
    return found is not None


def _show_now(session: Session, date: str | None) -> None:

    if session.paths:
        session.output.content(read_present(session, _only_path(session)))
    else:
        show_now(session, session.date_style(date))


def _print_file(session: Session, snapshot: Snapshot) -> None:
    if session.json:
        from git_envhist.cli.views.stored_file_json import file_json  # loaded late: only --json needs it

        session.print_json(file_json(session.history, snapshot, _only_path(session)))
    else:
        session.output.content(session.history.read_file(snapshot, _only_path(session)))


def _only_path(session: Session) -> EnvPath:
    assert session.paths
    if len(session.paths) > 1:
        raise UsageError("only one path is possible", hint="git envlog show <rev> -- <path>")
    typed = os.fsencode(session.paths[0])
    # `<root>://<path>` is never relative to the current directory.
    return EnvPath(typed) if b"://" in typed else session.history.environment_path(typed)
