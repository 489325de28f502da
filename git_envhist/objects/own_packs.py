"""The packs that captures published: find and read their objects, put packs aside and back, repair lost indexes.

A pack is ours if its `.keep` file contains `KEEP_MARK`. `git gc` does not touch such packs; any other object may be
deleted before a snapshot relies on it. Also here: git's own caches over packs, which must not name a pack that was
removed.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Self

from git_envhist.disk import (
    STAGING_IN_STATE,
    make_directory,
    read_exactly,
    remove_if_present,
    sync,
    sync_directory,
    write_all,
)
from git_envhist.errors import Damaged
from git_envhist.git.running_git import RunningGit, ancestor_processes
from git_envhist.objects.pack_file import PackFile
from git_envhist.objects.pack_index import PackIndex, map_or_read
from git_envhist.platform import NOFOLLOW

# git's caches over packs: the multi-pack-index and the commit-graph. A multi-pack-index that names a missing pack
# hides all objects that it has there, even those with a copy elsewhere; a commit-graph with a missing commit makes
# `git fsck` fail. git writes both again when it needs them.

# The file of a single cache; the directory of a layered one, and the list of its layers.
CACHES = (
    ("pack/multi-pack-index", "pack/multi-pack-index.d", "multi-pack-index-chain"),
    ("info/commit-graph", "info/commit-graphs", "commit-graph-chain"),
)
MIDX_HEADER = 12
GRAPH_HEADER = 8
CHUNK_ROW = 12
"""A row of the chunk table: four letters and an offset."""


def drop_caches_naming(objects_dir: str, needles: Collection[bytes]) -> None:
    """Remove each cache that contains one of the names or ids."""
    for single, layered, chain in CACHES:
        alone = os.path.join(objects_dir, single)
        if _contains(alone, needles):
            remove_if_present(alone)
        layers = _files_in(os.path.join(objects_dir, layered))
        if any(_contains(layer, needles) for layer in layers):
            # The list goes first: git ignores layers that are not in it, so an interruption here does no harm.
            remove_if_present(os.path.join(objects_dir, layered, chain))
            for layer in layers:
                remove_if_present(layer)


def drop_graphs_of(objects_dir: str, gone: Container[bytes], hash_length: int) -> tuple[str, ...]:
    """Remove the commit-graph if a commit in it is gone; return the git command that writes it again, if so."""
    single, layered, chain = CACHES[1]
    files = [os.path.join(objects_dir, single)]
    layers = _files_in(os.path.join(objects_dir, layered))
    files += [path for path in layers if path.endswith(".graph")]
    if not any(oid in gone for path in files for oid in _commits_in(path, hash_length)):
        return ()
    changed = ("--changed-paths",) if any(_contains(path, [b"BDAT"]) for path in files) else ()
    remove_if_present(files[0])
    remove_if_present(os.path.join(objects_dir, layered, chain))
    for layer in layers:
        remove_if_present(layer)
    return "commit-graph", "write", "--reachable", *changed


def _commits_in(path: str, hash_length: int) -> Iterator[bytes]:
    """Yield the ids in a file of a commit-graph; none if it is invalid."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        header = read_exactly(descriptor, GRAPH_HEADER, 0)
        if header[:5] != b"CGPH\1" or len(header) < GRAPH_HEADER:
            return
        start, end = _chunk(descriptor, GRAPH_HEADER, header[6], b"OIDL")
        ids = read_exactly(descriptor, end - start, start)
    finally:
        os.close(descriptor)
    yield from (ids[at : at + hash_length] for at in range(0, len(ids), hash_length))


def drop_broken_index(pack_dir: str) -> bool:
    """Remove a multi-pack-index that names a missing pack; return whether there was one.

    A git that wrote one while packs were replaced names some that were removed since.
    """
    files = [os.path.join(pack_dir, "multi-pack-index")]
    layered = os.path.join(pack_dir, "multi-pack-index.d")
    files += [path for path in _files_in(layered) if path.endswith(".midx")]
    named = {name for path in files for name in packs_named(path)}
    missing = [name for name in named if not os.path.exists(os.path.join(os.fsencode(pack_dir), name))]
    if missing:
        drop_caches_naming(os.path.dirname(pack_dir), missing)
    return bool(missing)


