"""The rows of a story: a label, a place, and cells, as many on a line as fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from git_envhist.cli.diffsource import DiffStyle
from git_envhist.cli.terminal import SPELLED_PLAINLY, pad, shorten, width
from git_envhist.history.story import with_ascii_signs

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
