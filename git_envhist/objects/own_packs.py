"""The packs that captures published into a repository: which objects they hold, and the objects.

Only packs whose `.keep` bears our mark count. The user's `gc` leaves these alone, whereas anything else in the
repository may be gone by the time a snapshot relies on it.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Self

from git_envhist.disk import (
    BESIDE_STATE,
    make_directory,
    read_exactly,
    remove_if_present,
    sync,
    sync_directory,
    write_all,
)
from git_envhist.errors import Damaged
from git_envhist.git.refs import RunningGit, callers
from git_envhist.objects.pack_index import PackIndex, map_or_read
from git_envhist.objects.pack_reader import PackFile
from git_envhist.platform import NOFOLLOW

# git's own caches over its packs: dropped where they speak of a pack that is taken back.
#
# A multi-pack-index that names a missing pack hides every object it would find there, even one that the user has in
# another pack; a commit-graph with a missing commit fails `git fsck`. git derives both anew whenever it wants them.

# The file that stands alone; the directory of a layered one, and the list of its layers.
CACHES = (
    ("pack/multi-pack-index", "pack/multi-pack-index.d", "multi-pack-index-chain"),
    ("info/commit-graph", "info/commit-graphs", "commit-graph-chain"),
)
MIDX_HEADER = 12
GRAPH_HEADER = 8
CHUNK_ROW = 12
"""The table of chunks: four letters and where the chunk begins."""


def drop_caches_naming(objects_dir: str, needles: Collection[bytes]) -> None:
    """Remove each cache in which one of the names or ids occurs."""
    for single, layered, chain in CACHES:
        alone = os.path.join(objects_dir, single)
        if _holds(alone, needles):
            remove_if_present(alone)
        layers = _files_in(os.path.join(objects_dir, layered))
        if any(_holds(layer, needles) for layer in layers):
            # Without the list no layer counts, so that a stop half way leaves nothing that misleads.
            remove_if_present(os.path.join(objects_dir, layered, chain))
            for layer in layers:
                remove_if_present(layer)


def drop_graphs_of(objects_dir: str, gone: Container[bytes], hash_length: int) -> tuple[str, ...]:
    """Remove the commit-graph where one of the commits in it is gone; the words by which git makes it anew, if so."""
    single, layered, chain = CACHES[1]
    files = [os.path.join(objects_dir, single)]
    layers = _files_in(os.path.join(objects_dir, layered))
    files += [path for path in layers if path.endswith(".graph")]
    if not any(oid in gone for path in files for oid in _commits_in(path, hash_length)):
        return ()
    changed = ("--changed-paths",) if any(_holds(path, [b"BDAT"]) for path in files) else ()
    remove_if_present(files[0])
    remove_if_present(os.path.join(objects_dir, layered, chain))
    for layer in layers:
        remove_if_present(layer)
    return "commit-graph", "write", "--reachable", *changed


def _commits_in(path: str, hash_length: int) -> Iterator[bytes]:
    """The ids in one file of a commit-graph; none where it cannot be read as one."""
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
    """Remove a multi-pack-index that names a pack which is not there; whether there was one.

    A git that was writing one while packs were replaced names some that have gone since.
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
    """The names of the indexes that a multi-pack-index stands for; none where it cannot be read as one."""
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
    """Where a chunk begins and ends, given where the table of chunks stands."""
    rows = read_exactly(descriptor, CHUNK_ROW * (chunks + 1), table)
    for at in range(0, len(rows) - CHUNK_ROW, CHUNK_ROW):
        if rows[at : at + 4] == wanted:
            places = (rows[at + 4 : at + CHUNK_ROW], rows[at + CHUNK_ROW + 4 : at + 2 * CHUNK_ROW])
            start, end = (int.from_bytes(place, "big") for place in places)
            return start, end
    return 0, 0


def _holds(path: str, needles: Collection[bytes]) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return False
        # git replaces these files by rename, never in place.
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
    """Whether a name is one that our packs can have: no path, nothing of anybody else's."""
    return len(name) in NAME_LENGTHS and name.startswith("pack-") and HEX.issuperset(name[5:])


def bears_mark(keep_path: str) -> bool:
    """Whether a `.keep` file is one of ours."""
    try:
        descriptor = os.open(keep_path, os.O_RDONLY | NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(KEEP_MARK) + 1) == KEEP_MARK
    except OSError:
        return False
    finally:
        os.close(descriptor)


def own_names(pack_dir: str) -> list[str]:
    """The names of our packs, whatever else is left of them than the mark."""
    try:
        names = os.listdir(pack_dir)
    except FileNotFoundError:
        return []
    kept = [name.removesuffix(".keep") for name in names if name.endswith(".keep")]
    return sorted(
        name for name in kept if is_pack_name(name) and bears_mark(os.path.join(pack_dir, f"{name}.keep"))
    )


