"""What differs by nature between two machines (pure): nobody looks for the reason of a failure there first.

Whose files they are, what a umask left of their mode, caches, logs, what an installer or a running program writes of
the place it stands in; and in directories that package managers fill whatever differs while the packages say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from git_envhist.lazy import dataclass, pattern
from git_envhist.model import Change, ChangeKind, ChangeSide, EntryKind, EnvPath, FactChange
from git_envhist.model.entries import database_of_sidecar

# The classes of things an environment holds, told by their paths (pure): what `--only` chooses from.

PACKAGES, ENV, DATABASES, FILES = CLASSES = ("packages", "env", "databases", "files")

INSTALLED = frozenset(
    (
        *(b"node_modules", b"bower_components", b"jspm_packages", b".yarn", b".pnpm-store"),
        *(
            b".venv",
            b"venv",
            b"site-packages",
            b"dist-packages",
            b"__pypackages__",
            b".tox",
            b".nox",
            b"conda-meta",
        ),
        *(b".bundle", b"gems"),
    )
)
"""Directories that package managers fill."""
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
"""Directories whose content is made anew whenever it is missing: no file in them is worth a word."""
BUILDS = frozenset(
    (b"target", b"dist", b"build", b"out", b"_build", b"htmlcov", b"coverage", b"cmake-build-debug")
)
"""Directories that most often hold what was built; they may as well hold what somebody wrote."""
DATABASE_ENDINGS = (b".db", b".db3", b".sqlite", b".sqlite3", b".s3db", b".sl3")


def class_of(path: bytes) -> str:
    """The class of what stands at a path."""
    from git_envhist.probes.variables import is_variables  # loaded late: only changed files need it

    directories = path.split(b"/")
    name = directories.pop()
    if not INSTALLED.isdisjoint(directories) or name in INSTALLED:
        return PACKAGES
    if is_variables(path):
        return ENV
    return DATABASES if database_of(name) is not None else FILES


def generated_in(directory: bytes) -> tuple[str, bytes]:
    """What sort of generated directory this is or lies in, `cache` or `built`, and the path of that one.

    The outermost counts. What package managers fill is none of them: it is told as packages.
    """
    names = directory.split(b"/")
    for depth, name in enumerate(names):
        if name in INSTALLED:
            break
        if name in CACHE_DIRECTORIES or name in BUILDS:
            return (CACHE if name in CACHE_DIRECTORIES else BUILT), b"/".join(names[: depth + 1])
    return "", b""


def database_of(name: bytes) -> bytes | None:
    """The database that a name says it belongs to: itself, or the one that it lies beside."""
    main = database_of_sidecar(name) or name
    return main if main.lower().endswith(DATABASE_ENDINGS) else None


def has_other_bytes(change: Change) -> bool:
    """Whether the content differs, not only what is said of it."""
    before, after = change.before, change.after
    if before is None or after is None:
        return True
    return (before.oid, before.stored, before.kind) != (after.oid, after.stored, after.kind)


def is_nested_repository(change: Change) -> bool:
    """Whether this is the `.git` of a nested repository."""
    side = change.after or change.before
    return side is not None and side.kind is EntryKind.DIRECTORY and side.oid is not None


# Tell dumps of databases and of memory from other files (pure): by their names, and by how they begin.

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
    """Whether a file is a dump, by its path and its first bytes."""
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
"""What two umasks leave differently; that something can be run is no matter of them."""
ONLY_OWNER = frozenset(("owner", "mode"))
COMPILED = (b".pyc", b".pyo")
LOG_ENDINGS = (b".log", b".pid", b".lock", b".tsbuildinfo", b".eslintcache", b".coverage", b".DS_Store")
WRITTEN_BY_INSTALLERS = frozenset(
    (
        *(b"pyvenv.cfg", b"RECORD", b"direct_url.json", b"INSTALLER", b"REQUESTED", b"pip-selfcheck.json"),
        *(b".package-lock.json", b".yarn-state.yml", b".yarn-integrity", b".modules.yaml", b"uv_cache.json"),
    )
)
SCRIPTS = frozenset((b"bin", b".bin", b"Scripts"))
"""Scripts that an installer writes name the interpreter of their own place."""


@dataclass(frozen=True, slots=True)
class MachineDifferences:
    """The changes of a comparison, what is by nature set apart."""

    told: tuple[Change, ...]
    by_nature: tuple[tuple[str, tuple[Change, ...]], ...]
    """By what makes them so, in a fixed order; what packages explain goes by their directory, ending in a slash."""


def split_machine_differences(
    changes: Iterable[Change], explained: Callable[[bytes], bool]
) -> MachineDifferences:
    """`explained`: whether packages of a directory that package managers fill are told to differ."""
    told: list[Change] = []
    found: dict[str, list[Change]] = {}
    for change in changes:
        why = _why(change, explained)
        if why is None:
            told.append(change)
        else:
            found.setdefault(why, []).append(change)
    order = (OWNER, CACHES, LOGS, PLACES, REPOSITORIES)
    named = [why for why in order if why in found] + sorted(why for why in found if why not in order)
    return MachineDifferences(tuple(told), tuple((why, tuple(found[why])) for why in named))


def _why(change: Change, explained: Callable[[bytes], bool]) -> str | None:
    if not has_other_bytes(change):
        return OWNER if _is_owner_alone(change) else None
    if is_nested_repository(change):
        return REPOSITORIES
    directory, _, name = change.path.rpartition(b"/")
    if generated_in(change.path)[0] == CACHE or name.endswith(COMPILED):
        return CACHES
    installed = _installed_in(change.path)
    if installed is not None:
        if name in WRITTEN_BY_INSTALLERS or directory.rpartition(b"/")[2] in SCRIPTS:
            return PLACES
        return installed.decode("utf-8", "surrogateescape") + "/" if explained(installed) else None
    if name.endswith(LOG_ENDINGS) or _is_of_the_moment(change):
        return LOGS
    return None


def _is_owner_alone(change: Change) -> bool:
    if change.before is None or change.after is None:
        return False
    same_but_umask = (change.before.mode ^ change.after.mode) & ~UMASK == 0
    return ONLY_OWNER.issuperset(change.attributes) and same_but_umask


def _is_of_the_moment(change: Change) -> bool:
    """Sockets and the like: they are made anew by whoever runs."""
    side = change.after or change.before
    return side is not None and side.kind in (EntryKind.SOCKET, EntryKind.FIFO)


def _installed_in(path: bytes) -> bytes | None:
    """The outermost directory above a path that package managers fill."""
    names = path.split(b"/")
    for depth, name in enumerate(names[:-1]):
        if name in INSTALLED:
            return b"/".join(names[: depth + 1])
    return None


# Which changes are programs that came or went, as one would say of tools (pure).
#
# Those in directories that package managers fill are told as the packages that brought them.

PROBE, LINK = "program", "link"
BINARIES = frozenset((b"bin", b"sbin", b".bin", b"Scripts"))
LIBRARY = pattern(rb"\.(?:so|dylib|dll|pyd)(?:\.[0-9.]+)?\Z")
"""Names of what is loaded and not run, though its mode often says otherwise."""
EXECUTABLE = 0o111
MAX_ELSEWHERE = 20
"""So many at once outside of these directories are no tools: on some file systems every file may be executed."""


def programs(changes: Iterable[Change]) -> tuple[FactChange, ...]:
    """The executables that only one of two moments has; values are their modes."""
    found = [told for change in changes if (told := _program(change)) is not None]
    usual = [told for told in found if _is_for_programs(told.at)]
    return tuple(usual if len(found) - len(usual) > MAX_ELSEWHERE else found)


def _program(change: Change) -> FactChange | None:
    directory = EnvPath(change.path.rpartition(b"/")[0])
    before, after = _mode(change.before), _mode(change.after)
    if change.kind is ChangeKind.RENAMED or (before is None) == (after is None):
        return None
    if class_of(change.path) == PACKAGES or (LINK in (before, after) and not _is_for_programs(directory)):
        return None
    if not _is_for_programs(directory) and _is_made(change.path):
        return None
    return FactChange(PROBE, change.path.decode("utf-8", "surrogateescape"), before, after, directory)


def _is_made(path: bytes) -> bool:
    """Whether it is a library, or some tool's own: what was built, what stands in a hidden directory."""
    directory = path.rpartition(b"/")[0]
    is_hidden = directory.startswith(b".") or b"/." in directory
    return is_hidden or LIBRARY.search(path) is not None or bool(generated_in(directory)[0])


def _is_for_programs(directory: EnvPath) -> bool:
    return directory.rpartition(b"/")[2] in BINARIES


def _mode(side: ChangeSide | None) -> str | None:
    """The permission bits of something that can be run; a link is told as what it leads to may be."""
    if side is None or not (side.kind is EntryKind.LINK or side.mode & EXECUTABLE):
        return None
    if side.kind not in (EntryKind.FILE, EntryKind.LINK):
        return None
    return LINK if side.kind is EntryKind.LINK else f"{side.mode:04o}"
