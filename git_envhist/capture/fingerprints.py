"""The keyed hash of a file that is too large to be held: of what stands in it, however it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from git_envhist.capture.reading import BLOCK, Block

NULS = bytes(BLOCK)


def chained(keyed_hash: Callable[[bytes], bytes], blocks: Iterable[Block]) -> bytes:
    """A chain of keyed hashes over blocks: bounded memory, nothing unkeyed, and nothing of a hole is looked at."""
    digest = b""
    for block in _evenly(blocks):
        # How many blocks of NULs there are is told behind one of them: no block is as long.
        digest = keyed_hash(digest + (block if isinstance(block, bytes) else NULS + b"%d" % block))
    return digest or keyed_hash(b"")


def _evenly(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same bytes in blocks of one size; for blocks of nothing but NULs, how many there are in a row."""
    nuls, held = 0, b""
    for block in blocks:
        for part in _whole(held, block):
            if isinstance(part, int):
                nuls += part
            elif len(part) < BLOCK:
                held = part
            elif part == NULS:
                nuls += 1
            else:
                if nuls:
                    yield nuls
                    nuls = 0
                yield part
    if nuls:
        yield nuls
    if held:
        yield held


def _whole(held: bytes, block: Block) -> Iterator[Block]:
    """What was held and a block behind it: whole blocks, whole blocks of a hole by their number, and at last what is
    left, if only nothing."""
    if isinstance(block, int):
        missing = -len(held) % BLOCK
        if block < missing:
            yield held + bytes(block)
            return
        if held:
            yield held + bytes(missing)
        whole, rest = divmod(block - missing, BLOCK)
        if whole:
            yield whole
        yield bytes(rest)
        return
    data = held + block if held else block
    end = len(data) - len(data) % BLOCK
    for at in range(0, end, BLOCK):
        yield data[at : at + BLOCK]
    yield data[end:]
