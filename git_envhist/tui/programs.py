"""Asks our own programs: what they tell as JSON is what is shown, and what they refuse is refused here.

The list alone is told by a template: JSON says of each moment which paths it changed, and of 5,000 that takes a while.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from git_envhist.diff.summary import with_minus_signs
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, EnvPath
from git_envhist.platform import own_command
from git_envhist.text import escape

# What our programs tell under `--json`, as the words of the model: so it is folded as they fold it themselves.

Json = Mapping[str, Any]


def changes_of(told: Iterable[Json]) -> list[Change]:
    """The paths that differ."""
    return [_change(one["status"], one["path"], one.get("old_path")) for one in told]


def steps_of(told: Iterable[Json]) -> list[Change]:
    """The steps of a plan as changes of the paths they touch."""
    return [Change(_side(one["path"], one["before"]), _side(one["path"], one["after"])) for one in told]


def _change(status: str, path: str, old_path: str | None) -> Change:
    before = None if status == ChangeKind.ADDED.value else _side(old_path or path)
    return Change(before, None if status == ChangeKind.REMOVED.value else _side(path))


def _side(path: str, kind: str | None = "file") -> ChangeSide | None:
    if kind is None:
        return None
    stands = EntryKind.DIRECTORY if kind == "directory" else EntryKind.FILE
    # As it is to be shown: where it is no UTF-8 the programs have spelled it out.
    return ChangeSide(EnvPath(path.encode("utf-8", "surrogateescape")), stands, 0, None)


FIELDS = ("%H", "%h", "%(time)", "%(verdict)", "%(title)", "%(name)", "%(story)", "%(trigger)", "%(carried)")
TEMPLATE = "%x00".join(FIELDS) + "%x00"
REFUSED = 128
NO_PAGER = {"GIT_PAGER_IN_USE": "true", "GIT_PAGER": "cat"}
"""A program that writes to us writes to nobody's pager."""


class SnapshotRow(NamedTuple):
    """A moment, as the list has it."""

    id: str
    short: str
    time: str
    verdict: str
    intent: str
    name: str
    story: str
    trigger: str


class OwnProgramResult(NamedTuple):
    """What a program said, and how it ended."""

    status: int
    out: str
    err: str


class JsonResult(NamedTuple):
    """What a program answered under `--json`: a value, or in its place why there is none."""

    value: Json | None
    trouble: str = ""


def ask(program: str, *words: str) -> OwnProgramResult:
    """Run a program of ours to its end."""
    try:
        # Into files: when this browser is killed, a restore has nobody to write to, and goes on to its end.
        with TemporaryFile() as out, TemporaryFile() as err:
            status = _run([*own_command(program), *words], out, err)
            return OwnProgramResult(status, *map(_read, (out, err)))
    except OSError as error:
        return OwnProgramResult(REFUSED, "", f"git-{program} could not be run: {error.strerror}")


def _run(words: list[str], out: IO[bytes], err: IO[bytes]) -> int:
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env={**os.environ, **NO_PAGER},
        check=False,
        # Ctrl-C at the terminal is ours to hear: what is under way is finished.
        start_new_session=True,
    ).returncode


def ask_json(program: str, *words: str) -> JsonResult:
    """What a program of ours tells as JSON."""
    answer = ask(program, *words, "--json")
    try:
        value = json.loads(answer.out)
    except ValueError:
        return JsonResult(None, answer.err.strip() or f"git-{program} ended with {answer.status}")
    if not isinstance(value, dict) or "error" in value:
        return JsonResult(None, _error_words(value["error"] if isinstance(value, dict) else {}))
    return JsonResult(value)


def rows(year: str) -> tuple[list[SnapshotRow], OwnProgramResult]:
    """The moments of the timeline, newest first, and how it went; the year that is said of none is this one."""
    answer = ask("envlog", "--fold", "-z", f"--format={TEMPLATE}")
    found = [row._replace(time=row.time.removeprefix(f"{year}-")) for row in read_rows(answer.out)]
    return found, answer


def read_rows(text: str) -> list[SnapshotRow]:
    """The rows that the list prints, each field ended by NUL, each record by one more."""
    fields = text.split("\0")
    width = len(FIELDS) + 1
    records = (fields[at : at + width - 1] for at in range(0, len(fields) - width + 1, width))
    escaped = ([escape(field.replace("\n", " ")) for field in record] for record in records)
    return [_row(SnapshotRow(*record[:-1]), record[-1]) for record in escaped]


def _row(row: SnapshotRow, carried: str) -> SnapshotRow:
    """Return a row as the list shows it: a verdict that an equal snapshot has is no check of this one."""
    story = with_minus_signs(row.story)
    if carried:
        return row._replace(verdict="", story=" · ".join(filter(None, (story, carried))))
    return row._replace(story=story)


def _error_words(error: Json) -> str:
    hint = f"\nhint: {error['hint']}" if error.get("hint") else ""
    return f"{error.get('message', 'no answer')}{hint}"


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "backslashreplace")


def fits(row: SnapshotRow, words: Sequence[str]) -> bool:
    """Whether a moment is told with all of some words, in whatever case."""
    hay = "\n".join(row).lower()
    return all(word.lower() in hay for word in words)
