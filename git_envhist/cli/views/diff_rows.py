"""The default output of `git envdiff`: rows of packages, services, databases, variables, configuration and files.

A row has a label, a place and cells (`row_of_cells`). `story_texts` prints all rows; `machine_diff_text` orders them
for two machines and counts the differences that are normal there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from git_envhist.cli.terminal import ASCII_SYMBOLS, pad, shorten, width
from git_envhist.cli.views.diff_source import (
    DiffContents,
    DiffSource,
    DiffStyle,
    is_sealed,
    is_sealed_variables_file,
)
from git_envhist.cli.views.git_diff_formats import shown_path
from git_envhist.diff.config_files import compare_settings, reader_of
from git_envhist.diff.facts import SECRET, SERVICE, FactRow, fact_rows, fact_words, row_cells
from git_envhist.diff.importance import mark_of
from git_envhist.diff.path_classes import content_differs, is_nested_repository, split_machine_differences
from git_envhist.diff.split_fact_key import name_of
from git_envhist.diff.summary import (
    MARKS,
    SummaryRow,
    count_changes,
    describe_marks,
    fold_by_directory,
    with_ascii_signs,
)
from git_envhist.errors import SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.lazy import replace
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange, StoredAs
from git_envhist.printable_text import escape
from git_envhist.probes import PACKAGES, TOOLS, kinds
from git_envhist.probes.variables import VariableChange, compare_variables

# Rows: a label, a place, and as many cells on a line as fit.

LABEL_COLUMNS = 10
PLACE_COLUMNS = 15
GAP = "  "
WIDE_GAP = "   "
"""The gap between cells of several words."""
SLOTS = {"+": "added", "−": "removed", "~": "modified", "→": "modified"}


def place_row(label: str, place: str, cells: Sequence[str], style: DiffStyle) -> Iterator[bytes]:
    """Yield a row about one place, which has a column of its own."""
    text = pad(place, PLACE_COLUMNS - 1) + " " if place else " " * PLACE_COLUMNS
    return row_of_cells(label, cells, style, text, WIDE_GAP)


def row_of_cells(
    label: str, cells: Sequence[str], style: DiffStyle, place: str = "", gap: str = GAP
) -> Iterator[bytes]:
    """Yield the lines of a row: a label and its cells, as many on a line as fit."""
    indent = LABEL_COLUMNS + (PLACE_COLUMNS if place else 0)
    columns = style.columns - indent if style.columns else None
    head = style.palette.paint("heading", label) + " " * max(1, LABEL_COLUMNS - len(label)) + place
    # A place that is too long for its column gets a line of its own.
    if columns is not None and width(place) > PLACE_COLUMNS:
        yield _encoded(head, style)
        head = " " * indent
    for line in _wrap(cells, columns, gap):
        yield _encoded(head + gap.join(_painted(cell, style) for cell in line), style)
        head = " " * indent


def _encoded(line: str, style: DiffStyle) -> bytes:
    text = line.translate(ASCII_SYMBOLS) if style.plain else line
    return (text.rstrip(" ") + "\n").encode("utf-8", "surrogateescape")


def _wrap(cells: Sequence[str], columns: int | None, gap: str) -> Iterator[list[str]]:
    if columns is None:
        yield list(cells)
        return
    line: list[str] = []
    used = 0
    for cell in (shorten(cell, max(columns, 1)) for cell in cells):
        if line and used + len(gap) + width(cell) > columns:
            yield line
            line, used = [], 0
        used += width(cell) + (len(gap) if line else 0)
        line.append(cell)
    yield line


def _painted(cell: str, style: DiffStyle) -> str:
    slot = SLOTS.get(cell[:1])
    text = with_ascii_signs(cell) if style.columns is None else cell
    return style.palette.paint(slot, text) if slot else text


# Facts as rows: packages, services, databases, by probe and place.

HOOK = "hook"
MAX_CELLS = 10
MAX_PLACES = 6


def fact_texts(changes: Sequence[FactChange], style: DiffStyle, *, secrets: bool = False) -> Iterator[bytes]:
    """Yield the rows; with `secrets` also those of variables, which a diff reads from the files."""
    text = [change for change in changes if secrets or change.probe not in SECRET]
    rows = fact_rows(text, tuple(kinds()))
    for probe, found in groupby(rows, key=attrgetter("probe")):
        places = list(found)
        for row in places[:MAX_PLACES]:
            yield from place_row(escape(row.label), escape(row.place), _fact_cells(row), style)
        if len(places) > MAX_PLACES:
            changed = sum(len(row.changes) + len(row.nested) for row in places[MAX_PLACES:])
            rest = f"… {changed:,} more in {len(places) - MAX_PLACES:,} places"
            yield from place_row(escape(probe), "", [rest], style)


def _fact_cells(row: FactRow) -> list[str]:
    return row_cells(row, MAX_CELLS, lambda change: escape(_words(change)))


def _words(change: FactChange) -> str:
    """Return the text of a fact, with the command of a service and the program of a hook."""
    text = fact_words(change)
    if change.probe == HOOK and change.by:
        return f"{text} ({change.by})"
    if change.probe != SERVICE or change.by.split(" ")[0].rpartition("/")[2] == name_of(change):
        return text
    return f"{text} ({change.by})"


# Changed configuration keys: read from both sides when a difference is shown, and not stored.

PROBE = "config"
MAX_FILES = 60
"""The highest number of files whose keys are listed."""
MASKED_VALUE = "***"


def config_texts(source: DiffSource, style: DiffStyle) -> Iterator[bytes]:
    """Yield the rows: a file, and the keys that differ."""
    yield from fact_texts(config_facts(source), style, secrets=True)


def config_facts(source: DiffSource) -> tuple[FactChange, ...]:
    """Return the keys that differ, as facts without values."""
    files = [change for change in source.changes if _is_shown(change)]
    if not files or len(files) > MAX_FILES:
        return ()
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        return tuple(fact for change in files for fact in _keys(change, contents))


def _is_shown(change: Change) -> bool:
    """Return whether a change is a configuration file that existed before; sealed ones are shown by variables."""
    if change.kind is not ChangeKind.MODIFIED or reader_of(change.path) is None:
        return False
    sides = (change.before, change.after)
    plain = all(side and side.kind is EntryKind.FILE and side.stored is StoredAs.PLAIN for side in sides)
    return plain and content_differs(change)


def _keys(change: Change, contents: DiffContents) -> Iterable[FactChange]:
    path = change.path.decode("utf-8", "surrogateescape")
    for mark, key in compare_settings(change.path, *contents.both(change)):
        before, after = (None if mark == lacking else MASKED_VALUE for lacking in "+−")
        # A key may contain slashes.
        yield FactChange(PROBE, f"{path}{'//' if '/' in key else '/'}{key}", before, after, change.path)


MAX_ROWS = 12
MASKED = "***"
ARROW = " → "


def story_texts(source: DiffSource, style: DiffStyle) -> Iterator[bytes]:
    """Yield one row per class; nothing if nothing differs."""
    if source.machines:
        yield from machine_diff_text(source, style)
        return
    in_env, in_files = split_by_class(source.changes)
    yield from fact_texts(source.facts, style)
    yield from variable_texts(source, in_env, style)
    yield from config_texts(source, style)
    yield from file_texts(in_files, style)


def variable_texts(source: DiffSource, changes: Sequence[Change], style: DiffStyle) -> Iterator[bytes]:
    """Yield a row for each file of variables: the variables that differ, with values only under `--reveal`."""
    with CatFile(source.git) as reader:
        contents = DiffContents(source, reader)
        for change in changes:
            place = shown_path(change.path, style).decode("utf-8", "surrogateescape")
            cells = _variable_cells(change, contents, source.facts, style)
            yield from place_row("env", place, cells, style)


def file_texts(changes: Sequence[Change], style: DiffStyle) -> Iterator[bytes]:
    """Yield the rows of files, grouped by directory."""
    if changes:
        cells = [_file_cell(row, style) for row in fold_by_directory(changes, MAX_ROWS)]
        yield from row_of_cells("files", cells, style)


def split_by_class(changes: Iterable[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes that are shown by variables, and all others."""
    in_env: list[Change] = []
    in_files: list[Change] = []
    for change in changes:
        has_variables = is_sealed_variables_file(change) and content_differs(change)
        (in_env if has_variables else in_files).append(change)
    return in_env, in_files


