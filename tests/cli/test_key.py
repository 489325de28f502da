"""`git envlog key` shows, exports and imports keys, and never prints the secret."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from git_envhist.secrets.key_text import write_key_text
from git_envhist.secrets.keys import Key, KeyRing
from tests.support.repository import Repo

KNOWN = Key.of(bytes(range(64)))


@pytest.fixture
def ring(repo: Repo, hermetic: Path) -> KeyRing:
    """Return the key ring that the program uses."""
    return KeyRing(str(repo.path / ".git" / "envhist"), str(hermetic / "config"))


def test_key_without_a_key_creates_none(repo: Repo, ring: KeyRing) -> None:
    done = repo.run("envlog", "key", check=True)
    assert done.out == "no key yet: the first capture creates one\n"
    assert json.loads(repo.run("envlog", "key", "show", "--json", check=True).out) == []
    assert ring.current_id() is None


def test_key_lists_places_and_never_the_secret(repo: Repo, ring: KeyRing) -> None:
    key = ring.current()
    ring.import_(write_key_text(KNOWN))
    done = repo.run("envlog", "key", "show", check=True)
    assert f"{key.id}  seals new files\n" in done.out
    assert f"{KNOWN.id}  opens older files\n" in done.out
    for place in ring.places:
        assert f"  {place.path(key.id)}\n" in done.out
    assert "git envlog key export" in done.out
    for form in (key.secret.hex(), write_key_text(key).rpartition("-")[2]):
        assert form not in done.out + done.err + repo.run("envlog", "key", "--json", check=True).out


def test_key_as_json_is_equal(repo: Repo, ring: KeyRing) -> None:
    key = ring.current()
    answer = json.loads(repo.run("envlog", "key", "--json", check=True).out)
    places = [place.path(key.id) for place in ring.places]
    assert answer == [{"schema": 1, "id": key.id, "current": True, "places": places}]


def test_exported_key_is_one_line_with_a_warning(repo: Repo, ring: KeyRing) -> None:
    key = ring.current()
    done = repo.run("envlog", "key", "export", check=True)
    assert done.out == write_key_text(key) + "\n"
    assert done.err.startswith("warning: anyone with this line can open every secret file")
    assert repo.run("envlog", "key", "export", key.id, check=True).out == done.out
    output = json.loads(repo.run("envlog", "key", "export", "--json", check=True).out)
    assert output == {"schema": 1, "id": key.id, "text": write_key_text(key)}


@pytest.mark.parametrize("words", [("export",), ("export", "0123456789ab")])
def test_missing_key_cannot_be_exported(repo: Repo, words: tuple[str, ...]) -> None:
    done = repo.run("envlog", "key", *words)
    assert (done.status, done.out) == (128, "")
    assert done.err.startswith("error: there is no key")
    assert "hint: " in done.err


@pytest.mark.parametrize("way", ["file", "-", "stdin"])
def test_key_is_imported_from_file_or_standard_input(repo: Repo, ring: KeyRing, way: str) -> None:
    text = write_key_text(KNOWN) + "\n"
    backup = repo.write("../backup.txt", text)
    words = {"file": (str(backup),), "-": ("-",), "stdin": ()}[way]
    done = repo.run("envlog", "key", "import", *words, input=text, check=True)
    assert (
        done.out == f"imported the key {KNOWN.id}: it opens the files that it sealed, and seals new files\n"
    )
    assert ring.current() == KNOWN


def test_imported_key_seals_new_files_with_use(repo: Repo, ring: KeyRing) -> None:
    own = ring.current()
    text = write_key_text(KNOWN)
    done = repo.run("envlog", "key", "import", "-", input=text, check=True)
    assert done.out.endswith(f"new files are sealed with {own.id}\n")
    output = json.loads(repo.run("envlog", "key", "import", "--use", "--json", input=text, check=True).out)
    assert output["current"] is True
    assert ring.current_id() == KNOWN.id


def test_mistyped_key_is_an_error_and_changes_nothing(repo: Repo, ring: KeyRing) -> None:
    done = repo.run("envlog", "key", "import", input=write_key_text(KNOWN)[:-2] + "aa")
    assert done.status == 128
    assert done.err.startswith("error: the checksum of the exported key")
    assert ring.all() == ()


def test_missing_key_file_is_an_error(repo: Repo) -> None:
    done = repo.run("envlog", "key", "import", "nowhere.txt")
    assert done.status == 128
    said, hint = done.err.splitlines()
    assert said == "error: cannot read 'nowhere.txt': No such file or directory"
    assert hint.startswith("hint: git envlog key import <file>")


@pytest.mark.parametrize(
    "words", [("shwo",), ("show", "x"), ("export", "--use"), ("import", "a", "b"), ("--", "a")]
)
def test_unknown_key_action_is_a_usage_error(repo: Repo, words: tuple[str, ...]) -> None:
    done = repo.run("envlog", "key", *words)
    assert done.status == 129
    assert done.err.startswith("error: ")


def test_key_file_readable_by_others_is_reported(repo: Repo, ring: KeyRing) -> None:
    path = ring.ours.path(ring.current().id)
    os.chmod(path, 0o644)
    done = repo.run("envlog", "key", check=True)
    assert done.err == f"warning: the key file '{path}' was readable by other users: fixed\n"
    assert os.stat(path).st_mode & 0o777 == 0o600


WORDS = "four words are enough"


def test_key_with_passphrase_opens_only_with_it(repo: Repo, ring: KeyRing, tmp_path: Path) -> None:
    key = ring.current()
    (tmp_path / "words").write_text(WORDS + "\nmore")
    words = ("--passphrase-file", str(tmp_path / "words"))
    done = repo.run("envlog", "key", "export", *words, check=True)
    line = done.out.strip()
    assert line.startswith(f"envhist-key-w1-{key.id}-")
    assert write_key_text(key).rpartition("-")[2] not in line
    assert done.err == ""
    other = KeyRing(str(tmp_path / "other"), str(tmp_path / "other-config"))
    theirs = {**repo.env, "XDG_CONFIG_HOME": str(tmp_path / "other-config")}
    repo.git("init", "-q", str(tmp_path / "theirs"))
    there = Repo(tmp_path / "theirs", theirs)
    (tmp_path / "wrong").write_text("other words than these\n")
    done = there.run("envlog", "key", "import", "-", "--passphrase-file", str(tmp_path / "wrong"), input=line)
    assert done.status == 128
    assert f"authentication failed: wrong passphrase for the wrapped key '{key.id}'" in done.err
    done = there.run("envlog", "key", "import", "-", *words, input=line[:-3] + "aaa")
    assert "checksum" in done.err
    assert other.all() == ()
    there.run(
        "envlog", "key", "import", "-", *words, input=f"  {line[:50]}\n {line[50:].upper()}\n", check=True
    )
    assert there.run("envlog", "key", "export", check=True).out == write_key_text(key) + "\n"


def test_passphrase_is_asked_on_a_terminal_only(repo: Repo, ring: KeyRing, tmp_path: Path) -> None:
    ring.current()
    done = repo.run("envlog", "key", "export", "--passphrase", prefix=("setsid",))
    assert done.status == 129
    assert "--passphrase-file" in done.err
    (tmp_path / "words").write_text("short\n")
    done = repo.run("envlog", "key", "export", "--passphrase-file", str(tmp_path / "words"))
    assert done.status == 128
    assert done.out == ""
    assert repo.run("envlog", "key", "show", "--passphrase").status == 129
