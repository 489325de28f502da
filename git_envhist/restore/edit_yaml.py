"""Edit keys of block mappings in a YAML text and keep everything else of the text (pure).

The blocks are found by indentation only; the caller reads the result with `read_yaml` and compares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from git_envhist.diff.config_files import KEY
from git_envhist.restore.merge_keys import ABSENT, KeyPath


class Block(NamedTuple):
    """The lines of a key and of everything below it."""

    path: KeyPath
    indent: int
    start: int
    end: int


def edit_yaml(ours: str, theirs: str, changes: Mapping[KeyPath, object]) -> str | None:
    """Return the text of ours with changed keys, written as in theirs; None if a key has no block of its own."""
    lines = ours.split("\n")
    their_lines = theirs.split("\n")
    new = _blocks(their_lines)
    for path, value in changes.items():
        old = _blocks(lines)
        block, given = old.get(path), new.get(path)
        if value is ABSENT:
            if block is None:
                return None
            del lines[block.start : block.end]
            continue
        if given is None:
            return None
        text = their_lines[given.start : given.end]
        if block is not None:
            lines[block.start : block.end] = _indented(text, given.indent, block.indent)
            continue
        place = _place(path, old, new, lines)
        if place is None:
            return None
        lines[place[0] : place[0]] = _indented(text, given.indent, place[1])
    return "\n".join(lines)


def _indented(lines: list[str], old: int, new: int) -> list[str]:
    return [" " * new + line[old:] if line.strip() else line for line in lines]


def _place(
    path: KeyPath, old: Mapping[KeyPath, Block], new: Mapping[KeyPath, Block], lines: list[str]
) -> tuple[int, int] | None:
    """Return the line and the indentation for a new block: after the one before it in theirs, or in its parent."""
    siblings = [one for one in new if one[:-1] == path[:-1]]
    for earlier in reversed(siblings[: siblings.index(path)]):
        if earlier in old:
            return old[earlier].end, old[earlier].indent
    for later in siblings[siblings.index(path) + 1 :]:
        if later in old:
            return old[later].start, old[later].indent
    others = [block for one, block in old.items() if one[:-1] == path[:-1]]
    return (others[-1].end, others[-1].indent) if others else None


def _blocks(lines: list[str]) -> dict[KeyPath, Block]:
    """Return the blocks of all keys of nested block mappings, in order."""
    found: list[Block] = []
    open_blocks: list[Block] = []
    last = 0
    """The line after the last one that is neither empty nor a comment."""
    opaque: int | None = None
    for number, line in enumerate(lines):
        stripped = line.strip()
        if not stripped or (stripped.startswith("#") and opaque is None) or stripped == "---":
            continue
        indent = len(line) - len(line.lstrip(" "))
        if opaque is not None and (indent > opaque or (indent == opaque and stripped.startswith("-"))):
            last = number + 1
            continue
        opaque = None
        while open_blocks and open_blocks[-1].indent >= indent:
            found.append(open_blocks.pop()._replace(end=last))
        last = number + 1
        key = KEY.match(stripped)
        if key is None or stripped.startswith("- "):
            opaque = max(indent - 1, 0)
            continue
        above = open_blocks[-1].path if open_blocks else ()
        open_blocks.append(Block((*above, key[1].strip("\"'")), indent, number, number + 1))
        rest = (key[2] or "").partition(" #")[0].strip()
        following = next(
            (
                lines[at]
                for at in range(number + 1, len(lines))
                if lines[at].strip() and not lines[at].strip().startswith("#")
            ),
            "",
        )
        if rest or following.strip().startswith("-") or KEY.match(following.strip()) is None:
            opaque = indent
    found += [block._replace(end=last) for block in reversed(open_blocks)]
    return {block.path: block for block in sorted(found, key=lambda one: one.start)}
