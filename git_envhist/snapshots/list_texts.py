"""The lists stored next to the manifest: missing paths, git's changes, ignore rules (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import EnvPath, GitChange, MissingPath, MissingReason
from git_envhist.printable_text import display_bytes
from git_envhist.snapshots.quoting import quote, quote_path, unquote, unquote_path

# Lists next to the manifest: missing paths with a reason, and changes in git's view.
#
# One line each, sorted by path; paths and details are quoted. A path of an additional root starts with the root's
# name and `://`:
#
#     data/big.iso budget 5.2%20GiB
#     nginx://conf.d/secret.key unreadable

ROOT_MARK = b"://"
"""Occurs in no path of a file system: no component of a path is empty."""
MAX_LIST = 1 << 28

_REASONS = {why.value.encode("ascii"): why for why in MissingReason}
_GIT_LETTER = pattern(rb"[A-Z?!]\Z")


def write_missing(missing: Iterable[MissingPath]) -> bytes:
    """Return the list of the paths that a snapshot lacks."""
    ordered = sorted(set(missing), key=lambda item: (item.path, item.why.value, item.detail))
    return b"".join([_missing_line(item) for item in ordered])


def read_missing(data: bytes) -> tuple[MissingPath, ...]:
    """Parse the list of missing paths. Raise `Damaged` if it is malformed."""
    found = [_read_missing_line(line) for line in _split(data)]
    _check_order([item.path for item in found])
    return tuple(found)


def write_git_changes(changes: Iterable[GitChange]) -> bytes:
    """Return the list of differences from HEAD in git's own view."""
    ordered = sorted(set(changes), key=lambda change: (change.path, change.status))
    return b"".join(
        [b"%b %b\n" % (change.status.encode("ascii"), quote_path(change.path)) for change in ordered]
    )


def read_git_changes(data: bytes) -> tuple[GitChange, ...]:
    """Parse the list of differences from HEAD. Raise `Damaged` if it is malformed."""
    found = [_read_git_line(line) for line in _split(data)]
    _check_order([change.path for change in found])
    return tuple(found)


def write_rules(ignore: Sequence[str], exclude: Sequence[str]) -> bytes:
    """Return the patterns that excluded files from the environment, in gitignore's syntax and in order.

    `ignore` applied to the working tree only, `exclude` to additional roots as well.
    """
    rules = [(b"ignore", line) for line in ignore] + [(b"exclude", line) for line in exclude]
    return b"".join(
        [
            b"%b %b\n" % (word, quote(line.encode("utf-8", "surrogateescape")))
            for word, line in rules
            if line.strip() and not line.startswith("#")
        ]
    )


def read_rules(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parse such rules, as (ignore, exclude). Raise `Damaged` if they are malformed."""
    found: dict[bytes, list[str]] = {b"ignore": [], b"exclude": []}
    for line in _split(data):
        word, _, pattern = line.partition(b" ")
        if word not in found or not pattern:
            raise _unreadable(line)
        found[word].append(unquote(pattern).decode("utf-8", "surrogateescape"))
    return tuple(found[b"ignore"]), tuple(found[b"exclude"])


def _missing_line(item: MissingPath) -> bytes:
    detail = b" " + quote(item.detail.encode("utf-8", "surrogateescape")) if item.detail else b""
    return b"%b %b%b\n" % (quote_path(item.path), item.why.value.encode("ascii"), detail)


def _read_missing_line(line: bytes) -> MissingPath:
    path, _, rest = line.partition(b" ")
    why, space, detail = rest.partition(b" ")
    if why not in _REASONS or (space and not detail):
        raise _unreadable(line)
    text = unquote(detail).decode("utf-8", "surrogateescape")
    return MissingPath(_read_path(path), _REASONS[why], text)


def _read_git_line(line: bytes) -> GitChange:
    letter, space, path = line.partition(b" ")
    if not space or _GIT_LETTER.match(letter) is None:
        raise _unreadable(line)
    return GitChange(letter.decode("ascii"), unquote_path(path))


def _read_path(word: bytes) -> EnvPath:
    root, mark, below = word.partition(ROOT_MARK)
    if not mark:
        return unquote_path(word)
    path = unquote_path(below or b".")
    if not root or path != unquote(below):
        raise _unreadable(word)
    return EnvPath(unquote(root) + ROOT_MARK + path)


def _split(data: bytes) -> list[bytes]:
    if len(data) > MAX_LIST:
        raise Damaged("a list of a snapshot is too long")
    if data and not data.endswith(b"\n"):
        raise Damaged("a list of a snapshot ends in the middle of a line")
    return data.split(b"\n")[:-1]


def _check_order(paths: list[bytes]) -> None:
    if paths != sorted(paths):
        raise Damaged("a list of a snapshot is not in order")


def _unreadable(line: bytes) -> Damaged:
    return Damaged(f"a line of a snapshot's list cannot be read: '{display_bytes(line)}'")