def packs_named(path: str) -> list[bytes]:
    """Return the names of the pack indexes in a multi-pack-index; none if it is invalid."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        start, end = _chunk_of_names(descriptor)
        return [name for name in read_exactly(descriptor, end - start, start).split(b"\0") if name]
    finally:
        os.close(descriptor)


def _chunk_of_names(descriptor: int) -> tuple[int, int]:
    header = read_exactly(descriptor, MIDX_HEADER, 0)
    if header[:5] not in (b"MIDX\1", b"MIDX\2") or len(header) < MIDX_HEADER:
        return 0, 0
    return _chunk(descriptor, MIDX_HEADER, header[6], b"PNAM")


def _chunk(descriptor: int, table: int, chunks: int, wanted: bytes) -> tuple[int, int]:
    """Return the start and the end of a chunk, given the position of the chunk table."""
    rows = read_exactly(descriptor, CHUNK_ROW * (chunks + 1), table)
    for at in range(0, len(rows) - CHUNK_ROW, CHUNK_ROW):
        if rows[at : at + 4] == wanted:
            places = (rows[at + 4 : at + CHUNK_ROW], rows[at + CHUNK_ROW + 4 : at + 2 * CHUNK_ROW])
            start, end = (int.from_bytes(place, "big") for place in places)
            return start, end
    return 0, 0


def _contains(path: str, needles: Collection[bytes]) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return False
        # git replaces these files by rename and never changes them in place.
        content = map_or_read(descriptor, size)
        try:
            return any(content.find(needle) >= 0 for needle in needles)
        finally:
            if isinstance(content, mmap.mmap):
                content.close()
    finally:
        os.close(descriptor)


def _files_in(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except FileNotFoundError:
        return []


KEEP_MARK = b"git-envhist\n"
NAME_LENGTHS = (len("pack-") + 40, len("pack-") + 64)
HEX = frozenset("0123456789abcdef")


def is_pack_name(name: str) -> bool:
    """Return whether a name has the form of our packs' names."""
    return len(name) in NAME_LENGTHS and name.startswith("pack-") and HEX.issuperset(name[5:])


def has_keep_mark(keep_path: str) -> bool:
    """Return whether a `.keep` file is ours."""
    try:
        return read_mark(keep_path) == KEEP_MARK
    except OSError:
        return False


def read_mark(keep_path: str) -> bytes:
    """Return the beginning of a `.keep` file, one byte more than our mark."""
    descriptor = os.open(keep_path, os.O_RDONLY | NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return read_exactly(descriptor, len(KEEP_MARK) + 1, 0)
    finally:
        os.close(descriptor)


def own_names(pack_dir: str) -> list[str]:
    """Return the names of our packs, by their marks only."""
    try:
        names = os.listdir(pack_dir)
    except FileNotFoundError:
        return []
    kept = [name.removesuffix(".keep") for name in names if name.endswith(".keep")]
    return sorted(
        name for name in kept if is_pack_name(name) and has_keep_mark(os.path.join(pack_dir, f"{name}.keep"))
    )


class OwnPacks:
    """Our published packs at the time of `open`. Only names are read until an object is looked up."""

    def __init__(self, pack_dir: str, object_format: str, candidates: list[str]) -> None:
        self.pack_dir = pack_dir
        self.damaged: list[Damaged] = []
        """The problems of packs that were skipped."""
        self._format = object_format
        self._candidates = candidates
        self._packs: dict[str, PackFile] | None = None
        self._finders: list[Callable[[bytes], int | None]] | None = None

    @classmethod
    def open(
        cls,
        pack_dir: str,
        object_format: str,
        exclude: Container[str] | Callable[[], Container[str]] = (),
    ) -> Self:
        """Return our packs in a directory, without the excluded ones.

        For packs that are being published, `exclude` is a function: it is called after the directory was read and
        before any pack is opened. Only in this order no removed pack is relied upon.
        """
        try:
            names = os.listdir(pack_dir)
        except FileNotFoundError:
            names = []
        present = frozenset(names)
        left_out = exclude() if callable(exclude) else exclude
        kept = [name.removesuffix(".keep") for name in names if name.endswith(".keep")]
        candidates = [
            name for name in kept if is_pack_name(name) and name + ".idx" in present and name not in left_out
        ]
        return cls(pack_dir, object_format, sorted(candidates))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._opened())

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the `.pack` files."""
        return tuple(pack.path for pack in self._opened().values())

    @property
    def packs(self) -> tuple[PackFile, ...]:
        return tuple(self._opened().values())

    def __contains__(self, oid: bytes) -> bool:
        finders = self._finders if self._finders is not None else self._open_finders()
        for place, find in enumerate(finders):
            if find(oid) is not None:
                if place:
                    # The next object is most likely in the same pack.
                    finders.insert(0, finders.pop(place))
                return True
        return False

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """Return the type and content of an object; KeyError if no pack has it, Damaged if all copies are damaged."""
        damage = None
        for pack in self._opened().values():
            try:
                found = pack.read(oid)
            except Damaged as error:
                damage = damage or error
                continue
            if found is not None:
                return found
        if damage or self.damaged:
            raise damage or self.damaged[0]
        raise KeyError(oid.hex())

    def close(self) -> None:
        for pack in (self._packs or {}).values():
            pack.close()
        self._packs, self._finders, self._candidates = None, None, []

    def _open_finders(self) -> list[Callable[[bytes], int | None]]:
        # The largest pack most likely contains the object.
        indexes = sorted((pack.index for pack in self._opened().values()), key=lambda index: -index.count)
        self._finders = [index.find for index in indexes]
        return self._finders

    def _opened(self) -> dict[str, PackFile]:
        if self._packs is None:
            self._packs = {}
            for name in self._candidates:
                self._open_pack(name, self._packs)
        return self._packs

    def _open_pack(self, name: str, packs: dict[str, PackFile]) -> None:
        base = os.path.join(self.pack_dir, name)
        if not has_keep_mark(base + ".keep"):
            return
        try:
            index = PackIndex(base + ".idx", 20 if self._format == "sha1" else 32)
        except FileNotFoundError:
            return  # removed meanwhile
        except OSError as error:
            self.damaged.append(Damaged(f"cannot read the pack index '{base}.idx': {error.strerror}"))
        except Damaged as error:
            # Its objects count as missing and are stored again, which repairs what this capture needs.
            self.damaged.append(error)
        else:
            packs[name] = PackFile(base + ".pack", index, self._format)


def write_keep(path: str, pack_dir: os.stat_result) -> None:
    """Create a `.keep` file with our mark and sync it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, KEEP_MARK, 0)
        os.fchmod(descriptor, _readable_as(pack_dir))
        sync(descriptor)
    finally:
        os.close(descriptor)


