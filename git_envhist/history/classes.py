"""The classes of things an environment holds, told by their paths (pure): what `--only` chooses from."""

from __future__ import annotations

from git_envhist.history.variables import is_variables

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
DATABASE_ENDINGS = (b".db", b".db3", b".sqlite", b".sqlite3", b".s3db", b".sl3")
SIDECARS = (b"-wal", b"-shm", b"-journal")


def class_of(path: bytes) -> str:
    """The class of what stands at a path."""
    directories = path.split(b"/")
    name = directories.pop()
    if not INSTALLED.isdisjoint(directories) or name in INSTALLED:
        return PACKAGES
    if is_variables(path):
        return ENV
    return DATABASES if database_of(name) is not None else FILES


def database_of(name: bytes) -> bytes | None:
    """The database that a name says it belongs to: itself, or the one that it lies beside."""
    main = name
    for ending in SIDECARS:
        main = main.removesuffix(ending)
    return main if main.lower().endswith(DATABASE_ENDINGS) else None
