"""`git envlog revert` and `git envlog merge`: take a step out of the files, or join the work of two timelines."""

from __future__ import annotations

import os
from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.restore import NOT_EXACT, chosen_classes, print_saved, report_stopped_restore
from git_envhist.cli.errors import warn
from git_envhist.cli.parser import (
    Decorator,
    allow_unsigned,
    argument,
    combine_options,
    dry_run,
    force,
    option,
    plan_id,
)
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.views.details import anchored_paths
from git_envhist.cli.views.restore import UNDO, problems, require_plan
from git_envhist.cli.views.revert import conflict_lines, done_lines, dry_run_lines, plan_lines
from git_envhist.diff.path_classes import CLASSES
from git_envhist.errors import UsageError
from git_envhist.model import RestoreResult, Snapshot
from git_envhist.restore.decisions import CLASS, FORM, Decisions, decisions_of
from git_envhist.restore.merge_pairs import MergeConflicts
from git_envhist.restore.merge_sources import MergeSources, find_merge, find_revert
from git_envhist.restore.options import RestoreOptions

MARKERS = "markers"
SIDES = {"ours": "ours", "theirs": "theirs", "both": "both", "conflict": MARKERS, "skip_conflicts": "skip"}
"""The side of conflicts by the name of its option."""


def merge_options(verb: str) -> Decorator:
    """Declare the options of a revert or a merge."""
    return combine_options(
        dry_run("print the plan and the conflicts; change nothing"),
        plan_id,
        force(),
        option("--ours", is_flag=True, help="keep the present version of paths in conflict"),
        option("--theirs", is_flag=True, help="take the other version of paths in conflict"),
        option("--both", is_flag=True, help="write the other version beside it: <name>.<timeline or id>"),
        option(
            "--conflict",
            metavar="markers",
            choices=(MARKERS,),
            help="write both sides of text in conflict into the file",
        ),
        option(
            "--resolve",
            metavar="<side>=<pathspec>",
            multiple=True,
            help="choose a side for some paths, or with class:<class> for a class",
        ),
        option(
            "--skip-conflicts", is_flag=True, help=f"{verb} the rest; leave paths in conflict as they are"
        ),
        option("--only", metavar="<class>,...", multiple=True, help=f"{verb} only: " + ", ".join(CLASSES)),
        allow_unsigned(verb),
        option("--verify", is_flag=True, help="then run the recorded check"),
        option("--verify-with", metavar="<command>", help="then run this check"),
    )


@command("revert", "git envlog revert [<options>] <rev> | <a>..<b> [-- <pathspec>...]", writes=True)
@argument("revision")
@option("--turn", is_flag=True, help="revert the whole turn of the agent that took <rev>")
@option(
    "agent_session",
    "--session",
    metavar="<id>",
    help="revert all steps of an agent's session, instead of <rev>",
)
@merge_options("revert")
def revert(session: Session, revision: str | None, **options: Any) -> int:
    """Take the changes of <rev>, or of a range, out of the files and keep later ones. The files are saved first."""
    decisions = _decisions(session, options)
    sources = find_revert(session.history, revision, options["turn"], options["agent_session"], decisions)
    return _carry_out(session, sources, options)


@command("merge", "git envlog merge [<options>] <timeline> | <rev> [-- <pathspec>...]", writes=True)
@argument("revision")
@option(
    "--base", metavar="<rev>", help="merge what changed since <rev> (default: the newest common snapshot)"
)
@option("--relocate", is_flag=True, help="replace the path of the other working tree by yours")
@merge_options("merge")
def merge(session: Session, revision: str | None, **options: Any) -> int:
    """Add what changed in another timeline, e.g. a fork's, to the files. The files are saved first."""
    if revision is None:
        raise UsageError("no timeline given", hint="list the newest of all: git envlog --all")
    history, base = session.history, options["base"]
    return _carry_out(session, find_merge(history, revision, base, _decisions(session, options)), options)


