"""Private keys are recognized by their first bytes under any name; certificates and public keys are not."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    pkcs12,
)

from git_envhist.secrets.rules import SecretRules, is_key_material

KEYS = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "ec521": ec.generate_private_key(ec.SECP521R1()),
    "dsa": dsa.generate_private_key(2048),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
    "x25519": x25519.X25519PrivateKey.generate(),
}
TRADITIONAL = ("rsa", "ec", "ec521", "dsa")


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    "encryption", [NoEncryption(), BestAvailableEncryption(b"words")], ids=["plain", "encrypted"]
)
def test_private_key_in_der_is_key_material(
    kind: str, encryption: NoEncryption | BestAvailableEncryption
) -> None:
    data = KEYS[kind].private_bytes(Encoding.DER, PrivateFormat.PKCS8, encryption)
    assert is_key_material(data)
    assert SecretRules().by_content(b"device.bin", data)


@pytest.mark.parametrize("kind", TRADITIONAL)
def test_private_key_in_the_older_forms_is_key_material(kind: str) -> None:
    assert is_key_material(
        KEYS[kind].private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )


@pytest.mark.parametrize("kind", KEYS)
def test_public_key_is_not_key_material(kind: str) -> None:
    assert not is_key_material(
        KEYS[kind].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    )


def test_stores_of_keys_are_key_material() -> None:
    rsa_key = KEYS["rsa"]
    assert isinstance(rsa_key, rsa.RSAPrivateKey)
    assert is_key_material(pkcs12.serialize_key_and_certificates(b"a", rsa_key, None, None, NoEncryption()))
    assert is_key_material(b"\xfe\xed\xfe\xed\0\0\0\2")
    assert is_key_material(b"\x03\xd9\xa2\x9a\x67\xfb\x4b\xb5")


@pytest.mark.parametrize(
    "data", [b"", b"0", b"0123456789", b"0\x82\x03\x00", b"0 = zero\n", b"PK\x03\x04", b"0\x03\x02\x01\x05"]
)
def test_other_bytes_are_not_key_material(data: bytes) -> None:
    assert not is_key_material(data)
