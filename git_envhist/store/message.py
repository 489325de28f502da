"""The message of a snapshot's commit: the intent, word for word, then what is known of the moment as trailers.

    before auth refactor

    Env-Format: 1
    Env-Timeline: laptop/app-4f2a91
    ...

The trailers are the last paragraph, and only that is ever parsed: an intent may be anything, also text that looks
like trailers. No value holds a line break (it is %-quoted), so the last blank line is where the intent ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.errors import Damaged, Refused
from git_envhist.model import Actor, ChangeCount, IntentSource, RestoreRole, Trigger
from git_envhist.store.trailers import damaged_trailer, quote, read_actor, unquote, write_actor
from git_envhist.values import dataclass, pattern

FORMAT = 1
NO_INTENT = b"(no intent)"
OPENING = b"Env-Format: "
LARGEST_MESSAGE = 64 << 20
LARGEST_TRAILERS = 4 << 20
MOST_TRAILERS = 20_000

# git cuts a message at NUL; this is the character that pictures it.
PICTURE_OF_NUL = "\u2400".encode()

TRIGGERS = {trigger.value: trigger for trigger in Trigger}
PARTS = {part.value: part for part in RestoreRole}
SOURCES = {source.value: source for source in IntentSource}

MAC_LINE = pattern(rb"\nEnv-Mac: ([0-9a-f]{64})\n\Z")
HASH = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
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


def write_message(draft: MessageFields) -> bytes:
    """The message, still without its MAC; NUL in the intent becomes its picture."""
    trailers = "".join(f"{key}: {value}\n" for key, value in _trailers(draft)).encode(
        "utf-8", "surrogateescape"
    )
    intent = draft.intent.replace(b"\0", PICTURE_OF_NUL) or NO_INTENT
    if len(trailers) > LARGEST_TRAILERS or trailers.count(b"\n") >= MOST_TRAILERS:
        raise Refused("too much is said about the snapshot", hint="give fewer or shorter --meta and --attach")
    if len(intent) + len(trailers) + 128 > LARGEST_MESSAGE:
        raise Refused(
            f"the intent is longer than {LARGEST_MESSAGE >> 20} MiB", hint="attach it: --attach FILE"
        )
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
    if len(raw) > LARGEST_MESSAGE:
        raise Damaged(f"the message is longer than {LARGEST_MESSAGE >> 20} MiB")
    end = len(raw)
    while end and raw[end - 1] == 0x0A:
        end -= 1
    blank = raw.rfind(b"\n\n", 0, end)
    start = blank + 2
    if blank < 0 or not raw.startswith(OPENING, start):
        raise Damaged(
            "the commit is not a snapshot", hint="something else moved the ref: 'git log' it to see what"
        )
    if end - start > LARGEST_TRAILERS or raw.count(b"\n", start, end) >= MOST_TRAILERS:
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
