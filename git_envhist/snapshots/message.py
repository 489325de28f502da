"""The message of a snapshot's commit: the intent verbatim, then trailers with everything known about the capture.

    before auth refactor

    Env-Format: 1
    Env-Timeline: laptop/app-4f2a91
    ...

The trailers are the last paragraph, and only that is parsed: an intent may be any text, even one that looks like
trailers. No value contains a line break (values are %-quoted), so the intent ends at the last blank line. TRAILERS
lists each trailer with the field it fills; CONTRIBUTING.md describes how to add one.

The second half signs messages and verdicts with an HMAC key, and checks these signatures (`is_signed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from git_envhist.errors import Damaged, Refused
from git_envhist.git.process import MAX_MESSAGE
from git_envhist.lazy import dataclass, pattern, replace
from git_envhist.model import (
    Actor,
    CallWindow,
    ChangeCount,
    IntentSource,
    NoteRecord,
    RestoreRole,
    Snapshot,
    SnapshotId,
    ToolCall,
    Trigger,
    Verdict,
)
from git_envhist.snapshots.note_records import VERDICT, format_record, read_verdict

if TYPE_CHECKING:
    from git_envhist.secrets.keys import SigningKey

QUOTED = pattern("%([0-7][0-9a-f])")
ACTOR = pattern(r"([^<>]*) <([^<>]*)>(?:; (.*))?", re.DOTALL)


def quote(value: str, also: str = "") -> str:
    """Return the value on one line: line breaks, NUL, `%` and the characters of `also` as %xx."""
    if not any(character in value for character in "%\n\r\0" + also):
        return value
    unsafe = frozenset("%\n\r\0" + also)
    return "".join(f"%{ord(character):02x}" if character in unsafe else character for character in value)


def unquote(value: str) -> str:
    return QUOTED.sub(lambda found: chr(int(found[1], 16)), value) if "%" in value else value


def write_actor(actor: Actor) -> str:
    """Return `Name <address>`, followed by the agent if there is one."""
    text = f"{quote(actor.name, '<>')} <{quote(actor.email, '<>')}>"
    words = [
        f"{word}={quote(value, ' ;=')}"
        for word, value in (
            ("agent", actor.agent),
            ("version", actor.agent_version),
            ("session", actor.session),
            ("tool", actor.tool),
        )
        if value is not None
    ]
    return f"{text}; {' '.join(words)}" if words else text


# A timeline has few actors.
@lru_cache(maxsize=64)
def read_actor(text: str) -> Actor:
    """Parse the result of `write_actor`. Raise `Damaged` if it is malformed."""
    found = ACTOR.fullmatch(text)
    if found is None:
        raise damaged_trailer("Env-Actor")
    words = dict(word.partition("=")[::2] for word in (found[3] or "").split(" "))
    agent, version, session, tool = (
        unquote(words[word]) if word in words else None for word in ("agent", "version", "session", "tool")
    )
    return Actor(unquote(found[1]), unquote(found[2]), agent, version, session, tool)


def damaged_trailer(key: str) -> Damaged:
    """Return the error for a trailer of ours that is malformed."""
    return Damaged(f"the snapshot's trailer '{key}' is malformed")


FORMAT = 1
NO_INTENT = b"(no intent)"
OPENING = b"Env-Format: "
MAX_TRAILERS = 4 << 20
MAX_TRAILERS_COUNT = 20_000
MAX_APPLIED = 100
"""How many spans the snapshot of a revert or a merge records; a reader ignores more."""

# git cuts a message at NUL; this is the visible symbol for it.
PICTURE_OF_NUL = "\u2400".encode()

TRIGGERS = {trigger.value: trigger for trigger in Trigger}
PARTS = {part.value: part for part in RestoreRole}
SOURCES = {source.value: source for source in IntentSource}

MAC_LINE = pattern(rb"\nEnv-Mac: ([0-9a-f]{64})\n\Z")
HASH = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SUBSTITUTE = pattern(rb"snapshot after [0-9a-f]{7}(?:\n\n|\Z)")
"""Begins the text of a snapshot without an intent; the subject of its code commit follows."""
COUNTS = pattern(r"\+([0-9]{1,18}) ~([0-9]{1,18}) -([0-9]{1,18})")
UNCHANGED = ChangeCount()


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The contents of a snapshot's message."""

    intent: bytes
    intent_source: IntentSource
    timeline: str
    trigger: Trigger
    actor: Actor
    head: str | None = None
    branch: str | None = None
    missing_count: int = 0
    content: str = ""
    changed: ChangeCount = UNCHANGED
    story: str = ""
    external_id: str | None = None
    meta: tuple[tuple[str, str], ...] = ()
    attachments: tuple[str, ...] = ()
    restored_from: str | None = None
    restore: RestoreRole | None = None
    forked_from: str | None = None
    merged: str | None = None
    applied: tuple[tuple[str, str], ...] = ()
    window: CallWindow | None = None
    calls: tuple[ToolCall, ...] = ()
    was: str | None = None
    """The snapshot's id (its first commit) if the snapshot was rewritten; None if this is the first commit."""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """The parsed message of a snapshot: intent, trailers, MAC."""

    intent: bytes
    values: dict[str, Any]
    """The values of the trailers in TRAILERS, by the names of `Snapshot`'s fields; missing ones are left out."""
    was: str | None
    """The snapshot's id (its first commit) if the snapshot was rewritten; None if this is the first commit."""
    format: int
    mac: str | None
    others: tuple[tuple[str, str], ...] = ()
    """Trailers that this version does not know."""

    @property
    def complete(self) -> bool:
        return bool(self.values.get("complete", True))

    @property
    def draft(self) -> MessageFields:
        """The fields from which `write_message` would write this message again."""
        fields = {name: value for name, value in self.values.items() if name != "complete"}
        return MessageFields(self.intent, was=self.was, **fields)


