"""Two versions of a package conflict as one unit, in every layout; one version is reverted whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import EnvPath
from git_envhist.restore.merge_pairs import RevertConflicts
from git_envhist.restore.package_units import node_unit, python_unit
from tests.support.oracle import listing
from tests.support.repository import Repo

SITE = ".venv/lib/python3.11/site-packages"
MODULES = "node_modules"


def clean(repo: Repo, *patterns: str) -> None:
    for pattern in patterns:
        for old in repo.path.glob(pattern):
            old.unlink() if old.is_symlink() or old.is_file() else shutil.rmtree(old)


def link(repo: Repo, path: str, target: str) -> None:
    place = repo.path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def listed_egg_info(repo: Repo, version: str) -> str:
    clean(repo, f"{SITE}/left-*")
    info = f"{SITE}/left-{version}-py3.11.egg-info"
    repo.write(f"{info}/PKG-INFO", f"Name: left\nVersion: {version}\n")
    repo.write(f"{info}/installed-files.txt", "../left_module.py\n../../../../bin/left\nPKG-INFO\n")
    repo.write(f"{SITE}/left_module.py", version)
    repo.write(".venv/bin/left", f"#!python {version}\n")
    return f"{SITE}/left"


def egg_info(repo: Repo, version: str) -> str:
    clean(repo, f"{SITE}/left-*")
    info = f"{SITE}/left-{version}-py3.11.egg-info"
    repo.write(f"{info}/PKG-INFO", f"Name: left\nVersion: {version}\n")
    repo.write(f"{info}/top_level.txt", "left_module\n")
    repo.write(f"{SITE}/left_module/deep/file.py", version)
    return f"{SITE}/left"


def egg(repo: Repo, version: str) -> str:
    clean(repo, f"{SITE}/left-*")
    repo.write(f"{SITE}/left-{version}-py3.11.egg/EGG-INFO/PKG-INFO", f"Name: left\nVersion: {version}\n")
    repo.write(f"{SITE}/left-{version}-py3.11.egg/left_module/file.py", version)
    return f"{SITE}/left"


def egg_link(repo: Repo, version: str) -> str:
    repo.write(f"{SITE}/left.egg-link", f"/src/left-{version}\n.")
    repo.write(f"{SITE}/easy-install.pth", f"/src/left-{version}\n")
    return f"{SITE}/left"


def editable(repo: Repo, version: str) -> str:
    clean(repo, f"{SITE}/left-*", f"{SITE}/__editable__*")
    repo.write(f"{SITE}/left-{version}.dist-info/METADATA", f"Name: left\nVersion: {version}\n")
    repo.write(f"{SITE}/__editable__.left-{version}.pth", f"/src/{version}\n")
    return f"{SITE}/left"


def nested(repo: Repo, version: str) -> str:
    repo.write(f"{MODULES}/outer/package.json", '{"version": "1.0.0"}\n')
    repo.write(f"{MODULES}/outer/{MODULES}/left/package.json", f'{{"version": "{version}"}}\n')
    repo.write(f"{MODULES}/outer/{MODULES}/left/lib/index.js", f"// {version}\n")
    return f"{MODULES}/outer/{MODULES}/left"


def scoped(repo: Repo, version: str) -> str:
    repo.write(f"{MODULES}/@scope/left/package.json", f'{{"version": "{version}"}}\n')
    repo.write(f"{MODULES}/@scope/left/cli-{version}.js", f"// {version}\n")
    link(repo, f"{MODULES}/.bin/left", f"../@scope/left/cli-{version}.js")
    return f"{MODULES}/@scope/left"


def pnpm(repo: Repo, version: str) -> str:
    clean(repo, f"{MODULES}/.pnpm/left@*")
    inner = f".pnpm/left@{version}/node_modules/left"
    repo.write(f"{MODULES}/{inner}/package.json", f'{{"version": "{version}"}}\n')
    link(repo, f"{MODULES}/left", inner)
    return f"{MODULES}/left"


LAYOUTS = (listed_egg_info, egg_info, egg, egg_link, editable, nested, scoped, pnpm)


@pytest.mark.parametrize("install", LAYOUTS, ids=[layout.__name__ for layout in LAYOUTS])
def test_two_versions_conflict_and_one_version_is_reverted_whole(
    repo: Repo, install: Callable[[Repo, str], str]
) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    install(repo, "1.0")
    history.capture("one")
    first = listing(repo.path)
    install(repo, "2.0")
    history.capture("two")
    history.revert(":/two")
    assert contents(repo) == {path: one.sha256 or one.target for path, one in first.items()}
    history.undo()
    unit = install(repo, "3.0")
    before = listing(repo.path)
    with pytest.raises(RevertConflicts) as raised:
        history.revert(":/two")
    assert listing(repo.path) == before
    packages = [one.path for one in raised.value.conflicts if one.why == "the package changed on both sides"]
    assert packages == [unit.encode()]
    inside = (SITE.encode(), b".venv/bin", MODULES.encode())
    assert all(one.path in packages or not one.path.startswith(inside) for one in raised.value.conflicts)


def contents(repo: Repo) -> dict[bytes, str | bytes | None]:
    return {path: one.sha256 or one.target for path, one in listing(repo.path).items()}


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        (b"node_modules/left", b"node_modules/left"),
        (b"node_modules/left/a/b", b"node_modules/left"),
        (b"node_modules/@s/left/a", b"node_modules/@s/left"),
        (b"node_modules/a/node_modules/left/b", b"node_modules/a/node_modules/left"),
        (b"node_modules/.pnpm/left@1/node_modules/left/a", b"node_modules/.pnpm/left@1/node_modules/left"),
        (b"node_modules/.store/left-1/package/a", b"node_modules/.store/left-1"),
        (b"node_modules/.pnpm/lock.yaml", None),
        (b"node_modules/.package-lock.json", None),
        (b"node_modules/.bin/left", None),
        (b"src/left", None),
    ],
)
def test_unit_of_a_path_in_node_modules(path: bytes, unit: bytes | None) -> None:
    found = node_unit(b"", EnvPath(path))
    assert (None if found is None else found.path) == unit


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        (b"lib/site-packages/My_Left-1.0.dist-info/METADATA", b"lib/site-packages/my-left"),
        (b"lib/site-packages/my.left-1.0-py3.9.egg", b"lib/site-packages/my-left"),
        (b"lib/site-packages/my-left.egg-link", b"lib/site-packages/my-left"),
        (b"lib/site-packages/__editable___my_left_1_0_finder.py", b"lib/site-packages/my-left"),
        (b"lib/site-packages/left/a.py", None),
        (b"src/left.egg-info/PKG-INFO", None),
    ],
)
def test_unit_of_metadata_of_a_distribution(path: bytes, unit: bytes | None) -> None:
    found = python_unit(b"", EnvPath(path))
    assert (None if found is None else found.path) == unit


def test_links_to_sources_are_merged_line_by_line(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    pth = f"{SITE}/easy-install.pth"
    repo.write(pth, "/src/a\n")
    history.capture("one")
    repo.write(pth, "/src/a\n/src/b\n")
    history.capture("two")
    repo.write(pth, "/src/a\n/src/b\n/src/c\n")
    history.revert(":/two")
    assert os.fsdecode(repo.read(pth)) == "/src/a\n/src/c\n"
