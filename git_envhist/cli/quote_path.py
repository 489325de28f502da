"""Quote a path for output, as git does."""

from __future__ import annotations

import re
from collections.abc import Sequence

from git_envhist.lazy import pattern

SHORT = {
    7: b"\\a",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    11: b"\\v",
    12: b"\\f",
    13: b"\\r",
    34: b'\\"',
    92: b"\\\\",
}
ALWAYS = pattern(rb'[\x00-\x1f"\\\x7f]')
ALL = pattern(rb'[\x00-\x1f"\\\x7f-\xff]')
# Control characters beyond ASCII, in UTF-8: `core.quotePath=false` allows letters, but nothing that controls a
# terminal.
COMMANDING = pattern(rb"\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def quoted(path: bytes, *, quote_all: bool) -> bytes:
    """Return the path, in git's quotes if it needs them; `quote_all` is core.quotePath."""
    wanting = ALL if quote_all or COMMANDING.search(path) or not _is_text(path) else ALWAYS
    if wanting.search(path) is None:
        return path
    return b'"' + wanting.sub(_escape, path) + b'"'


def all_plain(paths: Sequence[bytes]) -> bool:
    """Return whether git prints all of these paths without quotes under any configuration."""
    return ALL.search(b"/".join(paths)) is None


def _escape(found: re.Match[bytes]) -> bytes:
    value = found[0][0]
    return SHORT.get(value) or b"\\%03o" % value


def _is_text(path: bytes) -> bool:
    if path.isascii():
        return True
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
