"""Where a program that an agent runs may write outside of the environment: below one directory, and nowhere else.

A snapshot holds whatever an agent captured. Written into `~/.config/git`, `~/.ssh` or `~/bin` it becomes configuration
or a program of the user. So without a person a new directory or file may only be made below `envhist.forkPlace`, by
default right beside the project, and never at a hidden path or where programs are looked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from git_envhist.capturing.attendance import is_unattended
from git_envhist.errors import Refused
from git_envhist.store.repository import Repository

FORK_PLACE = "envhist.forkplace"
USERS_OWN = ("system", "global", "command")
PROGRAMS = frozenset(("bin", "sbin", "Library", "Applications"))
"""Names of directories, right in a home or further in, whose content systems run or obey."""
SEARCHED = (
    *(
        "PATH",
        "PYTHONPATH",
        "NODE_PATH",
        "LD_LIBRARY_PATH",
        "MANPATH",
        "GOPATH",
        "GOBIN",
        "CARGO_HOME",
        "GNUPGHOME",
    ),
    *(
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_CACHE_HOME",
        "XDG_BIN_HOME",
        "XDG_RUNTIME_DIR",
    ),
    *("XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"),
)
"""Variables that name directories of programs and settings."""


class PlaceRefused(Refused):
    """An agent asked to write where it may not."""

    code = "place-refused"


def refuse_place(path: str, repository: Repository, environ: Mapping[str, str]) -> None:
    """Raise `PlaceRefused` if no person is present and an agent may not make a file or directory at this path."""
    if not is_unattended(environ):
        return
    root = os.path.realpath(path)
    for why in _objections(root, repository, environ):
        raise PlaceRefused(
            f"an agent may not write to '{path}': {why}",
            hint=f"do it by hand, or name a directory for it: git config --global {FORK_PLACE} <directory>",
        )


def _objections(root: str, repository: Repository, environ: Mapping[str, str]) -> Iterator[str]:
    beside = os.path.realpath(os.path.dirname(repository.root))
    chosen = _fork_place(repository)
    top = os.path.realpath(chosen) if chosen else beside
    names = _names_below(root, top)
    if top == "/":
        yield "the project is right below '/', and envhist.forkPlace names no directory for it"
    if not names:
        yield f"it is not below '{top}'"
    elif chosen is None and len(names) > 1:
        yield f"it is not right beside the project, in '{top}'"
    if any(name.startswith(".") for name in names):
        yield "a part of its path begins with a dot"
    home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    if any(name.startswith(".") for name in _names_below(root, home)):
        yield "it is below a hidden directory of the home directory"
    if PROGRAMS.intersection(names) or _is_searched(root, environ):
        yield "programs or settings are looked for there"


def _fork_place(repository: Repository) -> str | None:
    """The configured directory. An agent can write the repository's own configuration, so only the user's counts."""
    done = repository.git.try_run("config", "--show-scope", "-z", "--type=path", "--get-all", FORK_PLACE)
    words = os.fsdecode(done.out).split("\0") if done.status == 0 else []
    scoped = zip(words[::2], words[1::2], strict=False)
    return next(iter([place for scope, place in scoped if scope in USERS_OWN and place][::-1]), None)


def _names_below(path: str, top: str) -> list[str]:
    """The parts of a path below a directory; none if it is not below it."""
    start = top.rstrip("/") + "/"
    return path.removeprefix(start).split("/") if path.startswith(start) and path != start else []


def _is_searched(root: str, environ: Mapping[str, str]) -> bool:
    """Whether a directory that a variable names is this one, or below it, or above it."""
    listed = os.pathsep.join(environ.get(name, "") for name in SEARCHED)
    searched = [os.path.realpath(one) for one in listed.split(os.pathsep) if one.startswith("/")]
    return any(f"{one}/".startswith(f"{root}/") or f"{root}/".startswith(f"{one}/") for one in searched)
