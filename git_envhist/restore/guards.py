"""Names that a file system cannot hold, or not side by side: told before anything is changed.

Where `Readme` and `README` are one name, or two spellings of `é`, the second of two files would take the place of the
first. A snapshot from elsewhere may hold both. What a target is like is asked of the names that stand there already;
nothing is written for the question but into a new directory that is to be filled.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from git_envhist.config import BIG_FILE
from git_envhist.diff.classes import database_of
from git_envhist.errors import Refused, StorageFull
from git_envhist.git.cat_file import HeaderReader
from git_envhist.git.process import Git
from git_envhist.lazy import replace
from git_envhist.model import (
    SQLITE_HEADER,
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    MissingPath,
    MissingReason,
    PlanAction,
    PlanStep,
    RestorePlan,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.objects.reader import ObjectReader
from git_envhist.objects.trees import object_id
from git_envhist.platform import DIRECTORY, SYSTEM, list_mounts, open_itself
from git_envhist.restore.disk_entry import look
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.processes import holders
from git_envhist.restore.scope import HOLDS_MOUNT, LEFT_OUT_NOW, MOUNTED, above
from git_envhist.restore.slots import FAN_OUT
from git_envhist.snapshots.chunks import count_chunks, read_pointer
from git_envhist.text import show

# What a restore refuses, before anything is changed, and the option that overrides it where one is sane.

DOT_GIT = b".git"
LOCKS = (b"index.lock", b"HEAD.lock", b"config.lock", b"packed-refs.lock", b"shallow.lock")


def refuse_unsaved(plan: RestorePlan, missing: Iterable[MissingPath]) -> None:
    """What could not be saved whole is not replaced: it would be lost."""
    unsaved = {item.path: item for item in missing if item.why is not MissingReason.MOUNT}
    if not unsaved:
        return
    # Attributes that could not be read are those of the path alone, not of what lies below it.
    whole = {path: item for path, item in unsaved.items() if item.why is not MissingReason.ATTRIBUTES}
    found = {
        item.path: item
        for step in plan.steps
        if (item := _at_or_above(step.shown, whole) or unsaved.get(step.shown)) is not None
    }
    going = tuple(step.shown + b"/" for step in plan.steps if _goes(step))
    found |= {path: item for path, item in unsaved.items() if going and path.startswith(going)}
    if found:
        first = min(found.values(), key=lambda item: item.path)
        raise Refused(
            f"{_count(len(found))} cannot be saved before {'it is' if len(found) == 1 else 'they are'} replaced: "
            f"{_name(first.path)}, "
            f"{_reason(first)}",
            hint="put that right first, or leave it out: git envrestore <rev> -- . ':!<path>'",
        )


def _reason(item: MissingPath) -> str:
    if item.why is MissingReason.ATTRIBUTES:
        return f"its extended attributes cannot be read: {item.detail}"
    return item.detail or item.why.value


def refuse_left_out(plan: RestorePlan, wish: RestoreOptions) -> None:
    """Who names a path that is left out now, and gets nothing back, is told how to have it."""
    left = [item.path for item in plan.left_alone if item.why == LEFT_OUT_NOW]
    if wish.pathspecs and left and not (plan.steps or plan.directories):
        raise Refused(
            f"{_name(left[0])} is no part of the environment now: .envhistignore or envhist.exclude leaves it out",
            hint="take that pattern away and try again, or have it written elsewhere: --to <directory>",
        )


def refuse_mounted(plan: RestorePlan, missing: Iterable[MissingPath]) -> None:
    """What is mounted is not restored through, and no directory goes from under it."""
    mounts = _mounts(missing)
    hidden = {
        item.path for left in hidden_by_mounts(plan, missing) if (item := _at_or_above(left.path, mounts))
    }
    staying = tuple(left.path + b"/" for left in plan.left_alone if left.why == HOLDS_MOUNT)
    held = {path for path in mounts if staying and path.startswith(staying)}
    if hidden or held:
        first = min(hidden | held)
        why = "it hides what would be restored" if first in hidden else "what it stands in would go"
        more = len(hidden | held) - 1
        raise Refused(
            f"{_name(first)} is mounted from elsewhere, and {why}"
            + (f"; {more} more are, too" if more else ""),
            hint="unmount it first, or have it written elsewhere: --to; with --force it stays as it is, with the "
            "directories that it stands in",
        )


def hidden_by_mounts(plan: RestorePlan, missing: Iterable[MissingPath]) -> tuple[SkippedPath, ...]:
    """What the moment holds where something else is mounted now, and what it does not hold and cannot go for that."""
    mounts = _mounts(missing)
    return tuple(
        left
        for left in plan.left_alone
        if left.why == HOLDS_MOUNT
        or (left.why == MOUNTED and mounts and _at_or_above(left.path, mounts) is not None)
    )


def _mounts(missing: Iterable[MissingPath]) -> dict[EnvPath, MissingPath]:
    return {item.path: item for item in missing if item.why is MissingReason.MOUNT}


def refuse_open_databases(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> None:
    """A database that another process has open would go on being written to where nobody sees it."""
    tops = {root: os.path.realpath(base) for root, base in bases.items()}
    # Directories are left out, whatever their names: the scan's own processes keep them open, and no database is one.
    victims = {
        os.path.join(tops[step.root], step.path): step
        for step in plan.steps
        if step.before is not None and step.before.kind is EntryKind.FILE
    }
    for place, process in holders(victims).items():
        if database_of(place) is not None or _is_sqlite(place):
            raise Refused(
                f"{_name(victims[place].shown)} is open in {process}",
                hint="stop that process first; with --force it goes on writing to the file that was replaced",
            )


def refuse_locked_repositories(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> None:
    """The `.git` of a nested repository is not touched while a git is at work in it."""
    for repository, step in _nested(plan.steps):
        top = os.path.join(bases[step.root], repository)
        for lock in LOCKS:
            if os.path.lexists(os.path.join(top, lock)):
                raise Refused(
                    f"a git is at work in the repository that would be restored: {_name(EnvPath(repository))}",
                    hint=f"wait until it is done; where none is, remove its {lock.decode()}",
                )


def _goes(step: PlanStep) -> bool:
    """Whether a step takes a directory away."""
    return (
        step.before is not None
        and step.before.kind is EntryKind.DIRECTORY
        and (step.after is None or step.after.kind is not EntryKind.DIRECTORY)
    )


def _at_or_above(path: bytes, unsaved: Mapping[EnvPath, MissingPath]) -> MissingPath | None:
    while path:
        if (item := unsaved.get(EnvPath(path))) is not None:
            return item
        path = above(path)
    return unsaved.get(EnvPath(b""))


def _nested(steps: Iterable[PlanStep]) -> Iterator[tuple[bytes, PlanStep]]:
    seen = set()
    for step in steps:
        names = step.path.split(b"/")
        if DOT_GIT in names:
            repository = b"/".join(names[: names.index(DOT_GIT) + 1])
            if (step.root, repository) not in seen:
                seen.add((step.root, repository))
                yield repository, step


def _is_sqlite(path: bytes) -> bool:
    try:
        descriptor = open_itself(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _name(path: EnvPath) -> str:
    return f"'{os.fsdecode(path) or '.'}'"


def _count(number: int) -> str:
    return "one path" if number == 1 else f"{number} paths"


TOLD = 10
USUAL = 255
"""The longest name of a file on nearly every file system, in bytes."""
FOREIGN_TYPES = frozenset((b"vfat", b"msdos", b"exfat", b"drvfs"))
"""File systems made for another system, whose rules hold whoever mounts them."""
WINDOWS_OPTIONS = frozenset((b"windows_names", b"aname=drvfs"))
FORBIDDEN = re.compile(rb'[\x01-\x1f"*:<>?|\\]|[. ]\Z')
DEVICE = re.compile(rb"(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\.|\Z)", re.IGNORECASE)

Change = Callable[[str], str]
Directory = tuple[bytes, EnvPath]
"""A root and a directory in it."""


class NameRules(NamedTuple):
    """How a file system takes names."""

    folds_case: bool = False
    folds_form: bool = False
    longest: int | None = None
    reserves: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether it takes fewer names for different, or for names at all, than the file systems of this system do."""
        is_short = self.longest is not None and self.longest < USUAL
        return self.folds_case or self.folds_form or self.reserves or is_short

    def key(self, name: bytes) -> str:
        """Names with one key are one name."""
        text = os.fsdecode(name)
        if text.isascii():
            return text.lower() if self.folds_case else text
        if self.folds_case:
            text = text.casefold()
        return unicodedata.normalize("NFD", text) if self.folds_form else text


