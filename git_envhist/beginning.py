"""Begins the history of a plain directory, or goes on with one; where git has a repository there is nothing to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypedDict

from git_envhist.capturing.survey import refuse_home
from git_envhist.capturing.timelines import slug
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.opening import (
    HISTORIES,
    DirectoryReplaced,
    OpenedRepository,
    damaged_record,
    earlier_history_remark,
    homes_of,
    in_bytes,
    is_below,
    own_data,
)
from git_envhist.store.durable import cannot_write
from git_envhist.store.homes import DirectoryRegistry, DuplicateDirectory, RegisteredDirectory, is_meant
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.plain import make_repository, open_plain
from git_envhist.store.repository import NoRepository, Repository
from git_envhist.store.sameness import identify
from git_envhist.values import replace

LOCK = "lock"


class InitKeywords(TypedDict, total=False):
    """How a history for a plain directory is to begin."""

    storage: str
    """Where its repository is to be made."""
    force: bool
    anew: bool
    adopt: str | None
    """The name of a history, its repository, or where its directory was."""
    environ: Mapping[str, str]


def init_history(directory: str, environ: Mapping[str, str], wish: InitKeywords) -> OpenedRepository:
    """The repository of a directory's history, made where there is none yet."""
    root = os.path.realpath(directory)
    if not os.path.isdir(root):
        raise EnvhistError(f"there is no such directory: '{directory}'", hint=f"mkdir '{directory}' makes it")
    if wish.get("anew") and wish.get("adopt") is not None:
        raise UsageError("either --new or --adopt", hint="git envlog init -h")
    opened = _covered_by_git(root, environ)
    if opened is not None:
        return opened
    with _records(environ) as homes:
        return _begin(homes, root, environ, wish)


def _covered_by_git(root: str, environ: Mapping[str, str]) -> OpenedRepository | None:
    """git's repository, where a directory is in one and has no nearer history of its own."""
    try:
        repository = Repository.open(root, in_bytes(environ))
    except NoRepository:
        return None
    found = homes_of(environ).find(root)
    if found is None or not (found[1] == root or is_below(found[1], repository.root)):
        return OpenedRepository(repository)
    if is_below(found[1], repository.root):
        return OpenedRepository(open_plain(*found))
    return OpenedRepository(repository, (earlier_history_remark(found[0], repository),))


@contextmanager
def _records(environ: Mapping[str, str]) -> Iterator[DirectoryRegistry]:
    """The records, private and with nobody else writing any."""
    homes = homes_of(environ)
    place = state_directory(homes.directory)
    try:
        for directory in (own_data(environ), place):
            os.chmod(directory, 0o700)
    except OSError as error:
        raise cannot_write(error, place) from error
    with locked(os.path.join(own_data(environ), LOCK)):
        yield homes


def _begin(
    homes: DirectoryRegistry, root: str, environ: Mapping[str, str], wish: InitKeywords
) -> OpenedRepository:
    own = _own(homes, root, wish)
    if own is not None and not wish.get("anew") and wish.get("adopt") is None:
        _refuse_elsewhere(own, wish.get("storage"))
        return OpenedRepository(open_plain(own, root))
    if not wish.get("force"):
        refuse_home(root, environ)
    if wish.get("adopt") is not None:
        taken_up = _adopt_history(homes, root, wish)
        _release_record(homes, root, own, taken_up)
        return OpenedRepository(open_plain(taken_up, root))
    if not wish.get("anew"):
        _refuse_anothers_place(homes, root)
    made = _make(homes, root, own_data(environ), wish)
    _release_record(homes, root, own, made)
    return OpenedRepository(open_plain(made, root), tuple(_beside(homes, root)))


def _own(homes: DirectoryRegistry, root: str, wish: InitKeywords) -> RegisteredDirectory | None:
    try:
        found = homes.find(root)
    except DuplicateDirectory:
        if wish.get("anew") or wish.get("adopt") is not None:
            return None
        raise
    return found[0] if found is not None and found[1] == root else None


