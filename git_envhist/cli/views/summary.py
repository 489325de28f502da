"""What `git envdiff` shows by itself: packages and the like, variables by their keys, files folded by directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from git_envhist.cli.terminal import SPELLED_PLAINLY, pad, shorten, width
from git_envhist.cli.views.diff_source import (
    DiffContents,
    DiffSource,
    DiffStyle,
    is_environment_file,
    is_sealed,
)
from git_envhist.cli.views.stat import shown_path
from git_envhist.diff.classes import has_other_bytes, is_nested_repository, split_machine_differences
from git_envhist.diff.config_files import compare_settings, reader_of
from git_envhist.diff.fact_keys import name_of
from git_envhist.diff.facts import SECRET, SERVICE, FactRow, fact_rows, fact_words, row_cells
from git_envhist.diff.importance import mark_of
from git_envhist.diff.summary import (
    MARKS,
    SummaryRow,
    count,
    describe_marks,
    fold_by_directory,
    with_ascii_signs,
)
from git_envhist.errors import SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.lazy import replace
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange, StoredAs
from git_envhist.probes import PACKAGES, TOOLS, kinds
from git_envhist.probes.variables import VariableChange, compare_variables
from git_envhist.text import escape

# The rows of a story: a label, a place, and cells, as many on a line as fit.

LABEL_COLUMNS = 10
PLACE_COLUMNS = 15
GAP = "  "
WIDE_GAP = "   "
"""Between cells of several words."""
SLOTS = {"+": "added", "−": "removed", "~": "modified", "→": "modified"}


def place_row(label: str, place: str, cells: Sequence[str], manner: DiffStyle) -> Iterator[bytes]:
    """A row about one place, which stands in a column of its own."""
    told = pad(place, PLACE_COLUMNS - 1) + " " if place else " " * PLACE_COLUMNS
    return row_of_cells(label, cells, manner, told, WIDE_GAP)


def row_of_cells(
    label: str, cells: Sequence[str], manner: DiffStyle, place: str = "", gap: str = GAP
) -> Iterator[bytes]:
    """A label and its cells, as many on a line as fit; whole lines of text."""
    indent = LABEL_COLUMNS + (PLACE_COLUMNS if place else 0)
    room = manner.columns - indent if manner.columns else None
    head = manner.palette.paint("heading", label) + " " * max(1, LABEL_COLUMNS - len(label)) + place
    # A place too long for its column stands on a line of its own.
    if room is not None and width(place) > PLACE_COLUMNS:
        yield _encoded(head, manner)
        head = " " * indent
    for line in _wrap(cells, room, gap):
        yield _encoded(head + gap.join(_painted(cell, manner) for cell in line), manner)
        head = " " * indent


def _encoded(line: str, manner: DiffStyle) -> bytes:
    told = line.translate(SPELLED_PLAINLY) if manner.plain else line
    return (told.rstrip(" ") + "\n").encode("utf-8", "surrogateescape")


def _wrap(cells: Sequence[str], room: int | None, gap: str) -> Iterator[list[str]]:
    if room is None:
        yield list(cells)
        return
    line: list[str] = []
    used = 0
    for cell in (shorten(cell, max(room, 1)) for cell in cells):
        if line and used + len(gap) + width(cell) > room:
            yield line
            line, used = [], 0
        used += width(cell) + (len(gap) if line else 0)
        line.append(cell)
    yield line


def _painted(cell: str, manner: DiffStyle) -> str:
    slot = SLOTS.get(cell[:1])
    told = with_ascii_signs(cell) if manner.columns is None else cell
    return manner.palette.paint(slot, told) if slot else told


# What differs beside the files, as rows: packages, services, databases, by probe and place.

HOOK = "hook"
MAX_CELLS = 10
MAX_PLACES = 6


def fact_texts(changes: Sequence[FactChange], manner: DiffStyle, *, secrets: bool = False) -> Iterator[bytes]:
    """The rows; `secrets`: also of variables, by their keys, which a diff reads where they stand."""
    told = [change for change in changes if secrets or change.probe not in SECRET]
    rows = fact_rows(told, tuple(kinds()))
    for probe, found in groupby(rows, key=attrgetter("probe")):
        places = list(found)
        for row in places[:MAX_PLACES]:
            yield from place_row(escape(probe), escape(row.place), _fact_cells(row), manner)
        if len(places) > MAX_PLACES:
            changed = sum(len(row.changes) + len(row.nested) for row in places[MAX_PLACES:])
            rest = f"… {changed:,} more in {len(places) - MAX_PLACES:,} places"
            yield from place_row(escape(probe), "", [rest], manner)


def _fact_cells(row: FactRow) -> list[str]:
    return row_cells(row, MAX_CELLS, lambda change: escape(_words(change)))


def _words(change: FactChange) -> str:
    """What a fact says; of a service whose name is not its program's how it was called, of a hook whose it is."""
    told = fact_words(change)
    if change.probe == HOOK and change.by:
        return f"{told} ({change.by})"
    if change.probe != SERVICE or change.by.split(" ")[0].rpartition("/")[2] == name_of(change):
        return told
    return f"{told} ({change.by})"


