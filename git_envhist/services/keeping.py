"""How the state of a service stands in a snapshot: cut into pieces, each deflated and sealed, below `services/<name>`.

Cut by content, as big files are, so that a dump that changed a little shares the rest with the one before, but under
the key (`secretcuts`): the lengths of the sealed pieces confirm no guess. A state holds what its users entrusted to the
service: nothing of it is stored in the clear, and without a key nothing of it is stored.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from git_envhist.capture.seal import SealingKey, seal, unseal
from git_envhist.errors import Damaged
from git_envhist.services.states import Dumps
from git_envhist.store.layout import RESERVED, SERVICES
from git_envhist.store.objects import CatFile
from git_envhist.store.pieces import LARGEST, ObjectSink, store_cut
from git_envhist.store.secretcuts import padded, secret_cuts
from git_envhist.store.snapshots import DIRECTORY, TreeEntry
from git_envhist.store.trees import decode_tree

KIND = b"service"
LEVEL = 6
BLOCK = 1 << 20
NO_KEY = "no key can be kept here to seal it"
FindKey = Callable[[str], SealingKey | None]


def keep_dumps(
    sink: ObjectSink, dumps: Dumps, key: SealingKey | None, warnings: list[str]
) -> dict[bytes, TreeEntry]:
    """Store what services gave; where it hangs below the reserved name."""
    warnings += dumps.warnings()
    found: dict[bytes, TreeEntry] = {}
    for dump in dumps.taken:
        name = os.fsencode(dump.name)
        if key is None:
            warnings.append(f"the state of service '{dump.name}' is not kept: {NO_KEY}")
            continue
        cuts = secret_cuts(_blocks(dump.file), key.derive(b"pieces"))
        _, tree = store_cut(_SealingSink(sink, key, name), cuts)
        found[SERVICES + b"/" + name] = (b"", DIRECTORY, tree)
    return found


def kept_services(reader: CatFile, tree: str) -> dict[str, bytes]:
    """The services whose state a snapshot holds, and the tree of each."""
    answer = reader.read(f"{tree}:{(RESERVED + b'/' + SERVICES).decode()}")
    if answer is None or answer.kind != "tree":
        return {}
    listed = decode_tree(answer.data, len(tree) // 2)
    return {os.fsdecode(name): oid for name, mode, oid in listed if mode == DIRECTORY}


def read_state(reader: CatFile, find_key: FindKey, name: str, tree: bytes) -> Iterator[bytes]:
    """The state of a service, piece by piece; `SealingError` where the key is not here."""
    place = os.fsencode(name)
    for run in _listed(reader, tree):
        for piece in _listed(reader, run):
            plain = unseal(find_key, place, KIND, _read(reader, piece, "blob"))
            yield _inflate(plain)


def _inflate(plain: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(plain, LARGEST + 1)
    except zlib.error as error:
        raise Damaged(f"a piece of a service's state is damaged: {error}") from error
    if not inflating.eof or len(data) > LARGEST:
        raise Damaged("a piece of a service's state is longer than pieces are")
    return data


class _SealingSink:
    """Takes the pieces in the clear, and stores them sealed."""

    def __init__(self, sink: ObjectSink, key: SealingKey, name: bytes) -> None:
        self._sink = sink
        self._key = key
        self._name = name

    def add(self, kind: bytes, data: bytes) -> bytes:
        if kind == b"blob":
            data = seal(self._key, self._name, KIND, padded(zlib.compress(data, LEVEL)))
        return self._sink.add(kind, data)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(BLOCK):
        yield block


def _listed(reader: CatFile, tree: bytes) -> list[bytes]:
    return [oid for _, _, oid in decode_tree(_read(reader, tree, "tree"), len(tree))]


def _read(reader: CatFile, oid: bytes, kind: str) -> bytes:
    answer = reader.read(oid.hex())
    if answer is None or answer.kind != kind:
        raise Damaged(f"a part of a service's state is missing: {oid.hex()}", hint="restore another snapshot")
    return answer.data
