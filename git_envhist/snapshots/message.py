"""The message of a snapshot's commit: the intent, word for word, then what is known of the moment as trailers.

    before auth refactor

    Env-Format: 1
    Env-Timeline: laptop/app-4f2a91
    ...

The trailers are the last paragraph, and only that is ever parsed: an intent may be anything, also text that looks
like trailers. No value holds a line break (it is %-quoted), so the last blank line is where the intent ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Protocol

from git_envhist.errors import Damaged, Refused
from git_envhist.git.process import MAX_MESSAGE
from git_envhist.lazy import dataclass, pattern, replace
from git_envhist.model import (
    Actor,
    ChangeCount,
    IntentSource,
    NoteRecord,
    RestoreRole,
    Snapshot,
    SnapshotId,
    Trigger,
    Verdict,
)
from git_envhist.snapshots.records import VERDICT, format_record, read_verdict

# The values of a message's trailers, each on its one line (pure).

QUOTED = pattern("%([0-7][0-9a-f])")
ACTOR = pattern(r"([^<>]*) <([^<>]*)>(?:; (.*))?", re.DOTALL)


def quote(value: str, also: str = "") -> str:
    """The value on one line: line breaks, NUL, `%` and the characters of `also` as %xx."""
    if not any(character in value for character in "%\n\r\0" + also):
        return value
    unsafe = frozenset("%\n\r\0" + also)
    return "".join(f"%{ord(character):02x}" if character in unsafe else character for character in value)


def unquote(value: str) -> str:
    return QUOTED.sub(lambda found: chr(int(found[1], 16)), value) if "%" in value else value


def write_actor(actor: Actor) -> str:
    """`Name <address>`, and the agent where there is one."""
    who = f"{quote(actor.name, '<>')} <{quote(actor.email, '<>')}>"
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
    return f"{who}; {' '.join(words)}" if words else who


# The same few people and agents make all the snapshots of a timeline.
@lru_cache(maxsize=64)
def read_actor(text: str) -> Actor:
    """What `write_actor` wrote."""
    found = ACTOR.fullmatch(text)
    if found is None:
        raise damaged_trailer("Env-Actor")
    words = dict(word.partition("=")[::2] for word in (found[3] or "").split(" "))
    agent, version, session, tool = (
        unquote(words[word]) if word in words else None for word in ("agent", "version", "session", "tool")
    )
    return Actor(unquote(found[1]), unquote(found[2]), agent, version, session, tool)


def damaged_trailer(key: str) -> Damaged:
    """What to raise where a trailer of ours cannot be read."""
    return Damaged(f"the snapshot's trailer '{key}' is not as this program writes it")


FORMAT = 1
NO_INTENT = b"(no intent)"
OPENING = b"Env-Format: "
MAX_TRAILERS = 4 << 20
MAX_TRAILERS_COUNT = 20_000

# git cuts a message at NUL; this is the character that pictures it.
PICTURE_OF_NUL = "\u2400".encode()

TRIGGERS = {trigger.value: trigger for trigger in Trigger}
PARTS = {part.value: part for part in RestoreRole}
SOURCES = {source.value: source for source in IntentSource}

MAC_LINE = pattern(rb"\nEnv-Mac: ([0-9a-f]{64})\n\Z")
HASH = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SUBSTITUTE = pattern(rb"snapshot after [0-9a-f]{7}(?:\n\n|\Z)")
"""Begins the text of a snapshot without an intent; the subject of its code commit follows."""
COUNTS = pattern(r"\+([0-9]{1,18}) ~([0-9]{1,18}) -([0-9]{1,18})")
KNOWN = {
    *("Env-Format", "Env-Timeline", "Env-Head", "Env-Branch", "Env-Trigger", "Env-Actor", "Env-Intent-Source"),
    *("Env-Complete", "Env-Missing", "Env-Content", "Env-Changed", "Env-Story", "Env-External-Id", "Env-Meta"),
    *("Env-Attachment", "Env-Restored-From", "Env-Restore", "Env-Forked-From", "Env-Was", "Env-Key", "Env-Mac"),
}  # fmt: skip
UNCHANGED = ChangeCount()


@dataclass(frozen=True, slots=True)
class MessageFields:
    """What the message of a snapshot says."""

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
    was: str | None = None
    """The snapshot's id, where this commit is not its first one."""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A message as it was read: what it says, and what belongs to the reading alone."""

    draft: MessageFields
    format: int
    complete: bool
    mac: str | None
    others: tuple[tuple[str, str], ...] = ()
    """Trailers of somebody else, or of a later version."""


