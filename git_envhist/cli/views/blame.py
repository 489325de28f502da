"""The output of `git envlog blame`: columns, git's porcelain format, and JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from git_envhist.cli.command import Session
from git_envhist.cli.formats import format_date
from git_envhist.cli.json_values import SCHEMA, Json, iso_time, path_fields
from git_envhist.cli.terminal import pad, shorten, width
from git_envhist.history.attribution import Certainty
from git_envhist.history.blame import BlameLine
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.history.why import Origin, OriginReader
from git_envhist.model import EnvPath, Snapshot
from git_envhist.snapshots.names import true_path
from git_envhist.text import escape, escape_invalid

UNCERTAIN = "?"
MAX_TITLE = 32


class BlameView:
    """The lines of a file, and the step that brought each."""

    def __init__(
        self,
        session: Session,
        origins: OriginReader,
        lines: Sequence[BlameLine],
        path: EnvPath,
        style: str | None,
    ) -> None:
        self.session = session
        self.lines = lines
        self.path = path
        self.style = style
        self._origins = origins
        self._known: dict[tuple[str, bytes], Origin] = {}

    def origin(self, line: BlameLine) -> Origin:
        """Return the step that brought a line."""
        key = (line.commit, line.stored)
        if key not in self._known:
            self._known[key] = self._origins.at(line.commit, self.path_of(line))
        return self._known[key]

    def path_of(self, line: BlameLine) -> EnvPath:
        """Return the path of the file in the snapshot that brought a line."""
        return self.path if line.stored.startswith(b".envhist/") else true_path(line.stored)

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
    origins = [view.origin(line) for line in view.lines]
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
        origin = view.origin(line)
        count = _group(view.lines, number)
        head = f"{origin.snapshot.id} {line.original} {line.number}" + (f" {count}" if count else "")
        yield head.encode("ascii")
        if origin.snapshot.id not in shown:
            shown.add(origin.snapshot.id)
            yield from (row.encode("utf-8", "surrogateescape") for row in _header(view, origin, line))
        yield b"\t" + line.text


def _group(lines: Sequence[BlameLine], number: int) -> int:
    """Return the length of the group that a line begins; 0 if it continues one."""
    if number and _follows(lines[number - 1], lines[number]):
        return 0
    end = number + 1
    while end < len(lines) and _follows(lines[end - 1], lines[end]):
        end += 1
    return end - number


def _follows(one: BlameLine, other: BlameLine) -> bool:
    return (one.commit, one.stored, one.original + 1) == (other.commit, other.stored, other.original)


def _header(view: BlameView, origin: Origin, line: BlameLine) -> Iterator[str]:
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
    yield f"filename {os.fsdecode(view.path_of(line))}".replace("\n", "\\n")


def _one_line(text: str) -> str:
    return " ".join(escape(text).split())


def json_value(view: BlameView, snapshot: Snapshot) -> Json:
    """Return the lines, and each snapshot that brought one."""
    origins = {view.origin(line).snapshot.id: view.origin(line) for line in view.lines}
    return {
        "schema": SCHEMA,
        "id": snapshot.id,
        **path_fields(view.path),
        "lines": [
            {
                "line": line.number,
                "text": escape_invalid(line.text.decode("utf-8", "surrogateescape")),
                "snapshot": view.origin(line).snapshot.id,
                "original_line": line.original,
                **path_fields(view.path_of(line)),
            }
            for line in view.lines
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
