"""Secrets in the words that leave: messages of snapshots and notes, judged by the mask that a capture applies to them.

What this version captured is masked already. An older version masked fewer forms, and plain git may write any message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from git_envhist.capture.masking import mask_secrets
from git_envhist.errors import Damaged, SealingError
from git_envhist.model.sharing import FoundToken
from git_envhist.store.heads import read_head, write_head
from git_envhist.store.remoteload import OutgoingObject
from git_envhist.store.wrappedkeys import LIST_FORM
from git_envhist.values import pattern

META = b"Env-Meta: "
SSH_ALONE = pattern(
    r"(-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]{1,60000}-----END SSH SIGNATURE-----\n?)?"
)
WRITTEN = ("text", "command", "comment", "name", "by", "definition")
"""The members of a note that people, agents and commands write."""


def secret_in_words(one: OutgoingObject, data: bytes) -> FoundToken | None:
    """A secret that is readable in a message or a note; None if there is none, or the object is another."""
    if one.place or one.kind not in ("commit", "blob"):
        return None
    texts = _of_message(data) if one.kind == "commit" else _of_notes(data)
    if all(mask_secrets(text) == text for text in texts):
        return None
    what, forget = ("message", f"; git envlog drop {one.oid[:7]}") if one.kind == "commit" else ("note", "")
    return FoundToken(f"{what} {one.oid[:7]}".encode("ascii"), f"a secret in its words{forget}")


def _of_message(data: bytes) -> Iterator[bytes]:
    """The intent, and the values that were given with it; the other trailers hold ids."""
    message = data.partition(b"\n\n")[2]
    intent, blank, trailers = message.rpartition(b"\n\n")
    yield intent if blank else message
    for line in trailers.split(b"\n"):
        if line.startswith(META):
            yield line.removeprefix(META)


def _of_notes(data: bytes) -> Iterator[bytes]:
    if _is_head(data) or _is_wrapped_key(data):
        return
    for line in data.split(b"\n"):
        try:
            record = json.loads(line) if line.strip() else None
        except ValueError:
            yield line
            continue
        values = [record.get(name) for name in WRITTEN] if isinstance(record, dict) else []
        yield from (value.encode("utf-8", "surrogatepass") for value in values if isinstance(value, str))


def _is_wrapped_key(data: bytes) -> bool:
    """Return whether a note is a key that is wrapped for recipients, or the list of them."""
    if LIST_FORM.fullmatch(data):
        return True
    from git_envhist.capture.agefile import BEGIN, read_age_file  # loaded late: few histories have one

    if not data.startswith(BEGIN.encode("ascii")):
        return False
    try:
        read_age_file(data)
    except SealingError:
        return False
    return True


def _is_head(data: bytes) -> bool:
    """Return whether a note is a signed head, whose key id and signatures are no secrets."""
    try:
        head = read_head(data)
    except Damaged:
        return False
    signatures = head.ssh or ""
    return write_head(head) == data and SSH_ALONE.fullmatch(signatures) is not None
