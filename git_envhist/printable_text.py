"""Make texts printable: escape what controls a terminal or a browser in texts of unknown origin; format durations.

A name, an intent or a note may contain an escape sequence, which a terminal would execute, or a right-to-left
override, which would disguise a text in a browser as well. Everything that is displayed passes through here.
"""

from __future__ import annotations

SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Joiners are part of Persian and Hindi words and of emoji; they neither move a cursor nor change the direction.
JOINERS = frozenset("\u200c\u200d")
# Spaces, private characters, and characters that a newer version of Unicode may define.
HARMLESS_CATEGORIES = frozenset(("Zs", "Co", "Cn"))


def escape(text: str | bytes, *, lines: bool = False) -> str:
    """Return a text with every control character escaped; `lines` keeps newlines and tabs."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return text
    unescaped = JOINERS | {"\n", "\t"} if lines else JOINERS
    return "".join(
        letter if letter.isprintable() or letter in unescaped else _escape(letter) for letter in text
    )


def for_people(text: str | bytes) -> str:
    """Return a text that is safe to print; newlines and tabs are kept. All output passes through this."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    # This is called for every line, and nearly all of them are printable.
    return text if text.replace("\n", "").replace("\t", "").isprintable() else escape(text, lines=True)


def escape_invalid(text: str) -> str:
    """Return a text with only its bytes that are not UTF-8 escaped."""
    if text.isprintable():
        return text
    return "".join(_escape_code(letter) if "\ud800" <= letter <= "\udfff" else letter for letter in text)


def replace_surrogates(text: str) -> str:
    """Return a text with each lone surrogate that stands for no byte replaced by U+FFFD."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encode_text(text: str) -> bytes:
    """Encode a text for storage; surrogate escapes become the bytes they stand for."""
    return replace_surrogates(text).encode("utf-8", "surrogateescape")


def plain_output(text: str) -> str:
    """Return the output of a program as a terminal would leave it: without colours and overwritten parts of lines."""
    import re  # loaded late: only the details of a check show its output

    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).strip("\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).strip("\n")


def format_duration(duration: float) -> str:
    """Return a duration as `0.31 s`, `4.2 s`, `2 min 05 s`."""
    if duration < 10:
        return f"{duration:.2f} s" if duration < 1 else f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _escape(letter: str) -> str:
    import unicodedata  # loaded late: keeps envlog fast, nearly every text is printable

    if letter in SHORT_ESCAPES:
        return SHORT_ESCAPES[letter]
    if unicodedata.category(letter) in HARMLESS_CATEGORIES:
        return letter
    return _escape_code(letter)


def _escape_code(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def display_bytes(value: bytes) -> str:
    """Return a short display form of bytes of unknown origin, without control characters."""
    text = value[:120].decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
