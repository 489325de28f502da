"""`git envlog fork`: copy a snapshot into a new working tree."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TypedDict

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.formats import count
from git_envhist.cli.json_values import SCHEMA, Json, path_fields, text_fields
from git_envhist.cli.parser import allow_unsigned, argument, dry_run, option, plan_id
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.views.restore import StalePlan
from git_envhist.errors import UsageError
from git_envhist.model import EnvPath, ForkPlan, ForkResult, OutsideReference, SkippedPath, Trigger
from git_envhist.printable_text import escape, escape_invalid, format_duration

NOT_EXACT = 5
MAX_LISTED = 20
FIRST_PATHS = 5


class ForkKeywords(TypedDict):
    """The options of a plan and of its fork."""

    branch: str | None
    relocate: bool
    allow_unsigned: bool


@command("fork", "git envlog fork [-n] [-b <branch>] [--relocate] <directory> [<rev>]", writes=True)
@argument("directory")
@argument("revision")
@option("-b", "--branch", metavar="<branch>", help="create a branch at the code commit of the snapshot")
@option("--relocate", is_flag=True, help="replace the old path by the new one in its files")
@allow_unsigned("fork")
@dry_run("print the plan; write nothing")
@plan_id
def fork(
    session: Session,
    directory: str | None,
    revision: str | None,
    branch: str | None,
    relocate: bool,
    allow_unsigned: bool,
    dry_run: bool,
    plan: str | None,
) -> int:
    """Copy a snapshot (default: the newest) into a new working tree with its own timeline."""
    session.no_paths()
    if directory is None:
        raise UsageError("no directory given", hint="fork the newest snapshot: git envlog fork ../attempt-2")
    wish: ForkKeywords = {"branch": branch, "relocate": relocate, "allow_unsigned": allow_unsigned}
    planned = session.history.plan_fork(revision or "@", directory, **wish)
    if plan is not None and plan != planned.plan_id:
        raise StalePlan(plan, "git envlog fork --dry-run --json")
    if dry_run:
        _print_plan(session, planned)
        return 0
    with shown_progress("forking") as progress:
        forked = session.history.fork(
            planned.source, planned.root, trigger=Trigger.MANUAL, progress=progress, **wish
        ).forked
    assert forked is not None
    session.done("the fork is created")
    for problem in _problems(forked):
        warn(problem)
    if session.json:
        session.print_json(_as_json(forked))
    else:
        for line in _lines(forked, relocate):
            session.line(line)
    return 0 if forked.exact else NOT_EXACT


def _print_plan(session: Session, planned: ForkPlan) -> None:
    if session.json:
        session.print_json({
            "schema": SCHEMA,
            "plan_id": planned.plan_id,
            "source": planned.source.id,
            **text_fields("intent", planned.source.intent),
            "root": escape_invalid(planned.root),
            "head": planned.source.head,
            "branch": planned.branch and escape_invalid(planned.branch),
            "relocate": planned.relocate,
        })  # fmt: skip
        return
    session.line(f"would fork {planned.source.id[:7]} into '{escape(planned.root)}'")
    session.line(f"plan: {planned.plan_id}")


def _lines(forked: ForkResult, relocate: bool) -> Iterator[str]:
    yield (
        f"forked {forked.source.id[:7]} into '{escape(forked.root)}' in {format_duration(forked.seconds)}, "
        f"verified {count(forked.verified, 'path')}"
    )
    if forked.orphan:
        gone = (
            f"its code commit {forked.source.head[:7]} does not exist any more"
            if forked.source.head
            else "it has no code commit"
        )
        yield f"{gone}: branch '{escape(forked.branch or '')}' starts without commits"
    elif forked.head is not None:
        at = f"on branch '{escape(forked.branch)}' at" if forked.branch else "HEAD detached at"
        yield f"{at} {forked.head[:7]}"
    if forked.relocated:
        yield f"relocated {count(len(forked.relocated), 'path')}"
    if forked.pointing:
        yield from _pointing_lines(forked.pointing, relocate)
        if not relocate and forked.head is not None and forked.branch is None:
            yield _refork_command(forked)
    yield f"its timeline: {forked.timeline}"
    yield f"compare: git envdiff @ {forked.timeline}; adopt: git envrestore {forked.timeline}"
    yield f"join its changes with yours: git envlog merge {forked.timeline}"
    if forked.head is not None or forked.orphan:
        yield f"remove it: git worktree remove --force {escape(shlex.quote(forked.root))}"


def _pointing_lines(pointing: tuple[OutsideReference, ...], relocate: bool) -> Iterator[str]:
    words = "points" if len(pointing) == 1 else "point"
    advice = "" if relocate else " (--relocate replaces most of them)"
    yield f"{count(len(pointing), 'path')} {words} back to the original{advice}:"
    for one in pointing[:FIRST_PATHS]:
        yield f"    {_shown(one.path)}: {escape(one.what)}"
    if len(pointing) > FIRST_PATHS:
        yield f"    and {len(pointing) - FIRST_PATHS:,} more"


def _refork_command(forked: ForkResult) -> str:
    """Return the command that replaces the fork by a relocated one, as long as nothing was changed in it."""
    root = shlex.quote(forked.root)
    again = f"git worktree remove --force {root} && git envlog fork --relocate {root} {forked.source.id[:7]}"
    return f"to replace them, fork again: {escape(again)}"


def _problems(forked: ForkResult) -> Iterator[str]:
    yield from (escape(warning) for warning in forked.warnings)
    reported = [item for item in (*forked.skipped, *forked.kept, *forked.losses) if item.why]
    yield from (f"restored differently: '{_shown(item.path)}': {item.why}" for item in reported[:MAX_LISTED])
    if len(reported) > MAX_LISTED:
        yield f"and {len(reported) - MAX_LISTED:,} more; --json lists them all"


def _shown(path: EnvPath) -> str:
    return escape(path.decode("utf-8", "surrogateescape")) or "."


def _as_json(forked: ForkResult) -> Json:
    return {
        "schema": SCHEMA,
        "source": forked.source.id,
        "root": escape_invalid(forked.root),
        "timeline": forked.timeline,
        "id": forked.snapshot.id,
        "head": forked.head,
        "branch": forked.branch and escape_invalid(forked.branch),
        "orphan": forked.orphan,
        "verified": forked.verified,
        "duration_ms": round(forked.seconds * 1000),
        "pointing": [{**path_fields(one.path), "what": escape_invalid(one.what)} for one in forked.pointing],
        "relocated": [path_fields(path) for path in forked.relocated],
        "left_alone": [_left(item) for item in forked.skipped if item.why],
        "kept": [_left(item) for item in forked.kept],
        "losses": [_left(item) for item in forked.losses],
        "warnings": [escape_invalid(warning) for warning in forked.warnings],
    }


def _left(item: SkippedPath) -> Json:
    return {**path_fields(item.path), "why": escape_invalid(item.why)}
