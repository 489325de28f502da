"""Text on its way to a person: what could command a terminal is made visible, and widths are counted in columns.

A name, an intent or a note may come from anywhere, so its bytes are never shown as they are: an escape sequence would
run, a right-to-left override would lie. The same holds for a pipe, whose other end is often a terminal after all.
"""

from __future__ import annotations

from collections.abc import Mapping

ELLIPSIS = "…"
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Joiners spell words of Persian and Hindi, and emoji; they move no cursor and turn no direction.
JOINERS = frozenset("\u200c\u200d")
# Spaces, private glyphs, and what a newer Unicode may have assigned meanwhile.
HARMLESS_CATEGORIES = frozenset(("Zs", "Co", "Cn"))
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


def escape(text: str | bytes, *, lines: bool = False) -> str:
    """The text with every character that could command a terminal spelled out; `lines` keeps newlines and tabs."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return text
    kept = JOINERS | {"\n", "\t"} if lines else JOINERS
    return "".join(
        letter if letter.isprintable() or letter in kept else _spell_out(letter) for letter in text
    )


def escape_invalid(text: str) -> str:
    """The text with only those bytes spelled out that are no UTF-8."""
    if text.isprintable():
        return text
    return "".join(_spell_surrogate(letter) if "\ud800" <= letter <= "\udfff" else letter for letter in text)


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


def _spell_out(letter: str) -> str:
    import unicodedata  # loaded late: keeps envlog fast, nearly every text is printable

    if letter in SHORT_ESCAPES:
        return SHORT_ESCAPES[letter]
    if unicodedata.category(letter) in HARMLESS_CATEGORIES:
        return letter
    return _spell_surrogate(letter)


def _spell_surrogate(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _columns(letter: str) -> int:
    if letter.isascii():
        return 1
    import unicodedata  # loaded late: keeps envlog fast, most texts are ASCII

    if unicodedata.category(letter) in ZERO_WIDTH_CATEGORIES:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1
