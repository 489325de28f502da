"""Keys stored only in the user's configuration home, and renewed keys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.retention.test_purge import objects
from tests.secrets.test_unsigned_snapshots import ref_of, trusted
from tests.support.repository import Repo

SECRET = "API_KEY=hunter2-and-more\n"


def keys_in(place: Path) -> list[str]:
    return (
        sorted(path.name for path in place.iterdir() if len(path.name) in (12, 32)) if place.is_dir() else []
    )


def in_repository(repo: Repo) -> list[str]:
    return keys_in(repo.path / ".git/envhist/keys")


def in_home(repo: Repo) -> list[str]:
    return keys_in(Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys")


def current(repo: Repo) -> str:
    output = json.loads(repo.run("envlog", "key", "--json", check=True).out)
    return next(str(one["id"]) for one in output if one["current"])


@pytest.fixture
def home(repo: Repo) -> Repo:
    repo.git("config", "envhist.keyIn", "home")
    repo.write(".env", SECRET)
    return repo


def test_key_in_home_is_in_no_copy_of_the_directory(home: Repo, tmp_path: Path) -> None:
    first = home.run("envlog", "capture", "one", check=True)
    assert "envhist.keyIn" not in first.out
    assert in_repository(home) == []
    assert in_home(home) == [current(home)]
    secret = (Path(home.env["XDG_CONFIG_HOME"]) / "git-envhist/keys" / current(home)).read_bytes().split()[2]
    for path in (home.path / ".git").rglob("*"):
        assert not path.is_file() or secret[:64] not in path.read_bytes()
    shutil.copytree(home.path, tmp_path / "copy", symlinks=True)
    copy = Repo(tmp_path / "copy", {**home.env, "XDG_CONFIG_HOME": str(tmp_path / "another")})
    assert copy.run("envlog", "show", "@:.env").status == 128
    assert home.run("envlog", "show", "@:.env", check=True).out == SECRET


def test_key_in_home_serves_captures_restores_and_signatures(home: Repo) -> None:
    capture(home, "one")
    made = current(home)
    home.write(".env", "changed\n")
    capture(home, "two")
    assert current(home) == made
    assert trusted(home, "@~1")
    home.run("envrestore", "@~1", "--", ".env", check=True)
    assert home.read(".env") == SECRET.encode()
    assert in_repository(home) == []


def test_keys_are_moved_to_the_configuration_home_by_the_next_capture(repo: Repo) -> None:
    repo.write(".env", SECRET)
    hint = repo.run("envlog", "capture", "one", check=True)
    assert "git config envhist.keyIn home" in hint.out
    made = current(repo)
    assert in_repository(repo) == in_home(repo) == [made]
    repo.git("config", "envhist.keyIn", "home")
    shutil.rmtree(Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys")
    repo.write(".env", "changed\n")
    capture(repo, "two")
    assert in_repository(repo) == []
    assert in_home(repo) == [made]
    assert repo.run("envlog", "show", "@~1:.env", check=True).out == SECRET


def test_unknown_place_for_keys_is_warned_of_and_ignored(repo: Repo) -> None:
    repo.git("config", "envhist.keyIn", "hmoe")
    assert "'hmoe'" in repo.run("envlog", "capture", "one", check=True).err
    assert len(in_repository(repo)) == 1


def test_uninstall_with_history_removes_a_key_in_home(home: Repo) -> None:
    capture(home, "one")
    assert in_home(home)
    home.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert in_home(home) == []


@pytest.mark.parametrize("place", ["both", "home"])
def test_new_key_seals_and_signs_from_now_on(repo: Repo, place: str) -> None:
    repo.git("config", "envhist.keyIn", place)
    repo.write(".env", SECRET)
    capture(repo, "one")
    before = current(repo)
    output = json.loads(repo.run("envlog", "key", "new", "--json", check=True).out)
    assert output["current"] is True
    assert current(repo) == output["id"] != before
    repo.write(".env", "changed\n")
    second = capture(repo, "two")
    assert f"key {output['id']}\n".encode() in repo.run_git("cat-file", "blob", f"{second}:.env").stdout
    assert f"Env-Key: {output['id']}" in repo.git("show", "-s", "--format=%B", second)
    assert trusted(repo)
    assert trusted(repo, "@~1")
    assert repo.run("envlog", "show", "@~1:.env", check=True).out == SECRET


def test_new_key_belongs_to_the_same_repository(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    repo.run("envlog", "key", "new", check=True)
    homes = Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"
    materials = [path.read_bytes().split()[2] for path in homes.iterdir() if len(path.name) == 32]
    assert len(materials) == 2
    assert len({material[128:] for material in materials}) == 1


def objects_with(repo: Repo, words: bytes) -> list[str]:
    return [oid for oid, data in objects(repo.path / ".git").items() if words in data]


@pytest.fixture
def aged(repo: Repo) -> Repo:
    """Create a history with everything that is sealed: files, facts, attachments, staged content, also in the trash."""
    repo.write(".env", SECRET)
    repo.write("deep/er/prod.env", "B=1\n")
    repo.write("plain.txt", "x")
    repo.git("add", "-f", ".env")
    repo.write("../talk.txt", "words")
    repo.run(
        "envlog",
        "capture",
        "one",
        "--attach",
        str(repo.path.parent / "talk.txt"),
        "--name",
        "first",
        check=True,
    )
    repo.write(".env", "API_KEY=second\n")
    capture(repo, "two")
    repo.write(".env", "API_KEY=third\nOTHER=1\n")
    repo.write("added/.env", "C=1\n")
    capture(repo, "three")
    repo.run("envlog", "drop", "@~1", check=True)
    return repo


def test_only_the_new_key_opens_a_resealed_history(aged: Repo) -> None:
    before = current(aged)
    ids = [one["id"] for one in json.loads(aged.run("envlog", "--json", check=True).out)]
    shown = [aged.run("envlog", "show", f"{one}:.env", check=True).out for one in ids]
    assert objects_with(aged, f"key {before}\n".encode())
    output = json.loads(aged.run("envlog", "key", "new", "--reseal", "--json", check=True).out)
    assert (output["snapshots"], output["left"]) == (3, 0)
    made = current(aged)
    assert objects_with(aged, f"key {before}\n".encode()) == []
    assert objects_with(aged, f"Env-Key: {before}\n".encode()) == []
    for place in (aged.path / ".git/envhist/keys", Path(aged.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        (place / before).unlink()
    assert [one["id"] for one in json.loads(aged.run("envlog", "--json", check=True).out)] == ids
    assert [aged.run("envlog", "show", f"{one}:.env", check=True).out for one in ids] == shown
    assert all(trusted(aged, one) for one in ids)
    aged.run("envlog", "undrop", "--all", check=True)
    assert aged.run("envlog", "show", "@~1:.env", check=True).out == "API_KEY=second\n"
    assert aged.run("envlog", "show", "@:added/.env", check=True).out == "C=1\n"
    assert aged.run("envlog", "show", "first:deep/er/prod.env", check=True).out == "B=1\n"
    aged.run("envrestore", "--attachments", "../talks", "first", check=True)
    assert "OTHER" in aged.run("envlog", "show", "@", check=True).out
    aged.run("envlog", "fsck", check=True)
    assert aged.run("envdiff", "@", check=True).out == ""
    aged.run("envrestore", "first", check=True)
    assert aged.read(".env") == SECRET.encode()
    assert made == current(aged)


def test_resealing_again_after_a_capture_with_old_content_leaves_none(aged: Repo) -> None:
    before = current(aged)
    aged.run("envlog", "key", "new", check=True)
    aged.write("plain.txt", "y")
    capture(aged, "with files that the older key sealed")
    assert objects_with(aged, f"key {before}\n".encode())
    aged.run("envlog", "key", "new", "--reseal", check=True)
    assert objects_with(aged, f"key {before}\n".encode()) == []


def test_reseal_keeps_content_that_no_key_opens(aged: Repo) -> None:
    before = current(aged)
    for place in (aged.path / ".git/envhist/keys", Path(aged.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        (place / before).unlink()
    tip = aged.git("rev-parse", ref_of(aged))
    output = json.loads(aged.run("envlog", "key", "new", "--reseal", "--json", check=True).out)
    assert output["snapshots"] == 0
    assert aged.git("rev-parse", ref_of(aged)) == tip
