"""`git envrestore`, and `git envlog undo` and `redo`.

`restore` chooses the mode: list likely snapshots, restore, write elsewhere, undo, redo, continue or abort. The views in
`cli/views/restore.py` print the plan and the result.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.cli.formats import FormatContext, count
from git_envhist.cli.parser import allow_unsigned, argument, in_place_options, option
from git_envhist.cli.progress import shown_progress, shown_steps
from git_envhist.cli.refused_arguments import refuse_place
from git_envhist.cli.views.log import id_length, list_lines
from git_envhist.cli.views.restore import (
    UNDO,
    describe_snapshot,
    done_lines,
    dry_run_lines,
    head_lines,
    later_changes_line,
    plan_lines,
    problems,
    require_plan,
    saved_line,
    undo_command,
    unrestored_service_lines,
)
from git_envhist.diff.path_classes import CLASSES
from git_envhist.errors import EnvhistError, Interrupted, UsageError
from git_envhist.history.resolve import NOTHING_CAPTURED
from git_envhist.history.titles import likely_targets
from git_envhist.lazy import replace
from git_envhist.model import CaptureProgress, RestoreResult, RestoreRole, Snapshot
from git_envhist.printable_text import escape, escape_invalid
from git_envhist.restore.options import STOPPED, RestoreOptions, checked_classes

# `git envrestore --attachments`: write the attached files into a directory.


def write_attachments(session: Session, snapshot: Snapshot, directory: str) -> int:
    """Write the attached files, and print their paths."""
    refuse_place(session, directory)
    written = session.history.restorer.write_attachments_of(snapshot, directory)
    if session.json:
        session.print_json({"schema": 1, "id": snapshot.id, "attachments": written})
    elif not written:
        session.line(f"no files are attached to {snapshot.id[:7]}")
    else:
        for path in written:
            session.verbatim(path)
    return 0


# List likely snapshots, each with its command, for `git envrestore` without a revision.


LIKELY = "likely snapshots: newest, last that passed, last with a name, and others:"


def likely_snapshot_lines(session: Session) -> Iterator[str]:
    """Yield the lines for at most five snapshots, the newest first."""
    history = session.history
    if history.restorer.is_interrupted:
        yield "a restore was interrupted: first git envrestore --continue, or --abort to undo it"
    snapshots = likely_targets(history.catalog.own.snapshots, "")
    if not snapshots:
        print_error_line(f"hint: {NOTHING_CAPTURED}")
        return
    digits = id_length([snapshot.id for snapshot in snapshots])
    context = FormatContext(history.now, None, digits, ascii_signs=session.columns is None)
    if not session.json:
        yield LIKELY
    text = list_lines(snapshots, context, session.palette, session.columns)
    for line, snapshot in zip(text, snapshots, strict=True):
        yield line
        spelled = shlex.quote(snapshot.names[0]) if snapshot.names else context.short_id(snapshot)
        yield f"    git envrestore {escape(spelled)}"
    yield "nothing was changed; to see what one would change: git envrestore -n <rev>"


# `git envrestore --continue` and `--abort`: end an interrupted restore.

NOT_EXACT_STATUS = 5


def end_interrupted_restore(session: Session, mode: str, revision: str | None, spelled: str) -> int:
    """Finish or undo an interrupted restore."""
    if revision is not None:
        raise UsageError(f"{spelled} takes no argument: '{revision}'")
    restorer = session.history.restorer
    carried = restorer.continue_restore() if mode == "continue" else restorer.abort_restore()
    session.done("the restore is undone" if carried.undone else "the restore is finished")
    for item in (*carried.kept, *carried.losses):
        warn(f"'{os.fsdecode(item.path) or '.'}': {item.why}")
    stopped = dict(carried.notes).get(STOPPED)
    if stopped:
        warn(f"services that the restore stopped are still stopped: {stopped}")
    if session.json:
        from git_envhist.cli.json_values import ended_json  # loaded late: only --json needs it

        session.print_json(ended_json(carried))
    elif carried.undone:
        session.line("undone: all files are as before the restore")
    else:
        session.line("finished; to undo it: git envrestore --undo")
    return 0 if not carried.kept and not carried.losses else NOT_EXACT_STATUS


# Messages about a restore that the user stops.


@contextmanager
def report_stopped_restore(session: Session, meant: Snapshot | None = None) -> Iterator[None]:
    """Turn an interruption into an error that says what was completed; an open journal reports itself.

    The hint names the snapshot by its id, because `@` is now the snapshot saved before the restore.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        number = getattr(stopped, "number", signal.SIGINT)
        safety = session.history.restorer.changed
        if safety is None:
            hint = (
                f"to try again: git envrestore {meant.id[:7]} ('@' is now the snapshot of your files)"
                if meant
                else None
            )
            raise Interrupted(number, hint=hint) from stopped
        raise Interrupted(
            number,
            "the files are restored, but the rest of the restore was not finished",
            hint=f"to go back: git envrestore {safety.id[:7]}",
        ) from stopped