def variable_facts(source: DiffSource, *, reveal: bool) -> tuple[FactChange, ...]:
    """Return the changed variables in sealed files as facts; files that cannot be opened are skipped."""
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
    """Return the variables that only one side sets, from the recorded names, for a file without a key."""
    place = change.path.decode("utf-8", "surrogateescape") + "/"
    found = [fact for fact in facts if fact.probe == "env" and fact.key.startswith(place)]
    # Sealed with different keys, equal values look different: variables of both sides are unknown.
    return [fact for fact in found if fact.before is None or fact.after is None]


def _masked(fact: FactChange) -> FactChange:
    return replace(fact, before=fact.before and MASKED, after=fact.after and MASKED)


def _variable_cells(
    change: Change, contents: DiffContents, facts: Sequence[FactChange], style: DiffStyle
) -> list[str]:
    mark = MARKS[change.kind]
    try:
        variables = compare_variables(*contents.both(change))
    except SealingError as failure:
        known = [f"{mark_of(fact)} {escape(name_of(fact))}" for fact in _known_by_name(change, facts)]
        return [*known, f"{mark} {escape(failure.message)}"]
    return [_variable_cell(variable, style) for variable in variables] or [f"{mark} no variables differ"]


def _variable_cell(variable: VariableChange, style: DiffStyle) -> str:
    text = f"{variable.mark} {variable.key}"
    if not style.reveal:
        return text
    values = [escape(value) for value in (variable.before, variable.after) if value is not None]
    return f"{text} {ARROW.join(values)}"


