"""Text formats of a snapshot's facts, lists and notes (pure).

Facts: one text per probe below `.envhist/facts/`. Lists next to the manifest: missing paths, changes in git's view,
ignore rules. Notes: one JSON record per line, written after the snapshot was taken: names, remarks, verdicts,
attachments. All of them may come from anywhere: malformed facts and records are skipped, malformed lists raise
`Damaged`, and everything has a maximum size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from git_envhist.lazy import pattern
from git_envhist.model import (
    Attachment,
    NoteRecord,
    TextNote,
    Verdict,
    VerdictStatus,
)

MAX_NOTE = 4 << 20
MAX_LINE_SIZE = 1 << 20
MAX_RECORDS = 10_000
MAX_DEPTH = 8
PLAIN_INTENT = pattern(
    r'\{"at":"([0-9T:+-]+)","kind":"intent","source":"([a-z]+)","text":"([^"\\\x00-\x1f]*)"\}'
)
"""Most notes match this and are read without the json module: importing it takes longer than printing a page of the
log.
"""

VERDICT, ATTACHED = "verdict", "attached"

HASH = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
STATUSES = {status.value: status for status in VerdictStatus}


class ParsedNote(NamedTuple):
    """The records of a note, and a description of the skipped lines; None if everything was read."""

    records: tuple[NoteRecord, ...]
    flaw: str | None


def format_record(record: NoteRecord) -> bytes:
    """Return the record as one line with its line feed."""
    import json  # loaded late: most commands write no record

    fields = {**record.fields, "at": record.at.isoformat(), "kind": record.kind}
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isprintable():
        # Plain git prints notes as they are: ours must not contain terminal control or bidirectional characters.
        text = json.dumps(fields, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8") + b"\n"


def parse_records(text: bytes) -> tuple[NoteRecord, ...]:
    """Return the records of a note in the order of its lines; malformed lines are skipped."""
    return read_note(text).records


def read_note(text: bytes) -> ParsedNote:
    """Return the records of a note and a description of the skipped lines."""
    if len(text) > MAX_NOTE:
        return ParsedNote((), f"a note of {len(text)} bytes or more is too large to read")
    lines = [line for line in text.decode("utf-8", "replace").split("\n") if line]
    read = [_read_record(line) for line in lines[:MAX_RECORDS]]
    records = tuple([record for record in read if record is not None])
    malformed = len(lines) - len(records)
    return ParsedNote(records, f"{malformed} lines of a note are not records" if malformed else None)


def read_record(line: bytes) -> NoteRecord | None:
    """Return the record of one line of a note, or None if it is malformed."""
    return _read_record(line.decode("utf-8", "replace").removesuffix("\n"))


def names_of(records: Iterable[NoteRecord]) -> tuple[str, ...]:
    """Return the names given and not removed, ordered by time."""
    names: dict[str, None] = {}
    for record in sorted(_of_kind(records, "name"), key=_time_of):
        name = record.fields.get("name")
        if isinstance(name, str) and name:
            names.pop(name, None)
            if record.fields.get("removed") is not True:
                names[name] = None
    return tuple(names)


def verdicts_of(records: Iterable[NoteRecord]) -> tuple[Verdict, ...]:
    """Return the verdicts, oldest first."""
    found = [read_verdict(record) for record in _of_kind(records, VERDICT)]
    return tuple(
        sorted([verdict for verdict in found if verdict is not None], key=lambda verdict: verdict.at)
    )


def remarks_of(records: Iterable[NoteRecord]) -> tuple[TextNote, ...]:
    """Return the remarks, oldest first."""
    notes = sorted(_of_kind(records, "note"), key=_time_of)
    return tuple(
        TextNote(text, note.at) for note in notes if isinstance(text := note.fields.get("text"), str)
    )


def attached_of(records: Iterable[NoteRecord]) -> tuple[Attachment, ...]:
    """Return the attachments added later, the last of each name."""
    found: dict[str, Attachment] = {}
    for record in sorted(_of_kind(records, ATTACHED), key=_time_of):
        name, blob = record.fields.get("name"), record.fields.get("blob")
        if isinstance(name, str) and isinstance(blob, str) and HASH.fullmatch(blob):
            found[name] = Attachment(name, blob)
    return tuple(found.values())


def attached_record(attached: Attachment, at: datetime) -> NoteRecord:
    return NoteRecord(ATTACHED, at, {"name": attached.name, "blob": attached.blob})


def verdict_record(verdict: Verdict) -> NoteRecord:
    """Return the verdict as a record, without `claimed_by` (computed by readers) and without unsealed output."""
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
    if len(line) > MAX_LINE_SIZE or not line.startswith("{"):
        return None
    try:
        fields = _fields_of(line)
        at = _read_time(fields.pop("at"))
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
    import json  # loaded late: most snapshots have no other record

    return cast("dict[str, Any]", json.loads(line))


def _read_time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    # A time without an offset cannot be ordered among the others; handwritten notes often lack it.
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _is_deep(fields: dict[str, object]) -> bool:
    level = [value for value in fields.values() if isinstance(value, dict | list)]
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [inner for value in level for inner in _inside(value) if isinstance(inner, dict | list)]
    return True


def _inside(value: dict[str, object] | list[object]) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value


def _of_kind(records: Iterable[NoteRecord], kind: str) -> Iterator[NoteRecord]:
    return (record for record in records if record.kind == kind)


def _time_of(record: NoteRecord) -> datetime:
    return record.at


def read_verdict(record: NoteRecord) -> Verdict | None:
    """Return the verdict of a record, or None if it is malformed."""
    fields = record.fields
    status = STATUSES.get(cast(str, fields.get("status"))) if isinstance(fields.get("status"), str) else None
    if status is None:
        return None
    return Verdict(
        status=status,
        command=_text(fields, "command") or "",
        at=record.at,
        exit_code=_number(fields, "exit_code"),
        signal=_number(fields, "signal"),
        duration_ms=_number(fields, "duration_ms"),
        output_tail=_text(fields, "output_tail") or "",
        tree_before=_text(fields, "tree_before"),
        tree_after=_text(fields, "tree_after"),
        carried_from=_text(fields, "carried_from"),
        sealed_output=_text(fields, "output") or "",
        timed_out=fields.get("timed_out") is True,
        services=_text(fields, "services"),
    )


def _text(fields: dict[str, object], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def _number(fields: dict[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
