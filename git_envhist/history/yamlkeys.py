"""The keys of a YAML file, as far as it is made of mappings in blocks, which configuration is (pure).

This is no reader of YAML: what stands behind a key is kept as it is written, to be compared. Where a line could mean
something else (tabs, several documents, keys that are no plain words, one key twice) nothing is said.
"""

from __future__ import annotations

import re
from typing import Any

KEY = re.compile(
    r"""(<<|[A-Za-z0-9_./@$-][^:#'"{}\[\],&*!|>%`\n]*?|"[^"\\]*"|'[^']*')[ \t]*:(?:[ \t]+(.*))?\Z"""
)
QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:#.*)?\Z""")
COMMENT = re.compile(r"(?:^|[ \t])#.*")
BLOCK = re.compile(r"(?:[&!]\S+[ \t]+)?[|>][0-9+-]{0,2}\Z")
ANCHOR = re.compile(r"&\S+\Z")
DEEPEST = 40


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
        if entry is None or entry[1].startswith("- ") or depth > DEEPEST:
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
