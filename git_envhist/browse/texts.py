"""What our programs print, set into a column: lines that are too long hang, so that where they begin is seen."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from git_envhist.browse.asking import Row

HANG = "    "
CONSOLE = Console(width=80, color_system=None, file=None)
"""Measures and breaks; nothing is ever written by it."""


def hanging(printed: str, columns: int) -> Text:
    """The text of a program, with its colours, in lines of at most so many columns."""
    lines: list[Text] = []
    for line in Text.from_ansi(printed.rstrip("\n")).split("\n", allow_blank=True):
        if line.cell_len <= columns:
            lines.append(line)
            continue
        first, *rest = line.wrap(CONSOLE, columns)
        lines.append(first)
        if rest:
            lines += [Text(HANG) + part for part in _after(line, first, columns)]
    return Text("\n").join(lines)


def _after(line: Text, first: Text, columns: int) -> list[Text]:
    """What is left of a line behind its first part, broken anew, for it has less room."""
    begins = len(first.plain)
    while begins < len(line.plain) and line.plain[begins] == " ":
        begins += 1
    return list(line[begins:].wrap(CONSOLE, max(10, columns - len(HANG))))


def headline(row: Row) -> Text:
    """Why a moment was taken, when, and whether it was good."""
    about = [row.time, row.trigger, row.verdict or "not checked", *([row.name] if row.name else [])]
    return Text.assemble((row.intent, "bold"), "\n", (" · ".join(about), "dim"))
