"""The output of `git envlog blame`: columns, git's porcelain format, and JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from git_envhist.cli.command import Session
from git_envhist.cli.formats import format_date
from git_envhist.cli.json_values import SCHEMA, Json, iso_time, path_fields
from git_envhist.cli.terminal import pad, shorten, width
from git_envhist.history.attribution import Certainty
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.history.why import LineOrigin, Origin
from git_envhist.model import EnvPath, Snapshot
from git_envhist.printable_text import escape, escape_invalid

UNCERTAIN = "?"
MAX_TITLE = 32


class BlameView:
    """The lines of a file, and the style of times."""

    def __init__(self, session: Session, lines: Sequence[LineOrigin], style: str | None) -> None:
        self.session = session
        self.lines = lines
        self.style = style

    def time(self, snapshot: Snapshot) -> str:
        now = self.session.history.now
        return (
            printed_time(snapshot.at, now)
            if self.style is None
            else format_date(snapshot.at, self.style, now)
        )


def who(origin: Origin) -> str:
    """Return the agent, `restore`, or `?` if it is uncertain."""
    found = origin.attribution
    if found.call is not None:
        return found.call.agent or found.call.tool
    return {Certainty.RESTORE: "restore", Certainty.FIRST: "-"}.get(found.certainty, UNCERTAIN)


def _intent(origin: Origin) -> str:
    call = origin.attribution.call
    return (call.intent if call is not None and call.intent else "") or title(origin.snapshot)


def plain_lines(view: BlameView) -> Iterator[bytes]:
    """Yield a line in columns for each line of the file."""
    origins = [line.origin for line in view.lines]
    times = [view.time(origin.snapshot) for origin in origins]
    names = [escape(who(origin)) for origin in origins]
    intents = [shorten(escape(_intent(origin)), MAX_TITLE) for origin in origins]
    widths = [max(map(width, column), default=0) for column in (times, names, intents)]
    digits = len(str(max((line.number for line in view.lines), default=0)))
    for line, origin, *cells in zip(view.lines, origins, times, names, intents, strict=True):
        shown = "  ".join(pad(cell, size) for cell, size in zip(cells, widths, strict=True))
        head = f"{view.session.paint('id', origin.snapshot.id[:7])}  {shown}  {line.number:>{digits}}) "
        yield head.encode("utf-8", "surrogateescape") + escape(line.text, lines=False).encode(
            "utf-8", "surrogateescape"
        )


def porcelain_lines(view: BlameView) -> Iterator[bytes]:
    """Yield the lines of git's porcelain format, with the ids of snapshots."""
    shown: set[str] = set()
    for number, line in enumerate(view.lines):
        origin = line.origin
        count = _group(view.lines, number)
        head = f"{origin.snapshot.id} {line.original} {line.number}" + (f" {count}" if count else "")
        yield head.encode("ascii")
        if origin.snapshot.id not in shown:
            shown.add(origin.snapshot.id)
            yield from (row.encode("utf-8", "surrogateescape") for row in _header(origin, line))
        yield b"\t" + line.text


def _group(lines: Sequence[LineOrigin], number: int) -> int:
    """Return the length of the group that a line begins; 0 if it continues one."""
    if number and _follows(lines[number - 1], lines[number]):
        return 0
    end = number + 1
    while end < len(lines) and _follows(lines[end - 1], lines[end]):
        end += 1
    return end - number


def _follows(one: LineOrigin, other: LineOrigin) -> bool:
    same = (one.origin.snapshot.commit, one.path) == (other.origin.snapshot.commit, other.path)
    return same and one.original + 1 == other.original


def _header(origin: Origin, line: LineOrigin) -> Iterator[str]:
    snapshot = origin.snapshot
    seconds, zone = int(snapshot.at.timestamp()), snapshot.at.strftime("%z")[:5]
    for role in ("author", "committer"):
        yield f"{role} {_one_line(snapshot.actor.name)}"
        yield f"{role}-mail <{_one_line(snapshot.actor.email)}>"
        yield f"{role}-time {seconds}"
        yield f"{role}-tz {zone}"
    yield f"summary {_one_line(title(snapshot))}"
    if origin.before is None:
        yield "boundary"
    yield f"filename {os.fsdecode(line.path)}".replace("\n", "\\n")


def _one_line(text: str) -> str:
    return " ".join(escape(text).split())


def json_value(lines: Sequence[LineOrigin], snapshot: Snapshot, path: EnvPath) -> Json:
    """Return the lines of a file of a snapshot, and each snapshot that brought one."""
    origins = {line.origin.snapshot.id: line.origin for line in lines}
    return {
        "schema": SCHEMA,
        "id": snapshot.id,
        **path_fields(path),
        "lines": [
            {
                "line": line.number,
                "text": escape_invalid(line.text.decode("utf-8", "surrogateescape")),
                "snapshot": line.origin.snapshot.id,
                "original_line": line.original,
                **path_fields(line.path),
            }
            for line in lines
        ],
        "snapshots": [_snapshot_json(origin) for origin in origins.values()],
    }


def _snapshot_json(origin: Origin) -> Json:
    snapshot, found = origin.snapshot, origin.attribution
    return {
        "id": snapshot.id,
        "at": iso_time(snapshot.at),
        "title": escape_invalid(title(snapshot)),
        "certainty": found.certainty.value,
        "agent": found.call and escape_invalid(found.call.agent),
        "session": found.call and escape_invalid(found.call.session),
        "call_id": found.call and found.call.id and escape_invalid(found.call.id),
        "intent": escape_invalid(_intent(origin)),
    }
