"""Compare required packages with installed ones, and decide why a package is installed (pure).

`assign_roles` gives each changed package a role: named by a list or the user, needed by another package, or nested.
Not all installers record that: pip writes `REQUESTED` for requested packages, uv for every package, npm for none. So
lists count first, `REQUESTED` second, and the needs of other packages last.

`disagreements` finds installed packages that no list names and no package needs, missing packages, and other versions
than required. It reports only certain cases: if a list is only partly understood, no package counts as unlisted,
and a list of which most packages are missing belongs to another environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from git_envhist.diff.split_fact_key import name_of, place_of
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model import EnvPath, Fact, FactChange, Role
from git_envhist.probes import managers_with_lists

# Roles.

NODE_MODULES = "node_modules"
BOOTSTRAP_PACKAGES = frozenset(("pip", "setuptools", "wheel", "uv", "distribute"))
"""Packages that a new virtual environment contains."""
FOR_DEVELOPMENT = re.compile(r"(?:^|[^a-z])(?:dev|develop|development|tests?|lint|docs?|ci)(?:[^a-z]|$)")
"""Names of requirements files for development only."""

Package = tuple[str, str, str]
"""The probe, place and name of a package."""


@dataclass(frozen=True, slots=True)
class KnownDependencies:
    """Packages named by the requirements files of two snapshots, and the dependencies of installed packages."""

    asked: set[tuple[str, str]] = field(default_factory=set)
    """The (probe, name) pairs of packages that the program needs."""
    named: set[tuple[str, str]] = field(default_factory=set)
    """The (probe, name) pairs of packages of extras, groups and development."""
    requested: set[Package] = field(default_factory=set)
    needed: set[Package] = field(default_factory=set)
    extras: set[Package] = field(default_factory=set)
    """Packages that others need only for an extra."""
    roots: set[Package] = field(default_factory=set)
    listing: set[tuple[str, str]] = field(default_factory=set)
    """The (probe, directory) pairs of the lists."""


def assign_roles(changes: Iterable[FactChange], declared: Iterable[Fact]) -> tuple[FactChange, ...]:
    """Return the changes with their roles; `declared` are the facts of lists on both sides."""
    known = _declared_dependencies(tuple(declared))
    rooted = {(probe, place) for probe, place, _ in known.roots}
    return tuple(_with_role(change, known, rooted) for change in changes)


def _with_role(change: FactChange, known: KnownDependencies, rooted: set[tuple[str, str]]) -> FactChange:
    if change.probe not in managers_with_lists():
        return change
    place, name = place_of(change), name_of(change)
    package = (change.probe, place, name)
    is_needed = package not in known.roots if (change.probe, place) in rooted else package in known.needed
    return replace(change, role=_role(change, known, package, is_needed), auto=change.auto or is_needed)


def _role(change: FactChange, known: KnownDependencies, package: Package, is_needed: bool) -> Role:
    probe, place, name = package
    if probe == "npm" and place.split("/").count(NODE_MODULES) > 1:
        return Role.NESTED
    if (probe, name) in known.asked:
        return Role.DIRECT
    if (probe, name) in known.named:
        return Role.DEVELOPMENT
    if probe == "pip" and name in BOOTSTRAP_PACKAGES:
        return Role.TRANSITIVE
    if package in known.requested:
        return Role.DIRECT
    is_dependency = change.auto or is_needed or _is_left_out(package, known)
    return Role.TRANSITIVE if is_dependency else Role.DIRECT


def _is_left_out(package: Package, known: KnownDependencies) -> bool:
    """Return whether a list does not name a package that it would name if it were direct."""
    probe, place, _ = package
    if probe == "npm":
        return (probe, place.removesuffix(NODE_MODULES).rstrip("/")) in known.listing
    return package in known.extras and any(by == probe for by, _ in known.listing)


def _declared_dependencies(facts: Sequence[Fact]) -> KnownDependencies:
    known = KnownDependencies()
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


# Versions, as far as they can be compared without knowing their scheme.

NUMBERS = re.compile(r"v?([0-9]{1,12}(?:\.[0-9]{1,12}){0,7})\Z")
BOUND = re.compile(r"(===|==|~=|!=|<=|>=|<|>)(.+)\Z")


def same_version(one: str, other: str) -> bool | None:
    """Return whether two versions are equal (`1.0` is `1.0.0`); None if that is not certain."""
    one, other = _plain(one), _plain(other)
    if one == other:
        return True
    order = _compare(one, other)
    # A version that is not numeric cannot be compared without knowing its scheme.
    return None if order is None else order == 0


def satisfies(version: str, asked: str) -> bool | None:
    """Return whether a version satisfies a requirement (`>=3,<4`); None if that is not certain."""
    answers = [_is_within(_plain(version), bound) for bound in asked.split(",") if bound]
    if False in answers:
        return False
    return None if None in answers else True


def _is_within(version: str, bound: str) -> bool | None:
    found = BOUND.match(bound)
    if found is None:
        # npm writes an exact version without an operator.
        return same_version(version, bound) if NUMBERS.match(bound) and bound.count(".") == 2 else None
    word, wanted = found[1], found[2]
    if word == "===":
        return version == wanted or None
    if wanted.endswith(".*"):
        same = _begins(version, wanted[:-2])
        return same if word == "==" or same is None else (not same if word == "!=" else None)
    order = _compare(version, wanted)
    if order is None:
        return True if word == "==" and version == wanted else None
    if word == "~=":
        return order >= 0 and _begins(version, wanted.rpartition(".")[0])
    return {
        "==": order == 0,
        "!=": order != 0,
        "<=": order <= 0,
        ">=": order >= 0,
        "<": order < 0,
        ">": order > 0,
    }[word]


def _begins(version: str, start: str) -> bool | None:
    numbers, wanted = _numbers(version), _numbers(start)
    if numbers is None or wanted is None:
        return None
    return (*numbers, *(0,) * len(wanted))[: len(wanted)] == wanted


def _compare(one: str, other: str) -> int | None:
    numbers, others = _numbers(one), _numbers(other)
    if numbers is None or others is None:
        return None
    pairs = list(zip_longest(numbers, others, fillvalue=0))
    return next((1 if left > right else -1 for left, right in pairs if left != right), 0)


def _numbers(version: str) -> tuple[int, ...] | None:
    found = NUMBERS.match(version)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _plain(version: str) -> str:
    """Return a version without a build suffix."""
    return version.strip().lower().partition("+")[0]


PROBE = "declared"
COMPARED = ("pip", "npm")
"""The package managers whose lists are compared with the installed packages: the spelling of versions is known."""
EDITABLE = "(editable)"


@dataclass(frozen=True, slots=True)
class RequirementsFile:
    """A file that lists packages."""

    place: str
    """Its directory."""
    name: str
    at: EnvPath
    asked: dict[str, list[str]] = field(default_factory=dict)
    locked: dict[str, list[str]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class DeclaredPackages:
    """All facts about the lists of one package manager."""

    lists: dict[str, RequirementsFile]
    needs: dict[str, list[str]]
    roots: set[str]

    @property
    def named(self) -> set[str]:
        """All names in any list of the environment."""
        return {name for one in self.lists.values() for name in (*one.asked, *one.locked, *one.named)}


def disagreements(declared: Sequence[Fact], installed: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return the disagreements in one snapshot: `(.venv/flask, 2.9.13, in no list)`."""
    by_place: dict[tuple[str, str], dict[str, list[Fact]]] = {}
    for fact in installed:
        if EDITABLE not in fact.value:
            place, name = _split(fact.key)
            by_place.setdefault((fact.probe, place), {}).setdefault(name, []).append(fact)
    found_facts: list[Fact] = []
    python, node = (_read(declared, probe) for probe in COMPARED)
    node_places = {place: found for (probe, place), found in by_place.items() if probe == "npm"}
    for (probe, place), found in sorted(by_place.items()):
        if probe == "pip" and "python" in found and python.lists:
            found_facts += _of_python(place, found, python)
        elif probe == "npm" and node.lists and place.rpartition("/")[2] == NODE_MODULES:
            found_facts += _of_node(place, found, node, node_places)
    return tuple(found_facts)


