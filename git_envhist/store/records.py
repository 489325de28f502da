"""What is said of a snapshot after it was taken: one record a line, as JSON (pure).

A note may come from anywhere and hold anything: what is not a record is passed over, and what is beyond any size
that is ever written is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from git_envhist.model import Attachment, NoteRecord, TextNote, Verdict, VerdictStatus
from git_envhist.values import pattern

LARGEST_NOTE = 4 << 20
LARGEST_LINE = 1 << 20
MOST_RECORDS = 10_000
DEEPEST = 8
PLAIN_INTENT = pattern(
    r'\{"at":"([0-9T:+-]+)","kind":"intent","source":"([a-z]+)","text":"([^"\\\x00-\x1f]*)"\}'
)
"""What most notes hold is read without a reader of JSON: to load that takes longer than a page of the log."""

VERDICT, ATTACHED = "verdict", "attached"

HASH = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
STATUSES = {status.value: status for status in VerdictStatus}


class ParsedNote(NamedTuple):
    """The records of a note, and what was passed over, in words; None where all of it was read."""

    records: tuple[NoteRecord, ...]
    flaw: str | None


def format_record(record: NoteRecord) -> bytes:
    """The record as one line with its line feed."""
    import json  # loaded late: most commands write no record

    fields = {**record.fields, "at": record.at.isoformat(), "kind": record.kind}
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isprintable():
        # Plain git shows notes as they are: nothing in ours may steer a terminal or turn the writing round.
        text = json.dumps(fields, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8") + b"\n"


def parse_records(text: bytes) -> tuple[NoteRecord, ...]:
    """The records of a note, in the order of its lines; garbage is passed over."""
    return read_note(text).records


def read_note(text: bytes) -> ParsedNote:
    """The records of a note and whether there was more in it than records."""
    if len(text) > LARGEST_NOTE:
        return ParsedNote((), f"a note of {len(text)} bytes or more is not read")
    lines = [line for line in text.decode("utf-8", "replace").split("\n") if line]
    read = [_read_record(line) for line in lines[:MOST_RECORDS]]
    records = tuple([record for record in read if record is not None])
    passed_over = len(lines) - len(records)
    return ParsedNote(records, f"{passed_over} lines of a note are not records" if passed_over else None)


def read_record(line: bytes) -> NoteRecord | None:
    """The record of one line of a note; None where it is none."""
    return _read_record(line.decode("utf-8", "replace").removesuffix("\n"))


def names_of(records: Iterable[NoteRecord]) -> tuple[str, ...]:
    """The names given and not taken back, by the moments at which that was said."""
    names: dict[str, None] = {}
    for record in sorted(_of_kind(records, "name"), key=_moment):
        name = record.fields.get("name")
        if isinstance(name, str) and name:
            names.pop(name, None)
            if record.fields.get("removed") is not True:
                names[name] = None
    return tuple(names)


def verdicts_of(records: Iterable[NoteRecord]) -> tuple[Verdict, ...]:
    """The verdicts, oldest first."""
    found = [read_verdict(record) for record in _of_kind(records, VERDICT)]
    return tuple(
        sorted([verdict for verdict in found if verdict is not None], key=lambda verdict: verdict.at)
    )


def remarks_of(records: Iterable[NoteRecord]) -> tuple[TextNote, ...]:
    """What was added to the story, oldest first."""
    notes = sorted(_of_kind(records, "note"), key=_moment)
    return tuple(
        TextNote(text, note.at) for note in notes if isinstance(text := note.fields.get("text"), str)
    )


def attached_of(records: Iterable[NoteRecord]) -> tuple[Attachment, ...]:
    """What was attached later; of each name the last."""
    found: dict[str, Attachment] = {}
    for record in sorted(_of_kind(records, ATTACHED), key=_moment):
        name, blob = record.fields.get("name"), record.fields.get("blob")
        if isinstance(name, str) and isinstance(blob, str) and HASH.fullmatch(blob):
            found[name] = Attachment(name, blob)
    return tuple(found.values())


def attached_record(attached: Attachment, at: datetime) -> NoteRecord:
    return NoteRecord(ATTACHED, at, {"name": attached.name, "blob": attached.blob})


def verdict_record(verdict: Verdict) -> NoteRecord:
    """The verdict as a record; what a reader claims about it stays out, and so does output that is not sealed."""
    fields: dict[str, object] = {"status": verdict.status.value, "command": verdict.command}
    for key in (
        "exit_code",
        "signal",
        "duration_ms",
        "tree_before",
        "tree_after",
        "carried_from",
        "services",
    ):
        value = getattr(verdict, key)
        if value is not None:
            fields[key] = value
    if verdict.timed_out:
        fields["timed_out"] = True
    if verdict.sealed_output:
        fields["output"] = verdict.sealed_output
    return NoteRecord(VERDICT, verdict.at, fields)


def name_record(name: str, at: datetime, *, removed: bool = False) -> NoteRecord:
    return NoteRecord("name", at, {"name": name, "removed": True} if removed else {"name": name})


def remark_record(text: str, at: datetime) -> NoteRecord:
    return NoteRecord("note", at, {"text": text})


def _read_record(line: str) -> NoteRecord | None:
    if len(line) > LARGEST_LINE or not line.startswith("{"):
        return None
    try:
        fields = _fields_of(line)
        at = _read_moment(fields.pop("at"))
        kind = fields.pop("kind")
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(kind, str) or _is_deep(fields):
        return None
    return NoteRecord(kind, at, fields)


def _fields_of(line: str) -> dict[str, Any]:
    plain = PLAIN_INTENT.fullmatch(line)
    if plain is not None:
        return {"at": plain[1], "kind": "intent", "source": plain[2], "text": plain[3]}
    import json  # loaded late: of most snapshots no more is said

    return cast("dict[str, Any]", json.loads(line))


def _read_moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    # A moment without an offset cannot be ordered among the others; people who write notes by hand leave it out.
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _is_deep(fields: dict[str, object]) -> bool:
    level = [value for value in fields.values() if isinstance(value, dict | list)]
    for _ in range(DEEPEST):
        if not level:
            return False
        level = [inner for value in level for inner in _inside(value) if isinstance(inner, dict | list)]
    return True


def _inside(value: dict[str, object] | list[object]) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value


def _of_kind(records: Iterable[NoteRecord], kind: str) -> Iterator[NoteRecord]:
    return (record for record in records if record.kind == kind)


def _moment(record: NoteRecord) -> datetime:
    return record.at


def read_verdict(record: NoteRecord) -> Verdict | None:
    """The verdict of a record; None where it is none."""
    fields = record.fields
    status = STATUSES.get(cast(str, fields.get("status"))) if isinstance(fields.get("status"), str) else None
    if status is None:
        return None
    return Verdict(
        status,
        _text(fields, "command") or "",
        record.at,
        _number(fields, "exit_code"),
        _number(fields, "signal"),
        _number(fields, "duration_ms"),
        _text(fields, "output_tail") or "",
        _text(fields, "tree_before"),
        _text(fields, "tree_after"),
        _text(fields, "carried_from"),
        None,
        _text(fields, "output") or "",
        fields.get("timed_out") is True,
        _text(fields, "services"),
    )


def _text(fields: dict[str, object], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def _number(fields: dict[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