class NewerFormat(Damaged):
    """The snapshot was written by a later version of this program."""

    code = "newer-format"

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the snapshot is in format '{version}', this program reads up to '{FORMAT}'",
            hint="upgrade git-envhist to read it",
        )


def own_words(draft: MessageFields) -> bytes:
    """Return the intent as a reader expects it: for a snapshot without an intent the subject of its code commit."""
    if draft.intent_source is not IntentSource.COMMIT:
        return draft.intent
    substitute = SUBSTITUTE.match(draft.intent)
    return draft.intent[substitute.end() :] if substitute else draft.intent


def write_message(draft: MessageFields) -> bytes:
    """The message, still without its MAC; NUL in the intent becomes its picture."""
    trailers = "".join(f"{key}: {value}\n" for key, value in _trailers(draft)).encode(
        "utf-8", "surrogateescape"
    )
    intent = draft.intent.replace(b"\0", PICTURE_OF_NUL) or NO_INTENT
    if len(trailers) > MAX_TRAILERS or trailers.count(b"\n") >= MAX_TRAILERS_COUNT:
        raise Refused("too much is said about the snapshot", hint="give fewer or shorter --meta and --attach")
    if len(intent) + len(trailers) + 128 > MAX_MESSAGE:
        raise Refused(f"the intent is longer than {MAX_MESSAGE >> 20} MiB", hint="attach it: --attach FILE")
    return intent + b"\n\n" + trailers


def read_message(raw: bytes) -> ParsedMessage:
    """What a commit's message says; `Damaged` where it is not one of ours or is not as we write them."""
    intent, text = _split(raw)
    lines = text.split("\n")
    try:
        fields = dict([line.split(": ", 1) for line in lines])
    except ValueError:  # a line that is no trailer: somebody's, and not for us
        lines = [line for line in lines if ": " in line]
        fields = dict([line.split(": ", 1) for line in lines])
    version = _version(fields)
    others: tuple[tuple[str, str], ...] = ()
    if not KNOWN.issuperset(fields):
        others = tuple(_others(lines))
    actor = read_actor(fields.get("Env-Actor", ""))
    if "%" in text:
        fields = {key: unquote(value) for key, value in fields.items()}
    complete = fields.get("Env-Complete") != "partial"
    return ParsedMessage(
        _read_draft(intent, actor, fields, lines), version, complete, fields.get("Env-Mac"), others
    )


def mac_input(tree: str, author: bytes, message_without_mac: bytes) -> bytes:
    """What a snapshot's MAC is computed over: its content, who made it, and all it says."""
    return b"tree %s\nauthor %s\n\n%s" % (tree.encode("ascii"), author, message_without_mac)


def with_mac(message: bytes, mac: str) -> bytes:
    """The message, signed; the MAC is always its last line."""
    return message + b"Env-Mac: %s\n" % mac.encode("ascii")


def split_mac(message: bytes) -> tuple[bytes, str | None]:
    """The message without its MAC, as `mac_input` wants it, and the MAC."""
    found = MAC_LINE.search(message, max(0, len(message) - 128))
    if found is None:
        return message, None
    return message[: found.start() + 1], found[1].decode("ascii")


def _trailers(draft: MessageFields) -> Iterator[tuple[str, str]]:
    source = draft.intent_source if draft.intent else IntentSource.NONE
    changed = draft.changed
    yield "Env-Format", str(FORMAT)
    yield "Env-Timeline", quote(draft.timeline)
    yield from _given("Env-Head", _hash(draft.head, "Env-Head"))
    yield from _given("Env-Branch", draft.branch)
    yield "Env-Trigger", draft.trigger.value
    yield "Env-Actor", write_actor(draft.actor)
    yield "Env-Intent-Source", source.value
    yield "Env-Complete", "partial" if draft.missing_count else "yes"
    if draft.missing_count:
        yield "Env-Missing", str(draft.missing_count)
    yield "Env-Content", quote(draft.content)
    yield "Env-Changed", f"+{changed.added} ~{changed.modified} -{changed.removed}"
    yield "Env-Story", quote(draft.story)
    yield from _given("Env-External-Id", draft.external_id)
    for key, value in draft.meta:
        yield "Env-Meta", f"{quote(key, '=')}={quote(value)}"
    for name in draft.attachments:
        yield "Env-Attachment", quote(name)
    yield from _given("Env-Restored-From", _hash(draft.restored_from, "Env-Restored-From"))
    yield from _given("Env-Restore", draft.restore.value if draft.restore else None)
    yield from _given("Env-Forked-From", _hash(draft.forked_from, "Env-Forked-From"))
    yield from _given("Env-Was", _hash(draft.was, "Env-Was"))
    yield from _given("Env-Key", draft.key)


