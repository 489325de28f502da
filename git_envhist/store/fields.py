"""Cuts what git says into NUL-ended fields, as it comes."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.store.child import GitStream
from git_envhist.store.message import LARGEST_MESSAGE

Fields = list[bytes]


def cut_into_fields(child: GitStream, width: int) -> Iterator[Fields]:
    """So many fields at a time; what is left of a group that was cut off is none."""
    fields: Fields = []
    open_field: list[bytes] = []
    held = 0
    while chunk := child.read():
        parts = chunk.split(b"\0")
        if len(parts) > 1:
            parts[0] = b"".join(open_field) + parts[0]
            open_field, held = [], 0
            last = parts.pop()
            fields += parts
            whole = len(fields) - len(fields) % width
            yield from [fields[start : start + width] for start in range(0, whole, width)]
            del fields[:whole]
        else:
            last = chunk
        # The rest of what is larger than anything of ours is dropped: cut off, it is recognised as damaged.
        if last and held <= LARGEST_MESSAGE:
            open_field.append(last)
            held += len(last)
