"""Lengths of sealed chunks of a service's state confirm no guess; equal content still shares chunks."""

from __future__ import annotations

import hmac
import os
import random
import sys
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.snapshots import chunks, sealed_chunks
from git_envhist.snapshots.chunks import (
    AVERAGE,
    MAX_SIZE,
    SMALLEST,
    cut_into_chunks,
    cut_with_cutter,
    cut_with_secret,
    pad,
    substitution,
)

SECRET = b"s" * 64


def dump_of(rows: int, seed: int = 1) -> bytes:
    rng = random.Random(seed)
    lines = (f"INSERT INTO users VALUES ({number}, '{rng.randbytes(20).hex()}', 'user{number}@example.com');\n"
             for number in range(rows))  # fmt: skip
    return "".join(lines).encode()


def pieces_of(data: bytes, secret: bytes = SECRET) -> list[bytes]:
    return [piece for piece, times in cut_with_secret([data], secret) for _ in range(times)]


def stored_length(piece: bytes) -> int:
    """Return the length of a sealed chunk without its header, as visible to everyone."""
    plain = zlib.compress(piece, 6)
    return len(plain) - len(plain) % 256 + 256


def lengths(pieces: Iterable[bytes]) -> list[int]:
    return [stored_length(piece) for piece in pieces]


@pytest.mark.parametrize("prefix", [b"", b"SQLite format 3\0"], ids=["text", "sqlite"])
def test_guess_of_a_dump_does_not_predict_chunk_lengths(prefix: bytes) -> None:
    dump = prefix + dump_of(20_000)
    guess = lengths(piece for piece, _ in cut_into_chunks([dump]))
    sealed = [len(pad(zlib.compress(piece, 6))) for piece in pieces_of(dump)]
    assert len(sealed) > 5
    assert guess != lengths(pieces_of(dump))
    offsets = {sum(map(len, pieces_of(dump)[:number])) for number in range(1, len(sealed))}
    public = [piece for piece, _ in cut_into_chunks([dump])]
    known = {sum(map(len, public[:number])) for number in range(1, len(public))}
    assert not offsets & known


def test_chunks_depend_on_the_key() -> None:
    dump = dump_of(20_000)
    assert pieces_of(dump) == pieces_of(dump)
    assert not set(pieces_of(dump)) & set(pieces_of(dump, b"t" * 64))
    assert substitution(SECRET) != substitution(b"t" * 64)
    assert sorted(substitution(SECRET)) == list(range(256))


def test_chunker_sees_only_keyed_bytes() -> None:
    """With the seed only, a cut would still follow from bytes that can be guessed."""
    fastcdc = pytest.importorskip("pyfastcdc").FastCDC
    data = dump_of(20_000)
    seed = int.from_bytes(hmac.digest(SECRET, b"seed", "sha256")[:8], "big") >> 1 | 1
    cutter = fastcdc(avg_size=AVERAGE, min_size=SMALLEST, max_size=MAX_SIZE, seed=seed)
    unveiled = [len(piece) for piece, times in cut_with_cutter(cutter, iter([data])) for _ in range(times)]
    assert [len(piece) for piece in pieces_of(data)] != unveiled


def test_slightly_changed_dump_shares_chunks() -> None:
    before = dump_of(40_000)
    after = before[:5] + b"a row that was put in near the beginning\n" + before[5:]
    shared = sum(map(len, set(pieces_of(before)) & set(pieces_of(after))))
    assert shared > 0.85 * len(after)


@given(st.integers(0, 1 << 19))
def test_padding_costs_at_most_a_sixteenth(size: int) -> None:
    length = len(pad(bytes(size)))
    assert length >= max(256, size)
    assert length <= max(512, size * 17 / 16 + 256)
    assert length % 256 == 0


def test_chunks_with_and_without_padding_are_read() -> None:
    piece = dump_of(100)
    deflated = zlib.compress(piece, 6)
    assert sealed_chunks._inflate(deflated, "it") == sealed_chunks._inflate(pad(deflated), "it") == piece


@pytest.mark.parametrize("without_the_cutter", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100, 300_000, 3_000_000])
def test_chunks_make_up_the_dump_and_none_is_too_long(
    size: int, without_the_cutter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without_the_cutter:
        monkeypatch.setitem(sys.modules, "pyfastcdc", None)
    data = os.urandom(size)
    blocks = [data[at : at + 100_000] for at in range(0, size, 100_000)]
    found = [piece for piece, times in cut_with_secret(blocks, SECRET) for _ in range(times)]
    assert b"".join(found) == data
    assert all(0 < len(piece) <= MAX_SIZE for piece in found)


def test_chunk_lengths_follow_from_the_key_without_the_chunker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyfastcdc", None)
    first, other = pieces_of(bytes(1 << 20)), pieces_of(bytes(1 << 20), b"t" * 64)
    assert list(map(len, first)) == list(map(len, pieces_of(os.urandom(1 << 20))))
    assert list(map(len, first)) != list(map(len, other))
    assert chunks.pad(b"") == bytes(256)
