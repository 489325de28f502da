"""`git envlog recent`: show recent changes without a snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import print_error_line
from git_envhist.cli.formats import count
from git_envhist.cli.json_values import SCHEMA, fact_json, iso_time, path_fields
from git_envhist.cli.parser import argument
from git_envhist.cli.views.diff_rows import fact_texts, file_texts, row_of_cells
from git_envhist.cli.views.diff_source import DiffStyle
from git_envhist.config import read_settings
from git_envhist.discovery import open_repository
from git_envhist.disk import system_errors
from git_envhist.errors import NotARepository
from git_envhist.git.current_actor import LocalZone
from git_envhist.git.pathspecs import anchored, directory_prefix, match_paths
from git_envhist.git.repository import TIMELINE_REFS, Repository
from git_envhist.history.times import printed_time, read_time_span
from git_envhist.lazy import replace
from git_envhist.model.recent import LogEvent, RecentChanges
from git_envhist.printable_text import escape, escape_invalid
from git_envhist.recent_changes import changes_between
from git_envhist.worktree.path_patterns import left_out_of

SPAN = "1h"
MAX_ROWS = 8
MAX_LOST = 5
NOT_KNOWN = ("removed files", "earlier contents of files", "earlier versions")


@command("recent", "git envlog recent [<span>] [-- <pathspec>...]")
@argument("span")
def recent(session: Session, span: str | None) -> None:
    """Show what changed within a time span (10m, 2h, 3d; default: 1h), even without a snapshot: by the times of files,
    installed packages, and the logs of dpkg, apt, npm and git."""
    now = datetime.now(LocalZone())
    since = read_time_span(span or SPAN, now).start.astimezone(now.tzinfo)
    repository = _repository()
    root = os.path.realpath(repository.root if repository is not None else ".")
    git = repository.git if repository is not None else None
    found = changes_between(root, since, now, git, _left_out(root, repository), os.environ)
    found = _narrowed(session, found, repository)
    if session.json:
        session.print_json(_as_json(found))
        return
    style = DiffStyle(session.palette, session.columns, plain=session.output.plain)
    session.page()
    since_then = found.since.astimezone(found.until.tzinfo)
    session.line(
        f"changes since {since_then:%Y-%m-%d %H:%M}, found by the times of {count(found.examined, 'path')} and in logs:"
    )
    for text in _texts(found, style):
        session.output.write(text)
    session.line(f"cannot be found without comparing snapshots: {', '.join(NOT_KNOWN)}")
    # Flush, so that the lines on standard error come after these.
    session.output.flush()
    for place in found.unread:
        print_error_line(f"warning: cannot read '{escape(_text(place) or '.')}'")
    if repository is not None and _has_snapshots(repository):
        print_error_line("hint: to see every change since the newest snapshot: git envdiff")
    else:
        print_error_line("hint: to know all later changes, take a snapshot: git envlog capture")


def _has_snapshots(repository: Repository) -> bool:
    return bool(repository.list_refs(TIMELINE_REFS))


def _repository() -> Repository | None:
    try:
        with system_errors(os.curdir):
            return open_repository(".", os.environ).repository
    except NotARepository:
        return None


def _left_out(root: str, repository: Repository | None) -> Callable[[bytes], bool]:
    """Return a function that tests whether a path is excluded from the environment."""
    settings = read_settings(repository.read_config() if repository is not None else ())
    return left_out_of(root, settings.exclude)


def _narrowed(session: Session, found: RecentChanges, repository: Repository | None) -> RecentChanges:
    """Return the findings limited to the pathspecs; findings without a path are left out."""
    if not session.paths:
        return found
    root = os.fsencode(found.root)
    directories = sorted({*found.lost, *(fact.at for fact in found.facts)} - {b""})
    meant = _meant(session.paths, root, repository, [change.path for change in found.changes], directories)
    return replace(
        found,
        facts=tuple(fact for fact in found.facts if fact.at in meant),
        changes=tuple(change for change in found.changes if change.path in meant),
        lost=tuple(path for path in found.lost if path in meant),
        commands=(),
        head=(),
    )


def _meant(
    typed: Iterable[str],
    root: bytes,
    repository: Repository | None,
    paths: Sequence[bytes],
    directories: Sequence[bytes],
) -> frozenset[bytes]:
    prefix = directory_prefix(os.getcwdb(), root)
    if repository is not None:
        specs = tuple(anchored(os.fsencode(path), prefix, root) for path in typed)
        return match_paths(repository.git, sorted({*paths, *directories}), directories, specs)
    # Without git, a pathspec is a path or a shell pattern.
    wanted = [os.path.normpath(os.path.join(prefix, os.fsencode(path))) for path in typed]
    everything = (*paths, *directories)
    return frozenset(path for path in everything if any(_is_in(path, pattern) for pattern in wanted))


def _is_in(path: bytes, pattern: bytes) -> bool:
    return pattern == b"." or path == pattern or path.startswith(pattern + b"/") or fnmatchcase(path, pattern)


def _texts(found: RecentChanges, style: DiffStyle) -> Iterator[bytes]:
    yield from fact_texts(found.facts, style)
    yield from _done("git", found.head, found.until, style)
    yield from _done("ran", found.commands, found.until, style)
    yield from file_texts(found.changes, style)
    if found.lost:
        cells = [escape(_text(place) + "/") for place in found.lost[:MAX_LOST]]
        more = [f"… {len(found.lost) - MAX_LOST:,} more"] if len(found.lost) > MAX_LOST else []
        yield from row_of_cells("lost", ["files were removed from, or moved out of:", *cells, *more], style)
    if not (found.facts or found.changes or found.head or found.commands or found.lost):
        yield b"nothing found\n"


def _done(label: str, done: tuple[LogEvent, ...], now: datetime, style: DiffStyle) -> Iterator[bytes]:
    shown = done[-MAX_ROWS:]
    if len(done) > len(shown):
        yield from row_of_cells(label, [f"… {len(done) - len(shown):,} before these"], style)
    for one in shown:
        yield from row_of_cells(label, [printed_time(one.at, now), escape(one.what)], style)


def _as_json(found: RecentChanges) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "root": escape_invalid(found.root),
        "since": iso_time(found.since),
        "until": iso_time(found.until),
        "story": [
            {
                key: escape_invalid(value) if isinstance(value, str) else value
                for key, value in fact_json(fact).items()
            }
            for fact in found.facts
        ],
        "files": [
            {
                "status": change.kind.value,
                **path_fields(change.path),
                "at": iso_time(found.times[change.path]),
            }
            for change in found.changes
        ],
        "lost_something": [path_fields(path) for path in found.lost],
        "unread": [path_fields(path) for path in found.unread],
        "git": [
            {"at": iso_time(one.at), "commit": one.commit, "what": escape_invalid(one.what)}
            for one in found.head
        ],
        "commands": [{"at": iso_time(one.at), "what": escape_invalid(one.what)} for one in found.commands],
        "not_known": list(NOT_KNOWN),
    }


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
