"""The facts of two snapshots, compared, grouped and worded.

`compare_facts` reads the fact texts of both snapshots (texts with equal ids are not read), `pair_facts` pairs them
into changes without places that could not be read, `fact_rows` groups changes, `fact_words` and `database_words` word
them: `users 12 → 15 rows`. `outside_words` words changes of the machine, with a command that would make them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from git_envhist.diff.importance import by_importance, mark_of, role_rank
from git_envhist.diff.split_fact_key import name_of, place_of
from git_envhist.errors import Damaged
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass, pattern, replace
from git_envhist.model import UNREAD, Change, EnvPath, Fact, FactChange, Role, Snapshot
from git_envhist.paths import join
from git_envhist.snapshots.layout import FACTS
from git_envhist.snapshots.stored_names import RESERVED

if TYPE_CHECKING:
    from git_envhist.git.cat_file import CatFile
    from git_envhist.snapshots.fact_text import FactText
    from git_envhist.snapshots.sealed_facts import FindFactsKey


# Words for changes of databases.

TABLE_ARROW = " → "
TABLE_PROBES = ("sqlite", "dump", "parquet", "duckdb", "csv", "notebook")
SEALED, DIGEST = "sealed:", "#"
TABLE_OF_A_FILE = "table"
"""The name of the only table in a file."""
KINDS = ("index ", "view ", "trigger ", "migration ")
TABLE = pattern(
    r"(?:(\d{1,19}) (rows|pages|keys|cells|outputs|blocks)|(virtual))?(?:(?:^|(?<=\w) )\((.*)\))?", re.DOTALL
)
COUNT = pattern(r"(\d{1,9}) columns #[0-9a-f]+\Z")
MAX_COLUMNS = 3


def database_words(name: str, before: str | None, after: str | None) -> str:
    """Return the words for a change in a database."""
    if (after or before or "").startswith(SEALED):
        return f"{name} (sealed)"
    if (after or before or "").startswith(DIGEST):
        return name
    if name.startswith(KINDS):
        return f"{name} {TABLE_ARROW.join(value for value in (before, after) if value)}".rstrip()
    if before is None or after is None:
        number, unit, columns = _parts(after if before is None else before)
        if not columns and unit not in ("", "rows", "pages"):
            return f"{name} ({_amount(number, unit)})"
        title = name if name == TABLE_OF_A_FILE else f"table {name}"
        return f"{title} ({_size(after if before is None else before)})"
    return f"{name} {', '.join(_table_differences(before, after))}"


def _size(value: str | None) -> str:
    """`4 columns, 12 rows`"""
    number, unit, columns = _parts(value)
    listed = COUNT.match(columns)
    amount = int(listed[1]) if listed else len(_list(columns))
    text = "1 column" if amount == 1 else f"{amount:,} columns"
    return f"{text}, {_amount(number, unit)}" if number else text


def _table_differences(before: str, after: str) -> Iterator[str]:
    old, old_unit, old_columns = _parts(before)
    new, new_unit, new_columns = _parts(after)
    if (old, old_unit) != (new, new_unit):
        yield from _numbers(old, old_unit, new, new_unit)
    if old_columns != new_columns:
        yield from _column_changes(_list(old_columns), _list(new_columns))


def _numbers(old: int | None, old_unit: str, new: int | None, new_unit: str) -> Iterator[str]:
    if old is not None and old_unit == new_unit and new is not None:
        yield f"{old:,}{TABLE_ARROW}{_amount(new, new_unit)}"
    else:
        sides = ((old, old_unit), (new, new_unit))
        yield TABLE_ARROW.join(
            "not counted" if number is None else _amount(number, unit) for number, unit in sides
        )


def _column_changes(before: list[str], after: list[str]) -> Iterator[str]:
    old, new = ({one.partition(" ")[0]: one.partition(" ")[2] for one in side} for side in (before, after))
    words = [f"+ column {name} {new[name]}".rstrip() for name in new if name not in old]
    words += [
        f"~ column {name} {old[name]}{TABLE_ARROW}{new[name]}"
        for name in new
        if old.get(name, new[name]) != new[name]
    ]
    words += [f"− column {name}" for name in old if name not in new]
    yield from words[:MAX_COLUMNS]
    if len(words) > MAX_COLUMNS:
        yield f"{len(words) - MAX_COLUMNS} columns more"
    if not words:
        yield "columns in another order"


def _parts(value: str | None) -> tuple[int | None, str, str]:
    found = TABLE.fullmatch(value or "")
    if found is None:
        return None, "", ""
    return int(found[1]) if found[1] else None, found[2] or found[3] or "", found[4] or ""


def _list(columns: str) -> list[str]:
    return [one for one in columns.split(", ") if one]


def _amount(number: int | None, unit: str) -> str:
    return f"{number or 0:,} {unit.removesuffix('s') if number == 1 else unit}"


# Changes that a restore cannot make because they are not in the environment: packages of the machine, services.

WORD = pattern(r"[A-Za-z0-9][A-Za-z0-9+._:@~-]*\Z")
"""Words allowed in a command that the user may copy, because a snapshot may be untrusted."""
SERVICE = "service"
CALLED = pattern(r"[A-Za-z0-9_./:@%+=,-]+\Z")
"""Words allowed in the command that starts a program; masked secrets do not match."""
REMOVE = {
    "dpkg": "sudo apt-get remove {name}",
    "apk": "sudo apk del {name}",
    "rpm": "sudo dnf remove {name}",
    "brew": "brew uninstall {name}",
}
INSTALL = {
    "dpkg": "sudo apt-get install {name}={version}",
    "apk": "sudo apk add {name}={version}",
    "rpm": "sudo dnf install {name}-{version}",
    "brew": "brew install {name}",
}


def order_outside(changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
    """Return the changes, the most important first."""
    return tuple(by_importance(changes))


def outside_words(change: FactChange) -> str:
    """`system postgresql-15 (sudo apt-get remove postgresql-15)`, `service server.js :8000 (node server.js)`."""
    text = f"{change.probe} {name_of(change)}"
    if change.probe == SERVICE:
        text += f" {change.after or ''}"
    command = command_for(change)
    return f"{text} ({command})" if command else text


def command_for(change: FactChange) -> str:
    """Return a command that makes a change on this machine, or an empty string."""
    if change.probe == SERVICE:
        return _start(change)
    version = change.after
    template = (REMOVE if version is None else INSTALL).get(change.by, "")
    if not WORD.match(change.key) or (version is not None and not WORD.match(version)):
        return ""
    return template.format(name=change.key, version=version)


def _start(service: FactChange) -> str:
    """Return the command that starts a service, from the top of the environment."""
    place = place_of(service)
    words = [*service.by.split(" "), *([place] if place else [])]
    if service.after is None or not all(map(CALLED.match, words)) or words[0].startswith("-"):
        return ""
    return f"cd {place} && {service.by}" if place else service.by


# Places that could not be read in one snapshot are not compared.

DUMP_PROBE, FAILED = "dump", "failed"
WITH_PLACES = ("sqlite",)
"""Probes that report an unreadable file and continue with the others of its directory."""


def without_unread(facts: tuple[list[Fact], list[Fact]]) -> tuple[list[Fact], list[Fact]]:
    """Return both lists without facts of places that the other side could not read."""
    facts = _with_known_states(facts)
    everything = [fact for side in facts for fact in side]
    directories = {(fact.probe, fact.at) for fact in everything if is_of_directory(fact)}
    places = {(fact.probe, _place(fact)) for fact in everything if _is_of_place(fact)}
    if not directories and not places:
        return facts

    def known(side: Iterable[Fact]) -> list[Fact]:
        return [fact for fact in side if _is_unread(fact) or not _is_in(fact, directories, places)]

    return known(facts[0]), known(facts[1])


def _with_known_states(facts: tuple[list[Fact], list[Fact]]) -> tuple[list[Fact], list[Fact]]:
    """Leave out dumps that one side does not have or has in another format; report that one failed."""
    if not any(fact.probe == DUMP_PROBE for side in facts for fact in side):
        return facts
    unknown = {_place(fact) for side in facts for fact in side if _is_status(fact)}
    failed = {_place(fact) for fact in facts[1] if _is_status(fact) and fact.value == FAILED}
    # The digest is used only if tables and keys are not known.
    counted = {_place(fact) for side in facts for fact in side if fact.probe == DUMP_PROBE and not fact.auto}

    def is_known(fact: Fact) -> bool:
        if fact.probe != DUMP_PROBE:
            return True
        place = _place(fact)
        if place in unknown:
            return place in failed and _is_status(fact)
        return not fact.auto or place not in counted

    return [fact for fact in facts[0] if is_known(fact)], [fact for fact in facts[1] if is_known(fact)]


def _is_status(fact: Fact) -> bool:
    return fact.probe == DUMP_PROBE and fact.key.endswith("/.")


def is_of_directory(fact: Fact) -> bool:
    """Return whether a fact reports that its directory could not be read."""
    place = fact.at.decode("utf-8", "surrogateescape")
    # A fact of a list contains the probe that it is about.
    return fact.key == (f"{place}/{UNREAD}" if place else UNREAD) and not fact.by


def _is_of_place(fact: Fact) -> bool:
    return fact.probe in WITH_PLACES and fact.key.endswith("/" + UNREAD)


def _is_unread(fact: Fact) -> bool:
    return is_of_directory(fact) or _is_of_place(fact)


def _is_in(fact: Fact, directories: set[tuple[str, EnvPath]], places: set[tuple[str, str]]) -> bool:
    return (fact.probe, fact.at) in directories or (fact.probe, _place(fact)) in places


def _place(fact: Fact) -> str:
    return fact.key.rpartition("/")[0]


# Pairs of facts as changes, rows and words.

ARROW = " → "
NODE_MODULES = "node_modules"
DUMP = "dump"
LABELS = {"declared": "mismatch"}
"""Words before rows, where these differ from the name of the probe: installed and requested packages differ."""
"""The probe of service dumps."""
OF_A_DUMP = {".": "not dumped", "contents": "other contents"}
"""Names of facts about a whole dump."""
MAX_VALUE = 40
WITH_REVISION = ("dpkg", "rpm", "apk", "conda")
MASKED = "***"
SECRET = ("env", "config")
"""Probes whose values are fingerprints or hidden, so that only a difference is displayed."""


NAMED = ("hook", "program")
"""Probes with values that only differ or not."""


@dataclass(frozen=True, slots=True)
class FactRow:
    """The changes of one probe in one place, the most important first."""

    probe: str
    place: str
    changes: tuple[FactChange, ...]
    nested: tuple[FactChange, ...] = ()
    """Changes of packages in the `node_modules` of other packages; only their number is displayed."""

    @property
    def label(self) -> str:
        """The word before the row."""
        return LABELS.get(self.probe, self.probe)


def pair_facts(before: Iterable[Fact], after: Iterable[Fact]) -> tuple[FactChange, ...]:
    """Return changes by key, from facts that only the earlier snapshot has and facts that only the later one has."""
    keys: dict[tuple[str, str], tuple[list[Fact], list[Fact]]] = {}
    for side, facts in enumerate(without_unread((list(before), list(after)))):
        for fact in facts:
            keys.setdefault((fact.probe, fact.key), ([], []))[side].append(fact)
    return tuple(change for key in sorted(keys) for change in _pair(*keys[key]))


def _pair(before: list[Fact], after: list[Fact]) -> Iterator[FactChange]:
    for old, new in zip_longest(_by_value(before), _by_value(after)):
        fact = new or old
        assert fact is not None
        values = (old.value if old else None, new.value if new else None)
        if values[0] != values[1]:
            yield FactChange(fact.probe, fact.key, *values, fact.at, fact.by, fact.auto, role_of(fact.auto))


def role_of(is_dependency: bool) -> Role:
    """Return the role of a package that is in no known list."""
    return Role.TRANSITIVE if is_dependency else Role.DIRECT


def _by_value(facts: list[Fact]) -> list[Fact]:
    # Several directories may have equal facts for a key.
    return [fact for _, fact in sorted({fact.value: fact for fact in facts}.items())]


def without_secrets(changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
    """Return the changes with secret values masked."""
    return tuple(
        replace(
            change,
            before=None if change.before is None else MASKED,
            after=None if change.after is None else MASKED,
        )
        if change.probe in SECRET
        else change
        for change in changes
    )


def fact_rows(changes: Iterable[FactChange], order: Sequence[str]) -> tuple[FactRow, ...]:
    """Return the rows of a comparison: by probe in this order, unknown probes last, then by importance and place."""
    places: dict[tuple[str, str], list[FactChange]] = {}
    for change in by_importance(changes):
        places.setdefault((change.probe, _place_of_row(change)), []).append(change)
    ranks = {probe: number for number, probe in enumerate(order)}
    ordered = sorted(
        places, key=lambda row: (ranks.get(row[0], len(ranks)), row[0], role_rank(places[row][0]), row[1])
    )
    return tuple(_row(probe, place, places[probe, place]) for probe, place in ordered)


def _row(probe: str, place: str, changes: Sequence[FactChange]) -> FactRow:
    named = tuple(change for change in changes if change.role is not Role.NESTED)
    return FactRow(probe, place, named, tuple(change for change in changes if change.role is Role.NESTED))


def _place_of_row(change: FactChange) -> str:
    """Return the place of a change; for a nested package the outermost `node_modules`."""
    place = place_of(change)
    if change.role is not Role.NESTED:
        return place
    parts = place.split("/")
    return "/".join(parts[: parts.index(NODE_MODULES) + 1]) if NODE_MODULES in parts else place


def counts_of(changes: Iterable[FactChange]) -> str:
    """Return the numbers of changes by their marks: `+6 ~11 −32`."""
    marks = [mark_of(change) for change in changes]
    return " ".join(f"{mark}{marks.count(mark):,}" for mark in "+~−" if mark in marks)


def fact_words(change: FactChange) -> str:
    """`flask 3.0.1`, `click 8.1.7 → 8.5.1`; only the name if values are secret."""
    if name_of(change) == UNREAD:
        return f"not read: {change.before if change.after is None else change.after}"
    if change.probe in SECRET or change.probe in NAMED:
        return name_of(change)
    if change.probe == DUMP and name_of(change) in OF_A_DUMP:
        return OF_A_DUMP[name_of(change)]
    if change.probe in TABLE_PROBES:
        return database_words(name_of(change), change.before, change.after)
    before, after = short_values(change)
    values = ARROW.join(value for value in (before, after) if value)
    return f"{name_of(change)} {values}".rstrip()


def row_cells(row: FactRow, limit: int, words: Callable[[FactChange], str] | None = None) -> list[str]:
    """Return a row in cells: at most `limit` cells of changes with their marks, then the numbers of the others."""
    shown = row.changes if len(row.changes) <= limit else row.changes[: limit - 1]
    cells = [f"{mark_of(change)} {(words or fact_words)(change)}" for change in shown]
    rest = row.changes[len(shown) :]
    cells += [f"{counts_of(rest)} more"] if rest else []
    return [*cells, f"nested {counts_of(row.nested)}"] if row.nested else cells


def facts_from_values(values: Iterable[Mapping[str, Any]]) -> tuple[FactChange, ...]:
    """Return the changes that `--json` printed."""
    return tuple(
        FactChange(
            one["probe"],
            one["key"],
            one["before"],
            one["after"],
            by=one.get("command") or "",
            role=Role(one.get("role", Role.DIRECT.value)),
        )
        for one in values
    )


def short_values(change: FactChange) -> tuple[str | None, str | None]:
    """Return both values as displayed: a distribution's version without its revision, unless only that differs."""
    values = (change.before, change.after)
    if change.by not in WITH_REVISION:
        return _cut(values[0]), _cut(values[1])
    short = tuple(value and value.partition(":")[2 * (":" in value)].rpartition("-") for value in values)
    names = tuple(parts and (parts[0] or parts[2]) for parts in short)
    return (names[0], names[1]) if names[0] != names[1] else (_cut(values[0]), _cut(values[1]))


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= MAX_VALUE else value[: MAX_VALUE - 1] + "…"


