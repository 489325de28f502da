"""What is remembered of a remote: that its owner agreed to send there, what we put there last, and what an upload left.

One small file for each address, `<common git dir>/envhist/remotes/<key>`, written by rename: whoever loses it is asked
once more, and rewrites nothing there without `--delete`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from git_envhist.store.durable import cannot_write, sync_directory
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only
from git_envhist.values import dataclass, replace

FIRST = "envhist-remote 1"
PUT = re.compile(r"put ([0-9a-f]{40}|[0-9a-f]{64}) (refs/[!-~]+)")

KIND = re.compile(r"class [a-z]+|(?:database|dump|name) [0-9a-f]+")


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What we know of one remote."""

    agreed: bool = False
    upload: str = ""
    """The name under which our uploads stand there until they are whole."""
    put: tuple[tuple[str, str], ...] = ()
    """(ref, hash) of what we put there last; of a ref more than one where a push was broken off."""
    kinds: tuple[str, ...] = ()
    """The classes, databases, dumps and names that its owner agreed to send."""
    address: str = ""
    """Its address without a password: a remote that was given by address has no name."""


def directory_of(common_state: str) -> str:
    return os.path.join(common_state, "remotes")


def read_memory(common_state: str, key: str) -> RemoteState:
    """What is remembered; nothing where there is no such file, or none of ours."""
    try:
        with open(
            os.path.join(directory_of(common_state), key),
            encoding="ascii",
            errors="replace",
            opener=open_file_only,
        ) as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return RemoteState()
    if lines[:1] != [FIRST]:
        return RemoteState()
    uploads = [line[7:] for line in lines if re.fullmatch(r"upload [0-9a-f]{12}", line)]
    put = [(found[2], found[1]) for line in lines if (found := PUT.fullmatch(line))]
    kinds = tuple(line for line in lines if KIND.fullmatch(line))
    addresses = [unquote(line[8:]) for line in lines if line.startswith("address ")]
    return RemoteState(
        "agreed" in lines,
        uploads[0] if uploads else "",
        tuple(put),
        kinds,
        addresses[0] if addresses else "",
    )


def write_memory(common_state: str, key: str, memory: RemoteState) -> None:
    """Remember."""
    lines = [FIRST, *(["agreed"] if memory.agreed else [])]
    lines += [f"upload {memory.upload}"] if memory.upload else []
    lines += [f"put {oid} {ref}" for ref, oid in sorted(memory.put)]
    lines += sorted(memory.kinds)
    lines += [f"address {quote(memory.address, safe='/:@')}"] if memory.address else []
    directory = state_directory(directory_of(common_state))
    path = os.path.join(directory, key)
    try:
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("\n".join([*lines, ""]))
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
        sync_directory(directory)
    except OSError as error:
        raise cannot_write(error, directory) from error


def with_put(memory: RemoteState, moves: Mapping[str, str | None]) -> RemoteState:
    """The memory after refs were moved; None: deleted."""
    others = [(ref, oid) for ref, oid in memory.put if ref not in moves]
    moved = [(ref, oid) for ref, oid in moves.items() if oid is not None]
    return replace(memory, put=tuple(sorted({*others, *moved})))


def with_tried(memory: RemoteState, moves: Mapping[str, str | None]) -> RemoteState:
    """The memory before refs are moved: whoever is killed meanwhile never knows whether they were."""
    tried = [(ref, oid) for ref, oid in moves.items() if oid is not None]
    return replace(memory, put=tuple(sorted({*memory.put, *tried})))
