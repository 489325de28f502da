"""Compare configuration files (JSON, TOML, YAML, INI) by their keys, and texts by unified diffs (pure).

Values are never shown, because any of them may be secret. A file that cannot be parsed with certainty has no keys; it
is listed as changed in any case. A new or removed key with everything below it counts as one key.

The YAML reader accepts only block mappings, as in configuration; values are compared as written. It gives up on
anything ambiguous: tabs, several documents, complex keys, duplicate keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from git_envhist.probes import locks, package_directories
from git_envhist.toml_text import read_toml

# A unified diff of two texts that must not be passed to another program or written to disk.

CONTEXT = 3
BINARY_CHECK_SIZE = 8000
# Matching lines takes quadratic time at worst; longer sealed files are displayed as replaced.
MAX_LINES = 20_000
NO_NEWLINE = b"\n\\ No newline at end of file\n"


def is_binary(data: bytes) -> bool:
    """Return whether git would treat the bytes as binary."""
    return b"\0" in data[:BINARY_CHECK_SIZE]


def unified_hunks(before: bytes, after: bytes) -> bytes:
    """Return the hunks of a unified diff in git's format."""
    return b"".join(_hunks(_lines(before), _lines(after)))


def _lines(text: bytes) -> list[bytes]:
    # Only a line feed ends a line here, unlike in bytes.splitlines().
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


# YAML.

KEY = re.compile(
    r"""(<<|[A-Za-z0-9_./@$-][^:#'"{}\[\],&*!|>%`\n]*?|"[^"\\]*"|'[^']*')[ \t]*:(?:[ \t]+(.*))?\Z"""
)
QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:#.*)?\Z""")
COMMENT = re.compile(r"(?:^|[ \t])#.*")
BLOCK = re.compile(r"(?:[&!]\S+[ \t]+)?[|>][0-9+-]{0,2}\Z")
ANCHOR = re.compile(r"&\S+\Z")
MAX_YAML = 40


def read_yaml(text: str) -> dict[str, Any] | None:
    """Return the mapping in a file; None if its meaning is not certain."""
    lines = [line.rstrip() for line in text.split("\n")]
    if lines and lines[0].startswith("%"):
        return None
    if "---" in lines[:1]:
        lines = lines[1:]
    content = [line for line in lines if line.lstrip() and not line.lstrip().startswith("#")]
    if any(line.startswith(("---", "...")) or line.lstrip(" ").startswith("\t") for line in content):
        return None
    found = _mapping(lines, 0)
    return None if found is None or found[1] != len(lines) or not found[0] else found[0]


def _mapping(lines: list[str], start: int, depth: int = 0) -> tuple[dict[str, Any], int] | None:
    """Parse the mapping that begins at a line; return it and the line after it."""
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
    """Parse the value of a key and the lines below it."""
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
    nested_lines = [
        line.strip() for line in lines[below:end] if line.strip() and not line.strip().startswith("#")
    ]
    if rest and rest[0] not in "'\"[{" and any(": " in line or line.endswith(":") for line in nested_lines):
        return None
    return "\n".join([rest, *nested_lines]), _next(lines, end)


def _without_comment(words: str) -> str | None:
    """Return a value without a comment after it; None if the beginning of the comment is not certain."""
    if words.startswith(("'", '"')):
        found = QUOTED.match(words)
        if found is not None:
            return found[1]
        return words if "#" not in words else None
    if "#" in words and ("'" in words or '"' in words):
        return None
    return COMMENT.sub("", words).strip()


def _end(lines: list[str], start: int, indent: int, is_list: bool = False) -> int:
    """Return the line where deeper indentation ends; items of a list may have the indentation itself."""
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
    """Return the next line that is neither empty nor a comment."""
    at = start
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


MAX_SIZE = 256 << 10
"""Larger files are data."""
MAX_DEPTH = 12
MAX_KEYS = 1000
"""A file with more differing keys was not edited by a person."""
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
"""Directories with generated files."""
SECTION = re.compile(r"[ \t]*\[(.+)\][ \t]*(?:[#;].*)?\Z")
SETTING = re.compile(r"([^=:#;\[\s][^=:]*?)[ \t]*[=:][ \t]*(.*)\Z")

Tree = Mapping[str, Any]


def compare_settings(path: bytes, before: bytes, after: bytes) -> tuple[tuple[str, str], ...]:
    """Return (mark, key) of the differences, e.g. `("~", "server.port")`; empty if either side cannot be parsed."""
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
    """Return the parser for a file name; None for lock files and generated or installed files."""
    *directories, name = path.split(b"/")
    if name in locks() or not (package_directories() | MADE).isdisjoint(directories):
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
    # In Python True equals 1, but as settings they differ.
    return repr(one) == repr(other)


def _read_json(text: str) -> Tree | None:
    value = json.loads(text)
    return value if isinstance(value, dict) else None


def _read_ini(text: str) -> Tree | None:
    """Parse sections of `key = value`; keys before the first section have no section."""
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
    **dict.fromkeys((b".toml", b"Pipfile"), read_toml),
    **dict.fromkeys((b".yaml", b".yml"), read_yaml),
    **dict.fromkeys(
        (b".ini", b".cfg", b"pip.conf", b".npmrc", b".editorconfig", b".flake8", b".gitconfig"), _read_ini
    ),
}
"""By file name or ending."""