def _read(facts: Iterable[Fact], probe: str) -> DeclaredPackages:
    declared = DeclaredPackages({}, {}, set())
    for fact in facts:
        if fact.by != probe:
            continue
        word, _, value = fact.value.partition("=")
        if word in ("needs", "extra"):
            # No list names a package that was installed for an extra, but it is not unlisted.
            declared.needs.setdefault(fact.key, []).extend(name for name in value.split(",") if name)
        elif word == "requested":
            continue
        elif word == "root":
            declared.roots.add(fact.key)
        else:
            _note(_list_of(declared, fact), fact, word, value)
    return declared


def _list_of(declared: DeclaredPackages, fact: Fact) -> RequirementsFile:
    place = fact.at.decode("utf-8", "surrogateescape")
    name = fact.key[len(place) + 1 if place else 0 :].partition("/")[0]
    path = f"{place}/{name}" if place else name
    return declared.lists.setdefault(path, RequirementsFile(place, name, fact.at))


def _note(listed: RequirementsFile, fact: Fact, word: str, value: str) -> None:
    package = fact.key[len(listed.place) + 1 if listed.place else 0 :].partition("/")[2]
    if word == "asked":
        listed.asked.setdefault(package, []).append(value)
    elif word == "locked":
        listed.locked.setdefault(package, []).append(value)
    elif word == "maybe":
        listed.named.add(package)
    else:
        listed.marks.add(word)