def _readable_as(directory: os.stat_result) -> int:
    return 0o400 | directory.st_mode & 0o044


# Packs that are being replaced are first moved into a staging directory. Below `GONE` their removal is decided, and
# after a kill the next sweep deletes the rest; below `ASIDE` it is not, and the sweep moves them back.

GONE = "gone"
ASIDE = "aside"
SUFFIXES = (".idx", ".rev", ".bitmap", ".pack", ".keep")
"""The order in which files of a pack are moved: git stops using the pack without its index, and the mark goes last."""
# fmt: off
HARMLESS = frozenset((
    "annotate", "blame", "cat-file", "check-attr", "check-ignore", "citool", "config", "credential-cache--daemon",
    "daemon", "diff", "diff-files", "diff-index", "diff-tree", "for-each-ref", "fsmonitor--daemon", "grep",
    "gui", "help", "instaweb", "log", "ls-files", "ls-tree", "merge-base", "name-rev", "rev-list", "rev-parse",
    "shortlog", "show", "status", "web--browse",
))
# fmt: on
"""Commands that only read or wait. They look for a moved pack again, and write no reference to an object."""


def names_of(paths: Iterable[str]) -> list[str]:
    """Return the names of packs, without directory and ending."""
    return [os.path.basename(path).removesuffix(".pack") for path in paths]


def put_aside(pack_dir: str, aside: str, bases: Sequence[str]) -> None:
    """Move packs into a directory that git does not read, and remove git's caches that name them."""
    drop_caches(pack_dir, bases)
    with suppress(FileExistsError):
        os.mkdir(aside, 0o700)
    _move(pack_dir, aside, bases, SUFFIXES)


def put_back(aside: str, pack_dir: str, bases: Sequence[str]) -> None:
    """Move packs back."""
    _move(aside, pack_dir, bases, SUFFIXES[::-1])


def drop_caches(pack_dir: str, bases: Iterable[str]) -> None:
    """Remove git's caches that name these packs."""
    drop_caches_naming(os.path.dirname(pack_dir), [os.fsencode(base + ".idx") for base in bases])


def was_used_since(base: str) -> bool:
    """Return whether git touched a pack after writing it, because an object was added that the pack contains already.

    The index is written after its pack, and git does not touch it.
    """
    try:
        return os.stat(base + ".pack").st_mtime_ns > os.stat(base + ".idx").st_mtime_ns
    except FileNotFoundError:
        return False


def restore_undecided(path: str, pack_dir: str) -> None:
    """Move packs back from the staging directory of a process that died before it decided on them."""
    aside = os.path.join(path, ASIDE)
    if os.path.isdir(aside):
        bases = {name.rpartition(".")[0] for name in os.listdir(aside)}
        put_back(aside, pack_dir, sorted(bases))
        sync_directory(pack_dir)


