"""What is not part of the environment: `.envhistignore` and `envhist.exclude`, in gitignore's syntax.

Directories are asked about before what stands in them, and one that is left out is not entered, so that, as in git,
nothing below it can be taken in again. The rules are applied while the environment is looked at; they play no part
in what a restore may remove.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.paths import DOT_GIT, join, path_below_root, root_name_of
from git_envhist.platform import open_file_only

# Patterns in gitignore's syntax that are matched with bounded work (pure).
#
# A regular expression with several stars in one name tries every way to share the name among them: 30 stars against a
# long name take for ever. Here each part between two stars is matched once, at the first place where it fits
# (`(?>[^/]*?part)`): if that place does not lead to a match, no later one does. The same holds for `**` and the names
# between. The work for a path of n characters is at most in the order of n times the length of the pattern, and for
# `**` times the number of names in the path.

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


FILE_NAME = b".envhistignore"
MAX_PATTERNS = 10_000
MAX_PATTERN = 4096
Matches = Callable[[bytes], bool]


class BadPattern(EnvhistError):
    """A pattern that gitignore's syntax does not know."""

    code = "bad-pattern"


def ignore_rules(
    lines: Sequence[str], everywhere: Sequence[str], *, seconds: float | None = None
) -> Callable[[bytes, bytes, bool], bool] | None:
    """A test (directory, name, is a directory), or None where nothing is left out.

    `lines` hold for the working tree alone, `everywhere` for further roots as well; `seconds`: the time that all
    questions may take together, after which they raise `TooSlow`.
    """
    here = path_matcher([*everywhere, *lines], top_down=True)
    there = path_matcher(everywhere, top_down=True)
    if seconds is not None:
        here, there = within(seconds, here, there)
    if here is None:
        return None

    def ignored(directory: bytes, name: bytes, is_directory: bool) -> bool:
        matches = there if root_name_of(directory) else here
        if matches is None or _inside_git(directory):
            return False
        path = join(path_below_root(directory), name)
        return matches(path + b"/" if is_directory else path)

    return ignored


class TooSlow(EnvhistError):
    """The patterns of a snapshot take too long."""

    code = "slow-patterns"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the snapshot's patterns of what it left out take more than {seconds:g} s",
            hint="restore it elsewhere: git envrestore --to <directory> <rev>",
        )


def path_filter(
    lines: Sequence[str], everywhere: Sequence[str], fingerprinted: Sequence[str]
) -> Callable[[bytes], bool]:
    """A test of a whole path: whether it, or a directory it lies in, is left out or recorded by its hash only."""
    ignored = ignore_rules(lines, everywhere)
    hashed = path_matcher(fingerprinted)

    def left_out(path: bytes) -> bool:
        if hashed is not None and hashed(path):
            return True
        names = path.split(b"/")
        return ignored is not None and any(
            ignored(b"/".join(names[:depth]), name, depth + 1 < len(names))
            for depth, name in enumerate(names)
        )

    return left_out


def path_matcher(patterns: Sequence[str], *, top_down: bool = False) -> Matches | None:
    """A test of one path against patterns in gitignore's syntax; None where there are none.

    `top_down`: no path is asked about below a directory that matches.
    """
    trimmed = [_without_trailing_spaces(line) for line in patterns]
    wanted = [_to_the_end(_as_bytes(line)) for line in trimmed if line and not line.startswith("#")]
    if not wanted:
        return None
    try:
        if any(line.startswith("!") or needs_bounds(line) for line in wanted):
            test = _bounded(wanted, top_down=top_down)
        else:
            test = _by_library(wanted)
    except ValueError as error:
        raise BadPattern(f"not a pattern: '{wanted[-1]}'", hint="see gitignore(5) for the syntax") from error

    def matches(path: bytes) -> bool:
        return test(path.decode("ascii", "surrogateescape"))

    return matches


def without_negation(patterns: Sequence[str]) -> list[str]:
    """Patterns that match what the given ones exclude with `!`, and exclude what the given ones match."""
    return [
        line[1:] if line.startswith("!") else f"!{line}" for line in patterns if line[:1] not in ("", "#")
    ]


