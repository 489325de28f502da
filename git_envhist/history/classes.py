"""The classes of things an environment holds, told by their paths (pure): what `--only` chooses from."""

from __future__ import annotations

from git_envhist.history.variables import is_variables
from git_envhist.model import SQLITE_SIDECARS

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
CACHES = frozenset(
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
        if name in CACHES or name in BUILDS:
            return (CACHE if name in CACHES else BUILT), b"/".join(names[: depth + 1])
    return "", b""


def database_of(name: bytes) -> bytes | None:
    """The database that a name says it belongs to: itself, or the one that it lies beside."""
    main = name
    for ending in SQLITE_SIDECARS:
        main = main.removesuffix(ending)
    return main if main.lower().endswith(DATABASE_ENDINGS) else None
