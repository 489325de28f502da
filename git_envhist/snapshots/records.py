"""Text formats of a snapshot's facts, lists and notes (pure).

Facts: one text per probe below `.envhist/facts/`. Lists next to the manifest: missing paths, changes in git's view,
ignore rules. Notes: one JSON record per line, written after the snapshot was taken: names, remarks, verdicts,
attachments. All of them may come from anywhere: malformed facts and records are skipped, malformed lists raise
`Damaged`, and everything has a maximum size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import (
    Attachment,
    EnvPath,
    Fact,
    GitChange,
    MissingPath,
    MissingReason,
    NoteRecord,
    TextNote,
    Verdict,
    VerdictStatus,
)
from git_envhist.snapshots.quoting import quote, quote_path, unquote, unquote_path
from git_envhist.text import show

# Facts, one per line, sorted: `.envhist/facts/<probe>`.
#
#     envhist-facts 1 pip 1
#     .venv/click 8.1.7 at=.venv/lib/python3.11/site-packages/click-8.1.7.dist-info auto
#
# The first line names the format, the probe and the probe's version; facts of two versions are not compared. A probe
# that ran and found nothing writes only that line; without a file, nothing is known. Malformed lines are skipped.

HEAD = b"envhist-facts 1 "
NO_VALUE = b"-"
MAX_SIZE = 64 << 20
MAX_LINE = 1 << 14
SUFFIX = ".sealed"
"""Suffix of the text that contains a probe's facts about sealed files."""
NAME = pattern(r"[a-z][a-z0-9-]{0,31}\Z")


class FactText(NamedTuple):
    """The stored facts of one probe: the probe's version, and the sorted lines."""

    version: int
    lines: list[bytes]


def fact_line(fact: Fact) -> bytes:
    """Return the line of one fact, without its line feed."""
    words = [quote(_raw(fact.key)), quote(_raw(fact.value)) or NO_VALUE]
    words += [b"at=" + quote(fact.at)] if fact.at else []
    words += [b"by=" + quote(_raw(fact.by))] if fact.by else []
    words += [b"auto"] if fact.auto else []
    return b" ".join(words)


def write_facts(probe: str, version: int, lines: Iterable[bytes]) -> bytes:
    """Return the text of a probe's facts; lines longer than MAX_LINE are left out."""
    ordered = sorted({line for line in lines if len(line) <= MAX_LINE})
    head = HEAD + b"%b %d" % (probe.encode("ascii"), version)
    return b"\n".join([head, *ordered, b""])


def read_fact_text(probe: str, data: bytes) -> FactText | None:
    """Return the lines of a probe's text, or None if this version cannot read it."""
    head, _, rest = data.partition(b"\n")
    opening = HEAD + probe.encode("ascii") + b" "
    version = head.removeprefix(opening)
    if len(data) > MAX_SIZE or not head.startswith(opening) or not (version.isdigit() and len(version) < 9):
        return None
    return FactText(int(version), sorted(line for line in rest.split(b"\n") if line))


def read_fact(probe: str, line: bytes) -> Fact | None:
    """Return the fact of one line, or None if it is malformed."""
    key, _, rest = line.partition(b" ")
    value, *words = rest.split(b" ")
    extras = dict(word.partition(b"=")[::2] for word in words)
    try:
        return Fact(
            probe,
            _fact_text(unquote(key)),
            "" if value == NO_VALUE else _fact_text(unquote(value)),
            EnvPath(unquote(extras.get(b"at", b""))),
            _fact_text(unquote(extras.get(b"by", b""))),
            b"auto" in extras,
        )
    except Damaged:
        return None


def without(lines: Iterable[bytes], places: Collection[bytes]) -> list[bytes]:
    """Return the lines that do not come from one of these directories."""
    quoted = {quote(place) for place in places}
    return [line for line in lines if _place(line) not in quoted]


def differing_facts(probe: str, before: bytes, after: bytes) -> tuple[list[Fact], list[Fact]]:
    """Return the facts that only the earlier text has, and those that only the later one has."""
    old, new = read_fact_text(probe, before), read_fact_text(probe, after)
    if old is None or new is None or old.version != new.version:
        return [], []
    removed = sorted(set(old.lines).difference(new.lines))
    added = sorted(set(new.lines).difference(old.lines))
    return _facts_not_in(probe, removed, new.lines), _facts_not_in(probe, added, old.lines)


def _facts_not_in(probe: str, lines: list[bytes], others: list[bytes]) -> list[Fact]:
    facts = (read_fact(probe, line) for line in lines if not _contains_fact(line, others))
    return [fact for fact in facts if fact is not None]


def _contains_fact(line: bytes, others: list[bytes]) -> bool:
    """Return whether the other text has the same fact, possibly from another directory."""
    start = b" ".join(line.split(b" ", 2)[:2])
    at = bisect_left(others, start)
    return at < len(others) and (others[at] == start or others[at].startswith(start + b" "))


