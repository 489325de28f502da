"""Age files: written for several public keys, opened with each private one, compatible with another program."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from git_envhist.errors import SealingError
from git_envhist.secrets.age_file import BEGIN, END, decrypt, encrypt
from git_envhist.secrets.age_keys import (
    Identity,
    make_identity,
    read_bech32,
    read_identities,
    read_recipient,
    write_bech32,
)
from tests.support.needs import require

# The pair from age's documentation.
SECRET = "AGE-SECRET-KEY-1EKYFFCK627939WTZMTT4ZRS2PM3U2K7PZ3MVGEL2M76W3PYJMSHQMTT6SS"
PUBLIC = "age1mrmfnwhtlprn4jquex0ukmwcm7y2nxlphuzgsgv8ew2k9mewy3rs8u7su5"
WORDS = b"what only recipients read\n"


def ssh_pair(place: Path, *, passphrase: str = "", kind: str = "ed25519") -> tuple[str, str]:
    """Return the text of a private key file and the line of its public key."""
    file = place / f"id-{kind}"
    words = [require("ssh-keygen"), "-q", "-t", kind, "-N", passphrase, "-C", "me at work", "-f", str(file)]
    subprocess.run(words, check=True)
    return file.read_text(), file.with_suffix(".pub").read_text()


@pytest.fixture
def ssh(tmp_path: Path) -> tuple[str, str]:
    return ssh_pair(tmp_path)


def damaged(file: bytes) -> list[bytes]:
    """Yield the file with each of its bytes changed, one at a time."""
    raw = base64.b64decode(b"".join(file.splitlines()[1:-1]))
    changed = [raw[:at] + bytes([byte ^ 1]) + raw[at + 1 :] for at, byte in enumerate(raw)]
    lines = (base64.b64encode(one).decode() for one in changed)
    return [
        "\n".join([BEGIN, *(text[at : at + 64] for at in range(0, len(text), 64)), END, ""]).encode()
        for text in lines
    ]


def test_public_key_matches_the_private_one() -> None:
    (identity,) = read_identities(f"# created: then\n# public key: {PUBLIC}\n{SECRET}\n")
    assert identity.recipient.text == PUBLIC
    assert read_recipient(f"{PUBLIC} # me") == (identity.recipient, "me")


def test_ssh_key_gives_the_same_recipient_from_either_half(ssh: tuple[str, str]) -> None:
    (identity,) = read_identities(ssh[0])
    recipient, comment = read_recipient(ssh[1])
    assert (identity.recipient, comment) == (recipient, "me at work")
    assert ssh[1].startswith(recipient.text)


def test_file_opens_with_each_private_key_and_with_no_other(ssh: tuple[str, str]) -> None:
    mine, _ = make_identity()
    (theirs,) = read_identities(ssh[0])
    file = encrypt(WORDS, [mine.recipient, theirs.recipient])
    assert decrypt(file, [mine]) == decrypt(file, [theirs]) == WORDS
    assert decrypt(file, [make_identity()[0]]) is None
    assert WORDS not in file
    assert decrypt(encrypt(b"", [mine.recipient]), [mine]) == b""


def test_file_with_a_changed_byte_opens_nothing_else() -> None:
    mine, _ = make_identity()
    for file in damaged(encrypt(WORDS, [mine.recipient])):
        try:
            assert decrypt(file, [mine]) in (None, WORDS)
            assert decrypt(file, [mine]) is None
        except SealingError:
            continue


@pytest.mark.parametrize("words", ["a file of another kind\n", f"{BEGIN}\n{END}\n", f"{BEGIN}\n!!\n{END}\n"])
def test_other_text_is_not_an_age_file(words: str) -> None:
    with pytest.raises(SealingError):
        decrypt(words.encode(), [])


def test_another_age_program_opens_our_files_and_we_open_its(ssh: tuple[str, str]) -> None:
    pyrage = pytest.importorskip("pyrage")
    theirs = pyrage.x25519.Identity.generate()
    (mine,) = read_identities(str(theirs))
    assert mine.recipient.text == str(theirs.to_public())
    (of_ssh,) = read_identities(ssh[0])
    written = encrypt(WORDS, [mine.recipient, of_ssh.recipient])
    for identity in (theirs, pyrage.ssh.Identity.from_buffer(ssh[0].encode())):
        assert pyrage.decrypt(written, [identity]) == WORDS
    public = [theirs.to_public(), pyrage.ssh.Recipient.from_str(ssh[1])]
    read = pyrage.encrypt(WORDS, public, armored=True)
    assert decrypt(read, [mine]) == decrypt(read, [of_ssh]) == WORDS
    made, text = make_identity()
    assert str(pyrage.x25519.Identity.from_str(text.splitlines()[1]).to_public()) == made.recipient.text


def test_mistyped_key_is_refused_at_each_letter() -> None:
    for at, letter in enumerate(PUBLIC):
        other = "q" if letter != "q" else "p"
        with pytest.raises(SealingError):
            read_recipient(PUBLIC[:at] + other + PUBLIC[at + 1 :])
    with pytest.raises(SealingError):
        read_recipient(PUBLIC[:-1])
    assert read_bech32(write_bech32("a", bytes(range(33)))) == ("a", bytes(range(33)))


def low_order_point() -> str:
    """Return a public key whose shared secret with every other key is zero."""
    return write_bech32("age", bytes(32))


def test_point_of_low_order_is_refused_as_recipient() -> None:
    with pytest.raises(SealingError, match="low order"):
        encrypt(WORDS, [read_recipient(low_order_point())[0]])


@pytest.mark.parametrize("number", [1, 2, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_ssh_key_off_the_curve_is_refused(number: int) -> None:
    wire = b"".join(len(p).to_bytes(4, "big") + p for p in (b"ssh-ed25519", number.to_bytes(32, "little")))
    with pytest.raises(SealingError):
        read_recipient(f"ssh-ed25519 {base64.b64encode(wire).decode()}")


@pytest.mark.parametrize(
    ("passphrase", "kind", "words"),
    [("four words are", "ed25519", "has a passphrase"), ("", "ecdsa", "not of the type")],
)
def test_unusable_ssh_key_is_reported(tmp_path: Path, passphrase: str, kind: str, words: str) -> None:
    with pytest.raises(SealingError, match=words):
        read_identities(ssh_pair(tmp_path, passphrase=passphrase, kind=kind)[0])


def test_other_public_keys_are_refused(tmp_path: Path) -> None:
    for line in (ssh_pair(tmp_path, kind="ecdsa")[1], "age1yubikey1qqqq", "ssh-rsa AAAA", "", "me@here"):
        with pytest.raises(SealingError):
            read_recipient(line)


def test_private_key_is_in_no_representation() -> None:
    identity: Identity = make_identity()[0]
    assert repr(identity.secret) not in repr(identity)
