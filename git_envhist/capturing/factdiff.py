"""The facts of two snapshots side by side; texts with one id are not read."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from git_envhist.capture.descent import join
from git_envhist.errors import Damaged
from git_envhist.facts import PROBES
from git_envhist.history.declared import INSTALLED, disagreements
from git_envhist.history.declared import PROBE as DECLARED
from git_envhist.history.dependencies import assign_roles
from git_envhist.history.factkeys import place_of
from git_envhist.history.facts import DUMP, pair_facts
from git_envhist.history.importance import by_importance
from git_envhist.history.unread import FAILED, is_of_directory
from git_envhist.model import Change, Fact, FactChange
from git_envhist.store.compare import compare
from git_envhist.store.facts import (
    NAME,
    SUFFIX,
    FactText,
    differing_facts,
    read_fact,
    read_fact_text,
    write_facts,
)
from git_envhist.store.git import Git
from git_envhist.store.layout import FACTS, RESERVED
from git_envhist.store.objects import CatFile
from git_envhist.store.trees import FILE, decode_tree

if TYPE_CHECKING:
    from git_envhist.capturing.factsealing import FindFactsKey

OF_FILES = ("sqlite", "redis", "parquet", "duckdb", "csv", "notebook", "env")
"""Probes whose places are files; whatever others tell of the top itself, a list has its own name there."""
BY_FILES = "tools"
"""The probe that says by which file of a directory each thing is told."""
STORY_VARIABLES = frozenset(("env", "dump"))
"""Probes whose sealed facts a summary counts without a name."""
PLACE = (RESERVED + b"/" + FACTS).decode("ascii")


def fact_ids(reader: CatFile, tree: str) -> dict[str, str]:
    """By probe, the id of what a commit or tree, given by its full id, says; nothing where it has no facts."""
    answer = reader.read(f"{tree}:{PLACE}")
    if answer is None or answer.kind != "tree":
        return {}
    entries = decode_tree(answer.data, len(tree) // 2)
    named = ((name.decode("utf-8", "replace"), mode, oid.hex()) for name, mode, oid in entries)
    return {name: oid for name, mode, oid in named if mode == FILE and NAME.match(name.removesuffix(SUFFIX))}


def compare_facts(
    reader: CatFile,
    before: str,
    after: str,
    find_key: FindFactsKey | None = None,
    opens: Container[str] | None = None,
) -> tuple[FactChange, ...]:
    """Return the differences between the facts of two commits or trees, by probe, the most important first.

    A probe must have a text in both.

    `find_key`: finds the keys of sealed facts; `opens`: the probes whose sealed facts are compared (all).
    """
    old, new = fact_ids(reader, before), fact_ids(reader, after)
    changes: list[FactChange] = []
    for probe in sorted(old.keys() & new.keys() - {DECLARED}):
        find = find_key if opens is None or probe in opens else None
        changes += _differences(reader, probe, old, new, find)
    if DUMP in new and DUMP not in old:
        changes += _failed_dumps(reader, new[DUMP])
    declared: list[Fact] = []
    if any(change.probe in INSTALLED for change in changes):
        opened = (_opened(reader, DECLARED, ids, find_key) for ids in (old, new) if DECLARED in ids)
        declared = [fact for text in opened for fact in _facts(DECLARED, text)]
    return by_probe(by_importance(assign_roles(changes, declared)))


def _failed_dumps(reader: CatFile, oid: str) -> list[FactChange]:
    """Return the services that could not be dumped, where the snapshot before says nothing of services."""
    facts = _facts(DUMP, read_fact_text(DUMP, _text(reader, oid)))
    return [FactChange(DUMP, fact.key, "", fact.value) for fact in facts if fact.value == FAILED]


def brief_facts(
    reader: CatFile, before: str, after: str, find_key: FindFactsKey | None
) -> tuple[FactChange, ...]:
    """Return the differences for a summary that everybody can read: of sealed facts only the variables."""
    return compare_facts(reader, before, after, find_key, STORY_VARIABLES)


def _differences(
    reader: CatFile, probe: str, old: Mapping[str, str], new: Mapping[str, str], find_key: FindFactsKey | None
) -> tuple[FactChange, ...]:
    """Return the differences of one probe; none where sealed facts differ and cannot be opened."""
    twin = probe + SUFFIX
    if probe.endswith(SUFFIX) or (old[probe], old.get(twin)) == (new[probe], new.get(twin)):
        return ()
    if old.get(twin) == new.get(twin) or (find_key is None and twin in old and twin in new):
        return pair_facts(*differing_facts(probe, _text(reader, old[probe]), _text(reader, new[probe])))
    texts = [_whole_text(reader, probe, ids, find_key) for ids in (old, new)]
    if None in texts:
        return ()
    return pair_facts(*differing_facts(probe, texts[0] or b"", texts[1] or b""))


def _whole_text(
    reader: CatFile, probe: str, ids: Mapping[str, str], find_key: FindFactsKey | None
) -> bytes | None:
    """Return the text of a probe with its sealed facts; None where these cannot be opened."""
    data, twin = _text(reader, ids[probe]), ids.get(probe + SUFFIX)
    if twin is None:
        return data
    from git_envhist.capturing.factsealing import open_facts  # loaded late: where such a file is sealed

    sealed = open_facts(find_key, probe, _text(reader, twin))
    plain = read_fact_text(probe, data)
    if sealed is None or plain is None or sealed.version != plain.version:
        return None
    return write_facts(probe, plain.version, [*plain.lines, *sealed.lines])


def compare_declared(
    reader: CatFile, before: str, after: str, find_key: FindFactsKey | None = None
) -> tuple[FactChange, ...]:
    """Where what is asked for and what is installed began to disagree, and where they came to agree."""
    sides = [_texts_held(reader, side) for side in (before, after)]
    if sides[0] == sides[1] or not all(DECLARED in side for side in sides):
        return ()
    opened = [
        {probe: _opened(reader, probe, side, find_key) for probe in side if not probe.endswith(SUFFIX)}
        for side in sides
    ]
    versions = [{probe: text.version for probe, text in side.items() if text is not None} for side in opened]
    # What two versions of a probe say is not compared, nor what one side alone says.
    if versions[0] != versions[1] or DECLARED not in versions[0]:
        return ()
    facts = [{probe: _facts(probe, text) for probe, text in side.items()} for side in opened]
    if any(is_of_directory(fact) for side in facts for told in side.values() for fact in told):
        return ()
    told = [set(_disagreements(side)) for side in facts]
    return pair_facts(told[0] - told[1], told[1] - told[0])


def _texts_held(reader: CatFile, tree: str) -> dict[str, str]:
    held = (DECLARED, *INSTALLED)
    return {probe: oid for probe, oid in fact_ids(reader, tree).items() if probe.removesuffix(SUFFIX) in held}


def _opened(
    reader: CatFile, probe: str, ids: Mapping[str, str], find_key: FindFactsKey | None
) -> FactText | None:
    text = _whole_text(reader, probe, ids, find_key)
    return read_fact_text(probe, _text(reader, ids[probe]) if text is None else text)


def _disagreements(facts: Mapping[str, list[Fact]]) -> tuple[Fact, ...]:
    installed = [fact for probe in INSTALLED for fact in facts.get(probe, ())]
    return disagreements(facts.get(DECLARED, []), installed)


def _facts(probe: str, text: FactText | None) -> list[Fact]:
    lines = text.lines if text is not None else []
    return [fact for line in lines if (fact := read_fact(probe, line)) is not None]


def compare_moments(
    git: Git,
    before: str | None,
    after: str,
    pathspecs: Sequence[bytes],
    renames: int | None = None,
    find_key: FindFactsKey | None = None,
) -> tuple[tuple[Change, ...], tuple[FactChange, ...]]:
    """What differs between two trees: the files, and what is told beside them."""
    changes = compare(git, before, after, pathspecs=pathspecs, renames=renames)
    return changes, changed_facts(git, before, after, pathspecs, find_key)


def changed_facts(
    git: Git,
    before: str | None,
    after: str,
    pathspecs: Sequence[bytes] = (),
    find_key: FindFactsKey | None = None,
) -> tuple[FactChange, ...]:
    """What the facts of two trees differ in; with pathspecs, spelled as from the top, of what they mean."""
    if before is None:
        return ()
    with CatFile(git) as reader:
        changes = facts_between(reader, before, after, find_key)
    if not pathspecs or not changes:
        return changes
    from git_envhist.store.pathspecs import matching  # loaded late: few ask for paths

    directories = {change.at for change in changes} - {b""}
    places = sorted({*directories, *map(path_of_fact_change, changes)} - {b""})
    meant = matching(git, places, directories, pathspecs) if places else frozenset()
    return tuple(change for change in changes if path_of_fact_change(change) in meant)


def facts_between(
    reader: CatFile, before: str | None, after: str, find_key: FindFactsKey | None = None
) -> tuple[FactChange, ...]:
    """What the facts of two trees differ in; nothing for the first moment."""
    if before is None:
        return ()
    told = (
        *compare_facts(reader, before, after, find_key),
        *compare_declared(reader, before, after, find_key),
    )
    return by_probe(told)


def by_probe(changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
    """Return the changes in the order of the probes; those of one probe keep their order."""
    places = {probe: place for place, probe in enumerate(PROBES)}
    return tuple(sorted(changes, key=lambda change: places.get(change.probe, len(places))))


def path_of_fact_change(change: FactChange) -> bytes:
    """The path that a change is about: its directory, or the file that it is told of."""
    if change.probe == BY_FILES:
        return join(change.at, change.by.encode("utf-8", "surrogateescape"))
    if change.at and change.probe not in OF_FILES:
        return change.at
    return place_of(change).encode("utf-8", "surrogateescape")


def _text(reader: CatFile, oid: str) -> bytes:
    answer = reader.read(oid)
    if answer is None or answer.kind != "blob":
        raise Damaged(f"the facts '{oid}' are missing")
    return answer.data