def _decisions(session: Session, options: dict[str, Any]) -> Decisions:
    """Return what conflicts become."""
    chosen = [name for name in SIDES if options[name]]
    if len(chosen) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in chosen[:2])
        raise UsageError(f"{first} and {second} exclude each other", hint="for some paths: --resolve")
    if options["conflict"] not in (None, MARKERS):
        raise UsageError(f"unknown style of conflicts: '{options['conflict']}'", hint="--conflict=markers")
    rules = [_rule(session, text) for text in options["resolve"]]
    return decisions_of(SIDES[chosen[0]] if chosen else "", rules)


def _rule(session: Session, text: str) -> tuple[str, bytes]:
    side, equals, where = text.partition("=")
    if not equals or not where:
        raise UsageError(f"not a side and a path: '{text}'", hint=f"--resolve {FORM}")
    path = os.fsencode(where)
    return side, path if where.startswith(CLASS) else anchored_paths(session, (where,))[0]


def _carry_out(session: Session, sources: MergeSources, options: dict[str, Any]) -> int:
    history = session.history
    # Find out whether there is a check before anything is changed.
    check = options["verify_with"] or (
        history.checks.recorded(history.resolve(sources.target.id)) if options["verify"] else None
    )
    try:
        with report_stopped_restore(session), shown_progress("reading your files") as progress:
            merged = history.restorer.merge(sources, _restore_options(session, sources, options, progress))
    except MergeConflicts as refused:
        if not session.json:
            for line in conflict_lines(refused.conflicts):
                session.line(line)
        raise
    if check is None or options["dry_run"] or merged.snapshot is None:
        return _print_result(session, merged, is_dry_run=options["dry_run"])
    return _print_and_check(session, merged, check)


def _print_and_check(session: Session, merged: RestoreResult, command: str) -> int:
    from git_envhist.checks.merged_check_warning import (
        merged_check_warning,  # loaded late: few merges are checked
    )
    from git_envhist.cli.json_values import verdict_json  # loaded late: few merges are checked
    from git_envhist.cli.views.restore import (  # loaded late: few merges are checked
        check_restored,
        print_check,
    )

    if session.json:
        checked = check_restored(session, merged, command)
        status = _print_result(session, merged, is_dry_run=False, verify=verdict_json(checked.verdict))
    else:
        status = _print_result(session, merged, is_dry_run=False)
        checked = check_restored(session, merged, command)
    warning = merged_check_warning(session.history, merged, checked)
    if warning is not None:
        warn(warning)
    return print_check(session, checked, merged, status)


def _restore_options(
    session: Session, sources: MergeSources, options: dict[str, Any], progress: Any
) -> RestoreOptions:
    def show_plan(planned: RestoreResult) -> None:
        if not (session.json or options["dry_run"] or planned.conflicts):
            for line in plan_lines(planned):
                session.line(line)
            session.output.flush()

    def show_saved(safety: Snapshot) -> None:
        if not session.json:
            print_saved(session, safety)

    again = sources.command.replace("git envlog ", "", 1).partition(" ")
    return RestoreOptions(
        pathspecs=anchored_paths(session),
        classes=chosen_classes(options["only"]),
        force=options["force"],
        allow_unsigned=options["allow_unsigned"],
        relocate=options.get("relocate", False),
        dry_run=options["dry_run"],
        progress=progress,
        planned=require_plan(options["plan"], show_plan, f"git envlog {again[0]} -n --json {again[2]}"),
        saved=show_saved,
    )


def _print_result(session: Session, merged: RestoreResult, *, is_dry_run: bool, **more: object) -> int:
    if not is_dry_run:
        session.done("the merge is done" if merged.merged else "the revert is done")
    for warning in (*merged.warnings, *problems(merged)):
        warn(warning)
    if session.json:
        from git_envhist.cli.json_values import merged_json  # loaded late: only --json needs it

        session.print_json({**merged_json(merged, UNDO, dry_run=is_dry_run), **more})
    else:
        for line in dry_run_lines(merged, session.signed) if is_dry_run else done_lines(merged):
            session.line(line)
    return 0 if merged.exact or is_dry_run else NOT_EXACT