NOT_EXACT = 5
NEWEST = "@"
MODES = ("undo", "redo", "continue", "abort")
SPELLED = {"continue": "--continue", "abort": "--abort"}
IN_PLACE = ("plan", "keep_new", "keep_tracked", "head", "relocate", "roots", "services", "verify")
CHOOSING = ("only", *IN_PLACE)
CHANGING = ("to", "attachments", *CHOOSING)
"""Options that need a snapshot."""
EXCLUDING = {
    "to": (*IN_PLACE, "attachments", "undo", "redo", "continue", "abort"),
    "attachments": (*CHOOSING, "dry_run", "undo", "redo", "continue", "abort"),
    "undo": ("relocate", "verify"),
    "redo": ("relocate", "verify"),
    "continue": (*CHOOSING, "dry_run", "force"),
    "abort": (*CHOOSING, "dry_run", "force"),
}
"""Options that exclude each other, by the one that is checked first."""


@command("envrestore", "git envrestore [<options>] [<rev>] [-- <pathspec>...]", writes=True)
@argument("words", many=True)
@in_place_options
@option("--to", "to", metavar="<directory>", help="write into this directory; change nothing here")
@option("--keep-new", is_flag=True, help="do not remove files that are not in the snapshot")
@option("--keep-tracked", is_flag=True, help="do not change files that HEAD tracks")
@option("--only", metavar="<class>,...", multiple=True, help="restore only: " + ", ".join(CLASSES))
@option("--head", is_flag=True, help="also move HEAD to the code commit of the snapshot")
@option("--relocate", is_flag=True, help="replace the path of the other working tree by yours")
@option("--verify", is_flag=True, help="then run the recorded check of the snapshot")
@option(
    "--attachments",
    metavar="<directory>",
    help="write only the attached files into this directory",
)
@allow_unsigned("restore")
@option("--roots", is_flag=True, help="with --allow-unsigned: change additional roots too")
@option("--undo", is_flag=True, help="undo the last restore, or <number> steps")
@option("--redo", is_flag=True, help="redo the last undo")
@option("--continue", "continue", is_flag=True, help="finish an interrupted restore")
@option("--abort", "abort", is_flag=True, help="undo an interrupted restore")
def restore(session: Session, words: tuple[str, ...], **options: Any) -> int:
    """Restore a snapshot; the current files are saved first. Without <rev>, list likely snapshots."""
    _refuse_excluding(options)
    mode = _mode(options)
    revision = words[0] if words else None
    # Writing into another directory needs no working tree.
    session.bare = options["to"] is not None or options["attachments"] is not None
    if mode is not None and len(words) > 1:
        raise UsageError(f"unexpected argument: '{words[1]}'")
    if mode in ("undo", "redo"):
        return undo_or_redo(session, mode, revision, options)
    if mode is not None:
        return end_interrupted_restore(session, mode, revision, SPELLED[mode])
    if revision is None and not session.paths and not any(options[name] for name in CHANGING):
        return _show_likeliest(session)
    snapshot = session.history.resolve(_revision(session, revision))
    if len(words) > 1:
        from git_envhist.cli.path_arguments import take_paths  # loaded late: most paths go after '--'

        take_paths(session, words[1:], snapshot, "git envrestore [<rev>]")
    if options["attachments"] is not None:
        return write_attachments(session, snapshot, options["attachments"])
    if options["to"] is not None:
        return _write_elsewhere(session, snapshot, options)
    # Find out whether there is a check before anything is changed.
    check = session.history.checks.recorded(snapshot) if options["verify"] else None
    with report_stopped_restore(session, snapshot), _shown_steps(session, options) as wish:
        restored = session.history.restorer.to(snapshot, wish)
    if check is None or options["dry_run"]:
        return _print_result(session, restored, options)
    return _print_and_check(session, restored, options, check)


def _print_and_check(session: Session, restored: RestoreResult, options: dict[str, Any], command: str) -> int:
    from git_envhist.cli.json_values import verdict_json  # loaded late: few restores are checked
    from git_envhist.cli.views.restore import (  # loaded late: few restores are checked
        check_restored,
        print_check,
    )

    if session.json:
        checked = check_restored(session, restored, command)
        status = _print_result(session, restored, options, verify=verdict_json(checked.verdict))
    else:
        status = _print_result(session, restored, options)
        checked = check_restored(session, restored, command)
    return print_check(session, checked, restored, status)


