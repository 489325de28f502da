"""Files of configuration, told by the keys that differ: JSON, TOML, YAML and INI (pure).

Values are never told: nobody knows which of them are secret. What cannot be read for sure is not told at all; the file
is among those that changed in any case. A key that came with all that stands below it is one key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from git_envhist.probes import package_directories

# A unified diff of two texts that must not be given to another program, nor to the disk (pure).

CONTEXT = 3
LOOKED_AT = 8000
# Matching lines costs the square of their number at worst; a sealed file of more lines is told as replaced.
MAX_LINES = 20_000
NO_NEWLINE = b"\n\\ No newline at end of file\n"


def is_binary(data: bytes) -> bool:
    """Whether git would take the bytes for binary."""
    return b"\0" in data[:LOOKED_AT]


def unified_hunks(before: bytes, after: bytes) -> bytes:
    """The hunks of a unified diff, as git writes them."""
    return b"".join(_hunks(_lines(before), _lines(after)))


def _lines(text: bytes) -> list[bytes]:
    # Only a line feed ends a line here: bytes.splitlines() knows others.
    *whole, rest = text.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    if len(old) + len(new) > MAX_LINES:
        yield _head(0, len(old), 0, len(new))
        yield from (_line(b"-", line) for line in old)
        yield from (_line(b"+", line) for line in new)
        return
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        yield _head(first[1], last[2], first[3], last[4])
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                yield from (_line(b" ", line) for line in old[start:end])
                continue
            yield from (_line(b"-", line) for line in old[start:end])
            yield from (_line(b"+", line) for line in new[new_start:new_end])


def _head(start: int, end: int, new_start: int, new_end: int) -> bytes:
    return b"@@ -%b +%b @@\n" % (_range(start, end), _range(new_start, new_end))


def _range(start: int, end: int) -> bytes:
    length = end - start
    if length == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if length else start, length)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + NO_NEWLINE


# The keys of a YAML file, as far as it is made of mappings in blocks, which configuration is (pure).
#
# This is no reader of YAML: what stands behind a key is kept as it is written, to be compared. Where a line could mean
# something else (tabs, several documents, keys that are no plain words, one key twice) nothing is said.

KEY = re.compile(
    r"""(<<|[A-Za-z0-9_./@$-][^:#'"{}\[\],&*!|>%`\n]*?|"[^"\\]*"|'[^']*')[ \t]*:(?:[ \t]+(.*))?\Z"""
)
QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:#.*)?\Z""")
COMMENT = re.compile(r"(?:^|[ \t])#.*")
BLOCK = re.compile(r"(?:[&!]\S+[ \t]+)?[|>][0-9+-]{0,2}\Z")
ANCHOR = re.compile(r"&\S+\Z")
MAX_YAML = 40


def read_yaml(text: str) -> dict[str, Any] | None:
    """The mapping that a file holds; None where it is not certain what it says."""
    lines = [line.rstrip() for line in text.split("\n")]
    if lines and lines[0].startswith("%"):
        return None
    if "---" in lines[:1]:
        lines = lines[1:]
    told = [line for line in lines if line.lstrip() and not line.lstrip().startswith("#")]
    if any(line.startswith(("---", "...")) or line.lstrip(" ").startswith("\t") for line in told):
        return None
    found = _mapping(lines, 0)
    return None if found is None or found[1] != len(lines) or not found[0] else found[0]


def _mapping(lines: list[str], start: int, depth: int = 0) -> tuple[dict[str, Any], int] | None:
    """The mapping that begins at a line, and where it ends."""
    at = _next(lines, start)
    if at == len(lines):
        return {}, at
    indent = _indent(lines[at])
    found: dict[str, Any] = {}
    while at < len(lines) and _indent(lines[at]) == indent:
        entry = KEY.match(lines[at].strip())
        if entry is None or entry[1].startswith("- ") or depth > MAX_YAML:
            return None
        key = entry[1].strip("\"'")
        value = _value(lines, at, indent, entry[2] or "", depth)
        if key in found or value is None:
            return None
        found[key], at = value
    return (found, at) if at == len(lines) or _indent(lines[at]) < indent else None


def _value(lines: list[str], at: int, indent: int, words: str, depth: int) -> tuple[Any, int] | None:
    """What stands behind a key, and below it."""
    rest = _without_comment(words)
    if rest is None:
        return None
    below = _next(lines, at + 1)
    if BLOCK.match(rest):
        end = _end(lines, at + 1, indent)
        return "\n".join([rest, *lines[at + 1 : end]]).rstrip(), _next(lines, end)
    is_list = below < len(lines) and _indent(lines[below]) == indent and lines[below].lstrip().startswith("-")
    if below == len(lines) or (_indent(lines[below]) <= indent and not (is_list and not rest)):
        return rest, below
    nested = lines[below].strip()
    if (not rest or ANCHOR.match(rest)) and KEY.match(nested) and not nested.startswith("- "):
        return _mapping(lines, below, depth + 1)
    end = _end(lines, below, indent, is_list)
    told = [line.strip() for line in lines[below:end] if line.strip() and not line.strip().startswith("#")]
    if rest and rest[0] not in "'\"[{" and any(": " in line or line.endswith(":") for line in told):
        return None
    return "\n".join([rest, *told]), _next(lines, end)


def _without_comment(words: str) -> str | None:
    """What is said, less a remark behind it; None where it is not certain where that begins."""
    if words.startswith(("'", '"')):
        found = QUOTED.match(words)
        if found is not None:
            return found[1]
        return words if "#" not in words else None
    if "#" in words and ("'" in words or '"' in words):
        return None
    return COMMENT.sub("", words).strip()


def _end(lines: list[str], start: int, indent: int, is_list: bool = False) -> int:
    """Where what is indented more than this ends; items of a list may stand at the indent itself."""
    at = start
    while at < len(lines):
        line = lines[at]
        if line.strip():
            here = _indent(line)
            if here < indent or (here == indent and not (is_list and line.lstrip().startswith("-"))):
                break
        at += 1
    return at


def _next(lines: list[str], start: int) -> int:
    """The next line that says anything."""
    at = start
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


MAX_SIZE = 256 << 10
"""Whatever is larger is data."""
MAX_DEPTH = 12
MAX_KEYS = 1000
"""So many keys that differ are no setting that somebody changed."""
LOCKS = frozenset((b"package-lock.json", b"npm-shrinkwrap.json", b"pnpm-lock.yaml", b".package-lock.json"))
MADE = frozenset(
    (
        *(
            b"dist",
            b"build",
            b"out",
            b"target",
            b"coverage",
            b".next",
            b".nuxt",
            b".svelte-kit",
            b".turbo",
            b".cache",
        ),
        *(
            b"__pycache__",
            b".mypy_cache",
            b".ruff_cache",
            b".pytest_cache",
            b".git",
            b".gradle",
            b".parcel-cache",
        ),
    )
)
"""Directories whose contents a program makes."""
SECTION = re.compile(r"[ \t]*\[(.+)\][ \t]*(?:[#;].*)?\Z")
SETTING = re.compile(r"([^=:#;\[\s][^=:]*?)[ \t]*[=:][ \t]*(.*)\Z")

Tree = Mapping[str, Any]


def compare_settings(path: bytes, before: bytes, after: bytes) -> tuple[tuple[str, str], ...]:
    """(mark, key) of what differs: `("~", "server.port")`; nothing where either side cannot be read."""
    read = reader_of(path)
    if read is None or max(len(before), len(after)) > MAX_SIZE:
        return ()
    old, new = _read(read, before), _read(read, after)
    if old is None or new is None:
        return ()
    try:
        found = tuple(_differing(old, new, (), 0))
    except RecursionError:
        return ()
    return found if len(found) <= MAX_KEYS else ()


def reader_of(path: bytes) -> Callable[[str], Tree | None] | None:
    """What reads a file of this name; None where it is no configuration that somebody wrote."""
    *directories, name = path.split(b"/")
    if name in LOCKS or not (package_directories() | MADE).isdisjoint(directories):
        return None
    return READERS.get(name) or READERS.get(name[name.rfind(b".") :] if b"." in name else b"")


def _read(read: Callable[[str], Tree | None], data: bytes) -> Tree | None:
    try:
        return read(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except (ValueError, RecursionError):
        return None


def _differing(old: Tree, new: Tree, above: tuple[str, ...], depth: int) -> Iterator[tuple[str, str]]:
    for key in [*new, *(key for key in old if key not in new)]:
        here = (*above, key)
        if key not in old or key not in new:
            yield "+" if key in new else "−", ".".join(here)
            continue
        one, other = old[key], new[key]
        if isinstance(one, dict) and isinstance(other, dict) and depth < MAX_DEPTH:
            yield from _differing(one, other, here, depth + 1)
        elif not _same(one, other):
            yield "~", ".".join(here)


def _same(one: object, other: object) -> bool:
    # True is 1 to Python, and another setting.
    return repr(one) == repr(other)


def _read_json(text: str) -> Tree | None:
    told = json.loads(text)
    return told if isinstance(told, dict) else None


def _read_ini(text: str) -> Tree | None:
    """Sections of `key = value`; what stands before the first section has none."""
    found: dict[str, Any] = {}
    section, key = found, ""
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        head, setting = SECTION.match(line), SETTING.match(line)
        if line[0] in " \t" and key:
            section[key] += "\n" + stripped
        elif head is not None:
            section, key = found.setdefault(f"[{head[1]}]", {}), ""
        elif setting is not None:
            key = setting[1]
            section[key] = setting[2].strip()
        else:
            return None
    return found


READERS: dict[bytes, Callable[[str], Tree | None]] = {
    **dict.fromkeys((b".json", b".webmanifest"), _read_json),
    **dict.fromkeys((b".toml", b"Pipfile"), tomllib.loads),
    **dict.fromkeys((b".yaml", b".yml"), read_yaml),
    **dict.fromkeys(
        (b".ini", b".cfg", b"pip.conf", b".npmrc", b".editorconfig", b".flake8", b".gitconfig"), _read_ini
    ),
}
"""By the end of a name, or by a whole one."""