def refuse_names(plan: RestorePlan, bases: Mapping[bytes, bytes], *, empty: bool = False) -> None:
    """`Refused` where the plan brings names that their place cannot hold; `empty`: nothing stands at the place yet."""
    coming = arrivals(plan)
    found: list[str] = []
    for root in sorted({root for root, _ in coming}):
        if root in bases:
            manner = manner_of(bases[root], empty=empty)
            found += _problems(root, coming, plan, manner, bases[root])
    if found:
        more = f"; and {len(found) - TOLD:,} more" if len(found) > TOLD else ""
        raise Refused(
            f"this file system cannot hold all names of that moment: {'; '.join(found[:TOLD])}{more}",
            hint="leave one of each out: git envrestore <rev> -- . ':!<path>'; or restore it elsewhere, with --to",
        )


def arrivals(plan: RestorePlan) -> dict[Directory, list[bytes]]:
    """The names that a plan brings where none stood, by the directory that they are to stand in."""
    found: dict[Directory, list[bytes]] = defaultdict(list)
    for step in plan.steps:
        comes = [] if step.after is None or step.before is not None else [step.path]
        for path in (*comes, *(entry.path for entry in step.below)):
            above, _, name = path.rpartition(b"/")
            found[step.root, EnvPath(above)].append(name)
    return found