class OwnPacks:
    """Our published packs at one moment. Nothing but their names is read until something is looked up."""

    def __init__(self, pack_dir: str, object_format: str, candidates: list[str]) -> None:
        self.pack_dir = pack_dir
        self.damaged: list[Damaged] = []
        """What is wrong with packs that had to be passed over."""
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
        """The packs of ours in a directory, less the excluded ones.

        Give a function for packs that are being published: it is called after the directory was read and before
        any pack is opened, the one order in which no pack that a sweep takes away can be relied upon.
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
        """The `.pack` files."""
        return tuple(pack.path for pack in self._opened().values())

    @property
    def packs(self) -> tuple[PackFile, ...]:
        return tuple(self._opened().values())

    def __contains__(self, oid: bytes) -> bool:
        finders = self._finders if self._finders is not None else self._open_finders()
        for place, find in enumerate(finders):
            if find(oid) is not None:
                if place:
                    # What is asked for next most likely stands there, too.
                    finders.insert(0, finders.pop(place))
                return True
        return False

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack has it, `Damaged` where none has it whole."""
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
        # The fullest pack is the likeliest to have what is looked for.
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
        if not bears_mark(base + ".keep"):
            return
        try:
            index = PackIndex(base + ".idx", 20 if self._format == "sha1" else 32)
        except FileNotFoundError:
            return  # swept meanwhile
        except OSError as error:
            self.damaged.append(Damaged(f"cannot read the pack index '{base}.idx': {error.strerror}"))
        except Damaged as error:
            # Its objects count as absent and are stored again, which mends what this capture needs of it.
            self.damaged.append(error)
        else:
            packs[name] = PackFile(base + ".pack", index, self._format)


def write_keep(path: str, pack_dir: os.stat_result) -> None:
    """Make a new `.keep` with our mark, durable."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, KEEP_MARK, 0)
        os.fchmod(descriptor, _readable_as(pack_dir))
        sync(descriptor)
    finally:
        os.close(descriptor)


def _readable_as(directory: os.stat_result) -> int:
    return 0o400 | directory.st_mode & 0o044


# Packs of ours that are replaced by others: put out of sight, brought back, let go. And who may still want them.
#
# Packs that go are first put aside, into a staging. Who puts them there says what a kill means: below `GONE` they are
# on their way out, and the next sweep takes the rest; below `ASIDE` it is not decided yet, and the sweep brings them
# back.

GONE = "gone"
ASIDE = "aside"
SUFFIXES = (".idx", ".rev", ".bitmap", ".pack", ".keep")
"""In this order a pack goes: git stops seeing it with its index, and what is left is known as ours to the last."""
# fmt: off
HARMLESS = frozenset((
    "annotate", "blame", "cat-file", "check-attr", "check-ignore", "citool", "config", "credential-cache--daemon",
    "daemon", "diff", "diff-files", "diff-index", "diff-tree", "for-each-ref", "fsmonitor--daemon", "grep",
    "gui", "help", "instaweb", "log", "ls-files", "ls-tree", "merge-base", "name-rev", "rev-list", "rev-parse",
    "shortlog", "show", "status", "web--browse",
))
# fmt: on
"""Gits that read, or wait; they look for a pack again where it has gone, and let no object be relied upon."""


def names_of(paths: Iterable[str]) -> list[str]:
    """The packs' names, without directory and ending."""
    return [os.path.basename(path).removesuffix(".pack") for path in paths]


def put_aside(pack_dir: str, aside: str, bases: Sequence[str]) -> None:
    """Take packs out of git's sight, into a directory of their own; git's caches that name them go."""
    drop_caches(pack_dir, bases)
    with suppress(FileExistsError):
        os.mkdir(aside, 0o700)
    _move(pack_dir, aside, bases, SUFFIXES)


def put_back(aside: str, pack_dir: str, bases: Sequence[str]) -> None:
    """Put back what was put aside."""
    _move(aside, pack_dir, bases, SUFFIXES[::-1])


def drop_caches(pack_dir: str, bases: Iterable[str]) -> None:
    """Drop those of git's caches that speak of packs which have gone, or are about to."""
    drop_caches_naming(os.path.dirname(pack_dir), [os.fsencode(base + ".idx") for base in bases])


def was_used_since(base: str) -> bool:
    """Whether git touched a pack since it was written: somebody added what stands there, which git stores nowhere else.

    The index is written after its pack, and nobody touches that.
    """
    try:
        return os.stat(base + ".pack").st_mtime_ns > os.stat(base + ".idx").st_mtime_ns
    except FileNotFoundError:
        return False