OF_FILES = ("sqlite", "redis", "parquet", "duckdb", "csv", "notebook", "env")
"""Probes whose places are files.

A fact of another probe about the top itself has the name of a list in its place.
"""
BY_FILES = "tools"
"""The probe that names the file in which a tool's version is set."""
STORY_VARIABLES = frozenset(("env", "dump"))
"""Probes whose sealed facts a summary counts without names."""
PLACE = (RESERVED + b"/" + FACTS).decode("ascii")


def fact_ids(reader: CatFile, tree: str) -> dict[str, str]:
    """Return the ids of the fact texts, by probe, of a commit or tree given by its full id."""
    from git_envhist.objects.trees import FILE, decode_tree  # loaded late: a list compares nothing
    from git_envhist.snapshots.fact_text import NAME, SUFFIX  # loaded late: a list compares nothing

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

    A probe must have a text in both. `find_key` finds the keys of sealed facts; `opens` are the probes whose sealed
    facts are compared, by default all.
    """
    from git_envhist.diff.required_packages import PROBE as DECLARED
    from git_envhist.diff.required_packages import (  # loaded late: a list compares nothing
        assign_roles,
    )
    from git_envhist.probes import managers_with_lists  # loaded late: a list compares nothing

    old, new = fact_ids(reader, before), fact_ids(reader, after)
    changes: list[FactChange] = []
    for probe in sorted(old.keys() & new.keys() - {DECLARED}):
        find = find_key if opens is None or probe in opens else None
        changes += _differences(reader, probe, old, new, find)
    if DUMP in new and DUMP not in old:
        last = _last_dumped(reader, before)
        if DUMP in last:
            changes += _differences(
                reader, DUMP, last, new, find_key if opens is None or DUMP in opens else None
            )
        else:
            changes += _failed_dumps(reader, new[DUMP])
    declared: list[Fact] = []
    if any(change.probe in managers_with_lists() for change in changes):
        opened = (_opened(reader, DECLARED, ids, find_key) for ids in (old, new) if DECLARED in ids)
        declared = [fact for text in opened for fact in _facts(DECLARED, text)]
    return order_by_probe(by_importance(assign_roles(changes, declared)))


MAX_BACK = 200
"""The number of snapshots among which the last known state of the services is searched."""
WITH_SERVICES = "with services"
"""The end of the title of a restore that restored services too."""


def _last_dumped(reader: CatFile, commit: str) -> dict[str, str]:
    """Return the facts of the newest snapshot up to a commit that has facts about services; none if there is none.

    A snapshot after a restore has no dump of its own: its services are as before, or as in the restored one.
    """
    from git_envhist.snapshots.log import read_snapshot  # loaded late: few environments have services

    following: str | None = commit
    for _ in range(MAX_BACK):
        answer = reader.read(following) if following is not None else None
        if answer is None or answer.kind != "commit":
            break
        assert following is not None
        ids = fact_ids(reader, following)
        if DUMP in ids:
            return ids
        snapshot = read_snapshot(following, answer.data)
        following = snapshot.restored_from if restored_services(snapshot) else snapshot.parent
    return {}


def restored_services(snapshot: Snapshot) -> bool:
    """Return whether a snapshot was taken by a restore that restored services too."""
    return snapshot.restore is not None and snapshot.intent.endswith(f"{WITH_SERVICES})")


def _failed_dumps(reader: CatFile, oid: str) -> list[FactChange]:
    """Return the services that could not be dumped, if the earlier snapshot has no facts about services."""
    from git_envhist.snapshots.fact_text import read_fact_text  # loaded late: a list compares nothing

    facts = _facts(DUMP, read_fact_text(DUMP, _text(reader, oid)))
    return [FactChange(DUMP, fact.key, "", fact.value) for fact in facts if fact.value == FAILED]


def facts_for_summary(
    reader: CatFile, before: str, after: str, find_key: FindFactsKey | None
) -> tuple[FactChange, ...]:
    """Return the differences for a summary, which is stored unsealed: of sealed facts only variables."""
    return compare_facts(reader, before, after, find_key, STORY_VARIABLES)


def _differences(
    reader: CatFile, probe: str, old: Mapping[str, str], new: Mapping[str, str], find_key: FindFactsKey | None
) -> tuple[FactChange, ...]:
    """Return the differences of one probe; none where sealed facts differ and cannot be opened."""
    from git_envhist.snapshots.fact_text import (  # loaded late: a list compares nothing
        SUFFIX,
        differing_facts,
    )

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
    from git_envhist.snapshots.fact_text import (  # loaded late: a list compares nothing
        SUFFIX,
        read_fact_text,
        write_facts,
    )

    data, twin = _text(reader, ids[probe]), ids.get(probe + SUFFIX)
    if twin is None:
        return data
    from git_envhist.snapshots.sealed_facts import open_facts  # loaded late: where such a file is sealed

    sealed = open_facts(find_key, probe, _text(reader, twin))
    plain = read_fact_text(probe, data)
    if sealed is None or plain is None or sealed.version != plain.version:
        return None
    return write_facts(probe, plain.version, [*plain.lines, *sealed.lines])


def compare_disagreements(
    reader: CatFile, before: str, after: str, find_key: FindFactsKey | None = None
) -> tuple[FactChange, ...]:
    """Return new and resolved disagreements between required and installed packages."""
    from git_envhist.diff.required_packages import PROBE as DECLARED  # loaded late: a list compares nothing
    from git_envhist.snapshots.fact_text import SUFFIX  # loaded late: a list compares nothing

    sides = [_package_texts(reader, side) for side in (before, after)]
    if sides[0] == sides[1] or not all(DECLARED in side for side in sides):
        return ()
    opened = [
        {probe: _opened(reader, probe, side, find_key) for probe in side if not probe.endswith(SUFFIX)}
        for side in sides
    ]
    versions = [{probe: text.version for probe, text in side.items() if text is not None} for side in opened]
    # Facts of different versions of a probe are not compared, nor facts that only one side has.
    if versions[0] != versions[1] or DECLARED not in versions[0]:
        return ()
    facts = [{probe: _facts(probe, text) for probe, text in side.items()} for side in opened]
    if any(is_of_directory(fact) for side in facts for listed in side.values() for fact in listed):
        return ()
    found = [set(_disagreements(side)) for side in facts]
    return pair_facts(found[0] - found[1], found[1] - found[0])


def _package_texts(reader: CatFile, tree: str) -> dict[str, str]:
    from git_envhist.diff.required_packages import COMPARED  # loaded late: a list compares nothing
    from git_envhist.diff.required_packages import PROBE as DECLARED
    from git_envhist.snapshots.fact_text import SUFFIX  # loaded late: a list compares nothing

    wanted = (DECLARED, *COMPARED)
    return {
        probe: oid for probe, oid in fact_ids(reader, tree).items() if probe.removesuffix(SUFFIX) in wanted
    }


def _opened(
    reader: CatFile, probe: str, ids: Mapping[str, str], find_key: FindFactsKey | None
) -> FactText | None:
    from git_envhist.snapshots.fact_text import read_fact_text  # loaded late: a list compares nothing

    text = _whole_text(reader, probe, ids, find_key)
    return read_fact_text(probe, _text(reader, ids[probe]) if text is None else text)


def _disagreements(facts: Mapping[str, list[Fact]]) -> tuple[Fact, ...]:
    from git_envhist.diff.required_packages import (  # loaded late: a list compares nothing
        COMPARED,
        disagreements,
    )
    from git_envhist.diff.required_packages import PROBE as DECLARED

    installed = [fact for probe in COMPARED for fact in facts.get(probe, ())]
    return disagreements(facts.get(DECLARED, []), installed)


def _facts(probe: str, text: FactText | None) -> list[Fact]:
    from git_envhist.snapshots.fact_text import read_fact  # loaded late: a list compares nothing

    lines = text.lines if text is not None else []
    return [fact for line in lines if (fact := read_fact(probe, line)) is not None]


def compare_snapshots(
    git: Git,
    before: str | None,
    after: str,
    pathspecs: Sequence[bytes],
    renames: int | None = None,
    find_key: FindFactsKey | None = None,
) -> tuple[tuple[Change, ...], tuple[FactChange, ...]]:
    """Return the changed paths and the changed facts between two trees."""
    from git_envhist.diff.compare_snapshots import compare  # loaded late: a list compares nothing

    changes = compare(git, before, after, pathspecs=pathspecs, renames=renames)
    return changes, changed_facts(git, before, after, pathspecs, find_key)


def changed_facts(
    git: Git,
    before: str | None,
    after: str,
    pathspecs: Sequence[bytes] = (),
    find_key: FindFactsKey | None = None,
) -> tuple[FactChange, ...]:
    """Return the changed facts between two trees, with pathspecs (as from the top) only those about matching paths."""
    from git_envhist.git.cat_file import CatFile  # loaded late: a list compares nothing

    if before is None:
        return ()
    with CatFile(git) as reader:
        changes = facts_between(reader, before, after, find_key)
    if not pathspecs or not changes:
        return changes
    from git_envhist.git.pathspecs import match_paths  # loaded late: few calls have paths

    directories = {change.at for change in changes} - {b""}
    places = sorted({*directories, *map(path_of_fact_change, changes)} - {b""})
    meant = match_paths(git, places, directories, pathspecs) if places else frozenset()
    return tuple(change for change in changes if path_of_fact_change(change) in meant)


def facts_between(
    reader: CatFile, before: str | None, after: str, find_key: FindFactsKey | None = None
) -> tuple[FactChange, ...]:
    """Return the changed facts between two trees; none for the first snapshot."""
    if before is None:
        return ()
    changes = (
        *compare_facts(reader, before, after, find_key),
        *compare_disagreements(reader, before, after, find_key),
    )
    return order_by_probe(changes)


def order_by_probe(changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
    """Return the changes in the order of the probes; those of one probe keep their order."""
    from git_envhist.probes import PROBES  # loaded late: only new facts need it

    places = {probe: place for place, probe in enumerate(PROBES)}
    return tuple(sorted(changes, key=lambda change: places.get(change.probe, len(places))))


def path_of_fact_change(change: FactChange) -> bytes:
    """Return the path that a change is about: its directory, or its file."""
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
