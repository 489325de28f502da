"""git-envhist's dataclasses behave like the standard library's, but cost nothing before their first use."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys

import pytest

import git_envhist
from git_envhist.lazy import dataclass, field, pattern, replace
from git_envhist.model import Change, ChangeSide, EntryKind, EnvPath


@dataclass(frozen=True, slots=True)
class Point:
    """A frozen class."""

    x: int
    y: int = 2
    label: str = field(default="", repr=False, compare=False)

    @property
    def sum(self) -> int:
        return self.x + self.y


@dataclass(slots=True)
class Basket:
    """A mutable class."""

    owner: str
    things: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Nothing:
    """A class without fields."""


@dataclasses.dataclass(frozen=True, slots=True)
class StandardPoint:
    x: int
    y: int = 2
    label: str = dataclasses.field(default="", repr=False, compare=False)


def every_class() -> list[type]:
    """Return all dataclasses of the package, except those that imitate other libraries'."""
    found = {}
    for module in pkgutil.walk_packages(git_envhist.__path__, "git_envhist."):
        if module.name.startswith("git_envhist.compat."):
            continue
        for name, thing in vars(importlib.import_module(module.name)).items():
            if (
                isinstance(thing, type)
                and dataclasses.is_dataclass(thing)
                and thing.__module__ == module.name
            ):
                found[f"{module.name}.{name}"] = thing
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("made", every_class(), ids=lambda made: f"{made.__module__}.{made.__name__}")
def test_the_standard_library_agrees_on_every_class_of_the_package(made: type) -> None:
    fields = dataclasses.fields(made)
    names = tuple(each.name for each in fields)
    assert made.__match_args__ == names
    assert not hasattr(made, "__dict__") or "__dict__" not in dir(made)
    given = {name: object() for name in names}
    value = made(**given)
    assert {name: getattr(value, name) for name in names} == given
    assert list(inspect.signature(made).parameters) == list(names)
    _agrees_on_defaults(made, fields)


def _agrees_on_defaults(made: type, fields: tuple[dataclasses.Field[object], ...]) -> None:
    needed = [
        each.name
        for each in fields
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    value = made(*[object() for _ in needed])
    for each in fields[len(needed) :]:
        if each.default is not dataclasses.MISSING:
            assert getattr(value, each.name) == each.default
        else:
            found, wanted = getattr(value, each.name), each.default_factory()
            # A value without equality differs from every other one.
            assert found == wanted or (type(found) is type(wanted) and type(found).__eq__ is object.__eq__)


def test_frozen_value_compares_hashes_and_prints_by_fields() -> None:
    assert Point(1) == Point(1, 2, "other")
    assert Point(1) != Point(2)
    assert Point(1) != StandardPoint(1)
    assert hash(Point(1, 2)) == hash(StandardPoint(1, 2))
    assert repr(Point(1, label="x")) == "Point(x=1, y=2)" == repr(StandardPoint(1)).removeprefix("Standard")
    assert {Point(1), Point(1, label="b")} == {Point(1)}
    assert Nothing() == Nothing()
    assert (repr(Nothing()), hash(Nothing())) == ("Nothing()", hash(()))


def test_frozen_value_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.other = 3  # type: ignore[attr-defined]
    assert point == Point(1)


def test_mutable_value_is_not_hashable_and_shares_no_default() -> None:
    first, second = Basket("a"), Basket("a")
    first.things.append(1)
    assert (second.things, first == second) == ([], False)
    second.owner = "b"
    assert second == Basket("b")
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


def test_values_are_copied_pickled_and_matched() -> None:
    side = ChangeSide(EnvPath(b"a"), EntryKind.FILE, 0o644, None)
    change = Change(side, None)
    assert pickle.loads(pickle.dumps(change)) == change
    assert copy.copy(change) == copy.deepcopy(change) == change
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)
        case _:
            pytest.fail("no match")
    assert (Point(1).sum, Point(1).__doc__) == (3, "A frozen class.")


@pytest.mark.parametrize("change", [replace, dataclasses.replace])
def test_replace_returns_a_new_value(change) -> None:  # type: ignore[no-untyped-def]
    point = Point(1, label="kept")
    moved = change(point, x=7)
    assert (moved.x, moved.y, moved.label, point.x) == (7, 2, "kept", 1)
    with pytest.raises(TypeError):
        change(point, z=1)


def test_wrong_arguments_are_refused_by_every_call() -> None:
    for _ in range(2):
        with pytest.raises(
            TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"
        ):
            Point()  # type: ignore[call-arg]


def test_unsupported_class_is_refused() -> None:
    with pytest.raises(TypeError, match="base class"):

        @dataclass(frozen=True, slots=True)
        class Deeper(Point):
            z: int = 0


def test_the_model_is_imported_without_the_standard_librarys_dataclasses() -> None:
    code = "import sys, git_envhist.model as m; m.Actor('a', 'b'); sys.exit('dataclasses' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_pattern_is_compiled_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda text, flags=0: compiled.append(text) or real(text, flags))
    word = pattern(r"(a+)b", re.IGNORECASE)
    assert compiled == []
    assert word.fullmatch("AAB")[1] == "AA"  # type: ignore[index]
    assert [word.sub("x", "aab ab"), word.findall("ab aab"), word.search("none")] == [
        "x x",
        ["a", "aa"],
        None,
    ]
    assert compiled == [r"(a+)b"]
    assert (word.pattern, word.groups) == (r"(a+)b", 1)
