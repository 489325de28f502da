"""Classify changed paths (pure): packages, variables, databases, dumps, programs, and differences between machines.

`class_of` and `generated_in` classify a path by its name. `split_machine_differences` sets changes apart that any
two machines have: owners and umasks, caches, logs, and files that name their own directory. `changed_programs`
finds executables that were added or removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from git_envhist.lazy import dataclass, pattern
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, EnvPath, FactChange
from git_envhist.model.entries import database_of_sidecar

# The classes that `--only` selects from.

PACKAGES, ENV, DATABASES, FILES = CLASSES = ("packages", "env", "databases", "files")

CACHE, BUILT = "cache", "built"
CACHE_DIRECTORIES = frozenset(
    (
        *(
            b"__pycache__",
            b".pytest_cache",
            b".mypy_cache",
            b".ruff_cache",
            b".hypothesis",
            b".ipynb_checkpoints",
        ),
        *(b".cache", b".parcel-cache", b".turbo", b".eslintcache", b".sass-cache", b".gradle", b".terraform"),
        *(b".next", b".nuxt", b".svelte-kit", b".angular", b".vite", b".docusaurus", b".dart_tool"),
    )
)
"""Directories of generated files: changes in them are not listed by name."""
BUILDS = frozenset(
    (b"target", b"dist", b"build", b"out", b"_build", b"htmlcov", b"coverage", b"cmake-build-debug")
)
"""Directories that mostly contain build results, but may contain source files."""
DATABASE_ENDINGS = (b".db", b".db3", b".sqlite", b".sqlite3", b".s3db", b".sl3")


@cache
def package_directories() -> frozenset[bytes]:
    from git_envhist.probes import package_directories  # loaded late: only changed files need it

    return package_directories()


@cache
def _installation_records() -> frozenset[bytes]:
    from git_envhist.probes import records  # loaded late: only changed files need it

    return records()


def class_of(path: bytes) -> str:
    """Return the class of a path."""
    from git_envhist.probes.variables import is_variables_file  # loaded late: only changed files need it

    directories = path.split(b"/")
    name = directories.pop()
    installed = package_directories()
    if not installed.isdisjoint(directories) or name in installed:
        return PACKAGES
    if is_variables_file(path):
        return ENV
    return DATABASES if database_of(name) is not None else FILES


def generated_in(directory: bytes) -> tuple[str, bytes]:
    """Return the kind, `cache` or `built`, and the path of the outermost generated directory that contains a path.

    Directories of package managers are not generated directories; their changes are packages.
    """
    names = directory.split(b"/")
    installed = package_directories()
    for depth, name in enumerate(names):
        if name in installed:
            break
        if name in CACHE_DIRECTORIES or name in BUILDS:
            return (CACHE if name in CACHE_DIRECTORIES else BUILT), b"/".join(names[: depth + 1])
    return "", b""


def database_of(name: bytes) -> bytes | None:
    """Return the database that a file of this name is or belongs to; None for other names."""
    main = database_of_sidecar(name) or name
    return main if main.lower().endswith(DATABASE_ENDINGS) else None


def content_differs(change: Change) -> bool:
    """Return whether the content differs, not only its metadata."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    return (before.oid, before.stored, before.kind) != (after.oid, after.stored, after.kind)


def is_nested_repository(change: Change) -> bool:
    """Return whether the change is the `.git` of a nested repository."""
    side = change.after or change.before
    return side is not None and side.kind is EntryKind.DIRECTORY and side.oid is not None


# Dumps of databases and of memory, by name and by first bytes.

NAMES = pattern(
    rb".*\.(?:sql|dump|pgdump|bson|rdb|mdb|accdb|bak)(?:\.(?:gz|bz2|xz|zst|zip))|.*\.(?:dump|pgdump|bson|rdb|hprof|mdmp|dmp|core)"
    rb"|.*(?:dump|backup|export|customers?|users?|prod(?:uction)?)(?:[._-].*)?\.(?:sql|csv|tsv|ndjson|jsonl|parquet|xlsx)"
    rb"(?:\.(?:gz|bz2|xz|zst|zip))?|core(?:\.\d+)?"
)
BEGINNINGS = (
    b"-- PostgreSQL database dump", b"--\n-- PostgreSQL database", b"-- MySQL dump", b"-- MariaDB dump", b"/*M!999999",
    b"-- phpMyAdmin SQL Dump", b"PGDMP", b"REDIS0", b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION", b"JAVA PROFILE",
    b"-- Dump", b"-- pg_dump",
)  # fmt: skip


def is_dump(path: bytes, beginning: bytes) -> bool:
    """Return whether a file is a dump, by its path and its first bytes."""
    name = path.rpartition(b"/")[2].lower()
    return beginning.startswith(BEGINNINGS) or NAMES.fullmatch(name) is not None


OWNER, CACHES, LOGS, PLACES, REPOSITORIES = (
    "owner or umask",
    "caches",
    "logs",
    "own paths",
    "nested repositories",
)
UMASK = 0o066
"""The mode bits in which two umasks may differ; the executable bits are not among them."""
ONLY_OWNER = frozenset(("owner", "mode"))
COMPILED = (b".pyc", b".pyo")
LOG_ENDINGS = (b".log", b".pid", b".lock", b".tsbuildinfo", b".eslintcache", b".coverage", b".DS_Store")
SCRIPTS = frozenset((b"bin", b".bin", b"Scripts"))
"""Directories of scripts in which an installer writes the path of the interpreter."""


