"""Assign each line of a file in a snapshot to the snapshot that brought it.

A timeline is a chain of commits with the environment as their trees, so git's blame does this for every file whose
bytes are stored as they are: also for ignored and untracked ones, and across renames. The versions of a sealed file
are compared here, in memory: their plain bytes are never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.errors import EnvhistError, GitFailed, UsageError
from git_envhist.git.pathspecs import at_top
from git_envhist.git.process import Git
from git_envhist.history.matching_lines import matching_blocks
from git_envhist.lazy import dataclass
from git_envhist.snapshots.stored_names import RESERVED

MAX_LINES = 20_000
"""The number of lines of a sealed file up to which its versions are compared."""
MAX_BYTES = 512 << 20
"""The bytes of all versions of a sealed file that are compared."""
OPTIONS = ("-c", "blame.ignoreRevsFile=", "-c", "blame.markUnblamableLines=false")


class NoLines(EnvhistError):
    """The lines of a file cannot be compared: it is too large, or sealed."""

    code = "no-lines"


@dataclass(frozen=True, slots=True)
class BlameLine:
    """A line of a file, and the commit that brought it."""

    number: int
    text: bytes
    """Without its line feed."""
    commit: str
    original: int
    """The number of the line in that commit."""
    stored: bytes
    """The stored path of the file in that commit."""


def blame(git: Git, commit: str, stored: bytes, lines: str | None = None) -> list[BlameLine]:
    """Return the lines of a file at a stored path of a commit; `lines`: git's -L."""
    words: list[str | bytes] = [
        *at_top(git),
        *OPTIONS,
        "blame",
        "--porcelain",
        "--no-textconv",
        "--no-progress",
    ]
    words += ["-L", lines] if lines is not None else []
    done = git.try_run(*words, commit, "--", stored)
    if done.status != 0:
        if b"-L" in done.err or b"has only" in done.err:
            raise UsageError(f"no such lines: '{lines}'", hint="-L <first>,<last>, as for git blame")
        raise GitFailed(done.complaint)
    return list(_read(done.out))


def _read(out: bytes) -> Iterator[BlameLine]:
    stored_by_commit: dict[bytes, bytes] = {}
    rows = iter(out.split(b"\n"))
    for head in rows:
        words = head.split(b" ")
        if len(words) < 3:
            continue
        commit, original, number = words[0], int(words[1]), int(words[2])
        for row in rows:
            if row.startswith(b"\t"):
                stored = stored_by_commit[commit]
                yield BlameLine(number, row[1:], commit.decode("ascii"), original, stored)
                break
            if row.startswith(b"filename "):
                stored_by_commit[commit] = _unquoted(row[len(b"filename ") :])


def _unquoted(name: bytes) -> bytes:
    """Return a path that git may have written in C's notation."""
    if not name.startswith(b'"'):
        return name
    return name[1:-1].decode("unicode_escape").encode("latin-1")


def is_of_environment(stored: bytes) -> bool:
    """Return whether a stored path is a file of the environment, and not one of our own lists."""
    return not stored.startswith(RESERVED + b"/") or stored.startswith(
        (RESERVED + b"/roots/", RESERVED + b"/dotgit/")
    )


def blame_versions(stored: bytes, versions: Iterable[tuple[str, bytes]]) -> list[BlameLine]:
    """Return the lines of the newest of some (commit, content), the newest first.

    At most two versions are held in memory. Raise `NoLines` if one has too many lines, or all have too many bytes.
    """
    texts = _bounded(versions)
    commit, current = next(texts, ("", []))
    lines = current[:-1] if current[-1:] == [b""] else current
    # For each line that is not assigned yet, its number in the version that is looked at.
    places = {number: number for number in range(len(lines))}
    assigned: dict[int, tuple[str, int]] = {}
    while places:
        older_commit, older = next(texts, ("", None))
        kept = {} if older is None else _kept(current, older)
        for number, place in list(places.items()):
            if place in kept:
                places[number] = kept[place]
            else:
                assigned[number] = (commit, place + 1)
                del places[number]
        commit, current = older_commit, older or []
    return [BlameLine(number + 1, lines[number], *assigned[number], stored) for number in sorted(assigned)]


def _bounded(versions: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield (commit, lines) of the versions; raise `NoLines` at the limits."""
    total = 0
    for commit, content in versions:
        total += len(content)
        if total > MAX_BYTES:
            raise NoLines("the versions of the file are too large to compare", hint="git envlog why <path>")
        yield commit, _split(content)


def _split(content: bytes) -> list[bytes]:
    """Return the lines of a version; raise `NoLines` if there are too many."""
    if content.count(b"\n") > MAX_LINES:
        raise NoLines(
            f"a version of the file has more than {MAX_LINES:,} lines", hint="git envlog why <path>"
        )
    return content.split(b"\n")


def _kept(new: list[bytes], old: list[bytes]) -> dict[int, int]:
    """Return for each line of the newer version that the older one has too its place there."""
    return {b + at: a + at for a, b, size in matching_blocks(old, new) for at in range(size)}


def line_before(old: bytes, new: bytes, number: int) -> int | None:
    """Return the number in the older content of a line of the newer one; None if the line is new."""
    found = _kept(_split(new), _split(old)).get(number - 1)
    return None if found is None else found + 1
