"""zstd frames written by zstandard or by Python's own module are read by the other."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest

from git_envhist.objects.zstd_frames import PYTHONS_OWN, pack, packing, unpack, unpacking

DATA = bytes(range(256)) * 900
has_own = importlib.util.find_spec(PYTHONS_OWN.partition(".")[0]) is not None
WAYS = ["zstandard", pytest.param("own", marks=pytest.mark.skipif(not has_own, reason="before Python 3.14"))]


@pytest.fixture(params=WAYS)
def wrote(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """Return a frame written at once, and one written in parts, by either module."""
    with monkeypatch.context() as patch:
        if request.param == "own":
            patch.setitem(sys.modules, "zstandard", None)
        file = io.BytesIO()
        with packing(file, 3) as write:
            write(DATA[:1000])
            write(DATA[1000:])
        assert not file.closed
        return pack(DATA), file.getvalue()


@pytest.fixture(params=WAYS)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "own":
        monkeypatch.setitem(sys.modules, "zstandard", None)


@pytest.mark.usefixtures("reading")
def test_zstandard_and_python_read_each_others_frames(wrote: tuple[bytes, bytes]) -> None:
    whole, pieces = wrote
    assert unpack(whole) == DATA
    with unpacking(io.BytesIO(pieces), 1 << 27) as read:
        assert read(10) == DATA[:10]
        got = b"".join(iter(lambda: read(1 << 16), b""))
    assert got == DATA[10:]


@pytest.mark.usefixtures("reading")
def test_damaged_frame_raises_value_error(wrote: tuple[bytes, bytes]) -> None:
    whole, pieces = wrote
    for broken in (whole[:-3], b"no frame", whole[:20] + b"\xff\xff" + whole[22:]):
        with pytest.raises(ValueError, match=r"\w"):
            unpack(broken)
    # The checksum is at the end.
    other = pieces[:-1] + bytes((pieces[-1] ^ 1,))
    with unpacking(io.BytesIO(other), 1 << 27) as read, pytest.raises(ValueError, match=r"\w"):
        list(iter(lambda: read(1 << 16), b""))


@pytest.mark.usefixtures("reading")
def test_frame_that_needs_too_much_memory_is_refused() -> None:
    # The header of a frame with a window of 2^31 bytes.
    head = bytes.fromhex("28b52ffd 00 a8".replace(" ", "")) + bytes.fromhex("010000")
    with unpacking(io.BytesIO(head), 1 << 27) as read, pytest.raises(ValueError, match=r"\w"):
        read(1)
