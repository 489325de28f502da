"""Deflated streams, judged by zlib: small objects, and incompressible ones stored as they are."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.objects.deflate import SMALL, STORED_BLOCK, WORTH_A_LOOK, deflate_object
from tests.objects.packing import noise

TEXT = b"".join(b"%d: all work and no play makes %d\n" % (n, n * n) for n in range(20_000))
EDGES = (
    0,
    1,
    SMALL,
    SMALL + 1,
    WORTH_A_LOOK - 1,
    WORTH_A_LOOK,
    STORED_BLOCK,
    STORED_BLOCK + 1,
    2 * STORED_BLOCK,
)


def codes(size: int) -> bytes:
    """Return bytes without repetitions that need half their bits."""
    return random.Random(size).randbytes(size).translate(bytes(value & 0x55 for value in range(256)))


@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize(
    "make", [noise, codes, lambda size: TEXT[:size], bytes], ids=["noise", "codes", "text", "nuls"]
)
def test_zlib_inflates_deflated_objects(make: object, size: int) -> None:
    data = make(size)  # type: ignore[operator]
    assert zlib.decompress(deflate_object(data, 1)) == data


@given(st.lists(st.tuples(st.sampled_from([noise, codes, bytes]), st.integers(0, 90_000)), max_size=4))
def test_zlib_inflates_mixed_contents(parts: list[tuple[object, int]]) -> None:
    data = b"".join(make(size) for make, size in parts)  # type: ignore[operator]
    assert zlib.decompress(deflate_object(data, 1)) == data


def test_incompressible_data_grows_only_by_block_headers() -> None:
    for size in (1, 100, SMALL, WORTH_A_LOOK, 3 * STORED_BLOCK, 1_000_003):
        assert len(deflate_object(noise(size), 1)) == size + 5 * -(-size // STORED_BLOCK) + 6
    archive = zlib.compress(TEXT * 3, 9)
    assert len(deflate_object(archive, 1)) < len(archive) * 1.001


def test_compressible_data_is_compressed() -> None:
    assert len(deflate_object(TEXT, 1)) < len(TEXT) / 2
    assert len(deflate_object(codes(300_000), 1)) < 300_000 * 0.6
    # Half of the data is incompressible, in the middle, where the sample is taken.
    mixed = TEXT[:200_000] + noise(100_000) + TEXT[200_000:400_000]
    assert len(deflate_object(mixed, 1)) < len(mixed) * 0.7
