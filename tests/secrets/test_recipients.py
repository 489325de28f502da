"""Recipients: public keys that can open the sealed files of a repository, and sign nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from git_envhist.errors import SealingError
from git_envhist.secrets.age_file import encrypt
from git_envhist.secrets.age_keys import make_identity, read_recipient
from git_envhist.secrets.key_text import read_opening_key, write_opening_key
from git_envhist.secrets.keys import Key
from git_envhist.secrets.recipients import read_recipients, write_recipients
from tests.remote.conftest import bare, colleague, timeline
from tests.support.repository import Repo

__all__ = ["bare", "colleague"]

SECRET = "KEY=hunter2-and-more\n"
NOTES = "refs/notes/envhist/"


def public_key(reader: Repo) -> str:
    return reader.run("envlog", "key", "identity", check=True).out.strip()


def own(reader: Repo) -> Path:
    return Path(reader.env["XDG_CONFIG_HOME"]) / "git-envhist/identity"


def newest(repo: Repo) -> str:
    return f"origin/{timeline(repo)}"


def share(repo: Repo, content: str = SECRET, *words: str) -> None:
    repo.write(".env", content)
    repo.run("envlog", "capture", "shared", *words, check=True)
    repo.run("envlog", "push", "--yes", check=True)


def read(reader: Repo, snapshot: str) -> str:
    reader.run("envlog", "fetch", check=True)
    return reader.run("envlog", "show", snapshot, "--", ".env").out


@pytest.fixture
def shared(repo: Repo, colleague: Repo, bare: Repo) -> Repo:
    """Create a repository and a colleague who can open its sealed files."""
    repo.run("envlog", "key", "recipients", "add", public_key(colleague), "colleague", check=True)
    share(repo)
    return repo


def test_opening_key_opens_and_derives_nothing_else() -> None:
    key = Key.of(bytes(range(80)))
    opening = read_opening_key(write_opening_key(key))
    assert (opening.id, opening.derive(b"seal"), opening.derive(b"place")) == (
        key.id, key.derive(b"seal"), key.derive(b"place"),
    )  # fmt: skip
    assert not hasattr(opening, "mac")
    for label in (b"mac", b"fingerprint", b"pieces"):
        with pytest.raises(SealingError, match="can only open"):
            opening.derive(label)
    for secret in (key.secret.hex(), key.derive(b"mac").hex()):
        assert secret not in write_opening_key(key).decode()


@pytest.mark.parametrize("text", [b"", b"envhist-open 2\n", b"envhist-open 1\nkey x\nseal 00\nplace 00\n"])
def test_malformed_opening_key_is_refused(text: bytes) -> None:
    with pytest.raises(SealingError):
        read_opening_key(text)


def test_list_is_accepted_only_with_a_signature_of_the_repository(tmp_path: Path) -> None:
    key, other = Key.of(bytes(80)), Key.of(bytes([1]) * 80)
    state = str(tmp_path)
    assert read_recipients(state, lambda _: key) == ()
    write_recipients(state, ["age1one", "age1two me"], key)
    assert read_recipients(state, {key.id: key}.get) == ("age1one", "age1two me")
    with pytest.raises(SealingError, match="not signed"):
        read_recipients(state, {other.id: other}.get)
    file = tmp_path / "recipients"
    file.write_text("age1evil\n" + file.read_text())
    with pytest.raises(SealingError, match="not signed"):
        read_recipients(state, {key.id: key}.get)
    file.write_text("age1evil\n")
    with pytest.raises(SealingError, match="not signed"):
        read_recipients(state, {key.id: key}.get)


def test_recipient_opens_fetched_files_without_trusting_them(shared: Repo, colleague: Repo) -> None:
    assert read(colleague, newest(shared)) == SECRET
    output = json.loads(colleague.run("envlog", "show", newest(shared), "--json", check=True).out)
    assert output["trusted"] is False
    refused = colleague.run("envrestore", newest(shared))
    assert refused.status == 3
    assert "--allow-unsigned" in refused.err
    keys = colleague.run("envlog", "key", "show", check=True).out
    assert shared.run("envlog", "key", "show", "--json").out[:40] not in keys


@pytest.mark.full
def test_recipient_compares_and_restores_sealed_files(shared: Repo, colleague: Repo, tmp_path: Path) -> None:
    share(shared, "KEY=hunter2-and-more\nMORE=hunter3-and-more\n")
    colleague.run("envlog", "fetch", check=True)
    line = newest(shared)
    assert "+ MORE" in colleague.run("envdiff", f"{line}~1", line, check=True).out
    place = tmp_path / "written"
    colleague.run("envrestore", "--to", str(place), line, check=True)
    assert (place / ".env").read_text().startswith(SECRET)


@pytest.mark.full
def test_recipient_needs_only_an_ssh_key(repo: Repo, colleague: Repo, bare: Repo, tmp_path: Path) -> None:
    from tests.secrets.test_age_file import ssh_pair

    private, public = ssh_pair(tmp_path)
    file = tmp_path / "key"
    file.write_text(private)
    file.chmod(0o600)
    (tmp_path / "key.pub").write_text(public)
    colleague.git("config", "envhist.identity", str(file))
    repo.run("envlog", "key", "recipients", "add", str(tmp_path / "key.pub"), check=True)
    share(repo)
    assert read(colleague, newest(repo)) == SECRET


@pytest.mark.full
def test_fetch_without_a_recipients_key_prints_the_owner_to_ask(shared: Repo, colleague: Repo) -> None:
    own(colleague).unlink()
    colleague.run("envlog", "fetch", check=True)
    done = colleague.run("envlog", "show", newest(shared), "--", ".env")
    assert done.status == 128
    assert "is encrypted, but not for a key of yours" in done.err
    assert "key identity" in done.err
    assert "hunter2" not in done.out + done.err


@pytest.mark.full
def test_removed_recipient_opens_nothing_after_a_new_key(shared: Repo, colleague: Repo) -> None:
    done = shared.run("envlog", "key", "recipients", "remove", "colleague", check=True)
    assert "can still open what these keys seal" in done.err
    assert "key new --reseal" in done.err
    share(shared, "KEY=hunter3-and-more\n")
    listed = shared.git("ls-tree", "-r", "--name-only", NOTES + timeline(shared))
    assert "keys/" not in listed
    shared.run("envlog", "key", "new", "--reseal", check=True)
    shared.run("envlog", "push", "--yes", check=True)
    assert read(colleague, newest(shared)) == ""
    assert read(colleague, f"{newest(shared)}~1") == ""


@pytest.mark.full
def test_new_key_is_wrapped_for_the_remaining_recipients(shared: Repo, colleague: Repo) -> None:
    shared.run("envlog", "key", "new", "--reseal", check=True)
    share(shared, "KEY=hunter3-and-more\n")
    assert read(colleague, newest(shared)) == "KEY=hunter3-and-more\n"
    assert read(colleague, f"{newest(shared)}~1") == SECRET


@pytest.mark.full
def test_push_without_a_change_writes_no_key(shared: Repo) -> None:
    before = shared.git("rev-parse", NOTES + timeline(shared))
    shared.run("envlog", "push", check=True)
    assert shared.git("rev-parse", NOTES + timeline(shared)) == before


@pytest.mark.full
def test_export_is_opened_by_a_recipient(shared: Repo, colleague: Repo, tmp_path: Path) -> None:
    file = str(tmp_path / "moments.envhist.tar.zst")
    shared.run("envlog", "export", file, check=True)
    colleague.run("envlog", "import", file, check=True)
    line = next(one for one in json.loads(colleague.run("envlog", "--all", "--json", check=True).out) if one)
    done = colleague.run("envlog", "show", line["commit"], "--", ".env", check=True)
    assert done.out == SECRET


@pytest.mark.full
def test_key_from_a_server_opens_nothing_and_signs_nothing(shared: Repo, colleague: Repo, bare: Repo) -> None:
    """A server knows the public key of a recipient, and can encrypt any key for it."""
    ours = json.loads(shared.run("envlog", "key", "--json", check=True).out)[0]["id"]
    forged = Key.of(bytes(range(80)))
    text = write_opening_key(forged).replace(forged.id.encode(), ours.encode())
    file = encrypt(text, [read_recipient(public_key(colleague))[0]])
    oid = bare.git("hash-object", "-w", "--stdin", input=file)
    tree = bare.git("mktree", input=f"100644 blob {oid}\t{ours}\n")
    rows = bare.git("ls-tree", NOTES + timeline(shared)).splitlines()
    kept = "".join(f"{row}\n" for row in rows if not row.endswith(("\tkeys", "\thead")))
    notes = bare.git("mktree", input=f"{kept}040000 tree {tree}\tkeys\n")
    bare.git("update-ref", NOTES + timeline(shared), bare.git("commit-tree", "-m", "x", notes))
    colleague.run("envlog", "fetch", check=True)
    done = colleague.run("envlog", "show", newest(shared), "--", ".env")
    assert done.status == 128
    assert "authentication failed" in done.err
    output = json.loads(colleague.run("envlog", "show", newest(shared), "--json", check=True).out)
    assert output["trusted"] is False


@pytest.mark.full
def test_unsigned_list_gets_no_key(shared: Repo) -> None:
    state = shared.path / ".git/envhist/recipients"
    state.write_text(f"{make_identity()[0].recipient.text} evil\n{state.read_text()}")
    before = shared.git("rev-parse", f"{NOTES}{timeline(shared)}:keys")
    shared.write(".env", "KEY=hunter3-and-more\n")
    shared.run("envlog", "capture", check=True)
    done = shared.run("envlog", "push", check=True)
    assert "no key is wrapped" in done.err
    assert shared.git("rev-parse", f"{NOTES}{timeline(shared)}:keys") == before
    shared.run("envlog", "key", "recipients", "reset", check=True)
    assert json.loads(shared.run("envlog", "key", "recipients", "--json", check=True).out) == []


@pytest.mark.parametrize("variable", ["CLAUDECODE", "GIT_ENVHIST_UNATTENDED"])
@pytest.mark.parametrize(
    "words", [("recipients", "add", "age1"), ("recipients", "reset"), ("export",), ("import", "-")]
)
def test_agent_changes_no_recipient_and_exports_or_imports_no_key(
    repo: Repo, variable: str, words: tuple[str, ...]
) -> None:
    repo.env[variable] = "1"
    done = repo.run("envlog", "key", *words)
    assert done.status == 3
    assert "hooks and agents may not " in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("add", "age1mistyped"),
        ("add", "missing.pub"),
        ("add",),
        ("remove", "nobody"),
        ("list", "x"),
        ("sell",),
    ],
)
def test_malformed_recipient_changes_nothing(repo: Repo, words: tuple[str, ...]) -> None:
    done = repo.run("envlog", "key", "recipients", *words)
    assert done.status in (128, 129)
    assert "hint: " in done.err
    assert not os.path.exists(repo.path / ".git/envhist/recipients")


def test_comment_cannot_add_a_second_recipient(repo: Repo) -> None:
    first, second = (make_identity()[0].recipient.text for _ in range(2))
    for between in ("\n", "\r\n", "\u2028", "\x85", "\x0b"):
        repo.run("envlog", "key", "recipients", "add", f"{first} me{between}{second} you", check=True)
        output = json.loads(repo.run("envlog", "key", "recipients", "--json", check=True).out)
        assert [one["recipient"] for one in output] == [first]


def test_identity_is_created_once_and_private(repo: Repo) -> None:
    first = public_key(repo)
    assert first.startswith("age1")
    assert public_key(repo) == first
    assert own(repo).stat().st_mode & 0o777 == 0o600
    own(repo).write_text("damaged\n")
    assert repo.run("envlog", "key", "identity").status == 128
    assert own(repo).read_text() == "damaged\n"
