"""What `git envdiff` shows by itself: packages and the like, variables by their keys, files folded by directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from git_envhist.cli.configview import config_texts
from git_envhist.cli.diffsource import DiffContents, DiffSource, DiffStyle, is_environment_file, is_sealed
from git_envhist.cli.factview import fact_texts
from git_envhist.cli.rawview import shown_path
from git_envhist.cli.rows import place_row, row_of_cells
from git_envhist.cli.terminal import escape
from git_envhist.errors import SealingError
from git_envhist.history.diff import has_other_bytes, is_nested_repository
from git_envhist.history.factkeys import name_of
from git_envhist.history.importance import mark_of
from git_envhist.history.story import MARKS, SummaryRow, describe_marks, fold_by_directory
from git_envhist.history.variables import VariableChange, compare_variables
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange
from git_envhist.store.objects import CatFile
from git_envhist.values import replace

MOST_ROWS = 12
MASKED = "***"
ARROW = " → "


def story_texts(source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """The rows, one a class of things that differ; nothing where nothing does."""
    if source.machines:
        from git_envhist.cli.machinesview import (
            machine_diff_text,  # loaded late: most moments are of one machine
        )

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
        cells = [_file_cell(row, manner) for row in fold_by_directory(changes, MOST_ROWS)]
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
