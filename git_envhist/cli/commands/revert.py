"""`git envlog revert`: take what one step changed out of the environment, and keep what came later."""

from __future__ import annotations

from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.restore import NOT_EXACT, chosen_classes, print_saved, stoppable
from git_envhist.cli.errors import warn
from git_envhist.cli.parser import argument, dry_run, force, option
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.views.details import anchored_paths
from git_envhist.cli.views.restore import UNDO, problems
from git_envhist.cli.views.revert import conflict_lines, done_lines, dry_run_lines, plan_lines
from git_envhist.diff.path_classes import CLASSES
from git_envhist.errors import UsageError
from git_envhist.model import RestoreResult, Snapshot
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.revert import RevertConflicts, find_step, prefer_of

MARKERS = "markers"


@command("revert", "git envlog revert [<options>] <rev> | <a>..<b> [-- <pathspec>...]", writes=True)
@argument("revision")
@dry_run("print the plan and the conflicts; change nothing")
@force()
@option("--ours", is_flag=True, help="keep the present version of paths in conflict")
@option("--theirs", is_flag=True, help="take the version before the step of paths in conflict")
@option(
    "--conflict",
    metavar="markers",
    choices=(MARKERS,),
    help="write both sides of text in conflict into the file",
)
@option("--only", metavar="<class>,...", multiple=True, help="revert only: " + ", ".join(CLASSES))
def revert(session: Session, revision: str | None, **options: Any) -> int:
    """Take the changes of <rev>, or of a range, out of the files and keep later ones. The files are saved first."""
    if revision is None:
        raise UsageError("no snapshot given", hint="revert the newest: git envlog revert @")
    step = find_step(session.history, revision, prefer_of(_side(options)))
    try:
        with stoppable(session), shown_progress("reading your files") as progress:
            reverted = session.history.restorer.revert(step, _restore_options(session, options, progress))
    except RevertConflicts as refused:
        if not session.json:
            for line in conflict_lines(refused.conflicts):
                session.line(line)
        raise
    return _print_result(session, reverted, is_dry_run=options["dry_run"])


def _side(options: dict[str, Any]) -> str:
    """Return the side that conflicts take; empty if none was chosen."""
    chosen = [name for name in ("ours", "theirs", "conflict") if options[name]]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    if options["conflict"] not in (None, MARKERS):
        raise UsageError(f"unknown style of conflicts: '{options['conflict']}'", hint="--conflict=markers")
    return MARKERS if options["conflict"] else "".join(chosen)


def _restore_options(session: Session, options: dict[str, Any], progress: Any) -> RestoreOptions:
    def show_plan(planned: RestoreResult) -> None:
        if not (session.json or options["dry_run"] or planned.conflicts):
            for line in plan_lines(planned):
                session.line(line)
            session.output.flush()

    def show_saved(safety: Snapshot) -> None:
        if not session.json:
            print_saved(session, safety)

    return RestoreOptions(
        pathspecs=anchored_paths(session),
        classes=chosen_classes(options["only"]),
        force=options["force"],
        dry_run=options["dry_run"],
        progress=progress,
        planned=show_plan,
        saved=show_saved,
    )


def _print_result(session: Session, reverted: RestoreResult, *, is_dry_run: bool) -> int:
    if not is_dry_run:
        session.done("the revert is done")
    for warning in (*reverted.warnings, *problems(reverted)):
        warn(warning)
    if session.json:
        from git_envhist.cli.json_values import reverted_json  # loaded late: only --json needs it

        session.print_json(reverted_json(reverted, UNDO, dry_run=is_dry_run))
    else:
        lines = dry_run_lines(reverted, session.signed) if is_dry_run else done_lines(reverted)
        for line in lines:
            session.line(line)
    return 0 if reverted.exact or is_dry_run else NOT_EXACT
