"""What is asked for, held against what is installed: where the two disagree, as far as both are known (pure).

Three things are told: an installed package that no list names and no other package needs; one that a list asks for and
that is not there; one of another version. Whoever is not sure says nothing: a list that asks for more than can be read
makes no package a stranger, and a list of which nothing much is installed is about another environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from git_envhist.history.versions import same_version, satisfies
from git_envhist.model import EnvPath, Fact
from git_envhist.values import dataclass, field

PROBE = "declared"
INSTALLED = ("pip", "npm")
"""The probes that tell what is installed."""
BOOTSTRAP = frozenset(("pip", "setuptools", "wheel", "uv", "distribute"))
"""What a virtual environment begins with."""
EDITABLE = "(editable)"
NODE_MODULES = "node_modules"


@dataclass(frozen=True, slots=True)
class RequirementsFile:
    """One file that lists packages."""

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
    """All that the facts of one manager's lists say."""

    lists: dict[str, RequirementsFile]
    needs: dict[str, list[str]]
    roots: set[str]

    @property
    def named(self) -> set[str]:
        """Whatever any list of the environment names, as whatever it is named."""
        return {name for one in self.lists.values() for name in (*one.asked, *one.locked, *one.named)}


def disagreements(declared: Sequence[Fact], installed: Iterable[Fact]) -> tuple[Fact, ...]:
    """What is to be told of one moment: `(.venv/flask, 2.9.13, in no list)`."""
    by_place: dict[tuple[str, str], dict[str, list[Fact]]] = {}
    for fact in installed:
        if EDITABLE not in fact.value:
            place, name = _split(fact.key)
            by_place.setdefault((fact.probe, place), {}).setdefault(name, []).append(fact)
    told: list[Fact] = []
    python, node = (_read(declared, probe) for probe in INSTALLED)
    node_places = {place: found for (probe, place), found in by_place.items() if probe == "npm"}
    for (probe, place), found in sorted(by_place.items()):
        if probe == "pip" and "python" in found and python.lists:
            told += _of_python(place, found, python)
        elif probe == "npm" and node.lists and place.rpartition("/")[2] == NODE_MODULES:
            told += _of_node(place, found, node, node_places)
    return tuple(told)


def _read(facts: Iterable[Fact], probe: str) -> DeclaredPackages:
    declared = DeclaredPackages({}, {}, set())
    for fact in facts:
        if fact.by != probe:
            continue
        word, _, value = fact.value.partition("=")
        if word in ("needs", "extra"):
            # A package that was installed for an extra is named by no list, and is no stranger.
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
    """Of one virtual environment: by the lists beside it, or in `requirements` there."""
    beside = place.rpartition("/")[0]
    places = (beside, f"{beside}/requirements".lstrip("/"))
    lists = [one for one in declared.lists.values() if one.place in places]
    packages = {name: facts for name, facts in found.items() if name != "python"}
    if _all_known(lists) and all(_join(place, name) in declared.needs for name in packages):
        needed = {name for key, names in declared.needs.items() if _split(key)[0] == place for name in names}
        yield from _strangers(packages, declared.named | needed | BOOTSTRAP)
    yield from _settled(place, packages, [(one, one.asked, one.locked) for one in lists])


def _of_node(
    place: str,
    found: Mapping[str, list[Fact]],
    declared: DeclaredPackages,
    places: Mapping[str, Mapping[str, object]],
) -> Iterator[Fact]:
    """Of one node_modules: by the lists beside it."""
    beside = place.rpartition("/")[0]
    lists = [one for one in declared.lists.values() if one.place == beside]
    # npm's lock names the paths where packages stand; what stands deeper is its own affair.
    locks = [(one, _reached(one, places), _at_top(one.locked)) for one in lists]
    roots = {name: facts for name, facts in found.items() if _join(place, name) in declared.roots}
    if _all_known(lists):
        locked = {name for _, _, names in locks for name in names}
        yield from _strangers(roots, {_name_of(name) for name in declared.named} | locked)
    yield from _settled(place, found, locks)


def _all_known(lists: Sequence[RequirementsFile]) -> bool:
    return any("list" in one.marks for one in lists) and not any("open" in one.marks for one in lists)


def _reached(listed: RequirementsFile, places: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """What a manifest asks for, less what a program finds in the node_modules of a directory above."""
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


def _strangers(found: Mapping[str, list[Fact]], known: set[str] | frozenset[str]) -> Iterator[Fact]:
    for name, facts in found.items():
        if name not in known:
            yield from (_tell(fact, f"{fact.value}, in no list") for fact in facts)


def _settled(
    place: str,
    found: Mapping[str, list[Fact]],
    lists: Sequence[tuple[RequirementsFile, Mapping[str, list[str]], Mapping[str, list[str]]]],
) -> Iterator[Fact]:
    """What is missing, and what is of another version than a lock file has, or else a list."""
    told: set[str] = set()
    for listed, _, locked in lists:
        for name in locked.keys() & found.keys() - told:
            for fact in found[name]:
                if not any(same_version(fact.value, version) is not False for version in locked[name]):
                    told.add(name)
                    yield _tell(fact, f"{fact.value}, {listed.name} {', '.join(locked[name])}")
    for listed, asked, _ in lists:
        missing = asked.keys() - found.keys()
        if 2 * len(missing) > len(asked):
            continue
        for name in missing - told:
            told.add(name)
            yield Fact(PROBE, _join(place, name), f"missing, {listed.name}", EnvPath(_raw(place)))
        for name in asked.keys() & found.keys() - told:
            for fact in found[name]:
                wrong = [spec for spec in asked[name] if satisfies(fact.value, spec) is False]
                if wrong:
                    told.add(name)
                    yield _tell(fact, f"{fact.value}, {listed.name} {wrong[0]}")


def _tell(fact: Fact, value: str) -> Fact:
    return Fact(PROBE, fact.key, value, fact.at)


def _split(key: str) -> tuple[str, str]:
    """Place and name of a key; a name may have a scope."""
    place, _, name = key.rpartition("/")
    scope = place.rpartition("/")[2]
    if scope.startswith("@"):
        return place[: -len(scope)].rstrip("/"), f"{scope}/{name}"
    return place, name


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