# Changed files of configuration by their keys: read from both sides when a difference is shown, and kept nowhere.

PROBE = "config"
MAX_FILES = 60
"""Of more at once than these nobody reads the keys."""
MASKED_VALUE = "***"


def config_texts(source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """The rows: a file, and the keys in which it differs."""
    yield from fact_texts(config_facts(source), manner, secrets=True)


def config_facts(source: DiffSource) -> tuple[FactChange, ...]:
    """The keys that differ, as facts without values."""
    files = [change for change in source.changes if _is_told(change)]
    if not files or len(files) > MAX_FILES:
        return ()
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        return tuple(fact for change in files for fact in _keys(change, contents))


def _is_told(change: Change) -> bool:
    """Whether a file was there before and is one of configuration; sealed ones are told by variables or not at all."""
    if change.kind is not ChangeKind.MODIFIED or reader_of(change.path) is None:
        return False
    sides = (change.before, change.after)
    plain = all(side and side.kind is EntryKind.FILE and side.stored is StoredAs.PLAIN for side in sides)
    return plain and has_other_bytes(change)


def _keys(change: Change, contents: DiffContents) -> Iterable[FactChange]:
    path = change.path.decode("utf-8", "surrogateescape")
    for mark, key in compare_settings(change.path, *contents.both(change)):
        before, after = (None if mark == lacking else MASKED_VALUE for lacking in "+−")
        # A key may have slashes itself.
        yield FactChange(PROBE, f"{path}{'//' if '/' in key else '/'}{key}", before, after, change.path)


MAX_ROWS = 12
MASKED = "***"
ARROW = " → "


def story_texts(source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """The rows, one a class of things that differ; nothing where nothing does."""
    if source.machines:
        yield from machine_diff_text(source, manner)
        return
    in_env, in_files = split_by_class(source.changes)
    yield from fact_texts(source.facts, manner)
    yield from variable_texts(source, in_env, manner)
    yield from config_texts(source, manner)
    yield from file_texts(in_files, manner)


def variable_texts(source: DiffSource, changes: Sequence[Change], manner: DiffStyle) -> Iterator[bytes]:
    """The rows of files of variables, by their keys."""
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        for change in changes:
            place = shown_path(change.path, manner).decode("utf-8", "surrogateescape")
            cells = _variable_cells(change, contents, source.facts, manner)
            yield from place_row("env", place, cells, manner)


def file_texts(changes: Sequence[Change], manner: DiffStyle) -> Iterator[bytes]:
    """The row of files, folded by directory; nothing where there are none."""
    if changes:
        cells = [_file_cell(row, manner) for row in fold_by_directory(changes, MAX_ROWS)]
        yield from row_of_cells("files", cells, manner)


def split_by_class(changes: Iterable[Change]) -> tuple[list[Change], list[Change]]:
    """The changes that are told by variables, and all others."""
    in_env: list[Change] = []
    in_files: list[Change] = []
    for change in changes:
        told_by_variables = is_environment_file(change) and has_other_bytes(change)
        (in_env if told_by_variables else in_files).append(change)
    return in_env, in_files


def variable_facts(source: DiffSource, *, reveal: bool) -> tuple[FactChange, ...]:
    """The variables that differ in sealed files, as facts; what cannot be opened says nothing."""
    facts = []
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        for change in split_by_class(source.changes)[0]:
            try:
                variables = compare_variables(*contents.both(change))
            except SealingError:
                facts += [_masked(fact) for fact in _known_by_name(change, source.facts)]
                continue
            for variable in variables:
                key = change.path.decode("utf-8", "surrogateescape") + "/" + variable.key
                before, after = (_value(side, reveal) for side in (variable.before, variable.after))
                facts.append(FactChange("env", key, before, after))
    return tuple(facts)


def _value(value: bytes | None, reveal: bool) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "surrogateescape") if reveal else MASKED


def _known_by_name(change: Change, facts: Sequence[FactChange]) -> list[FactChange]:
    """Of a file that no key here opens: the variables that only one side sets, by what is noted of it."""
    place = change.path.decode("utf-8", "surrogateescape") + "/"
    found = [fact for fact in facts if fact.probe == "env" and fact.key.startswith(place)]
    # By different keys the same value looks different: of what both sides set nothing is known.
    return [fact for fact in found if fact.before is None or fact.after is None]


def _masked(fact: FactChange) -> FactChange:
    return replace(fact, before=fact.before and MASKED, after=fact.after and MASKED)


def _variable_cells(
    change: Change, contents: DiffContents, facts: Sequence[FactChange], manner: DiffStyle
) -> list[str]:
    mark = MARKS[change.kind]
    try:
        variables = compare_variables(*contents.both(change))
    except SealingError as failure:
        known = [f"{mark_of(fact)} {escape(name_of(fact))}" for fact in _known_by_name(change, facts)]
        return [*known, f"{mark} {escape(failure.message)}"]
    return [_variable_cell(variable, manner) for variable in variables] or [f"{mark} no variable differs"]


def _variable_cell(variable: VariableChange, manner: DiffStyle) -> str:
    told = f"{variable.mark} {variable.key}"
    if not manner.reveal:
        return told
    values = [escape(value) for value in (variable.before, variable.after) if value is not None]
    return f"{told} {ARROW.join(values)}"


def _file_cell(row: SummaryRow, manner: DiffStyle) -> str:
    if row.more:
        place = _text(row.path, manner) if row.path else ""
        return f"{place}… {row.more:,} more {describe_marks(row.count)}"
    if row.change is None:
        places = f"in {row.places:,} places " if row.places > 1 else ""
        sort = f" ({row.sort})" if row.sort else ""
        return f"{_text(row.path, manner)} {places}{describe_marks(row.count)}{sort}"
    return _change_cell(row.change, manner)


def _change_cell(change: Change, manner: DiffStyle) -> str:
    mark, side = MARKS[change.kind], change.after or change.before
    assert side is not None
    is_directory = side.kind is EntryKind.DIRECTORY and not is_nested_repository(change)
    path = _text(change.path + b"/" if is_directory and change.path else change.path, manner)
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        return f"{mark} {_text(change.before.path, manner)}{ARROW}{path}"
    # Of a file whose bytes are the same it is worth saying what is not.
    words = change.attributes if not has_other_bytes(change) else ()
    remark = ", ".join([*(("sealed",) if is_sealed(change) else ()), *words])
    return f"{mark} {path}" + (f" ({remark})" if remark else "")


def _text(path: bytes, manner: DiffStyle) -> str:
    return shown_path(path, manner).decode("utf-8", "surrogateescape")


# A story between two machines: where a reason is looked for first, and last, in few words, what differs by nature.

SYSTEM = "system"
"""The probe of the machine's own packages: there are many, and most have nothing to do with it."""


def machine_diff_text(source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """Packages, tools, variables, the system's packages; services and databases; files; what differs by nature."""
    first, system, others = _by_rank(source.facts)
    apart = split_machine_differences(source.changes, lambda place: _is_explained(place, first))
    in_env, in_files = split_by_class(apart.remaining)
    yield from fact_texts(first, manner)
    yield from variable_texts(source, in_env, manner)
    yield from fact_texts(system, manner)
    yield from fact_texts(others, manner)
    yield from config_texts(replace(source, changes=apart.remaining), manner)
    yield from file_texts(in_files, manner)
    cells = [f"{escape(why)} {describe_marks(count(changes))}" for why, changes in apart.by_nature]
    if cells:
        yield from row_of_cells(
            "by nature", [*cells, "(as between any two machines; --no-fold lists them)"], manner
        )


def _by_rank(
    facts: Sequence[FactChange],
) -> tuple[list[FactChange], list[FactChange], list[FactChange]]:
    classes = kinds()
    first: list[FactChange] = []
    system: list[FactChange] = []
    others: list[FactChange] = []
    for fact in facts:
        if fact.probe == SYSTEM:
            system.append(fact)
        elif classes.get(fact.probe) in (PACKAGES, TOOLS) or fact.probe == "program":
            first.append(fact)
        elif fact.probe not in SECRET:
            others.append(fact)
    return first, system, others


def _is_explained(place: bytes, facts: Sequence[FactChange]) -> bool:
    """Whether packages are told to differ that lie in a directory."""
    text = place.decode("utf-8", "surrogateescape")
    above = text.rpartition("/")[0]
    return any(
        fact.at == place
        or fact.at.startswith(place + b"/")
        or fact.key.startswith((text + "/", (above or text) + "/"))
        for fact in facts
    )
