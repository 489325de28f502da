"""`git envlog why`: the step, the intent and the call that gave a path, a line or a fact its form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.parser import argument, date_format, option
from git_envhist.cli.views.why import origin_json, origin_lines, subject_json
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.history.blame import line_before
from git_envhist.history.why import Origin, Subject, SubjectKind, subject_of
from git_envhist.lazy import replace
from git_envhist.model import EnvPath

DEFAULT_LIMIT = 3
KEYS = ("path_gone", "package", "var", "table", "row", "service")
MAX_FILE = 64 << 20
MAX_DIGITS = 18
"""Digits of the number of a line; more are part of a path."""


@command("why", "git envlog why [<options>] (<path>[:<line>] | --failed [<command>])", counts=True, bare=True)
@argument("place")
@option("--failed", is_flag=True, help="ask what broke the check <command> (default: the last that failed)")
@option("--package", metavar="<name>", help="ask about an installed package")
@option("--var", metavar="<name>", help="ask about a variable of a .env file; no value is shown")
@option("--table", metavar="<name>", help="ask about a table of a database")
@option("--row", metavar="<table>:<key>", help="ask about a row of a SQLite table")
@option("--service", metavar="<name>", help="ask about a service")
@option("--path-gone", "path_gone", metavar="<path>", help="ask about a path that was removed")
@option("--at", "revision", metavar="<rev>", help="the state to explain (default: now)")
@option("-n", "--max-count", "limit", metavar="<n>", number=True, help="print at most <n> steps (default: 3)")
@option("--all", "every", is_flag=True, help="print all steps that changed it")
@date_format
def why(session: Session, place: str | None, **options: Any) -> None:
    """Show which step gave a path, line, package, variable, table, row or service its form, and by which call."""
    _refuse_no_limit(options)
    if options["failed"]:
        from git_envhist.cli.views.failure import print_failure  # loaded late: only --failed needs it

        _refuse_others(options)
        # After `--`, a command may begin with a dash.
        check = place if place is not None else next(iter(session.paths or ()), None)
        print_failure(session, check, options["limit"], every=options["every"])
        return
    subject = _subject(session, place, options)
    limit = None if options["every"] else DEFAULT_LIMIT if options["limit"] is None else options["limit"]
    asked, is_changed = _captured_subject(session, subject, options["revision"])
    with session.history.origins(options["revision"] or "@") as origins:
        found = origins.of(asked)
        if session.json:
            _print_json(session, subject, found, limit, is_changed=is_changed)
        else:
            _print(session, found, limit, options["date"], is_changed=is_changed)


def _refuse_no_limit(options: dict[str, Any]) -> None:
    limit = options["limit"]
    if limit is not None and limit < 1 and not options["every"]:
        listed = "changes" if options["failed"] else "steps"
        raise UsageError(f"not a number of {listed}: {limit}", hint="-n <n>, at least 1")


def _refuse_others(options: dict[str, Any]) -> None:
    for key in (*KEYS, "revision"):
        if options[key] is not None:
            spelling = "--at" if key == "revision" else "--" + key.replace("_", "-")
            raise UsageError(f"--failed and {spelling} exclude each other")


def _subject(session: Session, place: str | None, options: dict[str, Any]) -> Subject:
    keywords: Any = {key: options[key] for key in KEYS if options[key] is not None}
    if place is None and session.paths:
        (place, *more) = session.paths
        if more:
            raise UsageError(f"one path at a time: '{more[0]}'")
    if place is None:
        return subject_of(None, None, _from_top(session, keywords))
    name, colon, number = place.rpartition(":")
    is_number = number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS
    is_line = colon and is_number and name and not _is_file(session, place, options["revision"])
    path, line = (name, int(number)) if is_line else (place, None)
    inside = _path(session, path)
    if not inside and path:
        raise UsageError(
            f"the whole environment: '{path}'", hint="name a path below it: git envlog why <path>"
        )
    return subject_of(inside, line, keywords)


def _is_file(session: Session, place: str, revision: str | None) -> bool:
    """Return whether the whole word is a path of the working tree, or of the snapshot that is asked about."""
    history = session.history
    try:
        path = EnvPath(os.fsencode(_path(session, place)))
        if "://" not in place and os.path.lexists(os.path.join(os.fsencode(history.repository.root), path)):
            return True
        with closing(history.reader(history.resolve(revision or "@"))) as files:
            return files.entry(path) is not None
    except EnvhistError:
        return False


def _from_top(session: Session, keywords: Any) -> Any:
    if "path_gone" in keywords:
        keywords["path_gone"] = _path(session, keywords["path_gone"])
    return keywords


def _path(session: Session, path: str) -> str:
    if "://" in path:
        return path
    if path.startswith(":/"):
        return path.removeprefix(":/")
    return os.fsdecode(session.history.environment_path(os.fsencode(path)))


def _captured_subject(session: Session, subject: Subject, revision: str | None) -> tuple[Subject, bool]:
    """Return the subject as it is in the newest snapshot, and whether the working tree has another version."""
    if revision is not None or subject.kind not in (SubjectKind.PATH, SubjectKind.LINE):
        return subject, False
    from git_envhist.cli.commands.show import read_present  # loaded late: only the present state is compared

    path = EnvPath(os.fsencode(subject.name))
    try:
        present = read_present(session, path)
        captured = session.history.read_file("@", path)
    except EnvhistError:
        # A directory, a path that is gone, or one that is not captured yet: its steps are listed.
        return subject, False
    if present == captured or len(present) > MAX_FILE:
        return subject, False
    if subject.line is None:
        return subject, True
    number = line_before(captured, present, subject.line)
    if number is None:
        raise UsageError(
            f"the line changed after the newest snapshot: '{subject.text}'",
            hint="take a snapshot, or ask for an earlier state: git envlog why --at @ <path>:<line>",
        )
    return replace(subject, line=number), True


def _limited(found: Iterator[Origin], limit: int | None) -> Iterator[Origin]:
    for number, origin in enumerate(found):
        if limit is not None and number >= limit:
            return
        yield origin


def _print(
    session: Session, found: Iterator[Origin], limit: int | None, date: str | None, *, is_changed: bool
) -> None:
    style = session.date_style(date)
    first = next(found)
    if is_changed:
        warn("the file was changed after the newest snapshot; this is about the captured version")
    session.page()
    for line in origin_lines(session, first, style):
        session.line(line)
    session.output.flush()
    for origin in _limited(found, None if limit is None else limit - 1):
        session.line()
        for line in origin_lines(session, origin, style):
            session.line(line)


def _print_json(
    session: Session, subject: Subject, found: Iterator[Origin], limit: int | None, *, is_changed: bool
) -> None:
    steps = [origin_json(origin) for origin in _limited(found, limit)]
    session.print_json({**subject_json(subject), "changed_since": is_changed, "steps": steps})
