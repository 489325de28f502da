"""Sealed files open only with their key, at their path and as their kind."""

from __future__ import annotations

import hashlib
import hmac
import zlib

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.errors import SealingError
from git_envhist.secrets import seal as sealing
from git_envhist.secrets.keys import Key
from git_envhist.secrets.seal import keyed_hash, seal, sealed_key_id, unseal

KEY = Key.of(bytes(range(64)))
OTHER = Key.of(bytes(64))
FILE = b"file"


def find(key_id: str) -> Key | None:
    return {key.id: key for key in (KEY, OTHER)}.get(key_id)


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sealing, "SEGMENT", 512)
    return 512


@given(
    st.binary(max_size=2000), st.binary(min_size=1, max_size=60), st.sampled_from([b"file", b"attachment"])
)
def test_sealed_bytes_survive_a_round_trip(plain: bytes, path: bytes, kind: bytes) -> None:
    assert unseal(find, path, kind, seal(KEY, path, kind, plain)) == plain


@pytest.mark.parametrize("size", [0, 1, 255, 256, 511, 512, 513, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("ending", [b"\0", b"\x80", b"x", b"\x80\0\0"])
def test_lengths_around_a_segment_survive_a_round_trip(short_segments: int, size: int, ending: bytes) -> None:
    plain = (bytes(size) + ending)[-size:] if size else b""
    assert unseal(find, b"a", FILE, seal(KEY, b"a", FILE, plain)) == plain


def test_large_file_is_sealed_in_several_segments() -> None:
    plain = b"0123456789abcdef" * (sealing.SEGMENT // 16) + b"end"
    sealed = seal(KEY, b"dump.env", FILE, plain)
    assert len(sealed) > len(plain) + 2 * sealing.TAG
    assert unseal(find, b"dump.env", FILE, sealed) == plain


def test_sealed_form_is_frozen_and_can_be_opened_from_the_document() -> None:
    sealed = seal(KEY, b".env", FILE, b"TOKEN=hunter2\n")
    head, _, body = sealed.partition(b"\n\n")
    place = hmac.digest(KEY.derive(b"place"), b".env", "sha256")[:16].hex()
    assert head.decode() == f"envhist-sealed 1\nkey {KEY.id}\nkind file\nplace {place}"
    bound = [b"envhist-sealed 1", b"kind file", b"path .env", bytes(8) + (1).to_bytes(8, "big")]
    opened = AESSIV(hmac.digest(KEY.secret, b"envhist subkey seal", "sha512")).decrypt(body, bound)
    assert opened == (b"TOKEN=hunter2\n\x80").ljust(256, b"\0")
    assert (
        hashlib.sha256(sealed).hexdigest()
        == "ccf65645943efebd193f76eafbf50dac31331d42b3cc05dbb8b337ec0614db07"
    )


def test_same_key_gives_the_same_bytes_and_another_key_different_ones() -> None:
    plain = b"API_URL=http://localhost\n" * 40
    one = seal(KEY, b".env", FILE, plain)
    assert seal(Key.of(KEY.secret), b".env", FILE, bytes(bytearray(plain))) == one
    other = seal(OTHER, b".env", FILE, plain)
    body, other_body = one.partition(b"\n\n")[2], other.partition(b"\n\n")[2]
    common = sum(a == b for a, b in zip(body, other_body, strict=True))
    assert common < len(body) / 20


def test_sealed_file_hides_content_and_length() -> None:
    plains = [b"x", b"TOKEN=hunter2", b"TOKEN=correct horse battery staple", b""]
    sealed = [seal(KEY, b".env", FILE, plain) for plain in plains]
    assert len({len(blob) for blob in sealed}) == 1
    assert not any(plain in blob for plain, blob in zip(plains[1:3], sealed[1:3], strict=True))
    # Encrypted bytes do not compress.
    blob = seal(KEY, b".env", FILE, b"a" * 10_000)
    assert len(zlib.compress(blob, 9)) > len(blob)


def test_short_secret_cannot_be_guessed_without_the_key() -> None:
    secret = b"PIN=4711\n"
    stored = (
        seal(KEY, b".env", FILE, secret)
        + keyed_hash(KEY, secret)
        + KEY.id.encode()
        + KEY.mac(b"tree").encode()
    )
    for candidate in (b"PIN=%d\n" % number for number in range(10_000)):
        for attempt in derivations(candidate):
            assert attempt not in stored


def derivations(plain: bytes) -> list[bytes]:
    """Return everything computable from a guess without the key: hashes, blob ids, hashes keyed with public values."""
    digests = [hashlib.sha1(plain), hashlib.sha256(plain), hashlib.sha1(b"blob %d\0" % len(plain) + plain)]
    raw = [digest.digest()[:8] for digest in digests]
    keyed = hmac.digest(KEY.id.encode(), plain, "sha256")[:8]
    return [*raw, *(part.hex().encode() for part in raw), keyed, keyed.hex().encode()]


def test_sealed_file_opens_only_at_its_path() -> None:
    sealed = seal(KEY, b"a/.env", FILE, b"A=1")
    with pytest.raises(SealingError, match=r"'b/\.env' was sealed for another path"):
        unseal(find, b"b/.env", FILE, sealed)


def test_sealed_file_with_a_forged_place_does_not_open() -> None:
    sealed = seal(KEY, b"a", FILE, b"A=1").partition(b"\n\n")[2]
    forged = seal(KEY, b"b", FILE, b"B=2").partition(b"\n\n")[0] + b"\n\n" + sealed
    with pytest.raises(SealingError, match="damaged or was tampered with"):
        unseal(find, b"b", FILE, forged)


def test_sealed_file_opens_only_as_its_kind() -> None:
    sealed = seal(KEY, b"a", b"attachment", b"text")
    with pytest.raises(SealingError, match="was sealed as 'attachment', not as 'file'"):
        unseal(find, b"a", FILE, sealed)
    with pytest.raises(SealingError, match="damaged or was tampered with"):
        unseal(find, b"a", FILE, sealed.replace(b"kind attachment", b"kind file"))


def test_missing_key_is_named_with_a_hint() -> None:
    sealed = seal(KEY, b".env", FILE, b"A=1")
    with pytest.raises(SealingError, match=f"the key '{KEY.id}', which is missing") as caught:
        unseal(lambda key_id: None, b".env", FILE, sealed)
    assert "git envlog key import" in (caught.value.hint or "")


def test_wrong_key_under_the_right_name_opens_nothing() -> None:
    sealed = seal(KEY, b".env", FILE, b"A=1")
    with pytest.raises(SealingError, match="is missing"):
        unseal(lambda key_id: OTHER, b".env", FILE, sealed)
    with pytest.raises(SealingError):
        unseal(lambda key_id: Key(KEY.id, OTHER.secret), b".env", FILE, sealed)


@given(st.data())
def test_every_changed_bit_is_detected(data: st.DataObject) -> None:
    sealed = seal(KEY, b".env", FILE, b"TOKEN=hunter2")
    place = data.draw(st.integers(0, len(sealed) - 1))
    changed = bytes([sealed[place] ^ (1 << data.draw(st.integers(0, 7)))])
    with pytest.raises(SealingError):
        unseal(find, b".env", FILE, sealed[:place] + changed + sealed[place + 1 :])


@given(st.integers(0, 400))
def test_every_truncation_is_detected(length: int) -> None:
    sealed = seal(KEY, b".env", FILE, b"TOKEN=hunter2")
    with pytest.raises(SealingError):
        unseal(find, b".env", FILE, sealed[: min(length, len(sealed) - 1)])


def test_segments_cannot_be_dropped_repeated_or_reordered(short_segments: int) -> None:
    sealed = seal(KEY, b"a", FILE, bytes(1500))
    head, end, body = sealed.partition(b"\n\n")
    step = short_segments + sealing.TAG
    parts = [body[start : start + step] for start in range(0, len(body), step)]
    assert len(parts) == 3
    assert len(set(parts)) == 3
    for order in ([0], [0, 1], [1, 2], [0, 0, 2], [1, 0, 2], [0, 1, 1, 2], []):
        with pytest.raises(SealingError, match="damaged"):
            unseal(find, b"a", FILE, head + end + b"".join(parts[number] for number in order))


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_with_an_error(blob: bytes) -> None:
    for candidate in (
        blob,
        b"envhist-sealed 1\n" + blob,
        b"envhist-sealed 1\nkey %s\nkind file\n" % KEY.id.encode() + blob,
    ):
        sealed_key_id(candidate)
        with pytest.raises(SealingError):
            unseal(find, b"p", FILE, candidate)


def test_newer_form_is_reported_as_newer() -> None:
    sealed = seal(KEY, b"a", FILE, b"A=1").replace(b"envhist-sealed 1", b"envhist-sealed 2", 1)
    with pytest.raises(SealingError, match="a form that this version does not know"):
        unseal(find, b"a", FILE, sealed)


def test_sealed_file_names_its_key() -> None:
    sealed = seal(KEY, b"a", FILE, b"A=1")
    assert sealed_key_id(sealed) is not None
    assert sealed_key_id(sealed) == KEY.id
    assert sealed_key_id(b"A=1\n") is None
    assert sealed_key_id(b"envhist-sealed 1 is the first line of a sealed file\n\n") is None


def test_keyed_hashes_of_equal_values_differ_by_context() -> None:
    assert keyed_hash(KEY, b"1") == keyed_hash(KEY, b"1")
    assert (
        len(
            {
                keyed_hash(KEY, b"1"),
                keyed_hash(KEY, b"2"),
                keyed_hash(OTHER, b"1"),
                keyed_hash(KEY, b"1", b"DEBUG"),
            }
        )
        == 4
    )
    assert keyed_hash(KEY, b"bc", b"a") != keyed_hash(KEY, b"c", b"ab")
