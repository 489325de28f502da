"""How what we say keeps to the width of a terminal: the one place that breaks lines.

Prose breaks between words. A path, an id and a command are never broken, however narrow the terminal: they are there to
be copied. What goes on stands below where it began: in the last column of a row, behind a label. In a pipe nothing is
broken, nor is anything that somebody else wrote as lines: a patch, a file, a list of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from git_envhist.cli.terminal import MARK, width

PAINT = re.compile(rf"{MARK}\[[0-9;]*m")
WHOLE = re.compile(
    r"""(?:
    (?<![^\s(\[])'[^']*'(?=[\s;:,.)\]]|$)                       # 'what is quoted', most of all a path with spaces
    | (?:\A|(?<=:\ )|(?<=\())(?:git|echo|sudo)\ [^;),]*[^;),\s]   # a command, to be typed
    | (?<![^\s])>\ \S+                                            # where something leads
    | \S)+""",
    re.VERBOSE,
)
SAID = re.compile(r"(?:error|hint|warning|note): ")
GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
NARROWEST = 16
"""A column with less room than this holds no prose: it goes on at the left."""
RESET = f"{MARK}[m"
HANGING = 2


def wrapped(line: str, columns: int) -> list[str]:
    """The line as lines of so many columns, as far as words allow that."""
    if shown_width(line) <= columns:
        return [line]
    hanging = hanging_indent(line, columns)
    lead = len(line) - len(line.lstrip(" "))
    lines, current, used = [], " " * lead, lead
    end = lead
    for begin, stop, token in _tokens(line, lead):
        gap, taken = line[end:begin], shown_width(token)
        if used + len(gap) + taken > columns and used + len(gap) > max(hanging, lead):
            lines.append(current)
            current, used = " " * hanging + token, hanging + taken
        else:
            current, used = current + gap + token, used + len(gap) + taken
        end = stop
    return _recoloured([*lines, current])


def all_wrapped(lines: Iterable[str], columns: int) -> list[str]:
    return [piece for line in lines for piece in wrapped(line, columns)]


def hanging_indent(line: str, columns: int) -> int:
    """Where a line goes on: below its last column that has room, behind its label, else a little to the right."""
    told = PAINT.sub("", line)
    lead = len(told) - len(told.lstrip(" "))
    said = SAID.match(told)
    if said is not None:
        return said.end()
    ends = [width(told[: gap.end()]) for gap in GAP.finditer(told)]
    return max((end for end in ends if end <= columns - NARROWEST), default=lead or HANGING)


def shown_width(text: str) -> int:
    """The columns that a text takes, whatever paints it."""
    return width(PAINT.sub("", text)) if MARK in text else width(text)


def _tokens(line: str, lead: int) -> Iterator[tuple[int, int, str]]:
    for found in WHOLE.finditer(line[lead:]):
        yield lead + found.start(), lead + found.end(), found[0]


def _recoloured(lines: list[str]) -> list[str]:
    """A colour that goes on is put off at the end of a line and on again behind the next one's indent."""
    told, colour = [], ""
    for line in lines:
        before = colour
        for code in PAINT.findall(line):
            colour = "" if code == RESET else code
        if before:
            text = line.lstrip(" ")
            line = line[: len(line) - len(text)] + before + text
        told.append(line + (RESET if colour else ""))
    return told
