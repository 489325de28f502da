"""Files that are hard links into a store outside the project: they are restored, and the store is never written
to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.real.tools import Project, fetch, find
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full

Install = Callable[[Project, Path], None]


def copied_as_links(project: Project, store: Path) -> None:
    """Write files as such tools do: one copy in the store, links to it; two packages share a licence."""
    (store / "tool").mkdir(parents=True)
    for name in ("run.js", "LICENSE"):
        (store / "tool" / name).write_text(f"{name}\n" * 100)
    for package in ("one", "two"):
        project.call("mkdir", "-p", f"node_modules/{package}")
        project.call("cp", "-al", store / "tool/.", f"node_modules/{package}")


def by_pnpm(project: Project, store: Path) -> None:
    npm = find("npm")
    tool = store.parent / "pnpm"
    tool.mkdir()
    fetch(tool, project.variables, npm, "install", "--silent", "--prefix", tool, "pnpm@9")
    dependencies = '{"name": "work", "dependencies": {"supports-color": "7.2.0", "has-flag": "3.0.0"}}\n'
    project.repo.write("package.json", dependencies)
    fetch(
        project.path, project.variables, tool / "node_modules/.bin/pnpm", "install", "--silent",
        "--store-dir", store, "--package-import-method", "hardlink",
    )  # fmt: skip


def by_uv(project: Project, store: Path) -> None:
    tool = store.parent / "uv"
    fetch(store.parent, project.variables, sys.executable, "-m", "venv", tool)
    fetch(store.parent, project.variables, tool / "bin/pip", "install", "-q", "uv")
    project.variables = {**project.variables, "UV_CACHE_DIR": str(store), "UV_LINK_MODE": "hardlink"}
    fetch(project.path, project.variables, tool / "bin/uv", "-q", "venv", "--python", sys.executable)
    # Give the tool the wheels that pip would download: only pip knows the package index here.
    wheels = store.parent / "wheels"
    fetch(
        store.parent,
        project.variables,
        tool / "bin/pip",
        "download",
        "-q",
        "-d",
        wheels,
        "sqlparse",
        "asgiref",
    )
    fetch(
        project.path, project.variables, tool / "bin/uv", "-q", "pip", "install",
        "--no-index", "--find-links", wheels, "sqlparse", "asgiref",
    )  # fmt: skip


def linked_files(project: Project) -> list[Path]:
    """Return the project's files that also have a name outside it."""
    found = project.call(
        "find", ".", "-path", "./.git", "-prune", "-o", "-type", "f", "-links", "+1", "-print0"
    )
    return sorted(project.path / os.fsdecode(name) for name in found.stdout.split(b"\0")[:-1])


def inodes(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in paths}


@pytest.fixture(scope="module", params=[copied_as_links, by_pnpm, by_uv], ids=["links", "pnpm", "uv"])
def once(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]
) -> Path:
    """Return a directory with a project and a store, neither of which a test may change."""
    install: Install = request.param
    above = tmp_path_factory.mktemp("once")
    repo = make_repo(above / "project")
    repo.write(".gitignore", "node_modules/\n.venv/\n")
    repo.commit("begin")
    (above / "store").mkdir()
    install(Project(repo, above / "model", variables), above / "store")
    return above


@pytest.fixture
def installed(once: Path, tmp_path: Path, variables: dict[str, str]) -> tuple[Project, Path]:
    """Return a copy of both that was captured, with hard links kept."""
    subprocess.run(["cp", "-a", once / "project", once / "store", tmp_path], check=True)
    project = Project(Repo(tmp_path / "project", dict(os.environ)), tmp_path / "model", variables)
    project.keep()
    return project, tmp_path / "store"


def test_files_linked_into_a_store_are_restored_without_changing_the_store(
    installed: tuple[Project, Path],
) -> None:
    project, store = installed
    linked = linked_files(project)
    edited, chmodded, removed, *others = linked
    assert others
    # Tools write into a store through the project in two ways: they edit a file or change its mode.
    edited.write_bytes(b"edited in place")
    chmodded.chmod(0o600)
    removed.unlink()
    for path in others[::3]:
        path.unlink()
        path.write_bytes(b"another")
    kept, ruined = inodes(others[1::3]), listing(store)
    before = listing(project.path)
    project.repo.run("envrestore", "working", check=True)
    assert project.differences() == ()
    assert listing(store) == ruined
    # Unchanged files are still the store's own.
    assert inodes(kept) == kept
    project.repo.run("envrestore", "--undo", check=True)
    assert listing(store) == ruined
    assert listing(project.path) == before


def test_restored_links_share_files_with_each_other_and_not_with_the_store(
    installed: tuple[Project, Path],
) -> None:
    project, store = installed
    before, place = listing(store), listing(project.path)
    for name in ("node_modules", ".venv"):
        shutil.rmtree(project.path / name, ignore_errors=True)
    project.repo.run("envrestore", "working", check=True)
    assert listing(project.path) == place
    assert listing(store) == before
    # Now the files belong to the project alone: writing to them does not change the store.
    for path in linked_files(project):
        path.write_bytes(b"written")
    assert listing(store) == before