def restore_undecided(path: str, pack_dir: str) -> None:
    """Bring back what a staging holds that somebody put aside who died before it was decided."""
    aside = os.path.join(path, ASIDE)
    if os.path.isdir(aside):
        bases = {name.rpartition(".")[0] for name in os.listdir(aside)}
        put_back(aside, pack_dir, sorted(bases))
        sync_directory(pack_dir)


def may_write(gits: Iterable[RunningGit]) -> list[RunningGit]:
    """Return the gits that may have found an object here, and may be writing a reference to it."""
    ours = callers()
    return [git for git in gits if git.writes and git.command not in HARMLESS and git.pid not in ours]


def _move(source: str, target: str, bases: Sequence[str], suffixes: Sequence[str]) -> None:
    # First the indexes of all, or last: only as long as these are on their way does git see some of the packs alone.
    for suffix in suffixes:
        for base in bases:
            try:
                os.rename(os.path.join(source, base + suffix), os.path.join(target, base + suffix))
            except FileNotFoundError:
                continue  # few packs have all of them


# A second name for the index of every pack of ours, by which it comes back when somebody took it for garbage.
#
# `git gc` removes an index beside which it saw no pack. It reads the directory while others write to it: where there
# are more names than the system hands out at a time, one that came later may be seen and one that came before it
# missed. Then the index of a fresh pack goes, and with it, if that was seen, the mark; the pack stays, and nobody finds
# what is in it.
#
# The second name is a hard link. It is there before the first one, and goes before it, so that nothing comes back that
# was taken away on purpose.

BESIDE_STATE_TOO = "indexes"
BESIDE_PACKS_TOO = ".envhist-indexes"


def spares(common_state: str, pack_dir: str) -> tuple[str, str]:
    """Where second names can stand: beside either place of stagings, on the file system of the packs."""
    return os.path.join(common_state, BESIDE_STATE_TOO), os.path.join(
        os.path.dirname(pack_dir), BESIDE_PACKS_TOO
    )


def spare_beside(place: str) -> str:
    """Where they stand for what is staged in a place."""
    above, name = os.path.split(place)
    return os.path.join(above, BESIDE_STATE_TOO if name == BESIDE_STATE else BESIDE_PACKS_TOO)


def link_spare_index(index: str, spare: str, name: str) -> None:
    """Link an index; a file system that cannot has no second names."""
    with suppress(OSError):
        make_directory(spare, stat.S_IMODE(os.stat(os.path.dirname(spare)).st_mode))
        os.link(index, os.path.join(spare, name))


def forget_second_names(common_state: str, pack_dir: str, names: Iterable[str]) -> None:
    """To be called before the packs go."""
    for name in names:
        for spare in spares(common_state, pack_dir):
            remove_if_present(os.path.join(spare, name))


def restore_lost_indexes(common_state: str, pack_dir: str) -> list[str]:
    """Give every pack of ours the index that it lost, and every index a second name; the packs that had lost theirs."""
    first, second = spares(common_state, pack_dir)
    known = {name: spare for spare in (first, second) for name in _names_in(spare)}
    present = _names_in(pack_dir)
    _name_again(first, second, pack_dir, present, known)
    lost = [name for name in known if is_pack_name(name) and f"{name}.idx" not in present]
    back = [name for name in lost if f"{name}.pack" in present and _bring_back(known[name], pack_dir, name)]
    for name in lost:
        if f"{name}.pack" not in present and not os.path.lexists(os.path.join(pack_dir, f"{name}.pack")):
            remove_if_present(os.path.join(known[name], name))
    if back:
        sync_directory(pack_dir)
    return back


def _bring_back(spare: str, pack_dir: str, name: str) -> bool:
    base = os.path.join(pack_dir, name)
    marked = not os.path.lexists(base + ".keep")
    try:
        if marked:
            write_keep(base + ".keep", os.stat(pack_dir))
        # At once or not at all: whoever takes the pack away took this name first.
        os.link(os.path.join(spare, name), base + ".idx")
    except OSError as error:
        if marked and not isinstance(error, FileExistsError):
            remove_if_present(base + ".keep")
        return False
    return True


def _name_again(
    first: str, second: str, pack_dir: str, present: frozenset[str], known: dict[str, str]
) -> None:
    """For packs of earlier versions, and for those that a clone brought along."""
    unnamed = [name[:-5] for name in present if name.endswith(".keep") and name[:-5] not in known]
    for name in unnamed:
        if (
            is_pack_name(name)
            and f"{name}.idx" in present
            and bears_mark(os.path.join(pack_dir, f"{name}.keep"))
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
