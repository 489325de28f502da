"""Match paths against `.envhistignore` and `envhist.exclude`, in gitignore's syntax.

A directory is tested before its contents and is not entered if it matches, so as in git nothing below it can
be re-included. Simple patterns are matched by pathspec, others by `bounded`. The rules apply to captures;
they do not affect what a restore may remove.
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

# Patterns matched in bounded time.
# A regular expression with several stars in one name backtracks exponentially: 30 stars never finish on a
# long name. Here each part between two stars is matched once at its first possible place (`(?>[^/]*?part)`);
# if that does not lead to a match, no later place does. The same holds for `**` and the names between. The
# time is at most proportional to the length of the path times the length of the pattern, and for `**` times
# the number of names in the path.

STAR = "*"
SLASH = "/"
NO_MATCH = "(?!)"
MAX_STARS = 1
"""Up to this many stars in a name, or `**` in a pattern, a plain regular expression is fast enough."""
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
"""A name of the pattern: regular expressions of single characters, and stars."""


class Glob(NamedTuple):
    """A pattern as a regular expression, and whether it excludes or re-includes."""

    regex: str
    """Matches the path itself, not its parents; the path of a directory ends with a slash."""
    include: bool


class NotAPattern(ValueError):
    """The pattern is empty or ends with a backslash."""


def needs_bounds(line: str) -> bool:
    """Return whether only `bounded` matches the pattern in time."""
    names = line.removeprefix("!").strip("/").split("/")
    doubles = sum(name == "**" for name in names[:-1])
    return doubles > MAX_STARS or any(name != "**" and name.count(STAR) > MAX_STARS for name in names)


def bounded(line: str) -> Glob:
    """Return the regular expression of a pattern. Raise `NotAPattern` if it is not valid."""
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
    if any(not name or NO_MATCH in name for name in names):
        return NO_MATCH
    end = r"/\Z" if is_directory else r"/?\Z"
    if all(map(_is_double, names)):
        return rf"\A(?=[^/]).*?{end}"
    matches_below = _is_double(names[-1])
    if matches_below:
        names.pop()
    first, *blocks = _blocks(names)
    head = rf"\A{_joined(first)}/" if first else r"\A"
    if matches_below:
        middle = "".join(map(_somewhere, blocks))
        return rf"{head}{middle}(?=[^/]).*?{end}"
    if not blocks:
        return rf"{head.removesuffix('/')}{end}"
    middle = "".join(map(_somewhere, blocks[:-1]))
    # Every attempt at a slash fails or ends the match, so there is no backtracking.
    return rf"{head}{middle}(?:.*/)?{_joined(blocks[-1])}{end}"


def _somewhere(block: list[Name]) -> str:
    """Return an expression for names at the first place where they match."""
    return f"(?>(?:[^/]+/)*?{_joined(block)}/)"


def _blocks(names: list[Name]) -> Iterator[list[Name]]:
    """Split the names at each `**`; the first block is empty if the pattern starts with one."""
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
    """Return a regular expression for one name of a pattern.

    Each part between two stars matches at its first occurrence, the last part at the end: without backtracking.
    """
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
    """Split the tokens at slashes and merge consecutive `**`."""
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
    """Return a character class and its end. As in git, an unterminated class matches nothing."""
    is_negated = pattern[at : at + 1] in NEGATED
    at += is_negated
    members, start, last = [], at, ""
    while True:
        letter = pattern[at : at + 1]
        if not letter:
            return NO_MATCH, len(pattern)
        if letter == "]" and at > start:
            break
        if letter == "[" and pattern[at + 1 : at + 2] == ":":
            end = pattern.find(":]", at + 2)
            if end < 0 or pattern[at + 2 : end] not in POSIX:
                return NO_MATCH, len(pattern)
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
    return (f"(?!/)[{body}]" if body else NO_MATCH), at


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\" and at + 1 < len(pattern):
        return pattern[at + 1], at + 2
    return pattern[at], at + 1


FILE_NAME = b".envhistignore"
MAX_PATTERNS = 10_000
MAX_PATTERN = 4096
Matches = Callable[[bytes], bool]


class BadPattern(EnvhistError):
    """The pattern is not valid gitignore syntax."""

    code = "bad-pattern"


def ignore_rules(
    lines: Sequence[str], everywhere: Sequence[str], *, seconds: float | None = None
) -> Callable[[bytes, bytes, bool], bool] | None:
    """Return a test (directory, name, is a directory), or None if nothing is excluded.

    `lines` apply to the working tree only, `everywhere` also to additional roots. With `seconds`, the test
    raises `TooSlow` once all calls together take longer.
    """
    in_tree = path_matcher([*everywhere, *lines], top_down=True)
    in_roots = path_matcher(everywhere, top_down=True)
    if seconds is not None:
        in_tree, in_roots = within(seconds, in_tree, in_roots)
    if in_tree is None:
        return None

    def ignored(directory: bytes, name: bytes, is_directory: bool) -> bool:
        matches = in_roots if root_name_of(directory) else in_tree
        if matches is None or _inside_git(directory):
            return False
        path = join(path_below_root(directory), name)
        return matches(path + b"/" if is_directory else path)

    return ignored


class TooSlow(EnvhistError):
    """Matching the patterns of a snapshot takes too long."""

    code = "slow-patterns"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"matching the snapshot's ignore patterns takes more than {seconds:g} s",
            hint="restore to another directory: git envrestore --to <directory> <rev>",
        )


def path_filter(
    lines: Sequence[str], everywhere: Sequence[str], fingerprinted: Sequence[str]
) -> Callable[[bytes], bool]:
    """Return a test of a whole path: is it, or a parent, excluded or stored as a fingerprint only?"""
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
    """Return a test of a path against patterns; None if there are no patterns.

    With `top_down` the caller never tests a path below a directory that matches.
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
    """Return inverted patterns: they match what the given ones exclude with `!`, and the reverse."""
    return [
        line[1:] if line.startswith("!") else f"!{line}" for line in patterns if line[:1] not in ("", "#")
    ]