def _of_python(place: str, found: Mapping[str, list[Fact]], declared: DeclaredPackages) -> Iterator[Fact]:
    """Yield the disagreements of a virtual environment with the lists in its directory or in `requirements`."""
    directory = place.rpartition("/")[0]
    places = (directory, f"{directory}/requirements".lstrip("/"))
    lists = [one for one in declared.lists.values() if one.place in places]
    packages = {name: facts for name, facts in found.items() if name != "python"}
    if _all_known(lists) and all(_join(place, name) in declared.needs for name in packages):
        needed = {name for key, names in declared.needs.items() if _split(key)[0] == place for name in names}
        yield from _unlisted(packages, declared.named | needed | BOOTSTRAP_PACKAGES)
    yield from _missing_or_other(place, packages, [(one, one.asked, one.locked) for one in lists])


def _of_node(
    place: str,
    found: Mapping[str, list[Fact]],
    declared: DeclaredPackages,
    places: Mapping[str, Mapping[str, object]],
) -> Iterator[Fact]:
    """Yield the disagreements of a `node_modules` with the lists in its directory."""
    directory = place.rpartition("/")[0]
    lists = [one for one in declared.lists.values() if one.place == directory]
    # npm's lock file contains paths; only packages at the top are compared.
    locks = [(one, _reached(one, places), _at_top(one.locked)) for one in lists]
    roots = {name: facts for name, facts in found.items() if _join(place, name) in declared.roots}
    if _all_known(lists):
        locked = {name for _, _, names in locks for name in names}
        yield from _unlisted(roots, {_name_of(name) for name in declared.named} | locked)
    yield from _missing_or_other(place, found, locks)


def _all_known(lists: Sequence[RequirementsFile]) -> bool:
    return any("list" in one.marks for one in lists) and not any("open" in one.marks for one in lists)


def _reached(listed: RequirementsFile, places: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """Return the required packages that are not found in a node_modules of a directory above."""
    above = [listed.place[:end] for end, letter in enumerate(listed.place) if letter == "/"]
    others = [places.get(_join(directory, NODE_MODULES), {}) for directory in {"", *above} - {listed.place}]
    return {name: asked for name, asked in listed.asked.items() if not any(name in other for other in others)}


def _at_top(locked: Mapping[str, list[str]]) -> dict[str, list[str]]:
    top = {}
    for path, versions in locked.items():
        name = path.removeprefix(f"{NODE_MODULES}/")
        if f"{NODE_MODULES}/" not in name:
            top[name] = versions
    return top


def _name_of(path: str) -> str:
    return path.rpartition(f"{NODE_MODULES}/")[2]


def _unlisted(found: Mapping[str, list[Fact]], known: set[str] | frozenset[str]) -> Iterator[Fact]:
    for name, facts in found.items():
        if name not in known:
            yield from (_disagreement(fact, f"{fact.value}, in no list") for fact in facts)


def _missing_or_other(
    place: str,
    found: Mapping[str, list[Fact]],
    lists: Sequence[tuple[RequirementsFile, Mapping[str, list[str]], Mapping[str, list[str]]]],
) -> Iterator[Fact]:
    """Yield missing packages, and packages of another version than in a lock file, or else in a list."""
    reported: set[str] = set()
    for listed, _, locked in lists:
        for name in locked.keys() & found.keys() - reported:
            for fact in found[name]:
                if not any(same_version(fact.value, version) is not False for version in locked[name]):
                    reported.add(name)
                    yield _disagreement(
                        fact, f"{fact.value}, but {listed.name} has {', '.join(locked[name])}"
                    )
    for listed, asked, _ in lists:
        missing = asked.keys() - found.keys()
        if 2 * len(missing) > len(asked):
            continue
        for name in missing - reported:
            reported.add(name)
            yield Fact(PROBE, _join(place, name), f"missing, but in {listed.name}", EnvPath(_raw(place)))
        for name in asked.keys() & found.keys() - reported:
            for fact in found[name]:
                wrong = [spec for spec in asked[name] if satisfies(fact.value, spec) is False]
                if wrong:
                    reported.add(name)
                    yield _disagreement(fact, f"{fact.value}, but {listed.name} has {wrong[0]}")


def _disagreement(fact: Fact, value: str) -> Fact:
    return Fact(PROBE, fact.key, value, fact.at)


def _split(key: str) -> tuple[str, str]:
    """Return the place and the name of a key; the name may have a scope."""
    place, _, name = key.rpartition("/")
    scope = place.rpartition("/")[2]
    if scope.startswith("@"):
        return place[: -len(scope)].rstrip("/"), f"{scope}/{name}"
    return place, name


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
