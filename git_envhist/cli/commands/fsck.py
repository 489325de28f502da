"""`git envlog fsck`: is every snapshot whole?"""

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
from git_envhist.text import escape, escape_invalid

NOT_WHOLE = 1
SHOWN = 20
"""So many paths of a moment; JSON has all of them."""


@command("fsck", "git envlog fsck [--quick | --repair]", writes=True)
@option("--quick", is_flag=True, help="check that all objects exist; do not read them")
@option("--repair", is_flag=True, help="repair damaged snapshots where possible")
def fsck(session: Session, quick: bool, repair: bool) -> int:
    """Check every snapshot for damage. Exit with status 1 if a snapshot is damaged."""
    session.no_paths()
    if quick and repair:
        raise UsageError("--quick and --repair exclude each other", hint="a repair reads every byte")
    with shown_steps() as tell:
        health = session.history.fsck(quick=quick, repair=repair, report=tell)
    if session.json:
        session.print_json(_as_json(health))
    else:
        for line in _lines(health, FormatContext(session.history.now)):
            session.line(escape(line))
        if not health.is_whole:
            print_error_line(
                "hint: mend what can be mended: git envlog fsck --repair" if not repair else _left(health)
            )
    return 0 if health.is_whole else NOT_WHOLE


def _left(health: FsckReport) -> str:
    what = ", ".join(dict.fromkeys(fault.kind for fault in health.faults)) or "moments"
    return f"hint: this could not be mended here ({what}); 'git fsck' may say more"


def _lines(health: FsckReport, look: FormatContext) -> Iterator[str]:
    yield from (f"mended: {sentence}" for sentence in health.repaired)
    for fault in health.faults:
        yield f"{fault.kind} {fault.subject}: {fault.why}"
    for broken in health.broken:
        yield from _broken_lines(broken, look)
    objects, packs = count(health.objects, "object"), count(health.packs, "pack")
    looked = f"{packs}, {objects}" + ("" if health.quick else f", {size(health.bytes)} read")
    if health.is_whole:
        yield f"whole: {count(health.snapshots, 'moment')}; {looked}"
    else:
        yield f"{len(health.broken):,} of {count(health.snapshots, 'moment')} not whole; {looked} sound"


def _broken_lines(broken: BrokenSnapshot, look: FormatContext) -> Iterator[str]:
    one = broken.snapshot
    if one is None:
        yield f"broken  {broken.commit[:7]}  the moment itself cannot be read, nor what came before it"
        return
    yield f"broken  {one.id[:7]}  {look.time(one)}  {subject(one.intent)}"
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
