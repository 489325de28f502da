"""Cut what is sealed in pieces where only the key says so, so that lengths of pieces confirm no guess of the content.

Cuts by content alone are the same for everybody: with a guess of a dump anybody can cut and deflate it, and compare the
lengths with those of the sealed pieces. So the cutter sees the bytes through a secret substitution, with a secret seed:
equal content still has equal pieces under one key, and without the key no cut can be told. A piece is padded as well,
to a length that tells the size of the deflated piece within 6 % at most.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator

from git_envhist.store.pieces import AVERAGE, LARGEST, SMALLEST, CutRange, Pieces, cut_with_cutter


def secret_cuts(blocks: Iterable[bytes], secret: bytes) -> Iterator[Pieces]:
    """The pieces of a file under a secret: each, and how many times it comes in a row."""
    try:
        from pyfastcdc import FastCDC  # loaded late: only a capture that meets a state of a service needs it
    except ImportError:
        # Without the cutter's wheel everything still works; only insertions dedupe less.
        return ((piece, 1) for piece in _cut_by_lengths(blocks, secret))
    # The cutter takes 63 bits.
    seed = int.from_bytes(hmac.digest(secret, b"seed", "sha256")[:8], "big") >> 1 | 1
    cutter = FastCDC(avg_size=AVERAGE, min_size=SMALLEST, max_size=LARGEST, seed=seed)
    return cut_with_cutter(_Veiled(cutter, substitution(secret)), iter(blocks))


def padded(data: bytes) -> bytes:
    """A deflated piece, followed by zeros up to a length that tells little: of its size five bits or so remain."""
    size = max(256, len(data))
    exponent = size.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return data + bytes(-len(data) % max(256, step) if len(data) >= 256 else 256 - len(data))


def substitution(secret: bytes) -> bytes:
    """A secret permutation of the 256 bytes."""
    return bytes(
        sorted(range(256), key=lambda byte: hmac.digest(secret, b"byte " + bytes((byte,)), "sha256"))
    )


class _Veiled:
    """A cutter that never sees the bytes that it cuts."""

    def __init__(self, cutter: object, table: bytes) -> None:
        self._cutter = cutter
        self._table = table

    def cut_buf(self, buf: bytes) -> Iterable[CutRange]:
        found: Iterable[CutRange] = self._cutter.cut_buf(buf.translate(self._table))  # type: ignore[attr-defined]
        return found


def _cut_by_lengths(blocks: Iterable[bytes], secret: bytes) -> Iterator[bytes]:
    held, number = bytearray(), 0
    length = _length(secret, number)
    for block in blocks:
        held += block
        while len(held) >= length:
            yield bytes(held[:length])
            del held[:length]
            number += 1
            length = _length(secret, number)
    if held:
        yield bytes(held)


def _length(secret: bytes, number: int) -> int:
    told = int.from_bytes(hmac.digest(secret, b"length %d" % number, "sha256")[:4], "big")
    return SMALLEST + told % (2 * AVERAGE - SMALLEST)