class NewerFormat(Damaged):
    """A snapshot was written by a later version of this program."""

    code = "newer-format"

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the snapshot is in format '{version}', this program reads up to '{FORMAT}'",
            hint="upgrade git-envhist to read it",
        )


def shown_intent(intent: bytes, source: IntentSource | None) -> bytes:
    """Return the intent as a reader expects it: for a snapshot without an intent the subject of its code commit."""
    if source is not IntentSource.COMMIT:
        return intent
    substitute = SUBSTITUTE.match(intent)
    return intent[substitute.end() :] if substitute else intent


def write_message(draft: MessageFields) -> bytes:
    """Return the message without its MAC; NUL in the intent is replaced by its symbol."""
    trailers = "".join(f"{key}: {value}\n" for key, value in _trailers(draft)).encode(
        "utf-8", "surrogateescape"
    )
    intent = draft.intent.replace(b"\0", PICTURE_OF_NUL) or NO_INTENT
    if len(trailers) > MAX_TRAILERS or trailers.count(b"\n") >= MAX_TRAILERS_COUNT:
        raise Refused(
            "the trailers of the snapshot are too long", hint="give fewer or shorter --meta and --attach"
        )
    if len(intent) + len(trailers) + 128 > MAX_MESSAGE:
        raise Refused(f"the intent is longer than {MAX_MESSAGE >> 20} MiB", hint="attach it: --attach FILE")
    return intent + b"\n\n" + trailers


def read_message(raw: bytes) -> ParsedMessage:
    """Parse a commit's message. Raise `Damaged` if it is not a snapshot's or is malformed."""
    intent, text = _split(raw)
    lines = text.split("\n")
    try:
        fields = dict([line.split(": ", 1) for line in lines])
    except ValueError:  # a line that is not a trailer is ignored
        lines = [line for line in lines if ": " in line]
        fields = dict([line.split(": ", 1) for line in lines])
    version = _version(fields)
    others = () if KNOWN.issuperset(fields) else tuple(_others(lines))
    values = _read_values(fields, lines, plain="%" not in text)
    if values["intent_source"] is IntentSource.NONE:
        intent = b""
    mac = fields.get("Env-Mac")
    return ParsedMessage(
        intent, values, values.pop("was", None), version, mac if mac is None else unquote(mac), others
    )


def mac_input(tree: str, author: bytes, message_without_mac: bytes) -> bytes:
    """Return the bytes that a snapshot's MAC covers: its content, its author and its message."""
    return b"tree %s\nauthor %s\n\n%s" % (tree.encode("ascii"), author, message_without_mac)


def with_mac(message: bytes, mac: str) -> bytes:
    """Return the message with its MAC, which is always the last line."""
    return message + b"Env-Mac: %s\n" % mac.encode("ascii")


def split_mac(message: bytes) -> tuple[bytes, str | None]:
    """Split a message into the part covered by the MAC, and the MAC."""
    found = MAC_LINE.search(message, max(0, len(message) - 128))
    if found is None:
        return message, None
    return message[: found.start() + 1], found[1].decode("ascii")


