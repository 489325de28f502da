"""Characters that command what shows them, spelled out: what may have come from anywhere is shown, and never obeyed.

A name, an intent or a note may hold an escape sequence, which a terminal would run, or a right-to-left override, which
would lie in a browser as well. Whoever shows one spells it as here.
"""

from __future__ import annotations

SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Joiners spell words of Persian and Hindi, and emoji; they move no cursor and turn no direction.
JOINERS = frozenset("\u200c\u200d")
# Spaces, private glyphs, and what a newer Unicode may have assigned meanwhile.
HARMLESS_CATEGORIES = frozenset(("Zs", "Co", "Cn"))


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


def for_people(text: str | bytes) -> str:
    """Return a text that commands no terminal; newlines and tabs are kept. Every output ends with this."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    # Quick for what is nearly always harmless: this is called for every line.
    return text if text.replace("\n", "").replace("\t", "").isprintable() else escape(text, lines=True)


def escape_invalid(text: str) -> str:
    """The text with only those bytes spelled out that are no UTF-8."""
    if text.isprintable():
        return text
    return "".join(_spell_surrogate(letter) if "\ud800" <= letter <= "\udfff" else letter for letter in text)


def replace_surrogates(text: str) -> str:
    """The text, with a mark for each half of a letter: what was cut inside one no byte can say."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def in_bytes(text: str) -> bytes:
    """Somebody's words as they are kept; what stands for bytes that are no text is these again."""
    return replace_surrogates(text).encode("utf-8", "surrogateescape")


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


def show(value: bytes) -> str:
    """Bytes of unknown origin for a message: short, and without control characters."""
    text = value[:120].decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
