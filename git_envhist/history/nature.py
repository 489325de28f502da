"""What differs by nature between two machines (pure): nobody looks for the reason of a failure there first.

Whose files they are, what a umask left of their mode, caches, logs, what an installer or a running program writes of
the place it stands in; and in directories that package managers fill whatever differs while the packages say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from git_envhist.history.classes import CACHE, INSTALLED, generated_in
from git_envhist.history.diff import has_other_bytes, is_nested_repository
from git_envhist.model import Change, EntryKind
from git_envhist.values import dataclass

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