class Trailer:
    """A trailer: its key, the field that it fills in `MessageFields` and `Snapshot`, and its conversion.

    `write` returns the quoted values to write, none to leave the trailer out. `read` returns the field's value of a
    quoted one. The field of a `repeated` trailer is the tuple of all its values.
    """

    __slots__ = ("field", "key", "read", "repeated", "write")

    def __init__(
        self,
        key: str,
        field: str,
        write: Callable[[MessageFields], Iterable[str]],
        read: Callable[[str], object],
        *,
        repeated: bool = False,
    ) -> None:
        self.key = key
        self.field = field
        self.write = write
        self.read = read
        self.repeated = repeated


def _optional_text(key: str, field: str) -> Trailer:
    def write(draft: MessageFields) -> tuple[str, ...]:
        value = getattr(draft, field)
        return () if value is None else (quote(value),)

    return Trailer(key, field, write, unquote)


def _optional_hash(key: str, field: str) -> Trailer:
    def check(value: str) -> str:
        # The value is used as an argument of git commands and as an id.
        if HASH.fullmatch(value) is None:
            raise damaged_trailer(key)
        return value

    @lru_cache(maxsize=16)  # snapshots in a row mostly have the same HEAD
    def read(value: str) -> str:
        return check(unquote(value))

    def write(draft: MessageFields) -> tuple[str, ...]:
        value = getattr(draft, field)
        return () if value is None else (check(value),)

    return Trailer(key, field, write, read)


def _read_trigger(value: str) -> Trigger:
    # A trigger of a later version is unknown here: it only shows that a program took the snapshot.
    return TRIGGERS.get(unquote(value), Trigger.API)


def _read_pair(value: str) -> tuple[str, str]:
    key, _, content = value.partition("=")
    return unquote(key), unquote(content)


def _read_span(value: str) -> tuple[str, str]:
    """Return the two ids of `<id>..<id>`; empty ones for any other value."""
    before, _, after = unquote(value).partition("..")
    return (before, after) if HASH.fullmatch(before) and HASH.fullmatch(after) else ("", "")


def _write_source(draft: MessageFields) -> tuple[str]:
    return ((draft.intent_source if draft.intent else IntentSource.NONE).value,)


def _write_counts(draft: MessageFields) -> tuple[str]:
    changed = draft.changed
    return (f"+{changed.added} ~{changed.modified} -{changed.removed}",)


@lru_cache(maxsize=256)  # small counts repeat
def _read_counts(value: str) -> ChangeCount:
    found = COUNTS.fullmatch(unquote(value))
    if found is None:
        raise damaged_trailer("Env-Changed")
    return ChangeCount(int(found[1]), int(found[2]), int(found[3]))


def _write_window(draft: MessageFields) -> tuple[str, ...]:
    if draft.window is None:
        return ()
    from git_envhist.snapshots.calls import write_window  # loaded late: only hooks of agents need it

    return (quote(write_window(draft.window)),)


def _read_window(value: str) -> CallWindow | None:
    from git_envhist.snapshots.calls import read_window  # loaded late: only hooks of agents need it

    return read_window(unquote(value))


def _write_calls(draft: MessageFields) -> list[str]:
    if not draft.calls:
        return []
    from git_envhist.snapshots.calls import write_call  # loaded late: only hooks of agents need it

    return [write_call(call) for call in draft.calls]


@lru_cache(maxsize=256)  # a call is in the snapshots before, during and after it
def _read_call(value: str) -> ToolCall:
    from git_envhist.snapshots.calls import read_call  # loaded late: only hooks of agents need it

    return read_call(value)


