"""Text on its way to a person: what could command a terminal is made visible, and widths are counted in columns.

A name, an intent or a note may come from anywhere, so its bytes are never shown as they are: an escape sequence would
run, a right-to-left override would lie. The same holds for a pipe, whose other end is often a terminal after all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.spelling import escape, escape_invalid

__all__ = [
    "ELLIPSIS",
    "SPELLED_PLAINLY",
    "escape",
    "escape_invalid",
    "pad",
    "shorten",
    "shows_symbols",
    "terminal_columns",
    "width",
]

ELLIPSIS = "…"
ZERO_WIDTH_CATEGORIES = frozenset(("Mn", "Me", "Cf"))


# One letter for one, so that columns stay where they are; less marks a line that is cut in the same way.
SPELLED_PLAINLY = str.maketrans({"✓": "v", "✗": "x", "·": "-", "−": "-", "→": ">", "…": ">"})


def shows_symbols(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether ✓, · and → can be read where a text goes: not on a dumb terminal, nor where letters are of 8 bits."""
    if terminal and environ.get("TERM") == "dumb":
        return False
    language = environ.get("LANG", "")
    named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or language
    if not environ.get("LC_ALL") and named == "C.UTF-8" and language in ("C", "POSIX"):
        # Python puts this there by itself, in the place of the plain C that was asked for.
        named = language
    # Where nothing is said at all, as in most containers, git writes UTF-8 too.
    return not named or named.partition("@")[0].lower().replace("-", "").endswith("utf8")


def terminal_columns(descriptor: int) -> int | None:
    """The width of a terminal, as COLUMNS or the terminal itself says."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"]) or None
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return 80


def width(text: str) -> int:
    """How many columns an escaped text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def shorten(text: str, columns: int) -> str:
    """The text if it fits, else as much of it as fits before an ellipsis."""
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


def pad(text: str, columns: int) -> str:
    """The text filled with spaces up to a column; never cut."""
    return text + " " * (columns - width(text))


def _columns(letter: str) -> int:
    if letter.isascii():
        return 1
    import unicodedata  # loaded late: keeps envlog fast, most texts are ASCII

    if unicodedata.category(letter) in ZERO_WIDTH_CATEGORIES:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1
