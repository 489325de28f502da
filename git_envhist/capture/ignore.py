"""What is not part of the environment: `.envhistignore` and `envhist.exclude`, in gitignore's syntax.

Directories are asked about before what stands in them, and one that is left out is not entered, so that, as in git,
nothing below it can be taken in again. The rules are applied while the environment is looked at; they play no part
in what a restore may remove.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

from git_envhist.capture.descent import DOT_GIT, join, path_below_root, root_name_of
from git_envhist.capture.globs import bounded, needs_bounds
from git_envhist.errors import EnvhistError
from git_envhist.system import open_file_only

FILE_NAME = b".envhistignore"
MOST_PATTERNS = 10_000
LONGEST_PATTERN = 4096
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
    if len(patterns) > MOST_PATTERNS:
        complaints.append(f"only the first {MOST_PATTERNS:,} of {len(patterns):,} patterns count")
    for pattern in patterns[:MOST_PATTERNS]:
        if len(pattern) > LONGEST_PATTERN:
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