def undo_or_redo(session: Session, mode: str, revision: str | None, options: dict[str, Any]) -> int:
    """Undo or redo the given number of steps."""
    steps = 1 if revision is None else _number(revision, mode)
    go = session.history.restorer.undo if mode == "undo" else session.history.restorer.redo
    with report_stopped_restore(session), _shown_steps(session, options) as wish:
        restored = go(steps, wish)
    # The opposite command reverses this one; one more undo would go further back.
    other = "redo" if mode == "undo" else "undo"
    back = f"git envrestore --{other}" + (f" {steps}" if steps > 1 else "")
    status = _print_result(session, restored, options, back)
    if not (session.json or options["head"]):
        for line in head_lines(restored, session.history.repository.git, dry_run=options["dry_run"]):
            session.line(line)
    if mode == "undo" and not session.json and restored.target.restore is RestoreRole.TO:
        session.line(later_changes_line(restored, steps, dry_run=options["dry_run"]))
    return status


@contextmanager
def _shown_steps(session: Session, options: dict[str, Any]) -> Iterator[RestoreOptions]:
    """Show progress on a terminal: of the capture first, then of the restore."""
    numbers: list[int] = []

    def planned(restored: RestoreResult) -> None:
        numbers.append(len(restored.plan.steps))

    with shown_steps() as report, shown_progress("reading your files") as progress:
        wish = _wish(session, options, progress)
        wished_planned, saved = wish.planned, wish.saved

        def both(restored: RestoreResult) -> None:
            planned(restored)
            if wished_planned is not None:
                wished_planned(restored)

        def report_start(safety: Snapshot) -> None:
            if saved is not None:
                saved(safety)
            if progress is not None:
                report(f"restoring {count(numbers[-1] if numbers else 0, 'path')}")

        yield replace(wish, planned=both, saved=report_start)


def _mode(options: dict[str, Any]) -> str | None:
    chosen = [mode for mode in MODES if options[mode]]
    if len(chosen) > 1:
        first, second = (SPELLED.get(mode, "--" + mode) for mode in chosen[:2])
        raise UsageError(f"{first} and {second} exclude each other")
    return chosen[0] if chosen else None


def _refuse_excluding(options: dict[str, Any]) -> None:
    """Raise UsageError for options that have no effect together."""
    for one, others in EXCLUDING.items():
        for other in others if options.get(one) else ():
            if options.get(other):
                first, second = (SPELLED.get(name, "--" + name.replace("_", "-")) for name in (one, other))
                raise UsageError(f"{first} and {second} exclude each other")