TRAILERS = (
    Trailer("Env-Timeline", "timeline", lambda draft: (quote(draft.timeline),), unquote),
    _optional_hash("Env-Head", "head"),
    _optional_text("Env-Branch", "branch"),
    Trailer("Env-Trigger", "trigger", lambda draft: (draft.trigger.value,), _read_trigger),
    Trailer("Env-Actor", "actor", lambda draft: (write_actor(draft.actor),), read_actor),
    Trailer(
        "Env-Intent-Source",
        "intent_source",
        _write_source,
        lambda value: SOURCES.get(unquote(value), IntentSource.GIVEN),
    ),
    Trailer(
        "Env-Complete",
        "complete",
        lambda draft: ("partial" if draft.missing_count else "yes",),
        lambda value: unquote(value) != "partial",
    ),
    Trailer(
        "Env-Missing",
        "missing_count",
        lambda draft: (str(draft.missing_count),) if draft.missing_count else (),
        lambda value: _number(unquote(value), "Env-Missing"),
    ),
    Trailer("Env-Content", "content", lambda draft: (quote(draft.content),), unquote),
    Trailer("Env-Changed", "changed", _write_counts, _read_counts),
    Trailer("Env-Story", "story", lambda draft: (quote(draft.story),), unquote),
    _optional_text("Env-External-Id", "external_id"),
    Trailer(
        "Env-Meta",
        "meta",
        lambda draft: [f"{quote(key, '=')}={quote(value)}" for key, value in draft.meta],
        _read_pair,
        repeated=True,
    ),
    Trailer(
        "Env-Attachment",
        "attachments",
        lambda draft: [quote(name) for name in draft.attachments],
        unquote,
        repeated=True,
    ),
    _optional_hash("Env-Restored-From", "restored_from"),
    Trailer(
        "Env-Restore",
        "restore",
        lambda draft: (draft.restore.value,) if draft.restore else (),
        lambda value: PARTS.get(unquote(value)),
    ),
    _optional_hash("Env-Forked-From", "forked_from"),
    Trailer("Env-Calls-Since", "window", _write_window, _read_window),
    Trailer("Env-Call", "calls", _write_calls, _read_call, repeated=True),
    _optional_hash("Env-Was", "was"),
    _optional_hash("Env-Merged", "merged"),
    Trailer(
        "Env-Applied",
        "applied",
        lambda draft: [f"{before}..{after}" for before, after in draft.applied],
        _read_span,
        repeated=True,
    ),
    _optional_text("Env-Key", "key"),
)
"""In the order in which they are written, between `Env-Format` and `Env-Mac`. A new row comes before `Env-Key`."""
SINGLE = {trailer.key: (trailer.field, trailer.read) for trailer in TRAILERS if not trailer.repeated}
REPEATED = [trailer for trailer in TRAILERS if trailer.repeated]
KNOWN = frozenset(("Env-Format", "Env-Mac", *(trailer.key for trailer in TRAILERS)))


def _trailers(draft: MessageFields) -> Iterator[tuple[str, str]]:
    yield "Env-Format", str(FORMAT)
    for trailer in TRAILERS:
        for value in trailer.write(draft):
            yield trailer.key, value


def _split(raw: bytes) -> tuple[bytes, str]:
    if len(raw) > MAX_MESSAGE:
        raise Damaged(f"the message is longer than {MAX_MESSAGE >> 20} MiB")
    end = len(raw)
    while end and raw[end - 1] == 0x0A:
        end -= 1
    blank = raw.rfind(b"\n\n", 0, end)
    start = blank + 2
    if blank < 0 or not raw.startswith(OPENING, start):
        raise Damaged("the commit is not a snapshot", hint="something else moved the ref: git log <ref>")
    if end - start > MAX_TRAILERS or raw.count(b"\n", start, end) >= MAX_TRAILERS_COUNT:
        raise Damaged("the snapshot's trailers are larger than any that this program writes")
    return raw[:blank], raw[start:end].decode("utf-8", "surrogateescape")


def _version(fields: dict[str, str]) -> int:
    version = _number(fields.get("Env-Format", ""), "Env-Format")
    if version > FORMAT:
        raise NewerFormat(version)
    if version < 1:
        raise damaged_trailer("Env-Format")
    return version


def _read_values(fields: dict[str, str], lines: list[str], *, plain: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "timeline": "",
        "trigger": Trigger.API,
        "intent_source": IntentSource.GIVEN,
    }
    for key, value in fields.items():
        if key in SINGLE:
            field, read = SINGLE[key]
            # Most messages contain nothing quoted.
            values[field] = value if plain and read is unquote else read(value)
    for trailer in REPEATED:
        if trailer.key in fields:
            opening = trailer.key + ": "
            quoted = [line.removeprefix(opening) for line in lines if line.startswith(opening)]
            values[trailer.field] = tuple([trailer.read(value) for value in quoted])
    if "actor" not in values:
        raise damaged_trailer("Env-Actor")
    return values