def usable(patterns: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the valid patterns, and a warning for each other one; as in git those match nothing.

    Patterns beyond the limits of number and length get a warning, too.
    """
    good: list[str] = []
    complaints = []
    if len(patterns) > MAX_PATTERNS:
        complaints.append(f"only the first {MAX_PATTERNS:,} of {len(patterns):,} patterns are used")
    for pattern in patterns[:MAX_PATTERNS]:
        if len(pattern) > MAX_PATTERN:
            complaints.append(f"a pattern of {len(pattern):,} characters is ignored: '{pattern[:40]}…'")
            continue
        try:
            path_matcher([pattern])
            good.append(pattern)
        except BadPattern as error:
            complaints.append(str(error))
    return tuple(good), complaints


def within(seconds: float, *tests: Matches | None) -> list[Matches | None]:
    """Return tests that raise `TooSlow` once all calls together take longer than `seconds`."""
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
    """Return the lines of an ignore file without line ends (LF or CR LF) and byte order mark."""
    return tuple(line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))


def _without_trailing_spaces(line: str) -> str:
    """Return the pattern without trailing spaces that are not escaped, as git does."""
    end = at = 0
    while at < len(line):
        escaped = line[at] == "\\"
        if escaped or line[at] != " ":
            end = at + 1 + escaped
        at += 1 + escaped
    return line[:end]


def _to_the_end(pattern: str) -> str:
    """Return the pattern protected from the library, which strips all white space where git strips only
    spaces."""
    rest, last = pattern[:-1], pattern[-1]
    if last == " " or not last.isspace() or "[" in pattern:
        return pattern
    escaped = (len(rest) - len(rest.rstrip("\\"))) % 2
    return f"{rest[:-1] if escaped else rest}[{last}]"


def _as_bytes(text: str) -> str:
    # Git matches bytes, and `?` matches one byte, so each byte becomes one character.
    return text.encode("utf-8", "surrogateescape").decode("ascii", "surrogateescape")


def _by_library(lines: Sequence[str]) -> Callable[[str], bool]:
    from pathspec import GitIgnoreSpec  # loaded late: most environments have no patterns

    return GitIgnoreSpec.from_lines(lines).match_file


def _bounded(lines: Sequence[str], *, top_down: bool) -> Callable[[str], bool]:
    """Return the same test for patterns on which the library is slow or orders rules differently from git."""
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
    # The `.git` of a nested repository is stored whole, so a pattern such as `*.log` must not exclude parts.
    return DOT_GIT in directory.split(b"/")


def left_out_of(root: str, exclude: Sequence[str]) -> Callable[[bytes], bool]:
    """Return a test of paths in another directory, by its ignore file and the given patterns."""
    try:
        with open(os.path.join(os.fsencode(root), FILE_NAME), "rb", opener=open_file_only) as file:
            lines, _ = usable(split_lines(os.fsdecode(file.read())))
    except OSError:
        lines = ()
    everywhere, _ = usable(exclude)
    return path_filter(lines, everywhere, ()) if lines or everywhere else lambda _path: False