def clashes(
    names: Iterable[bytes], standing: Iterable[bytes], manner: NameRules
) -> Iterator[tuple[bytes, bytes]]:
    """(name, name) of all that cannot stand side by side."""
    taken: dict[str, bytes] = {manner.key(name): name for name in standing}
    for name in sorted(names):
        other = taken.setdefault(manner.key(name), name)
        if other != name:
            yield other, name


def why_not(name: bytes, manner: NameRules) -> str | None:
    """Why a name cannot be had at all."""
    if manner.longest is not None and len(name) > manner.longest:
        return f"is longer than {manner.longest} bytes"
    if manner.reserves and FORBIDDEN.search(name):
        return "has a character that is not allowed there"
    if manner.reserves and DEVICE.match(name):
        return "is a device there"
    return None


def manner_of(base: bytes, *, empty: bool = False) -> NameRules:
    """How the file system of a directory takes names."""
    longest = os.pathconf(base, "PC_NAME_MAX")
    return NameRules(
        not SYSTEM.case or _folds(base, str.swapcase, "envhist", empty),
        not SYSTEM.forms or _folds(base, _other_form, "envhist-\u00e9", empty),
        longest if longest > 0 else None,
        not SYSTEM.names or _reserves(base),
    )


def _problems(
    root: bytes, coming: Mapping[Directory, list[bytes]], plan: RestorePlan, manner: NameRules, base: bytes
) -> Iterator[str]:
    removed = {step.path for step in plan.steps if step.root == root and step.action is PlanAction.REMOVE}
    folds = manner.folds_case or manner.folds_form
    for (where, directory), names in coming.items():
        if where != root:
            continue
        for name in names:
            why = why_not(name, manner)
            if why is not None:
                yield f"{_shown(root, directory, name)} {why}"
        if folds:
            stays = [name for name in _listed(base, directory) if _join(directory, name) not in removed]
            for one, other in clashes(names, stays, manner):
                yield f"{_shown(root, directory, one)} and {_shown(root, directory, other)} are one name there"


def _listed(base: bytes, directory: EnvPath) -> list[bytes]:
    try:
        return os.listdir(os.path.join(base, directory) if directory else base)
    except OSError:
        return []  # it is to come itself