def _refuse_elsewhere(own: RegisteredDirectory, storage: str | None) -> None:
    if storage is not None and os.path.realpath(storage) != own.repository:
        raise Refused(
            f"the history of '{own.path}' is kept in '{own.repository}'",
            hint="a history is moved by nobody but you; to begin another: --new",
        )


def _refuse_anothers_place(homes: DirectoryRegistry, root: str) -> None:
    there = [home for home in homes.all() if home.path == root and home.identity is not None]
    if there:
        refusal = DirectoryReplaced(there[0])
        raise Refused(refusal.message, hint=refusal.hint)


def _adopt_history(homes: DirectoryRegistry, root: str, wish: InitKeywords) -> RegisteredDirectory:
    words = wish.get("adopt") or ""
    places = {words, os.path.realpath(words)}
    found = [h for h in homes.all() if h.name == words or places & {h.path, h.repository}]
    if not found:
        found = _without_record(homes, root, words)
    if len(found) != 1:
        told = ", ".join(home.name for home in found or homes.all())
        what = "more than one history is" if found else "no history is"
        raise EnvhistError(f"{what} meant by '{words}'", hint=f"one of: {told}" if told else None)
    home = found[0]
    there = identify(home.path)
    if there is not None and is_meant(home, home.path, there) and home.path != root and not wish.get("force"):
        raise Refused(
            f"'{home.path}' goes on with this history", hint="--force takes the history away from there"
        )
    taken_up = replace(home, path=root, identity=identify(root))
    homes.write(taken_up)
    return taken_up


def _without_record(homes: DirectoryRegistry, root: str, name: str) -> list[RegisteredDirectory]:
    """Return the history of a name if its record is damaged and its repository is where it is usually made."""
    place = os.path.join(os.path.dirname(homes.directory), HISTORIES, f"{name}.git")
    exists = name in homes.damaged() and os.path.isdir(os.path.join(place, "objects"))
    return [RegisteredDirectory(name, root, place, identify(root))] if exists else []


def _make(homes: DirectoryRegistry, root: str, data: str, wish: InitKeywords) -> RegisteredDirectory:
    name = f"{slug(os.path.basename(root))}-{os.urandom(3).hex()}"
    place = os.path.join(data, HISTORIES, f"{name}.git")
    if "storage" in wish:
        place = os.path.realpath(wish["storage"])
        with suppress(OSError):
            os.rmdir(place)  # an empty directory was meant to be filled
        if os.path.lexists(place):
            raise Refused(
                f"something is there already: '{place}'", hint="name a directory that is not there yet"
            )
    make_repository(place)
    home = RegisteredDirectory(name, root, place, identify(root))
    homes.write(home)
    return home


def unregister_directory(repository: Repository, environ: Mapping[str, str]) -> None:
    """Have a plain directory, and the forks that share its repository, be as if they never had a history."""
    import shutil  # loaded late: hardly ever asked for

    with _records(environ) as homes:
        for home in homes.all():
            if os.path.realpath(home.repository) == os.path.realpath(repository.common_dir):
                homes.forget(home)
    # Nothing leads there any more, and what it held has gone before.
    shutil.rmtree(repository.common_dir, ignore_errors=True)


def _release_record(
    homes: DirectoryRegistry, root: str, own: RegisteredDirectory | None, kept: RegisteredDirectory
) -> None:
    """No other record claims this directory, or its place, from now on."""
    for home in homes.all():
        mine = home.path == root or (own is not None and home.name == own.name)
        if mine and home.name != kept.name and home.identity is not None:
            homes.write(replace(home, identity=None))


def _beside(homes: DirectoryRegistry, root: str) -> Iterator[str]:
    warning = damaged_record(homes)
    if warning is not None:
        yield warning
    outer = homes.find(os.path.dirname(root))
    if outer is not None:
        yield f"'{outer[1]}' has a history too, and it holds this directory as before"
    for home in homes.all():
        if os.path.basename(home.path) == os.path.basename(root) and not os.path.exists(home.path):
            yield (
                f"'{home.path}', which is gone, has a history; if this is the same directory: "
                f"git envlog init --adopt={home.name}"
            )
