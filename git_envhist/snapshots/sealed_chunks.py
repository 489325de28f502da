"""Store secret content in sealed chunks, so that a longer version of it shares the chunks of the one before.

Dumps of services and large attachments (transcripts of agents) are stored this way. The content is cut under the key
(`chunks.cut_with_secret`): the lengths of the chunks confirm no guess of the content. Each chunk is deflated, padded
and sealed; equal chunks under one name and key are equal objects, which are stored once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile
from git_envhist.model import ObjectId
from git_envhist.objects.deflate import compress
from git_envhist.objects.trees import decode_tree
from git_envhist.secrets.seal import SealingKey, seal
from git_envhist.snapshots.chunks import AVERAGE, MAX_SIZE, cut_with_secret, pad, store_cut_chunks
from git_envhist.snapshots.layout import ObjectSink

LEVEL = 1
"""Each capture deflates all chunks again to find those that exist; a higher level would cost more than it saves."""


def store_sealed_chunks(
    sink: ObjectSink,
    blocks: Iterable[bytes],
    key: SealingKey,
    name: bytes,
    kind: bytes,
    average: int = AVERAGE,
) -> bytes:
    """Store content in sealed chunks and return the id of their tree; `name` and `kind` are bound to each chunk."""
    cuts = cut_with_secret(blocks, key.derive(b"pieces"), average)
    return store_cut_chunks(_SealingSink(sink, key, name, kind), cuts)[1]


def read_sealed_chunks(
    reader: CatFile, tree: bytes, width: int, open_sealed: Callable[[bytes], bytes], subject: str
) -> Iterator[bytes]:
    """Yield the content of a tree object with the bytes `tree`; `subject` names it in errors."""
    for run in _ids(tree, width):
        for chunk in _ids(_read(reader, run, "tree", subject), width):
            yield _inflate(open_sealed(_read(reader, chunk, "blob", subject)), subject)


class _SealingSink:
    """Seals blobs before it passes them on."""

    def __init__(self, sink: ObjectSink, key: SealingKey, name: bytes, kind: bytes) -> None:
        self._sink = sink
        self._key = key
        self._name = name
        self._kind = kind

    def add(self, kind: bytes, data: bytes) -> ObjectId:
        if kind == b"blob":
            data = seal(self._key, self._name, self._kind, pad(compress(data, LEVEL)))
        return self._sink.add(kind, data)


def _inflate(plain: bytes, subject: str) -> bytes:
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(plain, MAX_SIZE + 1)
    except zlib.error as error:
        raise Damaged(f"a chunk of {subject} is damaged: {error}") from error
    if not inflating.eof or len(data) > MAX_SIZE:
        raise Damaged(f"a chunk of {subject} is longer than chunks are")
    return data


def _ids(tree: bytes, width: int) -> list[bytes]:
    return [oid for _, _, oid in decode_tree(tree, width)]


def _read(reader: CatFile, oid: bytes, kind: str, subject: str) -> bytes:
    answer = reader.read(oid.hex())
    if answer is None or answer.kind != kind:
        raise Damaged(f"a part of {subject} is missing: {oid.hex()}", hint="restore another snapshot")
    return answer.data
