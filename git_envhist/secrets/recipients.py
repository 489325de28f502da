"""The list of a repository's recipients, `<common git dir>/envhist/recipients`: public keys that can open its files.

One line per recipient (public key and comment), then `signed <id of the key> <MAC>`. Without the MAC of a key of this
repository no recipient gets a key: a process that can only write the file, such as an agent in its sandbox, cannot
add a reader.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from git_envhist.disk import Durability, replace_file
from git_envhist.errors import SealingError
from git_envhist.secrets.keys import SigningKey, constant_time_equal, read_file

FILE = "recipients"
SIGNED = "signed "


def read_recipients(common_state: str, find_key: Callable[[str], SigningKey | None]) -> tuple[str, ...]:
    """Return the lines of the list. Raise `SealingError` if no key of this repository signed it."""
    path = os.path.join(common_state, FILE)
    try:
        text = (read_file(path) or b"").decode("utf-8", "replace")
    except OSError as failure:
        raise SealingError(f"cannot read '{path}': {failure.strerror}") from failure
    if not text:
        return ()
    *lines, last = text.removesuffix("\n").split("\n")
    key_id, _, mac = last.removeprefix(SIGNED).partition(" ")
    key = find_key(key_id) if last.startswith(SIGNED) else None
    if key is None or not mac.isascii() or not constant_time_equal(key.mac(_mac_input(lines)), mac):
        raise SealingError(
            f"the list of recipients is not signed by a key of this repository: '{path}'",
            hint="check the file; empty the list: git envlog key recipients reset",
        )
    return tuple(lines)


def write_recipients(common_state: str, lines: Iterable[str], key: SigningKey) -> None:
    """Replace the list, signed by a key."""
    whole = list(lines)
    signed = [*whole, f"{SIGNED}{key.id} {key.mac(_mac_input(whole))}", ""] if whole else []
    replace_file(
        os.path.join(common_state, FILE), "\n".join(signed).encode("utf-8"), durability=Durability.FULL
    )


def _mac_input(lines: Iterable[str]) -> bytes:
    return "\n".join(["recipients", *lines]).encode("utf-8")
