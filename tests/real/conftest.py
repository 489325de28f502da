"""The projects, each made once per test run and repaired after each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.real.shop import build_backend, build_frontend
from tests.real.tools import MACHINE, Project, find, make_project, tools


@pytest.fixture(scope="session")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables that package managers run with."""
    return tools(tmp_path_factory.mktemp("caches"))


@pytest.fixture(scope="session")
def made_shop(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Project:
    def build(project: Project) -> None:
        build_backend(project)
        npm = shutil.which("npm", path=MACHINE.get("PATH"))
        if npm is not None:
            build_frontend(project, npm)

    return make_project(tmp_path_factory.mktemp("shop"), variables, build)


@pytest.fixture
def shop(made_shop: Project) -> Iterator[Project]:
    """Return the captured Django project with a Node front end; repair it after the test."""
    yield made_shop
    made_shop.heal()


@pytest.fixture
def npm() -> str:
    return find("npm")
