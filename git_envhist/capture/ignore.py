"""What is not part of the environment: `.envhistignore` and `envhist.exclude`, in gitignore's syntax.

Directories are asked about before what stands in them, and one that is left out is not entered, so that, as in git,
nothing below it can be taken in again. The rules are applied while the environment is looked at; they play no part
in what a restore may remove.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from git_envhist.capture.descent import DOT_GIT, below_realm, join, realm_of
from git_envhist.errors import EnvhistError
from git_envhist.system import open_file_only

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE_NAME = b".envhistignore"
Matches = Callable[[bytes], bool]


class BadPattern(EnvhistError):
    """A pattern that gitignore's syntax does not know."""

    code = "bad-pattern"


def ignore_rules(
    lines: Sequence[str], everywhere: Sequence[str]
) -> Callable[[bytes, bytes, bool], bool] | None:
    """A test (directory, name, is a directory), or None where nothing is left out.

    `lines` hold for the working tree alone, `everywhere` for further roots as well.
    """
    here = path_matcher([*everywhere, *lines])
    there = path_matcher(everywhere)
    if here is None:
        return None

    def ignored(directory: bytes, name: bytes, is_directory: bool) -> bool:
        matches = there if realm_of(directory) else here
        if matches is None or _inside_git(directory):
            return False
        path = join(below_realm(directory), name)
        return matches(path + b"/" if is_directory else path)

    return ignored


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


def path_matcher(patterns: Sequence[str]) -> Matches | None:
    """A test of one path against patterns in gitignore's syntax; None where there are none."""
    trimmed = [_without_trailing_spaces(line) for line in patterns]
    wanted = [line for line in trimmed if line and not line.startswith("#")]
    if not wanted:
        return None
    spec = _compile([_to_the_end(_as_bytes(line)) for line in wanted])

    def matches(path: bytes) -> bool:
        return spec.match_file(path.decode("ascii", "surrogateescape"))

    return matches


def usable(patterns: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The patterns that mean something, and a complaint about each of the others, which match nothing, as in git."""
    good, complaints = [], []
    for pattern in patterns:
        try:
            path_matcher([pattern])
            good.append(pattern)
        except BadPattern as error:
            complaints.append(str(error))
    return tuple(good), complaints


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


def _compile(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # loaded late: most environments leave nothing out

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise BadPattern(f"not a pattern: '{lines[-1]}'", hint="see gitignore(5) for the syntax") from error


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
