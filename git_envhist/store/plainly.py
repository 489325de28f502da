"""Where a repository is, told by what git lists of its configuration; only where that is as plain as it mostly is.

Each start of git costs a quick command 2 ms. Where `.git` is a directory right here, and git read the configuration in
it, which it does for nobody whom it would refuse the repository, it need not be asked where that is. Whatever is
unusual (a linked worktree, a variable of git's, a place that is set) is left to `git rev-parse`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from git_envhist.errors import GitFailed, NotARepository
from git_envhist.store.git import SAFE_GIT, GitProcess, GitResult, clean_environment
from git_envhist.system import open_file_only

SHOW_SOURCES = ("config", "--list", "-z", "--show-scope", "--show-origin")
"""Each item follows its scope and its file."""
OWN = (b"local", b"file:.git/config")
PLACES = (b"GIT_DIR", b"GIT_WORK_TREE", b"GIT_COMMON_DIR")
EXTENSIONS = frozenset(("extensions.objectformat", "extensions.refstorage", "extensions.partialclone"))
READ_FIRST = (
    "config",
    "HEAD",
    "packed-refs",
    "index",
    "shallow",
    "info/exclude",
    "info/attributes",
    "info/grafts",
)
"""Files of a git directory that most commands of git open."""
HEX = frozenset(b"0123456789abcdef")

_begun: dict[str, GitProcess] = {}
"""The question that is under way, by the directory it was asked in: for whoever asks first, and nobody else."""


class RepositoryPlace(NamedTuple):
    """What there is to know of where a repository is."""

    root: str
    git_dir: str
    common_dir: str
    object_format: str


def places(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The environment to ask git in: clean, but for what says where the repository is."""
    named = (*PLACES, b"GIT_CEILING_DIRECTORIES")
    return {
        **clean_environment(environment),
        **{name: environment[name] for name in named if name in environment},
    }


def begin_listing() -> None:
    """Let git list the configuration in force here, while our own modules are still being loaded."""
    _begun[os.getcwd()] = _list(".", places(os.environb))


def listing(directory: str, asked: Mapping[bytes, bytes]) -> GitResult:
    """The configuration in force in a directory, each item with where it stands."""
    begun = _begun.pop(os.path.realpath(directory), None)
    return (begun or _list(directory, asked)).finish()


def _list(directory: str, asked: Mapping[bytes, bytes]) -> GitProcess:
    # Without our own overrides: they would be listed as the user's.
    return GitProcess([*SAFE_GIT, "-C", directory, *SHOW_SOURCES], asked)


def refuse_pipes(directory: str) -> None:
    """Refuse a repository in which a file that git reads first is a pipe: every git would wait for ever."""
    for name in READ_FIRST:
        path = os.path.join(directory, ".git", name)
        try:
            is_pipe = stat.S_ISFIFO(os.lstat(path).st_mode)
        except OSError:
            continue
        if is_pipe:
            for begun in _begun.values():
                begun.stop()
            _begun.clear()
            raise GitFailed(
                f"git would wait for ever: '{path}' is a pipe", hint="move it away, or put the file back"
            )


def find_repository_fast(
    directory: str, environment: Mapping[bytes, bytes], listed: bytes, config: Mapping[str, str | None]
) -> RepositoryPlace | None:
    """The repository whose top is this directory; None where git is to be asked. `listed`: git's answer."""
    sources = listed.split(b"\0")
    if any(name in environment for name in PLACES) or OWN not in zip(
        sources[::3], sources[1::3], strict=False
    ):
        return None
    object_format = config.get("extensions.objectformat", "sha1")
    if not _is_plain(config) or object_format not in ("sha1", "sha256"):
        return None
    top = os.path.realpath(directory)
    git_dir = os.path.join(top, ".git")
    return RepositoryPlace(top, git_dir, git_dir, object_format) if _is_git_directory(git_dir) else None


def is_inside(path: str, directory: str) -> bool:
    """Whether a path is a directory or below it; links are resolved."""
    top = os.path.realpath(directory).rstrip("/")
    return f"{os.path.realpath(path)}/".startswith(f"{top}/")


def bare_repository(git_dir: str) -> NotARepository:
    """The error of a repository that has no working tree."""
    return NotARepository(
        f"'{git_dir}' is a bare repository: there is no environment to capture",
        hint="envrestore <rev> --to <directory> needs no working tree; "
        "for all else name both: GIT_DIR=<repository> GIT_WORK_TREE=<directory>",
    )


def find_bare(directory: str) -> str | None:
    """Return the git directory that a directory is in, unless it may be part of another repository's working tree.

    A repository among the files of a clone brings a configuration that the user never agreed to.
    """
    place = os.path.realpath(directory)
    while not _is_git_directory(place):
        place, below = os.path.dirname(place), place
        if place == below:
            return None
    above = place
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        if os.path.lexists(os.path.join(above, ".git")) or _is_git_directory(above):
            return None
    return place


def _is_git_directory(path: str) -> bool:
    # By git's own rule: what it passes over on its way up, is none.
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode) or os.path.lexists(os.path.join(path, "commondir")):
            return False
        with open(os.path.join(path, "HEAD"), "rb", opener=open_file_only) as file:
            head = file.read(70)
    except OSError:
        return False
    is_head = head.startswith(b"ref: refs/") or (len(head) > 40 and HEX.issuperset(head.strip()))
    return is_head and all(os.access(os.path.join(path, name), os.X_OK) for name in ("objects", "refs"))


def _is_plain(config: Mapping[str, str | None]) -> bool:
    if config.get("core.bare") != "false" or "core.worktree" in config:
        return False
    return all(key in EXTENSIONS for key in config if key.startswith("extensions."))
