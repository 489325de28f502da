"""Edit keys and tables in a TOML text and keep everything else of the text (pure).

The statements are found without parsing their values; the caller parses the result and compares it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from git_envhist.restore.merge_keys import ABSENT, KeyPath, value_at

BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
KEY = re.compile(r"""([A-Za-z0-9_-]+)|"((?:[^"\\\n])*)"|'([^'\n]*)'""")
STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)
PLAIN = re.compile(r"[^#\n]*")
PLAIN_IN_LIST = re.compile(r"""[^\[\]{}"'#]+""")


class Statement(NamedTuple):
    """A header of a table, or a key with its value."""

    path: KeyPath | None
    """None: below an array of tables, so it is never changed alone."""
    is_header: bool
    start: int
    value: int
    value_end: int
    end: int
    """The start of the next line."""


class Edit(NamedTuple):
    """A replacement in the text."""

    start: int
    end: int
    text: str


def edit_toml(
    ours: str, theirs: str, changes: Mapping[KeyPath, object], merged: Mapping[str, object]
) -> str | None:
    """Return the text of ours with changed keys, written as in theirs; None if a place is not certain."""
    text, new = ours, _statements(theirs)
    for path, value in changes.items():
        old = _statements(text)
        if old is None or new is None:
            return None
        edits = _edits(text, theirs, old, new, path, value, merged)
        if edits is None:
            return None
        for edit in sorted(edits, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _edits(
    text: str,
    theirs: str,
    old: list[Statement],
    new: list[Statement],
    path: KeyPath,
    value: object,
    merged: Mapping[str, object],
) -> list[Edit] | None:
    inline = next((one for one in old if not one.is_header and one.path == path[: len(one.path or ())]), None)
    if inline is not None and inline.path is not None and len(inline.path) < len(path):
        # The key is in an inline table, which is replaced as a whole.
        path, value = inline.path, value_at(merged, inline.path)
    if value is ABSENT:
        return list(_removals(text, old, path)) or None
    given = next((one for one in new if not one.is_header and one.path == path), None)
    if inline is not None and given is not None:
        return [Edit(inline.value, inline.value_end, theirs[given.value : given.value_end])]
    if any(one.path is not None and one.path[: len(path)] == path for one in old):
        return None
    return _insertion(text, theirs, old, new, path)


def _removals(text: str, statements: list[Statement], path: KeyPath) -> Iterator[Edit]:
    is_in_removed_table = False
    for number, one in enumerate(statements):
        is_removed = one.path is not None and one.path[: len(path)] == path
        if one.is_header:
            is_in_removed_table = is_removed
        if is_removed and one.is_header:
            yield Edit(one.start, _end_of_table(text, statements, number), "")
        elif is_removed and not is_in_removed_table:
            yield Edit(one.start, one.end, "")


def _end_of_table(text: str, statements: list[Statement], number: int) -> int:
    later = map(statements.__getitem__, range(number + 1, len(statements)))
    return next((one.start for one in later if one.is_header), len(text))


def _insertion(
    text: str, theirs: str, old: list[Statement], new: list[Statement], path: KeyPath
) -> list[Edit] | None:
    """Return the edit that inserts a statement after the one before it, or tables at the end."""
    given = next((number for number, one in enumerate(new) if one.path == path and not one.is_header), None)
    if given is None:
        return _new_tables(text, theirs, new, path)
    statement = theirs[new[given].start : new[given].end].rstrip("\n") + "\n"
    header = next((one for one in reversed(new[:given]) if one.is_header), None)
    at = 0
    places = {(one.path, one.is_header): one for one in reversed(old)}
    for earlier in reversed(new[:given]):
        found = places.get((earlier.path, earlier.is_header))
        if found is not None:
            at = found.end
            break
        if earlier == header:
            return None
    if header is not None and not at:
        return None
    before = "" if not at or text[at - 1] == "\n" else "\n"
    return [Edit(at, at, before + statement)]


def _new_tables(text: str, theirs: str, new: list[Statement], path: KeyPath) -> list[Edit] | None:
    blocks = [
        theirs[one.start : _end_of_table(theirs, new, number)].rstrip("\n") + "\n"
        for number, one in enumerate(new)
        if one.is_header and one.path is not None and one.path[: len(path)] == path
    ]
    if not blocks:
        return None
    kept = text.rstrip("\n")
    return [Edit(len(kept), len(text), ("\n\n" if kept else "") + "\n".join(blocks))]


def _statements(text: str) -> list[Statement] | None:
    """Return the statements of a text; None if it is not understood."""
    found: list[Statement] = []
    above: KeyPath | None = ()
    arrays: set[KeyPath] = set()
    at = _after(BLANK, text, 0)
    while at < len(text):
        start = text.rfind("\n", 0, at) + 1
        one = _header(text, at, start) if text[at] == "[" else _assignment(text, at, start)
        if one is None:
            return None
        if one.is_header:
            assert one.path is not None
            if text.startswith("[[", at):
                arrays.add(one.path)
            is_listed = any(one.path[:size] in arrays for size in range(1, len(one.path) + 1))
            above = None if is_listed else one.path
            one = one._replace(path=above)
        else:
            one = one._replace(path=None if above is None or one.path is None else above + one.path)
        found.append(one)
        at = _after(BLANK, text, one.end)
    return found


def _after(blank: re.Pattern[str], text: str, at: int) -> int:
    found = blank.match(text, at)
    return at if found is None else found.end()


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _keys(text: str, at: int) -> tuple[KeyPath, int] | None:
    keys: list[str] = []
    while True:
        found = KEY.match(text, _after(SPACE, text, at))
        if found is None:
            return None
        keys.append(next(group for group in found.groups() if group is not None))
        at = _after(SPACE, text, found.end())
        if not text.startswith(".", at):
            return tuple(keys), at
        at += 1


def _header(text: str, at: int, start: int) -> Statement | None:
    width = 2 if text.startswith("[[", at) else 1
    found = _keys(text, at + width)
    if found is None or not text.startswith("]" * width, found[1]):
        return None
    end = _line_end(text, found[1])
    return Statement(found[0], True, start, end, end, end)


def _assignment(text: str, at: int, start: int) -> Statement | None:
    found = _keys(text, at)
    if found is None or not text.startswith("=", found[1]):
        return None
    value = _after(SPACE, text, found[1] + 1)
    value_end = _value_end(text, value)
    if value_end is None:
        return None
    return Statement(found[0], False, start, value, value_end, _line_end(text, value_end))


def _value_end(text: str, at: int) -> int | None:
    """Return the end of a value; None if it is never closed."""
    if text[at : at + 1] not in ("[", "{"):
        found = STRING.match(text, at)
        if found is not None:
            return found.end()
        plain = PLAIN.match(text, at)
        assert plain is not None
        return at + len(plain[0].rstrip())
    depth = 0
    while at < len(text):
        sign = text[at]
        string = STRING.match(text, at)
        if string is not None:
            at = string.end()
        elif sign == "#":
            at = _line_end(text, at)
        elif sign in "[]{}":
            depth += 1 if sign in "[{" else -1
            at += 1
            if not depth:
                return at
        else:
            plain = PLAIN_IN_LIST.match(text, at)
            if plain is None:
                return None
            at = plain.end()
    return None
