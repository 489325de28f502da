"""Forks of a real project: they run their own packages, equal the original, and the better one is adopted."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.real.shop import manage
from tests.real.tools import Project
from tests.support.oracle import listing, tree_differences
from tests.support.repository import Repo

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full

OTHER_VIEW = "from django.http import HttpResponse\nurlpatterns = []\n"


@pytest.fixture
def place(shop: Project, tmp_path: Path) -> Iterator[Path]:
    """Return a directory for forks, which git forgets afterwards."""
    yield tmp_path
    shutil.rmtree(tmp_path)
    shop.repo.git("worktree", "prune")


def fork(shop: Project, place: Path, *words: str) -> tuple[Project, list[str]]:
    """Fork the project; return the fork and the files that were rewritten in it."""
    output = json.loads(
        shop.repo.run("envlog", "fork", "--json", *words, str(place), "working", check=True).out
    )
    project = Project(Repo(place, shop.repo.env), shop.model, shop.variables)
    return project, [one["path"] for one in output["relocated"]]


@pytest.fixture(scope="module")
def relocated(
    made_shop: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Project, list[str]]]:
    """Return a relocated fork, and the files that were rewritten in it."""
    above = tmp_path_factory.mktemp("relocated")
    yield fork(made_shop, above / "attempt", "--relocate")
    shutil.rmtree(above)
    made_shop.repo.git("worktree", "prune")


@contextmanager
def hidden(path: Path) -> Iterator[None]:
    """Rename the path during the block, so that any access to it fails."""
    aside = path.with_name("aside")
    os.rename(path, aside)
    try:
        yield
    finally:
        os.rename(aside, path)


def rows(place: Path) -> int:
    with closing(sqlite3.connect(place / "db.sqlite3")) as database:
        return int(database.execute("select count(*) from catalog_item").fetchone()[0])


def test_relocated_fork_runs_without_the_original(
    shop: Project, relocated: tuple[Project, list[str]]
) -> None:
    made, rewritten = relocated
    changed = [line.split(" ", 1)[1] for line in made.differences()]
    assert sorted(changed) == sorted(rewritten)
    venv = f"{made.path}/.venv"
    with hidden(shop.path):
        where = "import sys, django, sqlparse; print(sys.prefix, django.__file__, sqlparse.__file__)"
        printed = made.call(".venv/bin/python", "-c", where).out.split()
        assert printed[0] == venv
        assert all(path.startswith(f"{venv}/lib/") for path in printed[1:])
        assert f"from {venv}/lib/" in made.call(".venv/bin/pip", "--version").out
        made.call(".venv/bin/pip", "check")
        # Run console scripts by their path, and those that `activate` puts first.
        assert made.call(".venv/bin/sqlformat", "--version").out
        output = made.call(
            "sh", "-c", ". .venv/bin/activate && command -v django-admin && django-admin version"
        ).out
        assert output.splitlines()[0] == f"{venv}/bin/django-admin"
        assert manage(made, "check") == "System check identified no issues (0 silenced).\n"
        manage(made, "migrate", "--check")
        manage(
            made, "shell", "-c", "from catalog.models import Item; Item.objects.filter(id__gt=10).delete()"
        )
    assert (rows(made.path), rows(shop.path)) == (10, 50)
    assert shop.differences() == ()


def test_relocated_fork_runs_its_own_node_packages(
    shop: Project, relocated: tuple[Project, list[str]], npm: str
) -> None:
    made, _ = relocated
    with hidden(shop.path):
        printed = made.call(npm, "run", "--silent", "where", cwd="front").out
        assert printed == f"{made.path}/front/node_modules/.bin/semver\n"
        assert f"fine {made.path}/front/node_modules/semver/" in made.call(npm, "test", cwd="front").out
        made.call(npm, "ls", "--all", cwd="front")


def test_two_forks_are_equal_and_the_better_one_is_adopted(shop: Project, place: Path) -> None:
    (one, _), (two, _) = (fork(shop, place / name) for name in ("one", "two"))
    assert tree_differences(one.path, two.path) == one.differences() == two.differences() == ()
    two.repo.write("shop/urls.py", OTHER_VIEW)
    two.repo.run("envlog", "capture", "without a view", check=True)
    # This is the fork's python; its scripts still name the original's.
    one.call(".venv/bin/python", "-m", "pip", "install", "-q", "--upgrade", "sqlparse")
    one.repo.write(".env.local", "SHOP_TITLE=better things\n", mode=0o600)
    manage(one, "shell", "-c", "from catalog.models import Item; Item.objects.create(name='one more')")
    manage(one, "check")
    one.repo.run("envlog", "capture", "with the new sqlparse", check=True)
    assert (two.differences("/shop"), shop.differences()) == ((), ())
    lines = [timeline(fork) for fork in (one, two)]
    output = shop.repo.run("envdiff", "--name-only", *lines, check=True).out
    assert {"shop/urls.py", ".env.local", "db.sqlite3"} <= set(output.splitlines())
    assert not [line for line in output.splitlines() if line.startswith(("front/", "catalog/"))]
    shop.repo.run("envrestore", lines[0], check=True)
    assert tree_differences(one.path, shop.path) == ()
    assert rows(shop.path) == 51
    assert manage(shop, "check") == "System check identified no issues (0 silenced).\n"
    frozen = shop.call(".venv/bin/pip", "freeze").out
    assert frozen == one.call(".venv/bin/python", "-m", "pip", "freeze").out
    assert "sqlparse==0.5.0" not in frozen
    shop.repo.run("envrestore", "--undo", check=True)
    assert shop.differences() == ()


def timeline(project: Project) -> str:
    return str(json.loads(project.repo.run("envlog", "--json", "-1", check=True).out)[0]["timeline"])


def test_plain_directory_with_a_virtual_environment_is_forked(
    shop: Project, tmp_path: Path, npm: str
) -> None:
    plain = Repo(tmp_path / "plain", shop.repo.env)
    subprocess.run(["cp", "-a", shop.path / "front", plain.path], check=True)
    plain.run("envlog", "init", check=True)
    plain.run("envlog", "capture", "as it is", check=True)
    plain.run("envlog", "fork", "../attempt", check=True)
    attempt = tmp_path / "attempt"
    assert tree_differences(plain.path, attempt) == ()
    before = listing(plain.path)
    made = Project(Repo(attempt, shop.repo.env), shop.model, shop.variables)
    assert f"fine {attempt}/node_modules/semver/" in made.call(npm, "test").out
    made.call(npm, "uninstall", "--silent", "semver")
    made.repo.run("envlog", "capture", "without semver", check=True)
    assert listing(plain.path) == before
    plain.run("envrestore", timeline(made), check=True)
    assert tree_differences(attempt, plain.path) == ()