def _folds(base: bytes, change: Change, probe: str, empty: bool) -> bool:
    """Whether a name and its other spelling are one, as far as what stands there can tell."""
    listed = set(os.listdir(base))
    for name in listed:
        other = os.fsencode(change(os.fsdecode(name)))
        if other != name and other not in listed:
            return _is_one(base + b"/" + name, base + b"/" + other)
    return empty and _folds_anew(base, os.fsencode(probe), os.fsencode(change(probe)))


def _is_one(path: bytes, other: bytes) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


def _folds_anew(base: bytes, name: bytes, other: bytes) -> bool:
    """The same, tried with a file of ours in a directory that is still empty."""
    from git_envhist.restore.write_tree import (
        private_directory,  # loaded late: hardly any file system folds names
    )

    hands = DiskCalls()
    top = os.open(base, DIRECTORY)
    try:
        # What a kill left there is thrown away, and nobody who is at work there is disturbed.
        with private_directory(top, hands) as private:
            os.close(hands.create(private, name))
            return look(private, other) is not None
    finally:
        os.close(top)


def _reserves(base: bytes) -> bool:
    """Whether the names that Windows keeps for itself cannot be had there."""
    if not SYSTEM.proc:
        return False
    device = os.stat(base).st_dev
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        mounts = [mount for mount in list_mounts() if mount.device == wanted]
    except (OSError, IndexError, ValueError):
        return False
    for mount in mounts:
        options = set(re.split(rb"[,;]", b",".join(mount.options)))
        if mount.file_system in FOREIGN_TYPES or not options.isdisjoint(WINDOWS_OPTIONS):
            return True
    return False


