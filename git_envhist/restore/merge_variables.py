"""Merge three versions of a file of variables by their names (pure).

The text of ours is edited where a variable changed, so its comments and its order stay. A variable counts only where
`dotenv` finds it; a file is not merged by name if an edit would not read back as the merged variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from git_envhist.dotenv import Assignment, find_assignments, read_assignments
from git_envhist.restore.merge_keys import ABSENT, KeyMerge
from git_envhist.restore.three_way import Prefer

MAX_SIZE = 256 << 10
"""Larger files of variables are merged by lines."""
MAX_READ = 8 << 20
"""The number of bytes that are read to edit the variables: the text is read again for each of them."""


class MergedVariables(NamedTuple):
    """The edited text, and the names of the variables in conflict."""

    text: bytes
    conflicts: tuple[bytes, ...]


def merge_variables(base: bytes, ours: bytes, theirs: bytes, prefer: Prefer) -> MergedVariables | None:
    """Return the present text with the variables that only the other side changed; None if it cannot be edited."""
    line_end = line_end_of(ours)
    if max(map(len, (base, ours, theirs))) > MAX_SIZE:
        return None
    if line_end is None or line_end_of(theirs) is None:
        # A value of several lines would be written with other line ends.
        return None
    base, ours, theirs = (text.replace(b"\r\n", b"\n") for text in (base, ours, theirs))
    found = KeyMerge.of(read_assignments(base), read_assignments(ours), read_assignments(theirs), prefer)
    if len(found.changes) * (len(ours) + len(theirs)) > MAX_READ:
        return None
    text = ours
    for (name,), value in found.changes.items():
        edited = _remove(text, name) if value is ABSENT else _put(text, theirs, name)
        if edited is None:
            return None
        text = edited
    if read_assignments(text) != found.merged:
        return None
    return MergedVariables(
        text.replace(b"\n", line_end) if line_end != b"\n" else text,
        tuple(name for (name,) in found.conflicts),
    )


def line_end_of(text: bytes) -> bytes | None:
    """Return the line end of a text; None if its lines end in different ways."""
    windows = text.count(b"\r\n")
    if windows not in (0, text.count(b"\n")):
        return None
    return b"\r\n" if windows else b"\n"


def loses_text(base: bytes, ours: bytes, theirs: bytes) -> bool:
    """Return whether theirs changed more than the variables that are merged: other lines, `export`, or duplicates.

    The order of variables and empty lines do not count.
    """
    old, present, new = (_OtherText.of(text.replace(b"\r\n", b"\n")) for text in (base, ours, theirs))
    if old.lines != new.lines != present.lines:
        return True
    common = old.heads.keys() & new.heads.keys()
    return any(old.heads[name] != new.heads[name] != present.heads.get(name) for name in common)


class _OtherText(NamedTuple):
    """The text of a file that is no value of a variable."""

    lines: list[bytes]
    heads: dict[bytes, list[bytes]]
    """The text before the value for each name; the whole assignment if a later one sets the variable again."""

    @classmethod
    def of(cls, text: bytes) -> _OtherText:
        rest, heads, at = list[bytes](), dict[bytes, list[bytes]](), 0
        found = find_assignments(text)
        last = {one.name: one for one in found}
        for one in found:
            end = one.value if last[one.name] is one else one.end
            heads.setdefault(one.name, []).append(b" ".join(text[one.start : end].split()))
            rest.append(text[at : one.start])
            at = one.end + 1
        rest.append(text[at:])
        return cls([line.rstrip() for line in b"".join(rest).split(b"\n") if line.strip()], heads)


def _only(text: bytes, name: bytes) -> Assignment | None:
    """Return the one assignment of a name; None if there are several, or its end is not certain."""
    found = [one for one in find_assignments(text) if one.name == name]
    return found[0] if len(found) == 1 and found[0].is_certain else None


def _remove(text: bytes, name: bytes) -> bytes | None:
    one = _only(text, name)
    return None if one is None else text[: one.start] + text[one.end + 1 :]


def _put(text: bytes, theirs: bytes, name: bytes) -> bytes | None:
    """Set a variable to its value in theirs, or insert its statement where theirs has it."""
    new = _only(theirs, name)
    if new is None:
        return None
    present = find_assignments(text)
    if any(one.name == name for one in present):
        old = _only(text, name)
        if old is None:
            return None
        return text[: old.value] + theirs[new.value : new.end] + text[old.end :]
    at = _place_of(name, present, [one.name for one in find_assignments(theirs)], len(text))
    statement = theirs[new.start : new.end] + b"\n"
    before = text[:at]
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return before + statement + text[at:]


def _place_of(name: bytes, present: Sequence[Assignment], order: Sequence[bytes], end: int) -> int:
    """Return the position for a new statement: after the one that precedes it in theirs, or before the next one."""
    at = order.index(name)
    places = {one.name: one for one in present}
    for earlier in reversed(order[:at]):
        if earlier in places:
            return places[earlier].end + 1
    later = next((one for one in order[at + 1 :] if one in places), None)
    return end if later is None else places[later].start
