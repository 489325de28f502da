"""Decide the role of each changed package: named by a list or the user, needed by another package, nested (pure).

Installers do not all record it. pip writes `REQUESTED` for the packages that it was asked for, uv writes it for every
package, npm for none. Therefore lists come first, `REQUESTED` second, and the needs of the other packages last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from git_envhist.history.factkeys import name_of, place_of
from git_envhist.model import Fact, FactChange, Role
from git_envhist.values import dataclass, field, replace

NODE_MODULES = "node_modules"
BOOTSTRAP = frozenset(("pip", "setuptools", "wheel", "uv", "distribute"))
"""Packages that a virtual environment begins with."""
FOR_DEVELOPMENT = re.compile(r"(?:^|[^a-z])(?:dev|develop|development|tests?|lint|docs?|ci)(?:[^a-z]|$)")
"""Names of requirements files that no program needs when it runs."""

Package = tuple[str, str, str]
"""(probe, place, name)"""


@dataclass(frozen=True, slots=True)
class Declared:
    """Packages that requirement files of two snapshots name, and the dependencies between installed packages."""

    asked: set[tuple[str, str]] = field(default_factory=set)
    """(probe, name) of the packages that a program needs when it runs."""
    named: set[tuple[str, str]] = field(default_factory=set)
    """(probe, name) of the packages of extras, groups and development."""
    requested: set[Package] = field(default_factory=set)
    needed: set[Package] = field(default_factory=set)
    extras: set[Package] = field(default_factory=set)
    """Packages that others need for an extra only."""
    roots: set[Package] = field(default_factory=set)
    listing: set[tuple[str, str]] = field(default_factory=set)
    """(probe, directory) of the lists."""


def assign_roles(changes: Iterable[FactChange], declared: Iterable[Fact]) -> tuple[FactChange, ...]:
    """Return the same changes, each with its role; `declared`: the facts of lists on both sides."""
    known = _read(tuple(declared))
    rooted = {(probe, place) for probe, place, _ in known.roots}
    return tuple(_with_role(change, known, rooted) for change in changes)


def _with_role(change: FactChange, known: Declared, rooted: set[tuple[str, str]]) -> FactChange:
    if change.probe not in ("pip", "npm"):
        return change
    place, name = place_of(change), name_of(change)
    package = (change.probe, place, name)
    is_needed = package not in known.roots if (change.probe, place) in rooted else package in known.needed
    return replace(change, role=_role(change, known, package, is_needed), auto=change.auto or is_needed)


def _role(change: FactChange, known: Declared, package: Package, is_needed: bool) -> Role:
    probe, place, name = package
    if probe == "npm" and place.split("/").count(NODE_MODULES) > 1:
        return Role.NESTED
    if (probe, name) in known.asked:
        return Role.DIRECT
    if (probe, name) in known.named:
        return Role.DEVELOPMENT
    if probe == "pip" and name in BOOTSTRAP:
        return Role.TRANSITIVE
    if package in known.requested:
        return Role.DIRECT
    came_along = change.auto or is_needed or _is_left_out(package, known)
    return Role.TRANSITIVE if came_along else Role.DIRECT


def _is_left_out(package: Package, known: Declared) -> bool:
    """Return whether a list that should name a package, if it were direct, does not."""
    probe, place, _ = package
    if probe == "npm":
        return (probe, place.removesuffix(NODE_MODULES).rstrip("/")) in known.listing
    return package in known.extras and any(by == probe for by, _ in known.listing)


def _read(facts: Sequence[Fact]) -> Declared:
    known = Declared()
    lists = {(fact.by, place_of(_as_change(fact))) for fact in facts if fact.value == "list"}
    known.listing.update((by, place.rpartition("/")[0]) for by, place in lists)
    for fact in facts:
        word, _, value = fact.value.partition("=")
        place, name = place_of(_as_change(fact)), name_of(_as_change(fact))
        if word in ("asked", "maybe") and (fact.by, place) in lists:
            is_plain = word == "asked" and not FOR_DEVELOPMENT.search(place.rpartition("/")[2])
            (known.asked if is_plain else known.named).add((fact.by, name))
        elif word == "root":
            known.roots.add((fact.by, place, name))
        elif word == "requested":
            known.requested.add((fact.by, place, name))
        elif word in ("needs", "extra"):
            found = known.needed if word == "needs" else known.extras
            found.update((fact.by, place, needed) for needed in value.split(","))
    return known


def _as_change(fact: Fact) -> FactChange:
    return FactChange(fact.by, fact.key, None, None)
