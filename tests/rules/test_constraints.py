"""The tested versions in `constraints.txt`: one for each dependency, within the bounds of the package."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).resolve().parents[2]
LINES = [line for line in (TOP / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINNED = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}


def dependencies() -> list[Requirement]:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def test_each_line_pins_one_version() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9.]*", line)] == []


def test_each_dependency_is_pinned_within_its_bounds() -> None:
    found = {one.name: PINNED.get(canonicalize_name(one.name)) for one in dependencies()}
    assert [name for name, version in found.items() if version is None] == []
    assert [one.name for one in dependencies() if not one.specifier.contains(found[one.name] or "")] == []


def test_each_dependency_of_a_dependency_is_pinned() -> None:
    todo, seen = [one.name for one in dependencies()], set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in seen:
            seen.add(name)
            asked = map(Requirement, requires(name) or ())
            todo += [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    assert seen <= PINNED.keys()


def test_native_code_has_an_upper_bound() -> None:
    native = {"dulwich", "isal", "pyfastcdc", "zstandard"}
    bounds = {one.name: str(one.specifier) for one in dependencies() if one.name in native}
    assert native == bounds.keys()
    assert [name for name, bound in bounds.items() if "<" not in bound] == []