def _number(text: str, mode: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise UsageError(f"not a number of steps: '{text}'", hint=f"git envrestore --{mode} 2")
    return int(text)


def _revision(session: Session, revision: str | None) -> str:
    if revision is not None:
        return revision
    if session.paths:
        # As `git restore -- <path>`, which restores from the nearest source.
        return NEWEST
    raise UsageError(
        "no snapshot given", hint="restore the newest: git envrestore @; list snapshots: git envlog"
    )


def chosen_classes(lists: tuple[str, ...]) -> frozenset[str] | None:
    """Return the classes that `--only` names; None for all."""
    words = [word for words in lists for word in words.split(",") if word]
    if not set(words) <= set(CLASSES):
        from git_envhist.cli.views.restore import (
            class_for_option,  # loaded late: only an unknown class needs it
        )

        words = [class_for_option(word) for word in words]
    return checked_classes(words)


def _wish(
    session: Session, options: dict[str, Any], progress: Callable[[CaptureProgress], None] | None
) -> RestoreOptions:
    from git_envhist.cli.views.details import anchored_paths  # loaded late: a usage error needs no history

    quiet = bool(session.json)
    silent = quiet or options["dry_run"]
    return RestoreOptions(
        pathspecs=anchored_paths(session),
        classes=chosen_classes(options["only"]),
        keep_new=options["keep_new"],
        keep_tracked=options["keep_tracked"],
        head=options["head"],
        relocate=options["relocate"],
        force=options["force"],
        allow_unsigned=options["allow_unsigned"],
        roots=options["roots"],
        services=options["services"],
        dry_run=options["dry_run"],
        progress=progress,
        planned=require_plan(
            options["plan"], None if silent else lambda planned: _print_short_plan(session, planned)
        ),
        saved=None if quiet else lambda safety: print_saved(session, safety),
    )


def _print_short_plan(session: Session, planned: RestoreResult) -> None:
    if planned.plan.steps or planned.plan.directories:
        for line in plan_lines(planned, _words(session, planned.target), session.signed):
            session.line(line)
    # Print the plan first, because later warnings refer to it.
    session.output.flush()


def print_saved(session: Session, safety: Snapshot) -> None:
    """Print the snapshot that was saved first, at once."""
    session.line(saved_line(safety))
    session.output.flush()


def _print_result(
    session: Session, restored: RestoreResult, options: dict[str, Any], back: str = UNDO, **more: object
) -> int:
    if not options["dry_run"]:
        session.done("the restore is done")
    for warning in restored.warnings:
        warn(warning)
    for problem in problems(restored):
        warn(problem)
    back = undo_command(restored, back, head=options["head"], services=options["services"])
    unrestored = () if options["services"] or options.get("to") else _unrestored_services(session, restored)
    if session.json:
        from git_envhist.cli.json_values import restored_json  # loaded late: only --json needs it

        value = restored_json(restored, back, dry_run=options["dry_run"])
        session.print_json({**value, "services_held": [*map(escape_invalid, unrestored)], **more})
    elif options["dry_run"]:
        from git_envhist.cli.views.details import fact_lines  # loaded late: only a dry run prints facts

        there = None if options.get("to") else back
        story = fact_lines(session, restored.story, indent=2)
        for line in dry_run_lines(restored, _words(session, restored.target), session.signed, there, story):
            session.line(line)
    else:
        from git_envhist.cli import errors  # loaded late: a dry run and JSON need none
        from git_envhist.printable_text import escape  # loaded late: a dry run and JSON need none

        printed_back = None if options.get("to") or not errors.is_wanted(session, errors.RESTORE) else back
        did = "restored"
        if options.get("to"):
            did = f"wrote {restored.target.id[:7]} into '{escape(os.path.abspath(options['to']))}'"
        for line in done_lines(restored, printed_back, _rest_line(session, restored, options), did=did):
            session.line(line)
    if unrestored and not session.json:
        for line in unrestored_service_lines(session, restored, unrestored):
            session.line(line)
    return 0 if restored.exact or options["dry_run"] else NOT_EXACT


def _unrestored_services(session: Session, restored: RestoreResult) -> tuple[str, ...]:
    """Return the services whose state the snapshot contains; nothing if that cannot be read."""
    from git_envhist.cli.views.details import services_of  # loaded late: only a finished restore needs it

    try:
        return services_of(session.history, restored.target)
    except EnvhistError:
        return ()


def _rest_line(session: Session, restored: RestoreResult, options: dict[str, Any]) -> str:
    if options.get("to"):
        return ""
    from git_envhist.cli.views.restore import not_restored_line  # loaded late: JSON does not need it

    return not_restored_line(session, restored, partly=bool(session.paths or options.get("only")))


def _words(session: Session, snapshot: Snapshot) -> str:
    from git_envhist.cli.formats import first_line, symbol  # loaded late: JSON needs none
    from git_envhist.cli.views.log import format_context  # loaded late: JSON needs none
    from git_envhist.printable_text import escape  # loaded late: JSON needs none

    verdict = snapshot.verdict
    label = f"{symbol(verdict)} {first_line(verdict.command)}" if verdict else ""
    words = describe_snapshot(snapshot, label, format_context(session.history))
    root = session.history.repository.root
    # Name the directory if it is not the current one.
    return words if os.path.realpath(root) == os.path.realpath(".") else f"{words} in '{escape(root)}'"


def _write_elsewhere(session: Session, snapshot: Snapshot, options: dict[str, Any]) -> int:
    wish = replace(_wish(session, options, None), planned=None, saved=None)
    refuse_place(session, options["to"])
    written = session.history.restorer.write_to(snapshot, options["to"], wish)
    return _print_result(session, written, options)


def _show_likeliest(session: Session) -> int:

    for line in likely_snapshot_lines(session):
        session.line(line)
    return 0


# `git envlog undo` and `redo`: the same as `git envrestore --undo` and `--redo`.

DEFAULTS: dict[str, Any] = {
    "only": (),
    "keep_new": False,
    "keep_tracked": False,
    "head": False,
    "relocate": False,
    "allow_unsigned": False,
    "roots": False,
}


@command("undo", "git envlog undo [<number>]", writes=True)
@argument("number")
@in_place_options
def undo(session: Session, number: str | None, **options: Any) -> int:
    """Go back to the last state that differs from now, or <number> states back. The current files are saved first."""
    session.no_paths()
    return undo_or_redo(session, "undo", number, {**DEFAULTS, **options})


@command("redo", "git envlog redo [<number>]", writes=True)
@argument("number")
@in_place_options
def redo(session: Session, number: str | None, **options: Any) -> int:
    """Redo the last undo. Only possible while nothing new was captured."""
    session.no_paths()
    return undo_or_redo(session, "redo", number, {**DEFAULTS, **options})
