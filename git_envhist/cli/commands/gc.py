"""`git envlog gc`: compact storage and delete unused data."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.formats import count, size
from git_envhist.cli.json_values import SCHEMA, Json
from git_envhist.cli.parser import ignore_hidden_processes, option
from git_envhist.cli.progress import shown_steps
from git_envhist.errors import UsageError
from git_envhist.model import GcResult
from git_envhist.printable_text import escape, escape_invalid


@command("gc", "git envlog gc [--prune=<when> | --no-prune] [--empty-trash] [--force]", writes=True)
@option(
    "--prune",
    metavar="<when>",
    help="delete unused data older than this (2.weeks.ago)",
)
@option("--no-prune", is_flag=True, help="delete nothing, only compact")
@option("--empty-trash", "empties", is_flag=True, help="delete dropped snapshots permanently, now")
@option("--auto", is_flag=True, help="do only what the daily upkeep would do")
@ignore_hidden_processes()
def gc(session: Session, prune: str | None, no_prune: bool, empties: bool, auto: bool, force: bool) -> None:
    """Compact storage and delete data that no snapshot uses. No snapshot is removed."""
    session.no_paths()
    if empties and (no_prune or auto):
        raise UsageError(f"--empty-trash and --{'auto' if auto else 'no-prune'} exclude each other")
    if auto:
        session.history.daily()
        return
    with shown_steps() as report:
        done = session.history.gc(
            "never" if no_prune else prune, empty_trash=empties, force=force, report=report
        )
    session.done("the history is compacted")
    for what in done.damaged:
        warn(f"unchanged: {what}")
    if session.json:
        session.print_json(_as_json(done))
        return
    for line in _lines(done, at_once=empties or prune == "now"):
        session.line(escape(line))


def _lines(done: GcResult, *, at_once: bool) -> list[str]:
    before, after = count(done.packs_before, "pack"), count(done.packs, "pack")
    lines = [f"{size(done.bytes_before)} in {before} → {size(done.bytes)} in {after}"]
    if done.removed:
        lines.append(f"removed {count(done.removed, 'object')} that nothing uses")
    if done.kept:
        kept = f"not deleted yet: {count(done.kept, 'object')} that no snapshot uses"
        why = "dropped snapshots or git may need them" if at_once else "a running program may need them"
        lines.append(
            f"{kept}; {why}" + ("" if at_once else " (to delete them now: git envlog gc --prune=now)")
        )
    return lines


def _as_json(done: GcResult) -> Json:
    return {
        "schema": SCHEMA,
        "packs": {"before": done.packs_before, "after": done.packs},
        "bytes": {"before": done.bytes_before, "after": done.bytes},
        "removed": done.removed,
        "kept": done.kept,
        "damaged": [escape_invalid(what) for what in done.damaged],
    }
