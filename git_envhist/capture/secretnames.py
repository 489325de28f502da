"""Say which names make a file secret: one matcher, compiled from the table of `secrettable`.

The matcher is asked once for every new path, 100,000 times in a first capture. It looks at the last component first:
sets of whole names and of suffixes, then one expression for the rest. Rules about directories are worked out once
for each directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from typing import NamedTuple

from git_envhist.capture.copies import original_names, parts_of, parts_of_copy
from git_envhist.capture.secrettable import (
    DATA_ENDINGS,
    EXAMPLE_WORDS,
    KEY_FILES,
    PACKAGE_DIRECTORIES,
    PROGRAM_ENDINGS,
    PUBLIC_NAMES,
    SECRET_DIRECTORIES,
    SECRET_NAMES,
    SECRET_WORDS,
    TOP_NAMES,
)
from git_envhist.values import once


def is_secret_name(path: bytes) -> bool:
    """Whether the name of a file alone says that it is secret; a copy's name is judged as its original's."""
    slash = path.rfind(b"/")
    return secret_names_in(path[: max(slash, 0)])(path[slash + 1 :])


def secret_names_in(directory: bytes) -> Callable[[bytes], bool]:
    """Return the same test for the names of the files right in a directory: what depends on it is asked once."""
    return partial(_is_secret_in, _place(directory))


def _is_secret_in(place: _Place, name: bytes) -> bool:
    name = name.lower()
    if _is_secret(name, place):
        return True
    parts = parts_of_copy(name)
    return (
        bool(parts)
        and _may_be_of_secret(name, parts)
        and any(_is_secret(one, place) for one in original_names(name))
    )


def is_key_file(path: bytes) -> bool:
    """Whether a file of this name is secret where it holds a private key."""
    return _KEY_FILES.match(path[path.rfind(b"/") + 1 :].lower())


def is_program_name(path: bytes) -> bool:
    """Whether a name is that of a program or of a document, in which settings are ordinary text."""
    return _ending_of(path[path.rfind(b"/") + 1 :].lower()) in _PROGRAMS


def is_secret_directory(path: bytes) -> bool:
    """Whether the files below a directory of this path are secret."""
    return _place(path).secret


def is_package_directory(directory: bytes) -> bool:
    """Whether a directory stands at or below one of downloaded or derived files."""
    return _place(directory).packages


class _Place(NamedTuple):
    """The rules that the directory of a file adds."""

    packages: bool
    secret: bool
    names: re.Pattern[bytes] | None
    """Names that are secret in this directory."""


@lru_cache(maxsize=256)
def _place(directory: bytes) -> _Place:
    lower = directory.lower()
    packages = _packages().search(lower) is not None and _git_directory().fullmatch(directory) is None
    secret = not packages and not _SECRET_PARTS.isdisjoint(lower.split(b"/"))
    names = None
    if not lower:
        names = re.compile(_any_of(TOP_NAMES), re.DOTALL)
    elif _some_directory().search(lower) is not None:
        here = [name for pattern, name in _directories() if pattern.search(lower) is not None]
        names = re.compile(_any_of(here), re.DOTALL)
    return _Place(packages, secret, names)


def _is_secret(name: bytes, place: _Place) -> bool:
    if _NAMES.match(name):
        return _example().fullmatch(name) is None
    if place.names is not None and place.names.fullmatch(name) is not None:
        return True
    if place.packages:
        return False
    if place.secret:
        said = _ending_of(name) not in _PROGRAMS
    else:
        said = _ending_of(name) in _DATA and _words().search(name) is not None
    return said and _example().fullmatch(name) is None and not _PUBLIC.match(name)


def _may_be_of_secret(name: bytes, parts: list[bytes]) -> bool:
    """Whether the original of a copy can be secret; it costs less than to find out which name that is."""
    telling, beginnings = _of_copies()
    return (
        not telling.isdisjoint(parts)
        or name.startswith(beginnings)
        or (b"s" in name and _words().search(name) is not None)
    )


def _ending_of(name: bytes) -> bytes:
    # A dot at the beginning is part of the name.
    dot = name.rfind(b".")
    return name[dot + 1 :] if dot > 0 else b""


class _NameTable:
    """Globs of single names, compiled to be asked often."""

    def __init__(self, globs: Iterable[str]) -> None:
        globs = tuple(globs)
        endings = [
            glob for glob in globs if glob.startswith("*") and glob.count("*") == 1 and "?" not in glob
        ]
        suffixes = [glob for glob in endings if glob.startswith("*.") and glob.count(".") == 1]
        self._rest = [glob for glob in globs if ("*" in glob or "?" in glob) and glob not in endings]
        self._whole = frozenset(glob.encode() for glob in globs if "*" not in glob and "?" not in glob)
        self._suffixes = frozenset(glob[1:].encode() for glob in suffixes)
        self._endings = tuple(glob[1:].encode() for glob in endings if glob not in suffixes)

    @once
    def _others(self) -> re.Pattern[bytes]:
        return re.compile(_any_of(self._rest), re.DOTALL)

    def match(self, name: bytes) -> bool:
        return (
            name in self._whole
            or name[name.rfind(b".") :] in self._suffixes
            or name.endswith(self._endings)
            or self._others.fullmatch(name) is not None
        )


def _any_of(globs: Iterable[str]) -> bytes:
    parts = (re.escape(glob).replace(r"\*", "[^/]*").replace(r"\?", "[^/]").encode() for glob in globs)
    return b"(?:" + (b"|".join(parts) or b"(?!)") + b")"


_ALL = tuple(glob for globs in SECRET_NAMES.values() for glob in globs)
_NAMES = _NameTable(glob for glob in _ALL if "/" not in glob)
_KEY_FILES = _NameTable(KEY_FILES)
_PUBLIC = _NameTable(PUBLIC_NAMES)
_DATA = frozenset(ending.encode() for ending in DATA_ENDINGS)
_PROGRAMS = frozenset(ending.encode() for ending in PROGRAM_ENDINGS)
_SECRET_PARTS = frozenset(name.encode() for name in SECRET_DIRECTORIES)


def _telling_parts(glob: str) -> list[bytes]:
    """The parts of a name without which it is not this one; without those that many names have."""
    parts = [part for part in parts_of(glob.encode()) if part and b"*" not in part and b"?" not in part]
    return [part for part in parts if part not in _DATA and part not in _PROGRAMS] or parts


# Compiled when they are first asked for: most captures look at no new name.
@cache
def _some_directory() -> re.Pattern[bytes]:
    heads = sorted({glob.rpartition("/")[0] for glob in _ALL if "/" in glob})
    return re.compile(rb"(?:^|/)" + _any_of(heads) + rb"\Z")


@cache
def _directories() -> tuple[tuple[re.Pattern[bytes], str], ...]:
    split = [glob.rpartition("/") for glob in _ALL if "/" in glob]
    return tuple((re.compile(rb"(?:^|/)" + _any_of([head]) + rb"\Z"), name) for head, _, name in split)


@cache
def _of_copies() -> tuple[frozenset[bytes], tuple[bytes, ...]]:
    """Parts and beginnings, one of which each secret name has."""
    names = (*TOP_NAMES, *(glob.rpartition("/")[2] for glob in _ALL))
    telling = frozenset(part for name in names for part in _telling_parts(name))
    return telling, tuple(name.partition("*")[0].encode() for name in names if name.find("*") > 3)


@cache
def _example() -> re.Pattern[bytes]:
    # `.env.example`, `.env.local.sample`, `sample.env`, `kubeconfig.example.yaml`; the public half of a key pair; the
    # types of a bundler's variables.
    return re.compile(
        rb"(?:.*[._-])?"
        + _any_of(EXAMPLE_WORDS)
        + rb"(?:\.(?:env|tfvars|json|ya?ml|toml|ini))?|.*\.pub|\.env\.d\.ts",
        re.DOTALL,
    )


@cache
def _words() -> re.Pattern[bytes]:
    return re.compile(_any_of(SECRET_WORDS))


@cache
def _packages() -> re.Pattern[bytes]:
    return re.compile(rb"(?:^|/)" + _any_of(PACKAGE_DIRECTORIES) + rb"(?:/|$)")


@cache
def _git_directory() -> re.Pattern[bytes]:
    # Wherever a repository was cloned to, its configuration is no package's: it may hold the password it was cloned
    # with.
    return re.compile(rb"(?:.*/)?\.git(?:/modules/[^/]+)*", re.DOTALL)
