"""Details of a snapshot besides its files: facts, changes, missing paths, services and outputs of checks.

Used by the full view of a snapshot, by JSON and by diffs. The module also prints running checks, and fetches the
contents of a fetched snapshot that a view is about to show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from git_envhist.cli.command import Session
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.git.cat_file import CatFile
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    Change,
    EntryKind,
    FactChange,
    MissingPath,
    Snapshot,
    Verdict,
    VerdictStatus,
)
from git_envhist.model.checks import CheckListener
from git_envhist.printable_text import escape, format_duration
from git_envhist.snapshots.fetched_store import is_fetched
from git_envhist.snapshots.layout import GIT_CHANGED, MISSING, UNSTABLE
from git_envhist.snapshots.stored_names import RESERVED

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.json_values import Details
    from git_envhist.cli.views.diff_source import DiffSource, DiffStyle


# Checks: their output on standard error while they run, and their result.

STDERR = 2


def make_check_listener(session: Session) -> CheckListener:
    """Return the listener that prints a running check."""
    return CheckListener(
        running=lambda command: _print_running(session, command), through=_pass, waiting=_report_waiting
    )


def verdict_line(verdict: Verdict) -> str:
    """Return `✓ npm test (1.2 s)`, `✗ npm test: exit 1 (0.81 s)`."""
    from git_envhist.cli.formats import (  # loaded late: only the full view needs it
        first_line,
        symbol,
        verdict_cause,
    )

    text = verdict_cause(verdict) or first_line(verdict.command)
    if verdict.duration_ms is not None:
        text += f" ({format_duration(verdict.duration_ms / 1000)})"
    if verdict.changed_something:
        text += ", it changed files"
    return f"{symbol(verdict)} {escape(text)}"


def warn_of_verdict(verdict: Verdict) -> None:
    """Warn about a check that did not pass."""
    from git_envhist.cli.formats import verdict_cause  # loaded late: only a check needs it

    if verdict.status is not VerdictStatus.PASS:
        what = "the check failed" if verdict.status is VerdictStatus.FAIL else "the check gave no result"
        warn(f"{what}: {verdict_cause(verdict)}")


def _print_running(session: Session, command: str) -> None:
    # Print earlier output before that of the check.
    from git_envhist.cli.formats import first_line  # loaded late: only a check needs it

    session.output.flush()
    if os.isatty(STDERR):
        print_error_line(f"check: {escape(first_line(command))}")


def _pass(chunk: bytes) -> None:
    with suppress(OSError):
        view = memoryview(chunk)
        while view:
            view = view[os.write(STDERR, view) :]


def _report_waiting() -> None:
    print_error_line("waiting for another check of this working tree to finish")


# Fetch the contents of fetched snapshots before they are shown: only those that are needed, all at once.

WITH_CONTENTS = ("patch", "stat", "raw")
"""Other formats print paths, and contents of files of variables."""


def fetch_sides(
    history: EnvHistory,
    before: Snapshot | str | None,
    after: Snapshot | str,
    changes: Iterable[Change],
    form: str,
) -> None:
    """Fetch the contents that a format prints of these changes."""
    for snapshot, is_after in ((before, False), (after, True)):
        if isinstance(snapshot, Snapshot) and is_fetched(snapshot.timeline):
            from git_envhist.remote.fetch import fetch_blobs  # loaded late: most snapshots are not fetched

            sides = [change.after if is_after else change.before for change in changes]
            from git_envhist.probes.variables import (
                is_variables_file,  # loaded late: few snapshots are fetched
            )

            blobs = [
                side.oid.hex()
                for side in sides
                if side is not None
                and side.oid is not None
                and side.kind is not EntryKind.DIRECTORY
                and (form in WITH_CONTENTS or is_variables_file(side.path))
            ]
            fetch_blobs(history.repository, os.environ, snapshot, blobs)


def fetch_snapshots(history: EnvHistory, *snapshots: Snapshot | str) -> None:
    """Fetch some snapshots completely, because renames are detected by contents."""
    for snapshot in snapshots:
        if isinstance(snapshot, Snapshot):
            history.with_contents(snapshot, TOP)


def with_lists(history: EnvHistory, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot after fetching its lists and those of the snapshot before."""
    if snapshot.parent is not None and is_fetched(snapshot.timeline):
        history.with_contents(replace(snapshot, tree=snapshot.parent))
    return history.with_contents(snapshot)