def _place(line: bytes) -> bytes:
    at = line.find(b" at=")
    return b"" if at < 0 else line[at + 4 :].partition(b" ")[0]


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _fact_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


# Lists next to the manifest: missing paths with a reason, and changes in git's view.
#
# One line each, sorted by path; paths and details are quoted. A path of an additional root starts with the root's
# name and `://`:
#
#     data/big.iso budget 5.2%20GiB
#     nginx://conf.d/secret.key unreadable

ROOT_MARK = b"://"
"""Occurs in no path of a file system: no component of a path is empty."""
MAX_LIST = 1 << 28

_REASONS = {why.value.encode("ascii"): why for why in MissingReason}
_GIT_LETTER = pattern(rb"[A-Z?!]\Z")


def write_missing(missing: Iterable[MissingPath]) -> bytes:
    """Return the list of the paths that a snapshot lacks."""
    ordered = sorted(set(missing), key=lambda item: (item.path, item.why.value, item.detail))
    return b"".join([_missing_line(item) for item in ordered])


def read_missing(data: bytes) -> tuple[MissingPath, ...]:
    """Parse the list of missing paths. Raise `Damaged` if it is malformed."""
    found = [_read_missing_line(line) for line in _split(data)]
    _check_order([item.path for item in found])
    return tuple(found)


def write_git_changes(changes: Iterable[GitChange]) -> bytes:
    """Return the list of differences from HEAD in git's own view."""
    ordered = sorted(set(changes), key=lambda change: (change.path, change.status))
    return b"".join(
        [b"%b %b\n" % (change.status.encode("ascii"), quote_path(change.path)) for change in ordered]
    )


def read_git_changes(data: bytes) -> tuple[GitChange, ...]:
    """Parse the list of differences from HEAD. Raise `Damaged` if it is malformed."""
    found = [_read_git_line(line) for line in _split(data)]
    _check_order([change.path for change in found])
    return tuple(found)


def write_rules(ignore: Sequence[str], exclude: Sequence[str]) -> bytes:
    """Return the patterns that excluded files from the environment, in gitignore's syntax and in order.

    `ignore` applied to the working tree only, `exclude` to additional roots as well.
    """
    rules = [(b"ignore", line) for line in ignore] + [(b"exclude", line) for line in exclude]
    return b"".join(
        [
            b"%b %b\n" % (word, quote(line.encode("utf-8", "surrogateescape")))
            for word, line in rules
            if line.strip() and not line.startswith("#")
        ]
    )


def read_rules(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parse such rules, as (ignore, exclude). Raise `Damaged` if they are malformed."""
    found: dict[bytes, list[str]] = {b"ignore": [], b"exclude": []}
    for line in _split(data):
        word, _, pattern = line.partition(b" ")
        if word not in found or not pattern:
            raise _unreadable(line)
        found[word].append(unquote(pattern).decode("utf-8", "surrogateescape"))
    return tuple(found[b"ignore"]), tuple(found[b"exclude"])


def _missing_line(item: MissingPath) -> bytes:
    detail = b" " + quote(item.detail.encode("utf-8", "surrogateescape")) if item.detail else b""
    return b"%b %b%b\n" % (quote_path(item.path), item.why.value.encode("ascii"), detail)


def _read_missing_line(line: bytes) -> MissingPath:
    path, _, rest = line.partition(b" ")
    why, space, detail = rest.partition(b" ")
    if why not in _REASONS or (space and not detail):
        raise _unreadable(line)
    text = unquote(detail).decode("utf-8", "surrogateescape")
    return MissingPath(_read_path(path), _REASONS[why], text)


def _read_git_line(line: bytes) -> GitChange:
    letter, space, path = line.partition(b" ")
    if not space or _GIT_LETTER.match(letter) is None:
        raise _unreadable(line)
    return GitChange(letter.decode("ascii"), unquote_path(path))


def _read_path(word: bytes) -> EnvPath:
    root, mark, below = word.partition(ROOT_MARK)
    if not mark:
        return unquote_path(word)
    path = unquote_path(below or b".")
    if not root or path != unquote(below):
        raise _unreadable(word)
    return EnvPath(unquote(root) + ROOT_MARK + path)


def _split(data: bytes) -> list[bytes]:
    if len(data) > MAX_LIST:
        raise Damaged("a list of a snapshot is too long")
    if data and not data.endswith(b"\n"):
        raise Damaged("a list of a snapshot ends in the middle of a line")
    return data.split(b"\n")[:-1]


def _check_order(paths: list[bytes]) -> None:
    if paths != sorted(paths):
        raise Damaged("a list of a snapshot is not in order")


def _unreadable(line: bytes) -> Damaged:
    return Damaged(f"a line of a snapshot's list cannot be read: '{show(line)}'")


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