def _other_form(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return unicodedata.normalize("NFD", text) if composed == text else composed


def _join(directory: bytes, name: bytes) -> EnvPath:
    return EnvPath(directory + b"/" + name if directory else name)


def _shown(root: bytes, directory: bytes, name: bytes) -> str:
    return f"'{show(shown_path(root, _join(directory, name)))}'"


# Whether there is room for all that a restore brings, told before anything is saved or made.
#
# What stands here keeps its room until the end, so what comes needs room of its own. A file that was full of holes gets
# them again: of a file in pieces those count that hold something.

OURS = 1 << 20
"""What the journal, the slots and the moment that is taken afterwards need at least."""
EACH = 1 << 9
"""What they need for every path."""
OUR_INODES = 32
"""Inodes that a restore needs besides the files it writes: slots, the journal, and the two snapshots that it takes."""
MAX_SIZE = {StoredAs.PLAIN: BIG_FILE, StoredAs.SEALED: 8 * BIG_FILE, StoredAs.FINGERPRINT: 0}
"""What a file holds at most that is kept in such a way; hardly any secret is so large."""


class SpaceNeeded(NamedTuple):
    """What a file system has to take in."""

    paths: int
    files: list[Entry]


def refuse_without_room(
    plan: RestorePlan, bases: Mapping[bytes, bytes], state: str, git: Git, contents: ObjectReader
) -> None:
    """Raise `StorageFull` if a file system cannot hold what comes, or that of `state` what the restore itself needs."""
    if not SYSTEM.statvfs:
        return
    for device, coming in _by_device(plan, bases, os.fsencode(state)).items():
        place = os.statvfs(device)
        if not place.f_blocks:
            continue  # a file system that does not tell of its size
        room = place.f_bavail * place.f_frsize - OURS - EACH * coming.paths
        inodes = coming.paths + (coming.paths >> FAN_OUT) + OUR_INODES
        if place.f_files and inodes > place.f_favail:
            raise _full(f"{inodes:,} inodes are needed, and {place.f_favail:,} are free")
        if _at_most(coming.files, contents) > room:
            needed = _exactly(coming.files, git, contents, place.f_frsize, room)
            if needed > room:
                raise _full(f"{needed:,} bytes are needed, and {max(0, room):,} are there")


def _by_device(plan: RestorePlan, bases: Mapping[bytes, bytes], state: bytes) -> dict[bytes, SpaceNeeded]:
    """Return what comes, by a directory on the file system that takes it in; that of `state` is always among them."""
    place_of, ours = _one_a_device(bases, state)
    found = {ours: SpaceNeeded(0, [])}
    groups: set[tuple[bytes, int]] = set()
    for root, entry in _entries(plan):
        coming = found.setdefault(place_of[root], SpaceNeeded(0, []))
        found[place_of[root]] = coming._replace(paths=coming.paths + 1)
        if entry.link_group is not None:
            if (root, entry.link_group) in groups:
                continue
            groups.add((root, entry.link_group))
        if entry.kind is EntryKind.FILE and entry.oid is not None:
            coming.files.append(entry)
    return found


def _one_a_device(bases: Mapping[bytes, bytes], state: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Return one directory of each root's file system, and the one of the file system of `state`."""
    devices: dict[int, bytes] = {}
    places = {root: devices.setdefault(os.stat(place).st_dev, place) for root, place in bases.items()}
    return places, devices.setdefault(os.stat(state).st_dev, state)


def _entries(plan: RestorePlan) -> Iterator[tuple[bytes, Entry]]:
    for step in plan.steps:
        if step.after is not None and step.action is not PlanAction.ADJUST:
            yield step.root, step.after
            for entry in step.below:
                yield step.root, entry


def _at_most(files: Iterable[Entry], contents: ObjectReader) -> int:
    """What files hold at most, by how they are kept: mostly far less than there is room for, and git is not asked."""
    return sum(
        read_pointer(contents.blob(entry.oid)).size
        if entry.stored is StoredAs.PIECES and entry.oid is not None
        else MAX_SIZE[entry.stored]
        for entry in files
    )


def _exactly(files: list[Entry], git: Git, contents: ObjectReader, block: int, room: int) -> int:
    with closing(HeaderReader(git)) as sizes:
        told = sizes.of_many(entry.oid for entry in files if entry.oid is not None)
        needed = 0
        for entry in files:
            assert entry.oid is not None
            size = told[entry.oid].size
            if entry.stored is StoredAs.PIECES:
                size = _in_pieces(contents.blob(entry.oid), contents, sizes, room)
            needed += -(-size // block) * block
    return needed


def _in_pieces(pointer: bytes, contents: ObjectReader, sizes: HeaderReader, room: int) -> int:
    size = read_pointer(pointer).size
    if size <= room:
        return size
    counted = count_chunks(contents, pointer)
    known = sizes.of_many(counted)
    return sum(
        known[piece].size * often
        for piece, often in counted.items()
        if not _is_hole(piece, known[piece].size)
    )


def _is_hole(piece: bytes, size: int) -> bool:
    return object_id(b"blob", bytes(size), "sha1" if len(piece) == 20 else "sha256") == piece


def _full(why: str) -> StorageFull:
    return StorageFull(f"no room for what is to be restored: {why}", hint="make room; nothing was changed")


# Keep extended attributes that the snapshot of the target could not read.
#
# A snapshot lists a path as missing (`attributes`) if some of its attributes could not be read. Which ones existed then
# is unknown, so a restore sets those that the snapshot has and removes none.


def keeping_unread(pairs: Sequence[DirectoryPair], unread: Collection[EnvPath]) -> list[DirectoryPair]:
    """Return the pairs; entries with unread attributes have those of the side before as well."""
    return [_keeping(pair, unread) for pair in pairs] if unread else list(pairs)


def _keeping(pair: DirectoryPair, unread: Collection[EnvPath]) -> DirectoryPair:
    if pair.before is None or pair.after is None:
        return pair
    own = _joined(pair.root, pair.before.own, pair.after.own, unread)
    known = pair.before.entries
    entries = {
        name: _joined(pair.root, known[name], entry, unread) if name in known else entry
        for name, entry in pair.after.entries.items()
    }
    return pair._replace(after=DirectoryListing(own, entries))


def _joined(root: bytes, before: Entry, after: Entry, unread: Collection[EnvPath]) -> Entry:
    if before.kind is not after.kind or shown_path(root, after.path) not in unread:
        return after
    return replace(after, xattrs=tuple(sorted({**dict(before.xattrs), **dict(after.xattrs)}.items())))
