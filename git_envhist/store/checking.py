"""Whether every byte of our packs is what it was: by git's own check, and object by object where that fails.

What is sound of a damaged pack is written into a new one; the damaged one is set aside, as it is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress

from git_envhist.errors import Damaged, EnvhistError
from git_envhist.store.durable import read_exactly, sync_directory
from git_envhist.store.git import Git
from git_envhist.store.idx import PackIndex
from git_envhist.store.locks import state_directory
from git_envhist.store.ownpacks import own_names
from git_envhist.store.packfile import PackFile
from git_envhist.store.packs import PackWriter
from git_envhist.store.repository import Repository
from git_envhist.store.retiring import drop_caches
from git_envhist.store.spares import forget_second_names
from git_envhist.store.staging import Staging, unpublished
from git_envhist.values import dataclass

DAMAGED = "damaged"
HEADER = 12


@dataclass(frozen=True, slots=True)
class DamagedPack:
    """A pack of ours that is not as it was written."""

    name: str
    why: str
    lost: tuple[bytes, ...]
    """The objects that it does not give any more; of a pack whose index is gone they are not known."""


@dataclass(frozen=True, slots=True)
class PackCheck:
    """What was looked at."""

    packs: int
    objects: int
    bytes: int
    bad: tuple[DamagedPack, ...]


def check_packs(repository: Repository, *, quick: bool, only: Iterable[str] | None = None) -> PackCheck:
    """Look at our packs, `quick`: at their ends and indexes alone; at those of some names only, if they are given."""
    left_out = unpublished(repository.common_state, repository.pack_dir)
    chosen = [name for name in own_names(repository.pack_dir) if name not in left_out]
    if only is not None:
        wanted = frozenset(only)
        chosen = [name for name in chosen if name in wanted]
    bad, objects, size = [], 0, 0
    for name in chosen:
        found = _look(repository, name, quick)
        if isinstance(found, DamagedPack):
            bad.append(found)
            continue
        objects += found
        with suppress(FileNotFoundError):
            size += os.stat(os.path.join(repository.pack_dir, f"{name}.pack")).st_size
    # Captures and cleanings go on meanwhile: what was joined with others, or came back, is not damaged.
    bad = [again for one in bad if (again := _look_again(repository, one.name, quick)) is not None]
    return PackCheck(len(chosen), objects, size, tuple(bad))


def _look_again(repository: Repository, name: str, quick: bool) -> DamagedPack | None:
    if not os.path.lexists(os.path.join(repository.pack_dir, f"{name}.keep")):
        return None
    found = _look(repository, name, quick)
    return found if isinstance(found, DamagedPack) else None


def _look(repository: Repository, name: str, quick: bool) -> DamagedPack | int:
    """How many objects a pack has, or what is wrong with it."""
    base = os.path.join(repository.pack_dir, name)
    try:
        index = PackIndex(base + ".idx", repository.hash_length)
    except FileNotFoundError:
        return DamagedPack(name, "its index is missing", ())
    except (OSError, Damaged) as error:
        return DamagedPack(name, _said(error), ())
    try:
        why = _ends(base + ".pack", index)
        if why is None and not quick:
            why = _bytes(repository.git, base)
        return index.count if why is None else DamagedPack(name, why, tuple(_lost(repository, base, index)))
    finally:
        index.close()


def _ends(path: str, index: PackIndex) -> str | None:
    """What is wrong with a pack as far as its length and its two ends tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"it cannot be opened: {(error.strerror or '').lower()}"
    try:
        size = os.fstat(descriptor).st_size
        header = read_exactly(descriptor, HEADER, 0)
        trailer = read_exactly(descriptor, len(index.pack_hash), max(0, size - len(index.pack_hash)))
    except OSError as error:
        return f"it cannot be read: {(error.strerror or '').lower()}"
    finally:
        os.close(descriptor)
    if header[:8] != b"PACK\0\0\0\2" or int.from_bytes(header[8:], "big") != index.count:
        return "its first bytes are not those of a pack"
    return None if trailer == index.pack_hash else "it does not end as its index says"


def _bytes(git: Git, base: str) -> str | None:
    done = git.ask("verify-pack", base + ".idx")
    return None if done.status == 0 else done.complaint.partition("\n")[0] or "git cannot verify it"


def _lost(repository: Repository, base: str, index: PackIndex) -> Iterator[bytes]:
    """The objects that cannot be read out of a pack any more; none where its index alone is damaged."""
    with tempfile.TemporaryDirectory(prefix="git-envhist-") as place:
        if _index_anew(repository, base, place) is not None:
            return
    pack = PackFile(base + ".pack", index, repository.object_format)
    for oid in index.names():
        try:
            pack.read(oid)
        except (Damaged, OSError):
            yield oid


def _said(error: Exception) -> str:
    return error.message if isinstance(error, EnvhistError) else str(error)


def mend(repository: Repository, bad: DamagedPack) -> str:
    """Put what is sound of a damaged pack into a new one, and the damaged one aside; where it is now.

    Whoever calls holds the common lock alone.
    """
    with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
        base = os.path.join(repository.pack_dir, bad.name)
        with PackWriter(staging.pack_dir, repository.object_format) as writer:
            for kind, data in _sound(repository, base, staging):
                writer.add(kind, data)
            pack = writer.finish()
        staging.publish([pack] if pack else [])
        staging.settle()
    place = state_directory(os.path.join(repository.common_state, DAMAGED))
    forget_second_names(repository.common_state, repository.pack_dir, [bad.name])
    drop_caches(repository.pack_dir, [bad.name])
    # git stops seeing it with its index; none of it is deleted.
    for suffix in (".idx", ".rev", ".bitmap", ".pack", ".keep"):
        try:
            _move(base + suffix, os.path.join(place, bad.name + suffix))
        except FileNotFoundError:
            continue
    drop_caches(repository.pack_dir, [bad.name])
    sync_directory(place)
    sync_directory(repository.pack_dir)
    return place


def _move(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        import shutil  # loaded late: only where the packs are on another file system

        shutil.copy2(source, target)
        os.unlink(source)


def _sound(repository: Repository, base: str, staging: Staging) -> Iterator[tuple[bytes, bytes]]:
    """Every object that a damaged pack still gives."""
    made = _index_anew(repository, base, staging.path)
    try:
        index = PackIndex(made or base + ".idx", repository.hash_length)
    except (OSError, Damaged):
        return
    pack = PackFile(base + ".pack", index, repository.object_format)
    try:
        for oid in index.names():
            try:
                found = pack.read(oid)
            except (Damaged, OSError):
                continue
            if found is not None:
                yield found
    finally:
        pack.close()


def _index_anew(repository: Repository, base: str, place: str) -> str | None:
    """An index of a pack, made by git in some place; None where the pack itself is damaged."""
    made = os.path.join(place, "anew.idx")
    # In a repository without objects: in this one git would hold each to the copy that the damaged index leads to.
    nothing = {b"GIT_OBJECT_DIRECTORY": os.fsencode(place)}
    done = repository.git.ask("index-pack", "-o", made, base + ".pack", environment=nothing)
    return made if done.status == 0 else None
