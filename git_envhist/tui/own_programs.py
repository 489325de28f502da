"""Run our own programs and read their JSON; their errors are shown as errors here.

The list is read with `--format`, because JSON contains the changed paths of every snapshot, which takes long for
5,000 snapshots.
"""

from __future__ import annotations

import base64
import json
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from git_envhist.diff.facts import fact_words, facts_from_values
from git_envhist.diff.summary import with_minus_signs
from git_envhist.history.why import question_of
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, EnvPath, FactChange
from git_envhist.platform import run_own_program
from git_envhist.printable_text import escape

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Convert JSON of our programs to model values, so that paths are folded as the programs fold them.

Json = Mapping[str, Any]


def changes_of(values: Iterable[Json]) -> list[Change]:
    """Return the changed paths."""
    return [_change(one["status"], one["path"], one.get("old_path")) for one in values]


def steps_of(values: Iterable[Json]) -> list[Change]:
    """Return the steps of a plan as changes of their paths."""
    return [Change(_side(one["path"], one["before"]), _side(one["path"], one["after"])) for one in values]


def _change(status: str, path: str, old_path: str | None) -> Change:
    before = None if status == ChangeKind.ADDED.value else _side(old_path or path)
    return Change(before, None if status == ChangeKind.REMOVED.value else _side(path))


def _side(path: str, kind: str | None = "file") -> ChangeSide | None:
    if kind is None:
        return None
    entry_kind = EntryKind.DIRECTORY if kind == "directory" else EntryKind.FILE
    # A path that is not UTF-8 was already escaped by the program.
    return ChangeSide(EnvPath(path.encode("utf-8", "surrogateescape")), entry_kind, 0, None)


FIELDS = ("%H", "%h", "%(time)", "%(verdict)", "%(title)", "%(name)", "%(story)", "%(trigger)", "%(carried)")
TEMPLATE = "%x00".join(FIELDS) + "%x00"
FAILED = 128
NO_PAGER = {"GIT_PAGER_IN_USE": "true", "GIT_PAGER": "cat"}
"""Keep our programs from starting a pager."""


class SnapshotRow(NamedTuple):
    """One row of the list."""

    id: str
    short: str
    time: str
    verdict: str
    intent: str
    name: str
    story: str
    trigger: str


class OwnProgramResult(NamedTuple):
    """The exit status and output of a program."""

    status: int
    out: str
    err: str


class JsonResult(NamedTuple):
    """The JSON value that a program printed, or the reason why there is none."""

    value: Json | None
    error_text: str = ""


def run_and_read(program: str, *words: str) -> OwnProgramResult:
    """Run a program of ours and return its output. The browser handles Ctrl-C itself."""
    try:
        return OwnProgramResult(*run_own_program(program, words, {**os.environ, **NO_PAGER}, session=True))
    except OSError as error:
        return OwnProgramResult(FAILED, "", f"git-{program} cannot be run: {error.strerror}")


def ask_json(program: str, *words: str) -> JsonResult:
    """Run a program of ours with `--json` and return its value."""
    # What follows `--` is a path.
    answer = run_and_read(program, *words, *(() if "--json" in words else ("--json",)))
    try:
        value = json.loads(answer.out)
    except ValueError:
        return JsonResult(None, answer.err.strip() or f"git-{program} ended with {answer.status}")
    if not isinstance(value, dict) or "error" in value:
        return JsonResult(None, _error_words(value["error"] if isinstance(value, dict) else {}))
    return JsonResult(value)


class WhySubject(NamedTuple):
    """Something that a snapshot changed, and the words with which `git envlog why` asks about it."""

    shown: str
    words: tuple[str, ...]


MAX_SUBJECTS = 500


def why_subjects(value: Json) -> list[WhySubject]:
    """Return what a snapshot changed, from `envlog show --json`: packages and variables, then paths."""
    found = dict.fromkeys(_fact_subjects(facts_from_values(value["story"])))
    for one in value["env_changed"]["paths"]:
        path = os.fsdecode(b64decode(one["path_b64"])) if "path_b64" in one else one["path"]
        is_gone = one["status"] == ChangeKind.REMOVED.value
        place = path if "://" in path else f":/{path}"
        shown = f"{'-' if is_gone else '~'} {one['path']}"
        found[WhySubject(shown, (f"--path-gone={place}",) if is_gone else ("--", place))] = None
    return list(found)[:MAX_SUBJECTS]