def usable(patterns: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The patterns that mean something, and a complaint about each of the others, which match nothing, as in git.

    Patterns that are too many or too long are complained about as well.
    """
    good: list[str] = []
    complaints = []
    if len(patterns) > MAX_PATTERNS:
        complaints.append(f"only the first {MAX_PATTERNS:,} of {len(patterns):,} patterns count")
    for pattern in patterns[:MAX_PATTERNS]:
        if len(pattern) > MAX_PATTERN:
            complaints.append(f"a pattern of {len(pattern):,} characters is not read: '{pattern[:40]}…'")
            continue
        try:
            path_matcher([pattern])
            good.append(pattern)
        except BadPattern as error:
            complaints.append(str(error))
    return tuple(good), complaints


def within(seconds: float, *tests: Matches | None) -> list[Matches | None]:
    """Return the same tests, which raise `TooSlow` when they have taken so much time together."""
    spent = 0.0

    def timed(test: Matches) -> Matches:
        def matches(path: bytes) -> bool:
            nonlocal spent
            if spent > seconds:
                raise TooSlow(seconds)
            began = time.perf_counter()
            found = test(path)
            spent += time.perf_counter() - began
            return found

        return matches

    return [None if test is None else timed(test) for test in tests]


def split_lines(text: str) -> tuple[str, ...]:
    """The lines of an ignore file: only a newline ends one, and a carriage return before it is no part of it."""
    return tuple(line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))


def _without_trailing_spaces(line: str) -> str:
    """The pattern as git takes it: spaces at its end are no part of it, unless a backslash says so."""
    end = at = 0
    while at < len(line):
        escaped = line[at] == "\\"
        if escaped or line[at] != " ":
            end = at + 1 + escaped
        at += 1 + escaped
    return line[:end]


def _to_the_end(pattern: str) -> str:
    """The pattern, its end safe from a library that takes off every kind of white space, where git takes off spaces."""
    rest, last = pattern[:-1], pattern[-1]
    if last == " " or not last.isspace() or "[" in pattern:
        return pattern
    escaped = (len(rest) - len(rest.rstrip("\\"))) % 2
    return f"{rest[:-1] if escaped else rest}[{last}]"


def _as_bytes(text: str) -> str:
    # To git a pattern is bytes, and `?` is one of them: one character for each byte gives just that.
    return text.encode("utf-8", "surrogateescape").decode("ascii", "surrogateescape")


def _by_library(lines: Sequence[str]) -> Callable[[str], bool]:
    from pathspec import GitIgnoreSpec  # loaded late: most environments leave nothing out

    return GitIgnoreSpec.from_lines(lines).match_file


def _bounded(lines: Sequence[str], *, top_down: bool) -> Callable[[str], bool]:
    """The same, where the library could take for ever, or where its order of patterns is not git's."""
    globs = [
        (re.compile(glob.regex, re.DOTALL).match, glob.include) for glob in map(bounded, reversed(lines))
    ]

    def decides(path: str) -> bool:
        for match, include in globs:
            if match(path) is not None:
                return include
        return False

    def is_below(path: str) -> bool:
        ends = (at + 1 for at, letter in enumerate(path) if letter == "/" and at + 1 < len(path))
        return any(decides(path[:end]) for end in ends) or decides(path)

    return decides if top_down else is_below


def _inside_git(directory: bytes) -> bool:
    # The `.git` of a nested repository is one unit: a pattern such as `*.log` must not take a part of it away.
    return DOT_GIT in directory.split(b"/")


def left_out_of(root: str, exclude: Sequence[str]) -> Callable[[bytes], bool]:
    """Whether a path is no part of the environment of a directory, by its own list and by patterns beside it."""
    try:
        with open(os.path.join(os.fsencode(root), FILE_NAME), "rb", opener=open_file_only) as file:
            lines, _ = usable(split_lines(os.fsdecode(file.read())))
    except OSError:
        lines = ()
    everywhere, _ = usable(exclude)
    return path_filter(lines, everywhere, ()) if lines or everywhere else lambda _path: False
