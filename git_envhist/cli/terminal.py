"""Text for a terminal: escaping, width in columns, and wrapping.

Names, intents and notes may contain anything, so control characters are always escaped: an escape sequence would be
executed, a right-to-left override would mislead. This also applies to a pipe, which often ends at a terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from git_envhist.lazy import pattern
from git_envhist.printable_text import for_people

ELLIPSIS = "…"
MARK = f"\x1b{os.urandom(8).hex()}"
"""Marks a colour of the program until the text is written; no text can contain it, because it is random."""
PAINT = pattern(rf"{MARK}(\[[0-9;]*m)")
SGR = pattern(r"\x1b(\[[0-9;]*m)\Z")
ZERO_WIDTH_CATEGORIES = frozenset(("Mn", "Me", "Cf"))


# One letter for one symbol, so that columns stay aligned; less marks a cut line in the same way.
ASCII_SYMBOLS = str.maketrans({"✓": "v", "✗": "x", "·": "-", "−": "-", "→": ">", "…": ">"})


def shows_symbols(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Return whether ✓, · and → can be displayed: not on a dumb terminal, nor in an 8-bit character set."""
    if terminal and environ.get("TERM") == "dumb":
        return False
    language = environ.get("LANG", "")
    named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or language
    if not environ.get("LC_ALL") and named == "C.UTF-8" and language in ("C", "POSIX"):
        # Python sets C.UTF-8 itself if plain C is configured.
        named = language
    # Without any setting, as in most containers, git writes UTF-8 too.
    return not named or named.partition("@")[0].lower().replace("-", "").endswith("utf8")


def terminal_columns(descriptor: int) -> int | None:
    """Return the width of a terminal, from COLUMNS or the terminal itself."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"]) or None
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return 80


def width(text: str) -> int:
    """Return how many columns an escaped text needs."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def shorten(text: str, columns: int) -> str:
    """Return the text if it fits, else its beginning with an ellipsis."""
    if columns <= 0:
        return ""
    if width(text) <= columns:
        return text
    used = 0
    for position, letter in enumerate(text):
        used += _columns(letter)
        if used > columns - 1:
            return text[:position] + ELLIPSIS
    return text


def mark_colour(colour: str) -> str:
    """Return a colour with the mark that lets it pass to the terminal; an empty text if it is no colour."""
    found = SGR.match(colour)
    return MARK + found[1] if found is not None else ""


def as_bytes(text: str | bytes) -> bytes:
    """Return a text as it is printed: control characters escaped, then the program's colours inserted."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if MARK not in text:
        return for_people(text).encode("utf-8")
    parts = PAINT.split(text)
    parts[::2] = map(for_people, parts[::2])
    parts[1::2] = ("\x1b" + code for code in parts[1::2])
    return "".join(parts).encode("utf-8")


def insert_colours(data: bytes) -> bytes:
    """Return the same bytes with the program's colours inserted."""
    mark = MARK.encode("ascii")
    return data.replace(mark, b"\x1b") if mark in data else data


def pad(text: str, columns: int) -> str:
    """Return the text filled with spaces up to a column; it is never cut."""
    return text + " " * (columns - width(text))


def _columns(letter: str) -> int:
    if letter.isascii():
        return 1
    import unicodedata  # loaded late: keeps envlog fast, most texts are ASCII

    if unicodedata.category(letter) in ZERO_WIDTH_CATEGORIES:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


# Wrapping: the only place that breaks lines. Text breaks between words. A path, an id and a command are never
# broken, so that they can be copied. Continuation lines are indented below the last column of a row or behind a
# label. In a pipe nothing is broken, nor are lines of other programs: a patch, a file, a list of names.

PAINT_SEQUENCE = pattern(rf"{MARK}\[[0-9;]*m")
WHOLE = pattern(
    r"""(?:
    (?<![^\s(\[])'[^']*'(?=[\s;:,.)\]]|$)                       # 'what is quoted', most of all a path with spaces
    | (?:\A|(?<=:\ )|(?<=\())(?:git|echo|sudo)\ [^;),]*[^;),\s]   # a command, to be typed
    | (?<![^\s])>\ \S+                                            # where something leads
    | \S)+""",
    re.VERBOSE,
)
LABEL = pattern(r"(?:error|hint|warning|note): ")
GAP = pattern(r"(?<=\S) {2,}(?=\S)")
NARROWEST = 16
"""A column narrower than this is not used for continuation lines."""
RESET = f"{MARK}[m"
HANGING = 2


def wrapped(line: str, columns: int) -> list[str]:
    """Return the line as lines of at most `columns`, as far as words allow it."""
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
    """Return the indent of continuation lines: the last column with space, else the label, else a small indent."""
    plain = PAINT_SEQUENCE.sub("", line)
    lead = len(plain) - len(plain.lstrip(" "))
    label = LABEL.match(plain)
    if label is not None:
        return label.end()
    ends = [width(plain[: gap.end()]) for gap in GAP.finditer(plain)]
    return max((end for end in ends if end <= columns - NARROWEST), default=lead or HANGING)


def shown_width(text: str) -> int:
    """Return the columns that a text needs, without its colours."""
    return width(PAINT_SEQUENCE.sub("", text)) if MARK in text else width(text)


def _tokens(line: str, lead: int) -> Iterator[tuple[int, int, str]]:
    for found in WHOLE.finditer(line[lead:]):
        yield lead + found.start(), lead + found.end(), found[0]


def _recoloured(lines: list[str]) -> list[str]:
    """End a colour at the end of each line, and continue it after the indent of the next one."""
    recoloured, colour = [], ""
    for line in lines:
        before = colour
        for code in PAINT_SEQUENCE.findall(line):
            colour = "" if code == RESET else code
        if before:
            text = line.lstrip(" ")
            line = line[: len(line) - len(text)] + before + text
        recoloured.append(line + (RESET if colour else ""))
    return recoloured
