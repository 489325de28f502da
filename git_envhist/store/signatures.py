"""Says which snapshots a key of ours signed (pure); what the others say of themselves is a claim."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Protocol

from git_envhist.model import Snapshot
from git_envhist.store.message import mac_input, split_mac
from git_envhist.values import replace


class SigningKey(Protocol):
    """What is needed of a key."""

    def mac(self, data: bytes) -> str: ...


FindKey = Callable[[str], SigningKey | None]


def judged(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """The snapshot, with `trusted` filled in."""
    return replace(snapshot, trusted=is_signed(snapshot, find_key))


def is_signed(snapshot: Snapshot, find_key: FindKey) -> bool:
    """Whether a key that is here signed just this tree, this author and this message."""
    message, mac = split_mac(snapshot.message)
    key = find_key(snapshot.key) if mac is not None and snapshot.key is not None else None
    if key is None or mac is None:
        return False
    return hmac.compare_digest(key.mac(mac_input(snapshot.tree, snapshot.author, message)), mac)
