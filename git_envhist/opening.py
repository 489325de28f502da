"""Which history is meant by a directory: that of its git repository, or one kept for a plain directory; the nearer.

A repository of git's is found by git. A plain directory is found by the records of `store/homes.py`, which are looked
at first, because there are hardly ever any. Where both begin at one directory, git's is the one: somebody said
`git init` there later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.capturing.timelines import FILE as TIMELINE
from git_envhist.errors import EnvhistError
from git_envhist.settings import data_home
from git_envhist.store.homes import DirectoryRegistry, RegisteredDirectory
from git_envhist.store.plain import open_plain
from git_envhist.store.repository import NoRepository, Repository
from git_envhist.values import dataclass

HOMES, HISTORIES, COMPAT = "homes", "histories", "compat"


class DirectoryReplaced(EnvhistError):
    """Another directory stands where the one was whose history is kept."""

    code = "another-directory"

    def __init__(self, home: RegisteredDirectory) -> None:
        super().__init__(
            f"'{home.path}' is not the directory whose history was kept, but another one at its place",
            hint=f"go on with that history: git envlog init --adopt={home.name}\nbegin another: git envlog init --new",
        )


@dataclass(frozen=True, slots=True)
class OpenedRepository:
    """A repository, and what is to be said about how it was found."""

    repository: Repository
    remarks: tuple[str, ...] = ()


def own_data(environ: Mapping[str, str]) -> str:
    """Where the histories of plain directories are, with all that belongs to them."""
    return os.path.join(data_home(environ), "git-envhist")


def homes_of(environ: Mapping[str, str]) -> DirectoryRegistry:
    """The records of the user's plain directories."""
    return DirectoryRegistry(os.path.join(own_data(environ), HOMES))


def history_directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the histories of plain directories are, those of other libraries' interfaces too, with the keys of each."""
    usual = [os.path.join(own_data(environ), place) for place in (HOMES, HISTORIES, COMPAT)]
    return (*usual, *(home.repository for home in homes_of(environ).all()))


def open_repository(directory: str, environ: Mapping[str, str], *, bare: bool = False) -> OpenedRepository:
    """Return the repository with a directory's history; `bare`: also one without a working tree."""
    told = in_bytes(environ)
    if "GIT_DIR" in environ:
        return OpenedRepository(Repository.open(directory, told, bare=bare))
    homes = homes_of(environ)
    found = homes.find(directory)
    try:
        repository = Repository.open(directory, told, bare=bare)
    except NoRepository:
        if found is None:
            _refuse_another(homes, directory)
            _refuse_damaged(homes)
            raise
        return OpenedRepository(open_plain(*found))
    if found is None:
        return OpenedRepository(repository)
    home, root = found
    if is_below(root, repository.root):
        return OpenedRepository(open_plain(home, root))
    return OpenedRepository(repository, _remarks(home, root, repository))


def in_bytes(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Variables as a process is given them."""
    return {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}


def is_below(path: str, top: str) -> bool:
    """Whether a path is inside a directory and not that directory itself."""
    return path != top and path.startswith(top.rstrip("/") + "/")


def earlier_history_remark(home: RegisteredDirectory, repository: Repository) -> str:
    """What is to be said where a directory that had a history became a git repository."""
    return (
        f"'{repository.root}' is a git repository now, and its history is kept there; the earlier one stays in "
        f"'{home.repository}': git --git-dir='{home.repository}' --work-tree='{repository.root}' envlog"
    )


def _remarks(home: RegisteredDirectory, root: str, repository: Repository) -> tuple[str, ...]:
    # Once something was captured into git's, nobody needs to be told again.
    told = root != repository.root or os.path.exists(os.path.join(repository.state, TIMELINE))
    return () if told else (earlier_history_remark(home, repository),)


def damaged_record(homes: DirectoryRegistry) -> str | None:
    """Return a warning about a record that cannot be read, with the command that writes it again; None if all can."""
    lost = homes.damaged()
    if not lost:
        return None
    path = os.path.join(homes.directory, lost[0])
    return f"'{path}' is damaged; if it was the record of this directory: git envlog init --adopt={lost[0]}"


def _refuse_damaged(homes: DirectoryRegistry) -> None:
    warning = damaged_record(homes)
    if warning is not None:
        raise NoRepository(
            "not a git repository, and no record of a history names this directory", hint=warning
        )


def _refuse_another(homes: DirectoryRegistry, directory: str) -> None:
    home = homes.stood_here(directory)
    if home is not None:
        raise DirectoryReplaced(home)