def _given(key: str, value: str | None) -> Iterator[tuple[str, str]]:
    if value is not None:
        yield key, quote(value)


def _split(raw: bytes) -> tuple[bytes, str]:
    if len(raw) > MAX_MESSAGE:
        raise Damaged(f"the message is longer than {MAX_MESSAGE >> 20} MiB")
    end = len(raw)
    while end and raw[end - 1] == 0x0A:
        end -= 1
    blank = raw.rfind(b"\n\n", 0, end)
    start = blank + 2
    if blank < 0 or not raw.startswith(OPENING, start):
        raise Damaged(
            "the commit is not a snapshot", hint="something else moved the ref: 'git log' it to see what"
        )
    if end - start > MAX_TRAILERS or raw.count(b"\n", start, end) >= MAX_TRAILERS_COUNT:
        raise Damaged("the snapshot's trailers are beyond any that this program writes")
    return raw[:blank], raw[start:end].decode("utf-8", "surrogateescape")


def _version(fields: dict[str, str]) -> int:
    version = _number(fields, "Env-Format")
    if version > FORMAT:
        raise NewerFormat(version)
    if version < 1:
        raise damaged_trailer("Env-Format")
    return version


def _read_draft(intent: bytes, actor: Actor, fields: dict[str, str], lines: list[str]) -> MessageFields:
    get = fields.get
    source = SOURCES.get(get("Env-Intent-Source", ""), IntentSource.GIVEN)
    if source is IntentSource.NONE:
        intent = b""
    return MessageFields(
        intent,
        source,
        get("Env-Timeline", ""),
        # A word that a later version may bring: some program took it, that is all we know.
        TRIGGERS.get(get("Env-Trigger", ""), Trigger.API),
        actor,
        _hash(get("Env-Head"), "Env-Head"),
        get("Env-Branch"),
        _number(fields, "Env-Missing") if "Env-Missing" in fields else 0,
        get("Env-Content", ""),
        _read_counts(get("Env-Changed", "+0 ~0 -0")),
        get("Env-Story", ""),
        get("Env-External-Id"),
        tuple(_read_meta(lines)) if "Env-Meta" in fields else (),
        tuple(_repeated(lines, "Env-Attachment")) if "Env-Attachment" in fields else (),
        _hash(get("Env-Restored-From"), "Env-Restored-From"),
        PARTS.get(get("Env-Restore", "")),
        _hash(get("Env-Forked-From"), "Env-Forked-From"),
        _hash(get("Env-Was"), "Env-Was"),
        get("Env-Key"),
    )


def _repeated(lines: list[str], key: str) -> list[str]:
    opening = key + ": "
    return [unquote(line.removeprefix(opening)) for line in lines if line.startswith(opening)]


