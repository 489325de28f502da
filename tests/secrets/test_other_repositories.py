"""Keys of the user's other repositories are not used until they are imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.secrets.test_unsigned_snapshots import ref_of, trusted
from tests.support.repository import Repo, make_repo


@pytest.fixture
def replayed(repo: Repo, tmp_path: Path) -> tuple[Repo, Repo]:
    """Create repository A, and B of the same user with a timeline moved to the newest snapshot of A."""
    repo.write("app.py", "of A")
    repo.write(".env", "A=1\n")
    capture(repo, "of A")
    other = make_repo(tmp_path / "B")
    other.write("app.py", "of B")
    capture(other, "of B")
    other.git("fetch", "-q", str(repo.path), f"+{ref_of(repo)}:{ref_of(other)}")
    return repo, other


def keys_of(repo: Repo) -> set[str]:
    return {path.name for path in (repo.path / ".git/envhist/keys").iterdir() if len(path.name) == 32}


def test_snapshot_of_another_repository_is_unsigned_and_its_key_is_not_copied(
    replayed: tuple[Repo, Repo],
) -> None:
    source, target = replayed
    before = keys_of(target)
    assert not trusted(target)
    assert target.run("envlog", "show", "@:.env").status == 128
    assert target.run("envrestore", "@").status != 0
    assert target.read("app.py") == b"of B"
    assert keys_of(target) == before
    assert not keys_of(source) & before


def test_snapshot_of_another_repository_is_trusted_after_an_import_of_its_key(
    replayed: tuple[Repo, Repo],
) -> None:
    source, target = replayed
    done = target.run("envlog", "show", "@:.env")
    command = done.err.partition("hint: ")[2]
    assert "git envlog key import" in command
    place = json.loads(source.run("envlog", "key", "--json", check=True).out)[0]["places"][1]
    assert place in command
    target.run("envlog", "key", "import", place, check=True)
    assert trusted(target)
    assert target.run("envlog", "show", "@:.env", check=True).out == "A=1\n"
