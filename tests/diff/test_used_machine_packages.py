"""Packages of the machine that an environment uses, and other ones."""

from __future__ import annotations

import pytest

from git_envhist.diff.used_machine_packages import assign_machine_roles
from git_envhist.model import FactChange, Role

CHANGED = ("postgresql-15", "xterm", "libpq5", "nodejs", "python3.11-venv", "pythia8", "redis-server")


def used(lists: tuple[str, ...] = (), **installed: tuple[str, ...]) -> list[str]:
    changes = [FactChange("system", name, None, "1", by="dpkg") for name in CHANGED]
    return [one.key for one in assign_machine_roles(changes, lists, installed) if one.role is Role.DIRECT]


@pytest.mark.parametrize(
    ("installed", "wanted"),
    [
        ({}, []),
        ({"pip": ("flask",)}, ["python3.11-venv"]),
        ({"pip": ("psycopg2-binary",)}, ["postgresql-15", "libpq5", "python3.11-venv"]),
        ({"npm": ("pg", "ioredis")}, ["postgresql-15", "libpq5", "nodejs", "redis-server"]),
        ({"pip": ()}, []),
    ],
)
def test_installed_packages_imply_packages_of_the_machine(
    installed: dict[str, tuple[str, ...]], wanted: list[str]
) -> None:
    assert used(**installed) == wanted


def test_list_of_the_environment_names_packages_of_the_machine() -> None:
    assert used(("FROM debian\nRUN apt-get install -y xterm \\\n  libpq5\n",)) == ["xterm", "libpq5"]


def test_dependency_is_counted() -> None:
    changes = [FactChange("system", "xterm", None, "1", by="dpkg", auto=True)]
    assert assign_machine_roles(changes, ("xterm",), {})[0].role is Role.TRANSITIVE