def _read_meta(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if line.startswith("Env-Meta: "):
            key, _, value = line.removeprefix("Env-Meta: ").partition("=")
            yield unquote(key), unquote(value)


def _others(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, _, value = line.partition(": ")
        if key not in KNOWN:
            yield key, value


def _read_counts(text: str) -> ChangeCount:
    found = COUNTS.fullmatch(text)
    if found is None:
        raise damaged_trailer("Env-Changed")
    return ChangeCount(int(found[1]), int(found[2]), int(found[3]))


def _number(fields: dict[str, str], key: str) -> int:
    text = fields.get(key, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise damaged_trailer(key)
    return int(text)


def _hash(value: str | None, key: str) -> str | None:
    # It becomes an argument of git commands and an id that people type.
    if value is None or HASH.fullmatch(value):
        return value
    raise damaged_trailer(key)


# Says which snapshots and which verdicts a key of ours signed (pure); what the others say is a claim.
#
# A verdict is signed as the line that its note holds, together with the id of the snapshot that it is about: it counts
# nowhere else.


class SigningKey(Protocol):
    """What is needed of a key."""

    @property
    def id(self) -> str: ...

    def mac(self, data: bytes) -> str: ...


KEY, MAC, AUTHOR = "key", "mac", "by"
NOBODY = "somebody"

FindKey = Callable[[str], SigningKey | None]


def with_trust(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """The snapshot, with `trusted` filled in."""
    return replace(snapshot, trusted=is_signed(snapshot, find_key))


def is_signed(snapshot: Snapshot, find_key: FindKey) -> bool:
    """Whether a key that is here signed just this tree, this author and this message."""
    from git_envhist.secrets.keys import constant_time_equal  # loaded late: only signed messages need it

    message, mac = split_mac(snapshot.message)
    key = find_key(snapshot.key) if mac is not None and snapshot.key is not None else None
    if key is None or mac is None:
        return False
    return constant_time_equal(key.mac(mac_input(snapshot.tree, snapshot.author, message)), mac)


def signed(record: NoteRecord, snapshot: SnapshotId, key: SigningKey) -> NoteRecord:
    """The record of a verdict on a snapshot, signed."""
    named = NoteRecord(record.kind, record.at, {**record.fields, KEY: key.id})
    return NoteRecord(record.kind, record.at, {**named.fields, MAC: key.mac(_verdict_input(named, snapshot))})


def signed_again(
    record: NoteRecord, changed: Mapping[str, object], snapshot: SnapshotId, find_key: FindKey
) -> NoteRecord:
    """The record of a verdict with other fields; signed by the key that had signed it, where that is here."""
    from git_envhist.secrets.keys import constant_time_equal  # loaded late: only signed messages need it

    fields = {name: value for name, value in record.fields.items() if name != MAC}
    told, mac = NoteRecord(record.kind, record.at, {**fields, **changed}), record.fields.get(MAC)
    if mac is None:
        return told
    name = signing_key_id(record)
    key = find_key(name) if name is not None else None
    before = NoteRecord(record.kind, record.at, fields)
    is_ours = key is not None and constant_time_equal(str(mac), key.mac(_verdict_input(before, snapshot)))
    # What none of ours signed stays somebody's claim.
    now = key.mac(_verdict_input(told, snapshot)) if key is not None and is_ours else mac
    return NoteRecord(record.kind, record.at, {**told.fields, MAC: now})


def with_judged_verdicts(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """The snapshot; of each verdict that no key here signed it is said whose claim it is."""
    read = [
        (record, verdict)
        for record in snapshot.records
        if record.kind == VERDICT and (verdict := read_verdict(record)) is not None
    ]
    told = [_judged_verdict(record, verdict, snapshot, find_key) for record, verdict in read]
    return replace(snapshot, verdicts=tuple(sorted(told, key=lambda verdict: verdict.at)))


def signing_key_id(record: NoteRecord) -> str | None:
    """The id of the key that a record says it is signed with."""
    found = record.fields.get(KEY)
    return found if isinstance(found, str) else None


def _judged_verdict(record: NoteRecord, verdict: Verdict, snapshot: Snapshot, find_key: FindKey) -> Verdict:
    if _is_signed_verdict(record, snapshot, find_key):
        return verdict
    by = record.fields.get(AUTHOR)
    return replace(verdict, claimed_by=by if isinstance(by, str) and by else NOBODY)


def _is_signed_verdict(record: NoteRecord, snapshot: Snapshot, find_key: FindKey) -> bool:
    from git_envhist.secrets.keys import constant_time_equal  # loaded late: only signed messages need it

    name, mac = signing_key_id(record), record.fields.get(MAC)
    key = find_key(name) if name is not None else None
    if key is None or not isinstance(mac, str) or not mac.isascii():
        return False
    # The first hash of a snapshot is what it holds; a later one says itself what the first was.
    if snapshot.id != snapshot.commit and not is_signed(snapshot, find_key):
        return False
    bare = {field: value for field, value in record.fields.items() if field != MAC}
    try:
        signed_line = _verdict_input(NoteRecord(record.kind, record.at, bare), snapshot.id)
    except ValueError:  # somebody's, with what none of ours holds, e.g. no number where one belongs
        return False
    return constant_time_equal(key.mac(signed_line), mac)


def _verdict_input(record: NoteRecord, snapshot: SnapshotId) -> bytes:
    return b"verdict %s\n%s" % (snapshot.encode("ascii", "replace"), format_record(record))
