"""The facts about files of each package manager agree with the list that the manager itself prints."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.probes import system_packages
from tests.probes import real
from tests.support.repository import Repo, make_repo

KEPT = [name for name in real.names() if (real.BYTES / name / "tree").is_dir()]
MACHINE = dict(os.environ)


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> real.Said:
    """A snapshot of the files of all package managers, in one directory each."""
    repo = make_repo(tmp_path_factory.mktemp("managers") / "repo", commit=False)
    for name in KEPT:
        real.fill(real.BYTES / name / "tree", repo.path / name)
    EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("all of them")
    return real.told(repo)


@pytest.mark.parametrize("name", KEPT)
def test_facts_agree_with_the_package_manager(name: str, all_of_them: real.Said) -> None:
    said = real.parse((real.BYTES / name / "says").read_text(), name + "/")
    assert said
    assert {one for one in all_of_them if one[0].startswith(name + "/")} == said


def test_every_recipe_has_stored_output() -> None:
    assert real.names() == KEPT
    assert all((real.BYTES / name / "version").read_text().strip() for name in KEPT)


@pytest.mark.parametrize("name", ["gem", "composer", "rpm", "cargo-install"])
def test_facts_agree_with_an_installed_package_manager(name: str, tmp_path: Path) -> None:
    try:
        place, said, _ = real.make(name, tmp_path / "made", MACHINE)
    except (real.NotHere, real.Broken) as why:
        pytest.skip(f"{name} cannot be run here: {why}")
    repo = make_repo(place, commit=False)
    EnvHistory.open(str(place), workers="here", one_command=True).capture("what it made")
    assert real.told(repo) == real.parse(said)


@pytest.fixture
def program(tmp_path: Path) -> bytes:
    real.fill(real.BYTES / "go/tree", tmp_path / "go")
    return (tmp_path / "go/bin/work").read_bytes()


def test_modules_of_a_large_go_program_are_listed(repo: Repo, program: bytes) -> None:
    rest = os.urandom(9 << 20)
    repo.write("bin/large", rest + b"\xff Go buildinf:, a text" + program, mode=0o755)
    repo.write("bin/no-program", program, mode=0o644)
    repo.write("lib/elsewhere", program, mode=0o755)
    EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("a large program")
    assert real.told(repo) == {
        ("bin/large", "(devel) go1.19.8", False),
        ("bin/large//example.com/Base/lib", "v1.2.0", True),
        ("bin/large//example.com/top", "v0.3.0", True),
    }


def test_names_with_slashes_are_shown_with_their_place(repo: Repo) -> None:
    EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("before")
    real.fill(real.BYTES / "composer/tree/vendor", repo.path / "web/vendor")
    real.fill(real.BYTES / "go/tree/vendor", repo.path / "api/vendor")
    real.fill(real.BYTES / "rpm/tree/rootfs", repo.path / "rootfs")
    EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("after")
    branch = (real.BYTES / "composer/says").read_text().split()[2]
    shown = repo.run("envdiff", "@~1", "@", "--only=packages", check=True).out
    assert shown == (
        "go        api/vendor     + example.com/Base/lib v1.2.0   + example.com/top v0.3.0\n"
        f"composer  web/vendor     + some-vendor/branch dev-main {branch}   + some-vendor/small v2.1.0\n"
        "rootfs    rootfs         + lib.i686 1   + small 1.5   + small-tool 2.0~rc1\n"
    )
    story = repo.run("envlog", "--format=%(story)", "-1", check=True).out
    assert story.startswith(
        "go: +example.com/Base/lib v1.2.0, +example.com/top v0.3.0 · composer: +some-vendor/branch dev-main "
    )
    shown = repo.run("envdiff", "@~1", "@", "--only=packages", "--", "rootfs", check=True).out
    assert shown.startswith("rootfs ")


def test_only_changed_packages_are_shown(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    place = "vendor/bundle/ruby/3.1.0/specifications"
    for name in ("rake-13.0.6", "rack-3.0.0", "old-1.0"):
        repo.write(f"{place}/{name}.gemspec", "x")
    history.capture("before")
    (repo.path / place / "rack-3.0.0.gemspec").rename(repo.path / place / "rack-3.1.0.gemspec")
    (repo.path / place / "old-1.0.gemspec").unlink()
    history.capture("after")
    shown = repo.run("envdiff", "@~1", "@", "--only=packages", check=True).out
    assert shown == "gem       vendor/bundle  ~ rack 3.0.0 → 3.1.0   - old 1.0\n"


def test_rpm_database_is_read_with_its_log_and_left_unchanged(tmp_path: Path) -> None:
    root = tmp_path / "machine"
    real.fill(real.BYTES / "rpm/tree/rootfs", root)
    said = {
        (key.removeprefix("rootfs/"), value)
        for key, value, _ in real.parse((real.BYTES / "rpm/says").read_text())
    }
    there = sorted(root.rglob("*"))
    assert {(fact.key, fact.value) for fact in system_packages.facts_of(str(root))} == said
    assert sorted(root.rglob("*")) == there
    stamp = system_packages.stamp(str(root))
    with closing(sqlite3.connect(root / "var/lib/rpm/rpmdb.sqlite")) as database:
        database.execute("PRAGMA journal_mode = wal")
        headers = [header for (header,) in database.execute("SELECT blob FROM Packages")]
        header = next(header for header in headers if b"small-tool" in header)
        # While this connection is open, the row is only in the log.
        database.execute(
            "INSERT INTO Packages(blob) VALUES (?)", (header.replace(b"small-tool", b"other-tool"),)
        )
        database.commit()
        there = sorted(root.rglob("*"))
        found = {(fact.key, fact.value) for fact in system_packages.facts_of(str(root))}
        assert found == {*said, ("other-tool", "2:2.0~rc1-1.fc40")}
        assert system_packages.stamp(str(root)) != stamp
        assert sorted(root.rglob("*")) == there


def test_large_rpm_database_is_read(repo: Repo) -> None:
    real.fill(real.BYTES / "rpm/tree/rootfs", repo.path / "rootfs")
    with closing(sqlite3.connect(repo.path / "rootfs/var/lib/rpm/rpmdb.sqlite")) as database:
        database.execute("CREATE TABLE filler AS SELECT randomblob(9 << 20)")
        database.commit()
    EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("a large database")
    assert real.told(repo) == real.parse((real.BYTES / "rpm/says").read_text())
    # The sqlite probe does not list rpm's database.
    timeline = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").strip()
    assert "rpmdb" not in repo.git("show", f"{timeline}:.envhist/facts/sqlite")
