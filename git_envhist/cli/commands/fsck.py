"""`git envlog fsck`: check every snapshot for damage, and repair it."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import print_error_line
from git_envhist.cli.formats import FormatContext, count, size
from git_envhist.cli.json_values import SCHEMA, Json
from git_envhist.cli.parser import option
from git_envhist.cli.progress import shown_steps
from git_envhist.errors import UsageError
from git_envhist.history.timeline import subject
from git_envhist.model import BrokenSnapshot, FsckReport
from git_envhist.printable_text import escape, escape_invalid

NOT_WHOLE = 1
SHOWN = 20
"""The longest list of paths per snapshot; JSON contains all."""


@command("fsck", "git envlog fsck [--quick | --repair]", writes=True)
@option("--quick", is_flag=True, help="check that all objects exist; do not read them")
@option("--repair", is_flag=True, help="repair damaged snapshots where possible")
def fsck(session: Session, quick: bool, repair: bool) -> int:
    """Check every snapshot for damage. Exit with status 1 if a snapshot is damaged."""
    session.no_paths()
    if quick and repair:
        raise UsageError("--quick and --repair exclude each other", hint="a repair reads every byte")
    with shown_steps() as report:
        health = session.history.fsck(quick=quick, repair=repair, report=report)
    if session.json:
        session.print_json(_as_json(health))
    else:
        for line in _lines(health, FormatContext(session.history.now)):
            session.line(escape(line))
        if not health.is_whole:
            print_error_line(
                "hint: repair what is possible: git envlog fsck --repair" if not repair else _left(health)
            )
    return 0 if health.is_whole else NOT_WHOLE


def _left(health: FsckReport) -> str:
    what = ", ".join(dict.fromkeys(fault.kind for fault in health.faults)) or "snapshots"
    return f"hint: not repaired ({what}); 'git fsck' may show more"


def _lines(health: FsckReport, context: FormatContext) -> Iterator[str]:
    yield from (f"repaired: {sentence}" for sentence in health.repaired)
    for fault in health.faults:
        yield f"{fault.kind} {fault.subject}: {fault.why}"
    for broken in health.broken:
        yield from _broken_lines(broken, context)
    if health.is_whole:
        objects, packs = count(health.objects, "object"), count(health.packs, "pack")
        looked = f"{packs}, {objects}" + ("" if health.quick else f", {size(health.bytes)} read")
        yield f"no damage: {count(health.snapshots, 'snapshot')}; {looked}"
    else:
        yield "; ".join(_damage(health))


def _damage(health: FsckReport) -> Iterator[str]:
    """Yield how much is damaged. Each snapshot and each object is counted once."""
    yield f"{len(health.broken):,} of {count(health.snapshots, 'snapshot')} damaged"
    if health.unreached:
        yield f"{health.unreached:,} intact, but cut off from the timeline"
    yield f"{health.damaged_packs:,} of {count(health.packs, 'pack')} damaged"
    objects = health.objects + health.lost_objects
    yield f"{health.lost_objects:,} of {count(objects, 'object')} cannot be read"


def _broken_lines(broken: BrokenSnapshot, context: FormatContext) -> Iterator[str]:
    one = broken.snapshot
    if one is None:
        yield f"broken  {broken.commit[:7]}  cannot be read"
        return
    yield f"broken  {one.id[:7]}  {context.time(one)}  {subject(one.intent)}"
    for path in broken.paths[:SHOWN]:
        yield f"        {path}"
    if len(broken.paths) > SHOWN:
        yield f"        and {len(broken.paths) - SHOWN:,} more"


def _as_json(health: FsckReport) -> Json:
    return {
        "schema": SCHEMA,
        "whole": health.is_whole,
        "quick": health.quick,
        "moments": health.snapshots,
        "packs": health.packs,
        "objects": health.objects,
        "bytes": health.bytes,
        "unreached": health.unreached,
        "damaged_packs": health.damaged_packs,
        "lost_objects": health.lost_objects,
        "faults": [
            {"kind": one.kind, "subject": escape_invalid(one.subject), "why": escape_invalid(one.why)}
            for one in health.faults
        ],
        "broken": [
            {
                "id": one.commit if one.snapshot is None else one.snapshot.id,
                "timeline": escape_invalid(one.timeline),
                "readable": one.snapshot is not None,
                "paths": [escape_invalid(path) for path in one.paths],
            }
            for one in health.broken
        ],
        "repaired": [escape_invalid(sentence) for sentence in health.repaired],
    }
