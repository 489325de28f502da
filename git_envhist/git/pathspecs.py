"""Pathspecs as git means them, matched by git against true names.

Some names in a snapshot's tree are escaped (`snapshots/stored_names`), so git's own limiting by path would match
the wrong spelling. Instead the true paths are written into a temporary index, and `git ls-files` prints those that
match. So every kind of pathspec magic works, and no pattern is interpreted here.

A path in an additional root is spelled `<name>://<path>`; no path of the environment has an empty component.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from struct import Struct

from git_envhist.errors import UsageError
from git_envhist.git.process import Git
from git_envhist.lazy import pattern as expression

FILE_MODE = 0o100644
# A pattern with a slash at its end matches only gitlinks in an index, so directories are written as gitlinks.
DIRECTORY_MODE = 0o160000

SHORT_MAGIC = {b"/": b"top", b"!": b"exclude", b"^": b"exclude"}
STAT_DATA = Struct(">10I")
MAX_NAME = 0xFFF
STARS = expression(rb"\*+")
MAX_STARS = 2
"""The limit of stars in one name of a pathspec with (glob)."""


def anchored(typed: bytes, prefix: bytes, root: bytes) -> bytes:
    """Return a pathspec typed in the directory `prefix` below `root` ("" or "a/b/"), as from the top."""
    magic, pattern = _split_magic(typed)
    if b"top" in magic:
        prefix = b""
    words = [word for word in magic if word not in (b"", b"top") and not word.startswith(b"prefix:")]
    path = _from_top(pattern, prefix, root)
    # The prefix is a literal path, even if it contains characters of patterns.
    literal = len(os.path.commonpath([prefix, path]))
    return b":(" + b",".join([b"prefix:%d" % literal, *words]) + b")" + path


def directory_prefix(directory: bytes, root: bytes) -> bytes:
    """Return the path of a directory below the top, with a slash at its end; "" for the top and for other places."""
    inside = os.path.relpath(os.path.realpath(directory), os.path.realpath(root))
    if inside == b"." or inside == b".." or inside.startswith(b"../"):
        return b""
    return inside + b"/"


def at_top(git: Git) -> tuple[bytes, ...]:
    """Return the options that make a git command read pathspecs from the top."""
    return (b"-C", os.fsencode(git.work_tree)) if git.work_tree is not None else ()


def with_positive(pathspecs: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the pathspecs, with the top added if all of them exclude: only then git searches everything.

    Raise UsageError if git would need unlimited time to match one of them.
    """
    for spec in pathspecs:
        _refuse_endless(spec)
    if all(b"exclude" in _split_magic(spec)[0] for spec in pathspecs):
        return (b":(top)", *pathspecs)
    return tuple(pathspecs)


def patterns_of(pathspecs: Sequence[bytes]) -> frozenset[bytes]:
    """Return the patterns that select paths; an empty one selects everything."""
    split = map(_split_magic, with_positive(pathspecs))
    return frozenset(pattern for magic, pattern in split if b"exclude" not in magic)


def match_paths(
    git: Git,
    paths: Iterable[bytes],
    directories: Iterable[bytes],
    pathspecs: Sequence[bytes],
) -> frozenset[bytes]:
    """Return the paths that match the pathspecs, given as from the top; `directories` are some of the paths."""
    from tempfile import NamedTemporaryFile  # loaded late: only a diff with pathspecs needs it

    with NamedTemporaryFile(prefix="git-envhist-") as index:
        id_length = 20 if git.run("rev-parse", "--show-object-format").strip() == b"sha1" else 32
        index.write(write_index(paths, directories, id_length))
        index.flush()
        listed = git.run(
            *at_top(git), "ls-files", "-z", "--full-name", "--", *with_positive(pathspecs),
            environment={b"GIT_INDEX_FILE": os.fsencode(index.name)},
        )  # fmt: skip
    return frozenset(listed.split(b"\0")[:-1])


def write_index(paths: Iterable[bytes], directories: Iterable[bytes], id_length: int) -> bytes:
    """Return an index file with these paths and meaningless ids."""
    from hashlib import sha1, sha256  # loaded late: without pathspecs nothing is hashed

    digest = sha1 if id_length == 20 else sha256
    any_id = b"\1" * id_length
    modes = dict.fromkeys(paths, FILE_MODE)
    modes.update(dict.fromkeys(directories, DIRECTORY_MODE))
    body = [b"DIRC\0\0\0\2", len(modes).to_bytes(4, "big")]
    for path in sorted(modes):
        length = min(len(path), MAX_NAME)
        entry = (
            STAT_DATA.pack(0, 0, 0, 0, 0, 0, modes[path], 0, 0, 0) + any_id + length.to_bytes(2, "big") + path
        )
        body.append(entry + b"\0" * (8 - len(entry) % 8))
    content = b"".join(body)
    return content + digest(content).digest()


def _refuse_endless(spec: bytes) -> None:
    # With (glob), git tries every division of a name among the stars: four stars and a long name take minutes.
    magic, pattern = _split_magic(spec)
    is_glob = b"glob" in magic or os.environ.get("GIT_GLOB_PATHSPECS", "0").lower() in (
        "1",
        "true",
        "yes",
        "on",
    )
    if is_glob and any(len(STARS.findall(name)) > MAX_STARS for name in pattern.split(b"/")):
        raise UsageError(
            f"more than {MAX_STARS} stars in one name of the pathspec '{os.fsdecode(pattern)}'",
            hint="leave out (glob): other pathspecs have no such limit",
        )


def _split_magic(typed: bytes) -> tuple[list[bytes], bytes]:
    if typed.startswith(b":("):
        words, closed, pattern = typed[2:].partition(b")")
        if not closed:
            raise UsageError(f"missing ')' at the end of pathspec magic in '{os.fsdecode(typed)}'")
        return words.split(b","), pattern
    if not typed.startswith(b":"):
        return [], typed
    end = 1
    while typed[end : end + 1] in SHORT_MAGIC:
        end += 1
    shorts = [SHORT_MAGIC[typed[at : at + 1]] for at in range(1, end)]
    return shorts, typed[end:].removeprefix(b":")


def _from_top(pattern: bytes, prefix: bytes, root: bytes) -> bytes:
    if pattern.startswith(b"/"):
        inside = os.path.normpath(pattern)
        if inside == root:
            return b""
        if not inside.startswith(root.rstrip(b"/") + b"/"):
            raise UsageError(f"'{os.fsdecode(pattern)}' is outside the environment at '{os.fsdecode(root)}'")
        prefix, pattern = b"", pattern[len(root.rstrip(b"/")) + 1 :]
    further_root, separator, below = pattern.partition(b"://")
    if separator and b"/" not in further_root:
        return further_root + separator + _collapse(b"", below, pattern, root)
    return _collapse(prefix, pattern, pattern, root)


def _collapse(prefix: bytes, below: bytes, pattern: bytes, root: bytes) -> bytes:
    parts: list[bytes] = []
    for part in (prefix + below).split(b"/"):
        if part == b".." and not parts:
            raise UsageError(f"'{os.fsdecode(pattern)}' is outside the environment at '{os.fsdecode(root)}'")
        if part == b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    slash = b"/" if parts and (prefix + below).endswith(b"/") else b""
    return b"/".join(parts) + slash