def snapshot_before(snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot before, as far as a comparison needs it."""
    return replace(snapshot, tree=snapshot.parent) if snapshot.parent is not None else None


T = TypeVar("T")
LABEL = 11


def read_details(history: EnvHistory, snapshot: Snapshot) -> Details:
    """Return the details of a snapshot, compared with the snapshot before."""
    with CatFile(history.repository.git) as reader:
        return details_of(history, reader, snapshot, changes_of(history, snapshot))


def details_of(
    history: EnvHistory, reader: CatFile, snapshot: Snapshot, changes: tuple[Change, ...]
) -> Details:
    """Return the details, given the changes."""
    from git_envhist.cli.json_values import Details  # loaded late: only the full view and JSON need it
    from git_envhist.diff.facts import (
        facts_between,  # loaded late: a diff needs none of it
        without_secrets,  # loaded late: likewise
    )
    from git_envhist.service_dumps import stored_services  # loaded late: a diff needs no services
    from git_envhist.snapshots.list_texts import read_git_changes  # loaded late: a diff needs no git changes

    missing = _missing(reader, snapshot)
    git_changed = _listing(reader, snapshot, GIT_CHANGED, read_git_changes)
    services = tuple(stored_services(reader, snapshot.tree))
    facts = without_secrets(facts_between(reader, snapshot.parent, snapshot.commit, history.keys.opening))
    return Details(missing, git_changed, changes, facts, services)


def services_of(history: EnvHistory, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the services whose state a snapshot contains."""
    from git_envhist.service_dumps import stored_services  # loaded late: a diff needs no services

    with CatFile(history.repository.git) as reader:
        return tuple(stored_services(reader, snapshot.tree))


def facts_of(history: EnvHistory, snapshot: Snapshot) -> tuple[FactChange, ...]:
    """Return the facts that differ from the snapshot before; none for the first."""
    from git_envhist.diff.facts import changed_facts  # loaded late: keeps envlog fast

    return changed_facts(
        history.repository.git, snapshot.parent, snapshot.commit, find_key=history.keys.opening
    )


def file_facts(history: EnvHistory, snapshot: Snapshot) -> tuple[FactChange, ...]:
    """Return the changed configuration keys and programs since the snapshot before; none for the first."""
    from git_envhist.cli.views.diff_rows import config_facts  # loaded late: keeps envlog fast
    from git_envhist.diff.path_classes import changed_programs  # loaded late: a list needs none of it

    if not snapshot.parent:
        return ()
    source = diff_source(history, snapshot, ())
    return (*changed_programs(source.changes), *config_facts(source))


def fact_lines(session: Session, changes: Sequence[FactChange], indent: int = LABEL) -> list[str]:
    """Return the changed facts as rows of the summary."""
    if not changes:
        return []
    from git_envhist.cli.views.diff_rows import fact_texts  # loaded late: a list needs none of it
    from git_envhist.cli.views.diff_source import DiffStyle  # loaded late: keeps envlog fast

    style = DiffStyle(
        session.palette, session.columns and session.columns - indent, plain=session.output.plain
    )
    texts = b"".join(fact_texts(changes, style, secrets=True))
    return [" " * indent + line for line in texts.decode("utf-8", "surrogateescape").splitlines()]


def with_outputs(history: EnvHistory, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the outputs of its checks, as far as the keys exist."""
    if not any(verdict.sealed_output for verdict in snapshot.verdicts):
        return snapshot
    from git_envhist.checks.verdicts import with_output  # loaded late: keeps envlog fast

    return with_output(snapshot, history.keys.opening)


def missing_of(history: EnvHistory, snapshot: Snapshot) -> tuple[MissingPath, ...]:
    """Return the paths that are not in a snapshot, with the reasons."""
    if snapshot.complete:
        return ()
    with CatFile(history.repository.git) as reader:
        return _missing(reader, snapshot)


def changes_of(
    history: EnvHistory, snapshot: Snapshot, pathspecs: Sequence[bytes] = ()
) -> tuple[Change, ...]:
    """Return every path that differs from the snapshot before."""
    from git_envhist.diff.compare_snapshots import compare  # loaded late: keeps envlog fast

    snapshot = with_lists(history, snapshot)
    return compare(history.repository.git, snapshot.parent, snapshot.commit, pathspecs=pathspecs)


def diff_source(history: EnvHistory, snapshot: Snapshot, pathspecs: Sequence[bytes]) -> DiffSource:
    """Return the source of a diff between a snapshot and the one before it."""
    from git_envhist.cli.views.diff_source import DiffSource  # loaded late: keeps envlog fast
    from git_envhist.git.cat_file import empty_tree  # loaded late: a list needs none of it

    git = history.repository.git
    before = snapshot.parent or empty_tree(git, snapshot.commit)
    changes = changes_of(history, snapshot, pathspecs)
    fetch_sides(history, snapshot_before(snapshot), snapshot, changes, "patch")
    return DiffSource(git, before, snapshot.commit, changes, history.open_sealed)


def make_diff_style(session: Session, *, ended_by_nul: bool, full_index: bool = False) -> DiffStyle:
    """Return the style of a diff below the line of a snapshot."""
    from git_envhist.cli.views.diff_source import DiffStyle  # loaded late: keeps envlog fast

    quote_all = dict(session.history.repository.read_config()).get("core.quotepath") != "false"
    plain = session.output.plain
    return DiffStyle(
        session.palette, session.columns, ended_by_nul, quote_all, plain=plain, full_index=full_index
    )


def anchored_paths(session: Session, paths: Sequence[str] | None = None) -> tuple[bytes, ...]:
    """Return pathspecs, by default those of the command line, relative to the top of the environment."""
    paths = session.paths if paths is None else paths
    if not paths:
        return ()
    from git_envhist.git.pathspecs import anchored, directory_prefix  # loaded late: keeps envlog fast

    root = os.fsencode(session.history.repository.root)
    prefix = directory_prefix(os.getcwdb(), root)
    return tuple(anchored(os.fsencode(path), prefix, root) for path in paths)


def _missing(reader: CatFile, snapshot: Snapshot) -> tuple[MissingPath, ...]:
    from git_envhist.snapshots.list_texts import read_missing  # loaded late: a diff needs no missing paths

    unstable = _listing(reader, snapshot, UNSTABLE, read_missing)
    return (*_listing(reader, snapshot, MISSING, read_missing), *unstable)


def _listing(
    reader: CatFile, snapshot: Snapshot, name: bytes, read: Callable[[bytes], tuple[T, ...]]
) -> tuple[T, ...]:
    found = reader.read(f"{snapshot.tree}:{os.fsdecode(RESERVED)}/{os.fsdecode(name)}")
    return read(found[1]) if found is not None else ()
