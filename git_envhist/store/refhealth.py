"""Whether our refs can be read, and lead somewhere; one that does not is set aside, so that git goes on.

A ref whose object is missing ends the user's own `git gc`, `push` and `clone`. It is written down in a file beside our
state, word for word, before it goes: what it named can still be looked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from git_envhist.errors import GitFailed
from git_envhist.store.durable import cannot_write, sync, sync_directory
from git_envhist.store.locks import state_directory
from git_envhist.store.looserefs import HASH_BYTES
from git_envhist.store.repository import RefUpdate, Repository
from git_envhist.system import open_file_only
from git_envhist.values import dataclass

PLACES = ("refs/envhist/", "refs/notes/envhist/")
ASIDE = "set-aside"
WARNING = r"ignoring (?:broken ref|ref with broken name) (\S+)"


@dataclass(frozen=True, slots=True)
class DamagedRef:
    """A ref of ours that git cannot follow."""

    ref: str
    said: str
    """What stands in it, as far as that can be told."""
    why: str


@dataclass(frozen=True, slots=True)
class RefListing:
    """Our refs."""

    sound: dict[str, str]
    """Each ref and the commit that it names."""
    bad: tuple[DamagedRef, ...]


def read_refs(repository: Repository) -> RefListing:
    """All of our refs; `GitFailed` where git cannot list any (a damaged packed-refs)."""
    done = repository.git.try_run("for-each-ref", "--format=%(objectname) %(refname)", *PLACES)
    if done.status != 0:
        raise GitFailed(f"the refs of the repository cannot be read: {done.complaint}")
    found = {ref: oid for oid, _, ref in (line.partition(" ") for line in os.fsdecode(done.out).splitlines())}
    bad = {ref: DamagedRef(ref, said, "it names nothing") for ref, said in _unreadable(repository)}
    for ref in re.findall(WARNING, done.complaint if done.err else ""):
        bad.setdefault(ref, DamagedRef(ref, "", "it names nothing"))
    for ref, oid in found.items():
        if ref not in bad and (kind := _kind(repository, oid)) != "commit":
            bad[ref] = DamagedRef(
                ref, oid, "what it names is missing" if kind is None else f"it names a {kind}"
            )
    return RefListing({ref: oid for ref, oid in found.items() if ref not in bad}, tuple(bad.values()))


def set_aside(repository: Repository, bad: DamagedRef) -> str:
    """Take a ref away, once it is written down what stood in it; where that is."""
    note = write_down(repository, f"ref {bad.ref} {bad.said or '?'}")
    try:
        repository.move_refs(
            [RefUpdate(bad.ref, None, bad.said if HASH_BYTES.fullmatch(f"{bad.said}\n".encode()) else None)]
        )
    except (GitFailed, OSError):
        # git does not delete what it cannot read. The file of a ref of ours is ours.
        path = os.path.join(repository.common_dir, bad.ref)
        lock = os.open(path + ".lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.rename(path, os.path.join(os.path.dirname(note), bad.ref.replace("/", "%2f")))
        except OSError as error:
            raise cannot_write(error, path) from error
        finally:
            os.close(lock)
            os.unlink(path + ".lock")
    repository.sync_refs([bad.ref])
    return note


def write_down(repository: Repository, line: str) -> str:
    """Add a line to what was set aside, durable; where that is."""
    place = state_directory(os.path.join(repository.common_state, ASIDE))
    path = os.path.join(place, "list")
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, os.fsencode(f"{moment} {line}\n"))
        sync(descriptor)
    except OSError as error:
        raise cannot_write(error, path) from error
    finally:
        os.close(descriptor)
    sync_directory(place)
    return path


def set_aside_commits(common_state: str) -> list[str]:
    """The ids of the commits that were set aside: what is left of them is not garbage."""
    try:
        with open(
            os.path.join(common_state, ASIDE, "list"),
            encoding="utf-8",
            errors="replace",
            opener=open_file_only,
        ) as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    return [
        found[-1] for found in words if len(found) > 1 and HASH_BYTES.fullmatch(f"{found[-1]}\n".encode())
    ]


def _unreadable(repository: Repository) -> Iterator[tuple[str, str]]:
    """(ref, its content) for refs of ours in files of their own that hold no hash; git passes over some of them."""
    for place in PLACES:
        for directory, _, names in os.walk(os.path.join(repository.common_dir, place)):
            for name in names:
                path = os.path.join(directory, name)
                if name.endswith(".lock"):
                    continue
                try:
                    with open(path, "rb", opener=open_file_only) as file:
                        content = file.read(100)
                except OSError:
                    content = b""
                if not HASH_BYTES.fullmatch(content) and not content.startswith(b"ref: "):
                    said = re.sub(rb"[^0-9a-zA-Z]", b"?", content).decode("ascii")
                    yield os.path.relpath(path, repository.common_dir), said


def _kind(repository: Repository, oid: str) -> str | None:
    done = repository.git.ask("cat-file", "-t", oid)
    return os.fsdecode(done.out).strip() if done.status == 0 else None
