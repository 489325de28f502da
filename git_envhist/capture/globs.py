"""Patterns in gitignore's syntax that are matched with bounded work (pure).

A regular expression with several stars in one name tries every way to share the name among them: 30 stars against a
long name take for ever. Here each part between two stars is matched once, at the first place where it fits
(`(?>[^/]*?part)`): if that place does not lead to a match, no later one does. The same holds for `**` and the names
between. The work for a path of n characters is at most in the order of n times the length of the pattern, and for `**`
times the number of names in the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

STAR = "*"
SLASH = "/"
NEVER = "(?!)"
MANY = 1
"""Stars in one name, and `**` in one pattern, that an ordinary regular expression handles in time."""
NEGATED = frozenset("!^")
POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}

Name = list[str]
"""A name of the pattern: regular expressions of one character each, and stars."""


class Glob(NamedTuple):
    """A pattern as a regular expression, and whether it leaves out or takes in again."""

    regex: str
    """Matches a path itself, never by a directory above it; a directory's path ends with a slash."""
    include: bool


class NotAPattern(ValueError):
    """The pattern is empty, or ends with a backslash."""


def needs_bounds(line: str) -> bool:
    """Return whether a pattern has so many stars that only `bounded` matches it in time."""
    names = line.removeprefix("!").strip("/").split("/")
    doubles = sum(name == "**" for name in names[:-1])
    return doubles > MANY or any(name != "**" and name.count(STAR) > MANY for name in names)


def bounded(line: str) -> Glob:
    """Return the regular expression of a pattern; `NotAPattern` if it is none."""
    include = not line.startswith("!")
    tokens = list(_tokens(line if include else line[1:]))
    if not tokens:
        raise NotAPattern(line)
    is_directory = tokens[-1:] == [SLASH]
    if is_directory:
        tokens.pop()
    is_anchored = SLASH in tokens
    if tokens[:1] == [SLASH]:
        tokens.pop(0)
    names = list(_names(tokens))
    if not is_anchored:
        names.insert(0, [STAR, STAR])
    return Glob(_whole(names, is_directory=is_directory), include)


def _whole(names: list[Name], *, is_directory: bool) -> str:
    if any(not name or NEVER in name for name in names):
        return NEVER
    end = r"/\Z" if is_directory else r"/?\Z"
    if all(map(_is_double, names)):
        return rf"\A(?=[^/]).*?{end}"
    goes_below = _is_double(names[-1])
    if goes_below:
        names.pop()
    first, *blocks = _blocks(names)
    head = rf"\A{_joined(first)}/" if first else r"\A"
    if goes_below:
        middle = "".join(map(_somewhere, blocks))
        return rf"{head}{middle}(?=[^/]).*?{end}"
    if not blocks:
        return rf"{head.removesuffix('/')}{end}"
    middle = "".join(map(_somewhere, blocks[:-1]))
    # Each attempt at a slash fails or ends the match: no part of it can be shared out in another way.
    return rf"{head}{middle}(?:.*/)?{_joined(blocks[-1])}{end}"


def _somewhere(block: list[Name]) -> str:
    """Names at the first place where they fit."""
    return f"(?>(?:[^/]+/)*?{_joined(block)}/)"


def _blocks(names: list[Name]) -> Iterator[list[Name]]:
    """Split the names at each `**`; the first block is empty if the pattern begins with one."""
    block: list[Name] = []
    for name in names:
        if _is_double(name):
            yield block
            block = []
        else:
            block.append(name)
    yield block


def _is_double(name: Name) -> bool:
    return len(name) > 1 and set(name) == {STAR}


def _joined(names: list[Name]) -> str:
    return "/".join(map(_name, names))


def _name(name: Name) -> str:
    """One name: each part between stars at the first place where it fits, the last part at the end."""
    parts: list[str] = [""]
    for token in name:
        if token != STAR:
            parts[-1] += token
        elif parts[-1] or len(parts) == 1:
            parts.append("")
    first, *rest = parts
    if not rest:
        return first
    middle = "".join(f"(?>[^/]*?{part})" for part in rest[:-1])
    return rf"(?=[^/]){first}{middle}(?>[^/]*{rest[-1]}(?=/|\Z))"


def _names(tokens: list[str]) -> Iterator[Name]:
    """Split the tokens at slashes; `**` that follow each other are one."""
    name: Name = []
    was_double = False
    for token in (*tokens, SLASH):
        if token != SLASH:
            name.append(token)
            continue
        if not (was_double and _is_double(name)):
            yield name
        was_double = _is_double(name)
        name = []


def _tokens(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter in (STAR, SLASH):
            yield letter
        elif letter == "?":
            yield "[^/]"
        elif letter == "[":
            token, at = _class(pattern, at)
            yield token
        elif letter == "\\":
            if at == len(pattern):
                raise NotAPattern(pattern)
            yield SLASH if pattern[at] == SLASH else re.escape(pattern[at])
            at += 1
        else:
            yield re.escape(letter)


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The set of characters that begins here, and where it ends; one that does not end matches nothing, as in git."""
    is_negated = pattern[at : at + 1] in NEGATED
    at += is_negated
    members, start, last = [], at, ""
    while True:
        letter = pattern[at : at + 1]
        if not letter:
            return NEVER, len(pattern)
        if letter == "]" and at > start:
            break
        if letter == "[" and pattern[at + 1 : at + 2] == ":":
            end = pattern.find(":]", at + 2)
            if end < 0 or pattern[at + 2 : end] not in POSIX:
                return NEVER, len(pattern)
            members.append(POSIX[pattern[at + 2 : end]])
            at, last = end + 2, ""
            continue
        if letter == "-" and last and pattern[at + 1 : at + 2] not in ("", "]"):
            upper, at = _member(pattern, at + 1)
            if last <= upper:
                members.append(f"{re.escape(last)}-{re.escape(upper)}")
            last = ""
            continue
        last, at = _member(pattern, at)
        members.append(re.escape(last))
    at += 1
    body = "".join(members)
    if is_negated:
        return f"[^/{body}]", at
    return (f"(?!/)[{body}]" if body else NEVER), at


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\" and at + 1 < len(pattern):
        return pattern[at + 1], at + 2
    return pattern[at], at + 1
