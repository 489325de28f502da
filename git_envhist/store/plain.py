"""Repositories for directories without git: bare, private, made by us, with nothing of the user's templates."""

from __future__ import annotations

import os

from git_envhist.errors import EnvhistError
from git_envhist.store.durable import cannot_write, sync_directory
from git_envhist.store.git import COMMAND, Git, clean_environment, spawn
from git_envhist.store.homes import RegisteredDirectory
from git_envhist.store.repository import Repository

OBJECT_FORMAT = "sha1"
FORKS = "envhist-forks"
# Nothing of it is written by `git config`: whatever that would lock or ask for is settled before it could matter.
CONFIG = """\
[core]
	repositoryFormatVersion = 0
	fileMode = true
	bare = true
	logAllRefUpdates = false
	sharedRepository = 0600
[gc]
	auto = 0
[maintenance]
	auto = false
"""


class HistoryMissing(EnvhistError):
    """The repository of a plain directory's history is not where it was made."""

    code = "history-away"


def make_repository(place: str) -> None:
    """An empty repository at a place where nothing is yet; it is there whole or not at all."""
    new = f"{place}.new-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        os.mkdir(new, 0o700)
        try:
            _fill(new)
            os.rename(new, place)
        except BaseException:
            import shutil  # loaded late: every program passes through this module

            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_directory(os.path.dirname(place))
    except OSError as error:
        raise cannot_write(error, os.path.dirname(place)) from error


def open_plain(home: RegisteredDirectory, root: str) -> Repository:
    """The repository of a plain directory, which is at `root` now."""
    place = home.repository
    if not os.path.isdir(os.path.join(place, "objects")):
        raise HistoryMissing(
            f"the history of '{root}' is not where it was kept: '{place}'",
            hint="bring it back there, or begin another: git envlog init --new",
        )
    own = _directory_of_fork(place, home.name) if home.fork else place
    return Repository(root, own, place, OBJECT_FORMAT, Git(place, root), plain=True)


def _directory_of_fork(place: str, name: str) -> str:
    """Return the directory of one fork's own state, made if it is missing; `place` exists."""
    own = os.path.join(place, FORKS, name)
    try:
        os.makedirs(own, mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, place) from error
    return own


def _fill(place: str) -> None:
    environment = clean_environment()
    # Whatever the user prefers for repositories of their own.
    environment[b"GIT_DEFAULT_REF_FORMAT"] = b"files"
    words = ["init", "--quiet", "--bare", "--template=", f"--object-format={OBJECT_FORMAT}", place]
    done = spawn([*COMMAND, *words], environment)
    if done.status != 0:
        raise EnvhistError(f"no repository could be made: {done.complaint}")
    with open(os.path.join(place, "config"), "w", encoding="ascii") as file:
        file.write(CONFIG)
    for directory, _, names in os.walk(place, topdown=False):
        for name in names:
            _make_private(os.path.join(directory, name), 0o600)
        _make_private(directory, 0o700)


def _make_private(path: str, mode: int) -> None:
    os.chmod(path, mode)
    # git syncs none of these, and without any one of them it is no repository.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
