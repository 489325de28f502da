"""Names that the target file system cannot store are refused before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.platform import WITHOUT
from git_envhist.restore.guards import NameRules, clashes, name_problem, name_rules
from tests.support.mounts import Room, private_mounts
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

COMPOSED, DECOMPOSED = "caf\u00e9".encode(), "cafe\u0301".encode()


@pytest.fixture
def room() -> Iterator[Room]:
    with private_mounts() as there:
        yield there


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


@pytest.fixture
def pairs(repo: Repo) -> tuple[Repo, str]:
    """Return a snapshot with names that some file systems treat as equal; the files are removed."""
    for name in (b"Name", b"name", b"deep/er/" + COMPOSED, b"deep/er/" + DECOMPOSED):
        repo.write(name, name)
    first = capture(repo, "pairs")
    for name in (b"Name", b"name"):
        (repo.path / os.fsdecode(name)).unlink()
    for name in (COMPOSED, DECOMPOSED):
        (repo.path / "deep/er" / os.fsdecode(name)).unlink()
    (repo.path / "deep/er").rmdir()
    return repo, first


@pytest.mark.parametrize(
    ("lack", "one", "other"),
    [
        ("case", "'Name'", "'name'"),
        ("forms", f"'deep/er/{DECOMPOSED.decode()}'", f"'deep/er/{COMPOSED.decode()}'"),
    ],
)
@pytest.mark.parametrize("words", [("-n",), (), ("--to", "../there"), ("--to", "../there", "-n")])
def test_names_that_are_equal_on_the_file_system_are_refused_in_pairs(
    pairs: tuple[Repo, str], lack: str, one: str, other: str, words: tuple[str, ...]
) -> None:
    repo, first = pairs
    before = listing(repo.path, top=True)
    refs = repo.git("for-each-ref")
    refused = repo.run("envrestore", *words, first, env={WITHOUT: lack})
    assert refused.status == 3, refused.out
    assert f"{one} and {other} are the same name there" in refused.err
    assert (listing(repo.path, top=True), repo.git("for-each-ref")) == (before, refs)
    assert not (repo.path.parent / "there").exists()


def test_fork_with_equal_names_is_refused_and_leaves_nothing(pairs: tuple[Repo, str]) -> None:
    repo, first = pairs
    refused = repo.run("envlog", "fork", "../there", first, env={WITHOUT: "case"})
    assert refused.status == 3
    assert "'Name' and 'name' are the same name there" in refused.err
    assert not (repo.path.parent / "there").exists()
    assert len(repo.git("worktree", "list").splitlines()) == 1


def test_one_name_of_each_pair_can_be_excluded(pairs: tuple[Repo, str]) -> None:
    repo, first = pairs
    repo.run("envrestore", first, "--", ".", ":!name", env={WITHOUT: "case"}, check=True)
    assert (repo.path / "Name").exists()
    assert not (repo.path / "name").exists()
    # The restored name now conflicts with the other one.
    refused = repo.run("envrestore", first, env={WITHOUT: "case"})
    assert (refused.status, "'Name' and 'name'" in refused.err) == (3, True)


def test_name_may_change_only_its_case(repo: Repo) -> None:
    repo.write("Readme", b"1")
    first = capture(repo, "one")
    (repo.path / "Readme").rename(repo.path / "README")
    repo.run("envrestore", first, env={WITHOUT: "case"}, check=True)
    assert sorted(path.name for path in repo.path.iterdir()) == [".git", "Readme", "app.py"]


def test_reserved_names_are_refused_only_on_file_systems_that_reserve_them(repo: Repo) -> None:
    for name in ("con", "Aux.txt", "a:b", "dot.", "fine"):
        repo.write(f"d/{name}", b"1")
    first = capture(repo, "one")
    refused = repo.run("envrestore", "--to", "../there", first, env={WITHOUT: "names"})
    assert refused.status == 3
    for name in ("'d/con' is a device", "'d/Aux.txt' is a device", "'d/a:b' has", "'d/dot.' has"):
        assert name in refused.err
    assert "fine" not in refused.err
    repo.run("envrestore", "--to", "../there", first, check=True)
    assert sorted(os.listdir(repo.path.parent / "there/d")) == ["Aux.txt", "a:b", "con", "dot.", "fine"]


@pytest.fixture
def shown(tmp_path: Path) -> Repo:
    """Return a working tree with its repository elsewhere, so that it can be mounted through another file system."""
    repo = make_repo(tmp_path / "behind")
    repo.git("init", "-q", "--separate-git-dir", str(tmp_path / "repository"))
    (tmp_path / "place").mkdir()
    return repo


def through(repo: Repo, room: Room, manner: str) -> Repo:
    place = repo.path.parent / "place"
    room.serve(manner, repo.path, place)
    return Repo(place, repo.env)


def test_file_system_that_folds_case_is_recognized(shown: Repo, room: Room) -> None:
    shown.write("Name", b"1")
    shown.write("name", b"2")
    first = capture(shown, "pair")
    for name in ("Name", "name"):
        (shown.path / name).unlink()
    place = through(shown, room, "folding")
    for words in (("-n",), ()):
        refused = place.run("envrestore", *words, first, prefix=room.inside(place.path))
        assert refused.status == 3, refused.err
        assert "'Name' and 'name' are the same name there" in refused.err


def test_name_that_is_too_long_is_refused(shown: Repo, room: Room) -> None:
    shown.write("d/" + "n" * 21, b"1")
    first = capture(shown, "long")
    (shown.path / "d" / ("n" * 21)).unlink()
    place = through(shown, room, "short")
    refused = place.run("envrestore", "-n", first, prefix=room.inside(place.path))
    assert refused.status == 3, refused.err
    assert "is longer than 20 bytes" in refused.err


def test_path_longer_than_the_system_limit_is_restored(repo: Repo) -> None:
    here = os.open(repo.path, os.O_RDONLY)
    for _ in range(22):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=here), "wb") as file:
        file.write(b"deep down")
    first = capture(repo, "deep")
    os.unlink("file", dir_fd=here)
    repo.run("envrestore", first, check=True)
    with open(os.open("file", os.O_RDONLY, dir_fd=here), "rb") as file:
        assert file.read() == b"deep down"
    os.close(here)


def test_equality_of_names_depends_on_the_file_system() -> None:
    names = [b"A", b"a", COMPOSED, DECOMPOSED, b"\xff", b"\xfe", b"STRASSE", "stra\u00dfe".encode()]
    assert list(clashes(names, (), NameRules())) == []
    assert set(clashes(names, (), NameRules(folds_form=True))) == {(DECOMPOSED, COMPOSED)}
    assert list(clashes(names, (), NameRules(folds_case=True))) == [
        (b"A", b"a"),
        (b"STRASSE", "stra\u00dfe".encode()),
    ]
    assert list(clashes([b"new"], [b"NEW"], NameRules(folds_case=True))) == [(b"NEW", b"new")]
    assert name_problem(b"n" * 256, NameRules(longest=255)) is not None
    assert name_problem(b"console", NameRules(reserves=True)) is None


def test_ordinary_file_system_stores_every_name(tmp_path: Path) -> None:
    assert name_rules(os.fsencode(tmp_path), empty=True) == NameRules(longest=255)
    assert os.listdir(tmp_path) == []
    assert not NameRules(longest=255).is_narrow
    assert NameRules(longest=143).is_narrow