def _file_cell(row: SummaryRow, style: DiffStyle) -> str:
    if row.more:
        place = _text(row.path, style) if row.path else ""
        return f"{place}… {row.more:,} more {describe_marks(row.count)}"
    if row.change is None:
        places = f"in {row.places:,} places " if row.places > 1 else ""
        sort = f" ({row.sort})" if row.sort else ""
        return f"{_text(row.path, style)} {places}{describe_marks(row.count)}{sort}"
    return _change_cell(row.change, style)


def _change_cell(change: Change, style: DiffStyle) -> str:
    mark, side = MARKS[change.kind], change.after or change.before
    assert side is not None
    is_directory = side.kind is EntryKind.DIRECTORY and not is_nested_repository(change)
    path = _text(change.path + b"/" if is_directory and change.path else change.path, style)
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        return f"{mark} {_text(change.before.path, style)}{ARROW}{path}"
    # For a file with equal contents, print what differs instead.
    words = change.attributes if not content_differs(change) else ()
    remark = ", ".join([*(("sealed",) if is_sealed(change) else ()), *words])
    return f"{mark} {path}" + (f" ({remark})" if remark else "")


def _text(path: bytes, style: DiffStyle) -> str:
    return shown_path(path, style).decode("utf-8", "surrogateescape")


# Two machines: the most likely reasons first, and normal differences last, as counts.

SYSTEM = "system"
"""The probe of the packages of the machine: there are many, and most are unrelated."""


def machine_diff_text(source: DiffSource, style: DiffStyle) -> Iterator[bytes]:
    """Yield packages, tools, variables, system packages; services and databases; files; then normal differences."""
    first, system, others = _by_rank(source.facts)
    apart = split_machine_differences(source.changes, lambda place: _is_explained(place, first))
    in_env, in_files = split_by_class(apart.remaining)
    yield from fact_texts(first, style)
    yield from variable_texts(source, in_env, style)
    yield from fact_texts(system, style)
    yield from fact_texts(others, style)
    yield from config_texts(replace(source, changes=apart.remaining), style)
    yield from file_texts(in_files, style)
    cells = [f"{escape(why)} {describe_marks(count_changes(changes))}" for why, changes in apart.by_nature]
    if cells:
        yield from row_of_cells(
            "by nature", [*cells, "(normal between two machines; --no-fold lists them)"], style
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
    """Return whether the directory contains packages that are listed as different."""
    text = place.decode("utf-8", "surrogateescape")
    above = text.rpartition("/")[0]
    return any(
        fact.at == place
        or fact.at.startswith(place + b"/")
        or fact.key.startswith((text + "/", (above or text) + "/"))
        for fact in facts
    )
