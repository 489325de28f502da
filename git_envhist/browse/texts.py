"""Text in a column: rows of a story, lines that hang where they are too long, so that where they begin is seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console

from git_envhist.browse.asking import SnapshotRow
from git_envhist.browse.plaintext import Text
from git_envhist.history.facts import fact_rows, fact_words, row_cells
from git_envhist.history.story import SummaryRow as Folded
from git_envhist.history.story import describe_marks, fold_by_directory
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange
from git_envhist.spelling import escape

HANG = 4
LABEL = 10
PLACE = 15
GAP = "  "
MOST_CELLS = 10
MOST_PLACES = 6
MOST_FILES = 12
COLOURS = {"+": "green", "−": "red", "~": "yellow", "→": "yellow"}
MARKS = {ChangeKind.ADDED: "+", ChangeKind.REMOVED: "−", ChangeKind.RENAMED: "→"}
CONSOLE = Console(width=80, color_system=None, file=None)
"""Measures and breaks; nothing is ever written by it."""


def headline(row: SnapshotRow) -> Text:
    """Why a moment was taken, when, and whether it was good."""
    about = [row.time, row.trigger, row.verdict or "not checked", *([row.name] if row.name else [])]
    return Text.assemble((row.intent, "bold"), "\n", (" · ".join(about), "dim"))


def field(label: str, words: str, style: str = "") -> Text:
    """`Timeline: laptop/main`."""
    return Text.assemble((f"{label}:".ljust(LABEL + 1), "dim"), (escape(words), style))


def paragraph(text: str, indent: int = HANG) -> list[Text]:
    """Somebody's text, line by line."""
    lines = escape(text, lines=True).expandtabs(4).rstrip("\n").split("\n")
    return [Text(" " * indent + line.rstrip()) for line in lines]


def wrap_lines(lines: Iterable[Text], columns: int) -> Text:
    """All of it in lines of at most so many columns: what is longer goes on below, set in."""
    return Text("\n").join(part for line in lines for part in _hung(line, columns))


def story(facts: Sequence[FactChange], changes: Sequence[Change], columns: int) -> list[Text]:
    """Packages, services, databases, variables, and then the files, folded by directory."""
    lines: list[Text] = []
    places: dict[str, int] = {}
    rows = fact_rows(facts, tuple(dict.fromkeys(fact.probe for fact in facts)))
    for row in rows:
        places[row.probe] = places.get(row.probe, 0) + 1
        if places[row.probe] <= MOST_PLACES:
            cells = row_cells(row, MOST_CELLS, lambda fact: escape(fact_words(fact)))
            lines += _row(row.probe, row.place, cells, columns)
    for probe, number in places.items():
        if number > MOST_PLACES:
            lines += _row(probe, "", [f"… in {number - MOST_PLACES:,} more places"], columns)
    if changes:
        lines += _row("files", "", folded(changes), columns)
    return lines


def folded(changes: Sequence[Change], *, marked: bool = True) -> list[str]:
    """The changed paths in few words: `+ app.py`, `.venv/ +1,187`; `marked`: with what was done to a single one."""
    return [_folded(row, marked) for row in fold_by_directory(changes, MOST_FILES)]


def _folded(row: Folded, marked: bool) -> str:
    path = escape(row.path) or "."
    if row.change is not None:
        side = row.change.after or row.change.before
        slash = "/" if side is not None and side.kind is EntryKind.DIRECTORY else ""
        return (f"{MARKS.get(row.change.kind, '~')} " if marked else "") + path + slash
    if row.more:
        return f"{path} and {row.more:,} more: {describe_marks(row.count)}"
    places = f"({row.places:,} places) " if row.places > 1 else ""
    return f"{path} {places}{describe_marks(row.count)}"


def _row(label: str, place: str, cells: Sequence[str], columns: int) -> list[Text]:
    """A label, a place in a column of its own, and as many cells on a line as fit."""
    shown = escape(place)
    head = Text.assemble((escape(label).ljust(LABEL - 1) + " ", "bold"))
    lines = []
    # In a narrow column, and where it is longer than its own, a place stands on a line by itself.
    beside = shown and cell_len(shown) < PLACE and columns >= 2 * (LABEL + PLACE)
    if shown and not beside:
        lines.append(head + Text(shown))
        head = Text(" " * HANG)
    elif shown:
        head += Text(shown + " " * (PLACE - cell_len(shown)))
    indent, is_first = head.cell_len, True
    for cell in cells:
        wide = cell_len(cell)
        gap = "" if is_first else GAP
        if head.cell_len + len(gap) + wide > columns and head.cell_len > HANG:
            lines.append(head)
            # What is wider than the column itself has all the room there is.
            head, gap = Text(" " * (indent if indent + wide <= columns else HANG)), ""
        head += Text.assemble(gap, (cell, COLOURS.get(cell[:1], "")))
        is_first = False
    return [*lines, head]


def _hung(line: Text, columns: int) -> list[Text]:
    if line.cell_len <= columns:
        return [line]
    first, *rest = line.wrap(CONSOLE, columns)
    if not rest:
        return [first]
    begins = len(first.plain)
    while begins < len(line.plain) and line.plain[begins] == " ":
        begins += 1
    # What is left is broken anew, for it has less room.
    after = line[begins:].wrap(CONSOLE, max(10, columns - HANG))
    return [first, *(Text(" " * HANG) + part for part in after)]