def possible_writers(gits: Iterable[RunningGit]) -> list[RunningGit]:
    """Return the gits that may have found an object here, and may be writing a reference to it."""
    ours = ancestor_processes()
    return [git for git in gits if git.writes and git.command not in HARMLESS and git.pid not in ours]


def _move(source: str, target: str, bases: Sequence[str], suffixes: Sequence[str]) -> None:
    # All indexes are moved first, or last: so git sees a part of the packs for a short time only.
    for suffix in suffixes:
        for base in bases:
            try:
                os.rename(os.path.join(source, base + suffix), os.path.join(target, base + suffix))
            except FileNotFoundError:
                continue  # few packs have all of these files


# A spare hard link to the index of each of our packs. `git gc` removes an index whose pack it did not see; it reads
# the directory while others write to it, so it can see a later name and miss an earlier one. Then the index of a new
# pack, and perhaps its mark, is removed, and the objects in the pack cannot be found. The link is created before the
# index gets its name and removed before the index is, so that no index returns that was removed on purpose.

INDEXES_IN_STATE = "indexes"
INDEXES_NEAR_PACKS = ".envhist-indexes"


def spare_directories(common_state: str, pack_dir: str) -> tuple[str, str]:
    """Return the possible directories of spare links: next to either staging directory."""
    return os.path.join(common_state, INDEXES_IN_STATE), os.path.join(
        os.path.dirname(pack_dir), INDEXES_NEAR_PACKS
    )


def spare_directory_for(place: str) -> str:
    """Return the directory of spare links for packs staged in a directory."""
    above, name = os.path.split(place)
    return os.path.join(above, INDEXES_IN_STATE if name == STAGING_IN_STATE else INDEXES_NEAR_PACKS)


def link_spare_index(index: str, spare: str, name: str) -> None:
    """Link an index; on a file system without links there are no spare links."""
    with suppress(OSError):
        make_directory(spare, stat.S_IMODE(os.stat(os.path.dirname(spare)).st_mode))
        os.link(index, os.path.join(spare, name))


def remove_spare_links(common_state: str, pack_dir: str, names: Iterable[str]) -> None:
    """Remove the spare links of packs; call this before the packs are removed."""
    for name in names:
        for spare in spare_directories(common_state, pack_dir):
            remove_if_present(os.path.join(spare, name))


def restore_lost_indexes(common_state: str, pack_dir: str) -> list[str]:
    """Restore lost indexes of our packs and create missing spare links; return the names of the restored ones."""
    first, second = spare_directories(common_state, pack_dir)
    known = {name: spare for spare in (first, second) for name in _names_in(spare)}
    present = _names_in(pack_dir)
    _add_missing_links(first, second, pack_dir, present, known)
    lost = [name for name in known if is_pack_name(name) and f"{name}.idx" not in present]
    back = [
        name for name in lost if f"{name}.pack" in present and _restore_index(known[name], pack_dir, name)
    ]
    for name in lost:
        if f"{name}.pack" not in present and not os.path.lexists(os.path.join(pack_dir, f"{name}.pack")):
            remove_if_present(os.path.join(known[name], name))
    if back:
        sync_directory(pack_dir)
    return back


def _restore_index(spare: str, pack_dir: str, name: str) -> bool:
    base = os.path.join(pack_dir, name)
    marked = not os.path.lexists(base + ".keep")
    try:
        if marked:
            write_keep(base + ".keep", os.stat(pack_dir))
        # The link appears completely or not at all; removing a pack removes its spare link first.
        os.link(os.path.join(spare, name), base + ".idx")
    except OSError as error:
        if marked and not isinstance(error, FileExistsError):
            remove_if_present(base + ".keep")
        return False
    return True


def _add_missing_links(
    first: str, second: str, pack_dir: str, present: frozenset[str], known: dict[str, str]
) -> None:
    """Create the links for packs of earlier versions, and for packs that a clone copied."""
    unnamed = [name[:-5] for name in present if name.endswith(".keep") and name[:-5] not in known]
    for name in unnamed:
        if (
            is_pack_name(name)
            and f"{name}.idx" in present
            and has_keep_mark(os.path.join(pack_dir, f"{name}.keep"))
        ):
            index = os.path.join(pack_dir, f"{name}.idx")
            same = _device(os.path.dirname(first)) == _device(pack_dir)
            link_spare_index(index, first if same else second, name)


def _device(path: str) -> int:
    return os.stat(path).st_dev


def _names_in(directory: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))
    except FileNotFoundError:
        return frozenset()