def _fact_subjects(facts: Iterable[FactChange]) -> Iterator[WhySubject]:
    for fact in facts:
        question = question_of(fact)
        if question is not None:
            mark = "+" if fact.before is None else "-" if fact.after is None else "~"
            yield WhySubject(f"{fact.probe} {mark} {fact_words(fact)}", (question,))


def list_snapshots(year: str) -> tuple[list[SnapshotRow], OwnProgramResult]:
    """Return the snapshots of the timeline, newest first and without the current year, and the program's result."""
    answer = run_and_read("envlog", "--fold", "-z", f"--format={TEMPLATE}")
    found = [row._replace(time=_short_time(row.time, year)) for row in read_rows(answer.out)]
    return found, answer


def count_snapshots() -> int:
    """Return the number of snapshots of the timeline, with those that the list folds."""
    return run_and_read("envlog", "--no-fold", "-z", "--format=%h").out.count("\0")


class OtherTimelines(NamedTuple):
    """The names of other timelines, or the reason why they cannot be listed."""

    names: list[str]
    error_text: str = ""


def other_timelines() -> OtherTimelines:
    """Return the names of the other timelines of this repository, fetched ones included."""
    newest = run_and_read("envlog", "-1", "--json")
    try:
        value = json.loads(newest.out or "[]")
    except ValueError:
        value = {}
    if not isinstance(value, list):
        return OtherTimelines([], _error_words(value.get("error", {})))
    own = {one["timeline"] for one in value}
    names = (
        line.partition("\t")[0] for line in run_and_read("envhist", "complete", "timelines").out.splitlines()
    )
    return OtherTimelines([name for name in names if name not in own])


# The conflicts of a revert or a merge, and the sides that the user chose.


def path_of(value: Json) -> str:
    """Return the path of a conflict as an argument of a program."""
    encoded = value.get("path_b64")
    return os.fsdecode(base64.b64decode(encoded)) if encoded else str(value["path"])


def resolve_options(sides: Mapping[str, str]) -> list[str]:
    """Return the options that decide conflicts, given the side of each path."""
    return [f"--resolve={side}=:(top,literal){path}" for path, side in sides.items()]


def _short_time(text: str, year: str) -> str:
    """Return a printed time of the current year as `12 Nov 09:15`; others unchanged."""
    match = re.fullmatch(rf"{year}-(\d\d)-(\d\d) (\d\d:\d\d)", text)
    return f"{match[2]} {MONTHS[int(match[1]) - 1]} {match[3]}" if match else text


def read_rows(text: str) -> list[SnapshotRow]:
    """Parse the list: each field ends with NUL, and each record with one more."""
    fields = text.split("\0")
    width = len(FIELDS) + 1
    records = (fields[at : at + width - 1] for at in range(0, len(fields) - width + 1, width))
    escaped = ([escape(field.replace("\n", " ")) for field in record] for record in records)
    return [_row(SnapshotRow(*record[:-1]), record[-1]) for record in escaped]


def _row(row: SnapshotRow, carried: str) -> SnapshotRow:
    """Return a row as the list shows it: a verdict carried over from an equal snapshot moves to the summary."""
    story = with_minus_signs(row.story)
    if carried:
        return row._replace(verdict="", story=" · ".join(filter(None, (carried, story))))
    return row._replace(story=story)


def _error_words(error: Json) -> str:
    hint = f"\nhint: {error['hint']}" if error.get("hint") else ""
    return f"{error.get('message', 'no answer')}{hint}"


def contains_words(row: SnapshotRow, words: Sequence[str]) -> bool:
    """Return whether a row contains all of some words, ignoring case."""
    text = "\n".join(row).lower()
    return all(word.lower() in text for word in words)