@dataclass(frozen=True, slots=True)
class MachineDifferences:
    """The changes of a comparison, with those that any two machines have set apart."""

    remaining: tuple[Change, ...]
    by_nature: tuple[tuple[str, tuple[Change, ...]], ...]
    """By reason, in a fixed order; changes that packages explain are listed by their directory, ending in a slash."""


def split_machine_differences(
    changes: Iterable[Change], explained: Callable[[bytes], bool]
) -> MachineDifferences:
    """Set apart the changes that any two machines have.

    `explained` returns whether changes of packages are listed for a directory of a package manager.
    """
    remaining: list[Change] = []
    found: dict[str, list[Change]] = {}
    for change in changes:
        reason = _reason(change, explained)
        if reason is None:
            remaining.append(change)
        else:
            found.setdefault(reason, []).append(change)
    order = (OWNER, CACHES, LOGS, PLACES, REPOSITORIES)
    named = [why for why in order if why in found] + sorted(why for why in found if why not in order)
    return MachineDifferences(tuple(remaining), tuple((why, tuple(found[why])) for why in named))


def _reason(change: Change, explained: Callable[[bytes], bool]) -> str | None:
    if not content_differs(change):
        return OWNER if _is_owner_alone(change) else None
    if is_nested_repository(change):
        return REPOSITORIES
    directory, _, name = change.path.rpartition(b"/")
    if generated_in(change.path)[0] == CACHE or name.endswith(COMPILED):
        return CACHES
    installed = _installed_in(change.path)
    if installed is not None:
        if name in _installation_records() or directory.rpartition(b"/")[2] in SCRIPTS:
            return PLACES
        return installed.decode("utf-8", "surrogateescape") + "/" if explained(installed) else None
    if name.endswith(LOG_ENDINGS) or _is_socket_or_pipe(change):
        return LOGS
    return None


def _is_owner_alone(change: Change) -> bool:
    if change.before is None or change.after is None:
        return False
    same_but_umask = (change.before.mode ^ change.after.mode) & ~UMASK == 0
    return ONLY_OWNER.issuperset(change.attributes) and same_but_umask


def _is_socket_or_pipe(change: Change) -> bool:
    """Return whether the change is of a socket or pipe, which a running program creates."""
    side = change.after or change.before
    return side is not None and side.kind in (EntryKind.SOCKET, EntryKind.FIFO)


def _installed_in(path: bytes) -> bytes | None:
    """Return the outermost package manager's directory above a path."""
    names = path.split(b"/")
    installed = package_directories()
    for depth, name in enumerate(names[:-1]):
        if name in installed:
            return b"/".join(names[: depth + 1])
    return None


# Programs that were added or removed. Those in directories of package managers are listed as packages.

PROBE, LINK = "program", "link"
BINARIES = frozenset((b"bin", b"sbin", b".bin", b"Scripts"))
LIBRARY = pattern(rb"\.(?:so|dylib|dll|pyd)(?:\.[0-9.]+)?\Z")
"""Names of libraries, which are loaded and not run, though their mode often allows it."""
EXECUTABLE = 0o111
MAX_ELSEWHERE = 20
"""Above this number, executables outside of these directories are ignored: on some file systems every file is one."""


def changed_programs(changes: Iterable[Change]) -> tuple[FactChange, ...]:
    """Return the executables that only one of two snapshots contains; the values are their modes."""
    found = [program for change in changes if (program := _program(change)) is not None]
    usual = [program for program in found if _is_for_programs(program.at)]
    return tuple(usual if len(found) - len(usual) > MAX_ELSEWHERE else found)


def _program(change: Change) -> FactChange | None:
    directory = EnvPath(change.path.rpartition(b"/")[0])
    before, after = _mode(change.before), _mode(change.after)
    if change.kind is ChangeKind.RENAMED or (before is None) == (after is None):
        return None
    if class_of(change.path) == PACKAGES or (LINK in (before, after) and not _is_for_programs(directory)):
        return None
    if not _is_for_programs(directory) and _is_no_tool(change.path):
        return None
    return FactChange(PROBE, change.path.decode("utf-8", "surrogateescape"), before, after, directory)


def _is_no_tool(path: bytes) -> bool:
    """Return whether it is a library, a build result, or in a hidden directory."""
    directory = path.rpartition(b"/")[0]
    is_hidden = directory.startswith(b".") or b"/." in directory
    return is_hidden or LIBRARY.search(path) is not None or bool(generated_in(directory)[0])


def _is_for_programs(directory: EnvPath) -> bool:
    return directory.rpartition(b"/")[2] in BINARIES


def _mode(side: ChangeSide | None) -> str | None:
    """Return the permission bits of an executable, or `link` for a link."""
    if side is None or not (side.kind is EntryKind.LINK or side.mode & EXECUTABLE):
        return None
    if side.kind not in (EntryKind.FILE, EntryKind.LINK):
        return None
    return LINK if side.kind is EntryKind.LINK else f"{side.mode:04o}"