def _others(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(": ")
        if key not in KNOWN:
            yield key, value


def _number(text: str, key: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise damaged_trailer(key)
    return int(text)


# Signatures of snapshots and verdicts (pure). Only what a key of this user signed is trusted.
#
# A verdict is signed as the line of its note together with the id of its snapshot: it is valid nowhere else.


KEY, MAC, AUTHOR = "key", "mac", "by"
UNKNOWN_AUTHOR = "unknown"

FindKey = Callable[[str], "SigningKey | None"]


def with_trust(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """Return the snapshot with `trusted` filled in."""
    return replace(snapshot, trusted=is_signed(snapshot, find_key))


def is_signed(snapshot: Snapshot, find_key: FindKey) -> bool:
    """Return whether a known key signed exactly this tree, author and message."""
    from git_envhist.secrets.keys import constant_time_equal  # loaded late: only signed messages need it

    message, mac = split_mac(snapshot.message)
    key = find_key(snapshot.key) if mac is not None and snapshot.key is not None else None
    if key is None or mac is None:
        return False
    return constant_time_equal(key.mac(mac_input(snapshot.tree, snapshot.author, message)), mac)


def signed(record: NoteRecord, snapshot: SnapshotId, key: SigningKey) -> NoteRecord:
    """Return the record of a verdict on a snapshot, signed."""
    named = NoteRecord(record.kind, record.at, {**record.fields, KEY: key.id})
    return NoteRecord(record.kind, record.at, {**named.fields, MAC: key.mac(_verdict_input(named, snapshot))})


def signed_again(
    record: NoteRecord, changed: Mapping[str, object], snapshot: SnapshotId, find_key: FindKey
) -> NoteRecord:
    """Return the record of a verdict with changed fields.

    It is signed again if its signature was valid and its key is known.
    """
    from git_envhist.secrets.keys import constant_time_equal  # loaded late: only signed messages need it

    fields = {name: value for name, value in record.fields.items() if name != MAC}
    unsigned, mac = NoteRecord(record.kind, record.at, {**fields, **changed}), record.fields.get(MAC)
    if mac is None:
        return unsigned
    name = signing_key_id(record)
    key = find_key(name) if name is not None else None
    before = NoteRecord(record.kind, record.at, fields)
    is_ours = key is not None and constant_time_equal(str(mac), key.mac(_verdict_input(before, snapshot)))
    # An invalid or unknown signature is kept: the verdict stays a claim.
    now = key.mac(_verdict_input(unsigned, snapshot)) if key is not None and is_ours else mac
    return NoteRecord(record.kind, record.at, {**unsigned.fields, MAC: now})


def with_judged_verdicts(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """Return the snapshot with its verdicts; those that no known key signed get `claimed_by`."""
    read = [
        (record, verdict)
        for record in snapshot.records
        if record.kind == VERDICT and (verdict := read_verdict(record)) is not None
    ]
    judged = [_judged_verdict(record, verdict, snapshot, find_key) for record, verdict in read]
    return replace(snapshot, verdicts=tuple(sorted(judged, key=lambda verdict: verdict.at)))


def signing_key_id(record: NoteRecord) -> str | None:
    """Return the id of the key that a record claims to be signed with."""
    found = record.fields.get(KEY)
    return found if isinstance(found, str) else None


def _judged_verdict(record: NoteRecord, verdict: Verdict, snapshot: Snapshot, find_key: FindKey) -> Verdict:
    if _is_signed_verdict(record, snapshot, find_key):
        return verdict
    by = record.fields.get(AUTHOR)
    return replace(verdict, claimed_by=by if isinstance(by, str) and by else UNKNOWN_AUTHOR)


def _is_signed_verdict(record: NoteRecord, snapshot: Snapshot, find_key: FindKey) -> bool:
    from git_envhist.secrets.keys import constant_time_equal  # loaded late: only signed messages need it

    name, mac = signing_key_id(record), record.fields.get(MAC)
    key = find_key(name) if name is not None else None
    if key is None or not isinstance(mac, str) or not mac.isascii():
        return False
    # The first hash of a snapshot is covered by the commit; after a rewrite, only the message states it.
    if snapshot.id != snapshot.commit and not is_signed(snapshot, find_key):
        return False
    bare = {field: value for field, value in record.fields.items() if field != MAC}
    try:
        signed_line = _verdict_input(NoteRecord(record.kind, record.at, bare), snapshot.id)
    except ValueError:  # a record that this program would not write, e.g. not a number
        return False
    return constant_time_equal(key.mac(signed_line), mac)


def _verdict_input(record: NoteRecord, snapshot: SnapshotId) -> bytes:
    return b"verdict %s\n%s" % (snapshot.encode("ascii", "replace"), format_record(record))
