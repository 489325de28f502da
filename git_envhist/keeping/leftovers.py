"""What may hold a path beside our snapshots: what was sent, what was fetched, reflogs, git's own objects."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from git_envhist.errors import EnvhistError, GitFailed
from git_envhist.model import EnvPath
from git_envhist.model.keeping import PushedTimeline, RemainingObject
from git_envhist.sharing.exporting import PLACE as EXPORT
from git_envhist.sharing.importing import PLACE as IMPORT
from git_envhist.store.bundles import workplace
from git_envhist.store.durable import cannot_write
from git_envhist.store.fetched import FetchedStore, split_name
from git_envhist.store.git import Git
from git_envhist.store.layout import stored_places
from git_envhist.store.names import stored_name
from git_envhist.store.remotememory import directory_of, read_memory
from git_envhist.store.remotes import find_remote, key_of
from git_envhist.store.repository import HEADS, NOTES, Repository

KEY = re.compile(r"[0-9a-f]{16}")
URL = re.compile(r"remote\.(.+)\.(?:push)?url")
OURS = ("--glob=refs/envhist/*", "--glob=refs/notes/envhist/*")
THEIRS = (
    *("--exclude=refs/envhist/*", "--exclude=refs/notes/envhist/*"),
    *("--all", "--reflog", "--indexed-objects"),
)
GOING = ".going-"
"""Behind the name of the repository of what was fetched, while it is taken away."""
IN_HISTORY, IN_GIT, NOWHERE = "history", "git", "unreached"


def pushed_timelines(
    repository: Repository, directory: str, paths: Sequence[EnvPath], stored: Sequence[bytes] = ()
) -> tuple[PushedTimeline, ...]:
    """Where timelines went that held one of the paths, as far as is remembered here.

    `stored`: more paths, spelled as in the trees of snapshots.

    Of what is not here any more nobody can tell; then it is taken for granted where anything of ours holds one.
    """
    place = directory_of(repository.common_state)
    keys = sorted(name for name in os.listdir(place) if KEY.fullmatch(name)) if os.path.isdir(place) else []
    names = _names(repository, directory) if keys else {}
    specs = [*_all_specs(paths), *(b":(top,literal)" + path for path in stored)]
    found = []
    for key in keys:
        memory = read_memory(repository.common_state, key)
        for ref, oid in memory.put:
            if ref.startswith(HEADS) and _was_held(repository.git, oid, specs):
                name, shown = names.get(key, ("", memory.address))
                found.append(PushedTimeline(name, shown, ref.removeprefix(HEADS)))
    return tuple(dict.fromkeys(found))


def fetched_contains(repository: Repository, paths: Sequence[EnvPath]) -> bool:
    """Whether what was fetched or imported holds one of the paths."""
    fetched = FetchedStore.of(repository)
    if not fetched.is_there:
        return False
    held = _held(fetched.git, "--all", _all_specs(paths)) if paths else False
    if held is None:
        raise GitFailed(
            "whether what was fetched holds it cannot be told: it is damaged",
            hint=f"take '{fetched.path}' away, and fetch again where it is still shared; nothing was changed",
        )
    return held


def imported_here(repository: Repository) -> tuple[str, ...]:
    """The timelines that an import brought: no remote gives them again."""
    fetched = FetchedStore.of(repository)
    names = fetched.timelines() if fetched.is_there else []
    return tuple(name for name in names if fetched.was_imported(split_name(name)[0]))


def forget_fetched(repository: Repository, *, holds: bool) -> None:
    """Take away what was fetched, where it holds one of the paths: it comes again from where it is still shared."""
    fetched = FetchedStore.of(repository)
    _finish_forgetting(fetched)
    if holds:
        with fetched.receiving():
            os.rename(fetched.path, fetched.path + GOING + os.urandom(6).hex())
        _finish_forgetting(fetched)


def _finish_forgetting(fetched: FetchedStore) -> None:
    """Take away what is on its way out; a kill may have come before the end of it."""
    place, name = os.path.split(fetched.path)
    for one in os.listdir(place) if os.path.isdir(place) else ():
        if one.startswith(name + GOING):
            try:
                shutil.rmtree(os.path.join(place, one))
            except OSError as error:
                raise cannot_write(error, os.path.join(place, one)) from error


def forget_workplaces(repository: Repository) -> None:
    """What an export or an import left that was killed."""
    for name in (EXPORT, IMPORT):
        if os.path.isdir(os.path.join(repository.common_state, name)):
            with workplace(repository.common_state, name):
                pass


def forget_reflogs(repository: Repository) -> None:
    """We write none; git does under `core.logAllRefUpdates=always` when others move our refs."""
    refs = [*repository.list_refs("refs/envhist/"), *repository.list_refs(NOTES)]
    words = ("reflog", "expire", "--expire=all", "--expire-unreachable=all")
    for start in range(0, len(refs), 200):
        # It fails where there is none; what it did not come to would still be reached.
        repository.git.ask(*words, *refs[start : start + 200])
    for prefix in ("refs/envhist", "refs/notes/envhist"):
        shutil.rmtree(os.path.join(repository.common_dir, "logs", prefix), ignore_errors=True)


def remaining_objects(repository: Repository, erased: Sequence[bytes]) -> Iterator[RemainingObject]:
    """Of objects that were erased, those that the repository has all the same, and why."""
    asked = "".join(f"{oid.hex()}\n" for oid in erased).encode("ascii")
    told = repository.git.run("cat-file", "--batch-check", stdin=asked).decode("ascii", "replace")
    words = (line.split(" ") for line in told.splitlines())
    # What is empty says nothing.
    present = {word[0] for word in words if len(word) == 3 and word[2] != "0"}
    for where, which in ((IN_HISTORY, OURS), (IN_GIT, THEIRS)):
        for oid, path in _reached(repository.git, which, present):
            present.discard(oid)
            yield RemainingObject(oid, where, path)
    for oid in sorted(present):
        yield RemainingObject(oid, NOWHERE, b"")


def _reached(git: Git, which: Sequence[str], wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    sought = set(wanted)
    if not sought:
        return []
    # Half an answer would call something unreached that is needed: all of it, or none.
    told = git.run("rev-list", "--objects", *which)
    rows = (line.partition(b" ") for line in told.splitlines())
    found = {oid.decode("ascii"): path for oid, _, path in rows}
    return [(oid, found[oid]) for oid in sorted(sought) if oid in found]


def _all_specs(paths: Sequence[EnvPath]) -> list[bytes]:
    return [spec for path in paths for spec in _pathspecs(path)]


def _was_held(git: Git, tip: str, specs: Sequence[bytes]) -> bool:
    held = _held(git, tip, specs)
    return held if held is not None else _held(git, OURS[0], specs) is not False


def _held(git: Git, where: str, specs: Sequence[bytes]) -> bool | None:
    """Whether a chain ever held one of the paths; None where not all of it is here to tell."""
    done = git.ask("rev-list", "--max-count=1", where, "--", *specs)
    return bool(done.out.strip()) if done.status == 0 else None


def _pathspecs(path: EnvPath) -> Iterator[bytes]:
    for directory, name in stored_places(path):
        for link in (False, True):
            stored = stored_name(name, top=not directory, link=link)
            yield b":(top,literal)" + (directory + b"/" + stored if directory else stored)


def _names(repository: Repository, directory: str) -> dict[str, tuple[str, str]]:
    """By their keys, the remotes that have a name here."""
    found = {}
    names = {told[1] for key, _ in repository.read_config() if (told := URL.fullmatch(key))}
    for name in sorted(names):
        with suppress(EnvhistError):
            remote = find_remote(repository, name, directory)
            found[key_of(remote)] = (remote.name, remote.shown)
    return found
