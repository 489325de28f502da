"""Refuse a restore that cannot succeed or would lose data, before anything is changed.

- state: unsaved or mounted paths, open databases, locked repositories;
- names: names that the file system cannot store, or that it treats as equal (`Readme` and `README`, two spellings of
  `é`);
- space: free bytes and inodes;
- extended attributes that the target snapshot could not read are kept.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from git_envhist.config import BIG_FILE
from git_envhist.diff.path_classes import database_of
from git_envhist.disk import read_exactly
from git_envhist.errors import Refused, StorageFull
from git_envhist.git.cat_file import HeaderReader
from git_envhist.git.process import Git
from git_envhist.model import (
    SQLITE_HEADER,
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
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.objects.trees import object_id
from git_envhist.platform import DIRECTORY, SYSTEM, list_mounts, open_nofollow
from git_envhist.printable_text import display_bytes
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.disk_entry import stat_entry
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.plan_steps import SkipReason
from git_envhist.restore.processes import processes_with_open
from git_envhist.restore.scope import directory_of
from git_envhist.restore.slots import FAN_OUT
from git_envhist.snapshots.chunks import count_chunks, read_pointer

# Refusals because of the state of the environment; some can be overridden with an option.

DOT_GIT = b".git"
LOCKS = (b"index.lock", b"HEAD.lock", b"config.lock", b"packed-refs.lock", b"shallow.lock")


def refuse_unsaved(plan: RestorePlan, missing: Iterable[MissingPath]) -> None:
    """Refuse to replace paths that could not be captured completely."""
    unsaved = {item.path: item for item in missing if item.why is not MissingReason.MOUNT}
    if not unsaved:
        return
    # Unreadable attributes concern only the path itself.
    whole = {path: item for path, item in unsaved.items() if item.why is not MissingReason.ATTRIBUTES}
    found = {
        item.path: item
        for step in plan.steps
        if (item := _at_or_above(step.shown, whole) or unsaved.get(step.shown)) is not None
    }
    removed_directories = tuple(step.shown + b"/" for step in plan.steps if _removes_directory(step))
    found |= {
        path: item
        for path, item in unsaved.items()
        if removed_directories and path.startswith(removed_directories)
    }
    if found:
        first = min(found.values(), key=lambda item: item.path)
        raise Refused(
            f"{_paths_text(len(found))} cannot be saved before {'it is' if len(found) == 1 else 'they are'} replaced: "
            f"{_name(first.path)}, "
            f"{_reason(first)}",
            hint="fix this first, or leave it out: git envrestore <rev> -- . ':!<path>'",
        )


def _reason(item: MissingPath) -> str:
    if item.why is MissingReason.ATTRIBUTES:
        return f"its extended attributes cannot be read: {item.detail}"
    return item.detail or item.why.value


def refuse_left_out(plan: RestorePlan, options: RestoreOptions) -> None:
    """Refuse if the chosen paths are all excluded now; the hint says how to restore them."""
    left = [item.path for item in plan.skipped if item.why == SkipReason.LEFT_OUT_NOW]
    if options.pathspecs and left and not (plan.steps or plan.directories):
        raise Refused(
            f"{_name(left[0])} is excluded from the environment by .envhistignore or envhist.exclude",
            hint="remove that pattern and try again, or restore to another directory with --to <directory>",
        )


def refuse_mounted(plan: RestorePlan, missing: Iterable[MissingPath]) -> None:
    """Refuse to restore under a mount point, or to remove a directory with one."""
    mounts = _mounts(missing)
    hidden = {
        item.path for left in hidden_by_mounts(plan, missing) if (item := _at_or_above(left.path, mounts))
    }
    kept = tuple(left.path + b"/" for left in plan.skipped if left.why == SkipReason.HOLDS_MOUNT)
    blocking = {path for path in mounts if kept and path.startswith(kept)}
    if hidden or blocking:
        first = min(hidden | blocking)
        problem = "hides paths to restore" if first in hidden else "is in a directory to remove"
        more = len(hidden | blocking) - 1
        raise Refused(
            f"{_name(first)} is a mount point and {problem}" + (f"; {more} more are, too" if more else ""),
            hint="unmount it first, or restore to another directory with --to; --force skips it and its directories",
        )


def hidden_by_mounts(plan: RestorePlan, missing: Iterable[MissingPath]) -> tuple[SkippedPath, ...]:
    """Return the skipped paths that a mount point hides, and directories that cannot be removed because of one."""
    mounts = _mounts(missing)
    return tuple(
        left
        for left in plan.skipped
        if left.why == SkipReason.HOLDS_MOUNT
        or (left.why == SkipReason.MOUNTED and mounts and _at_or_above(left.path, mounts) is not None)
    )


def _mounts(missing: Iterable[MissingPath]) -> dict[EnvPath, MissingPath]:
    return {item.path: item for item in missing if item.why is MissingReason.MOUNT}


def refuse_open_databases(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> None:
    """Refuse to replace a database that another process has open: it would keep writing to the replaced file."""
    tops = {root: os.path.realpath(base) for root, base in bases.items()}
    # Directories are omitted: the scan keeps them open itself, and no database is a directory.
    replaced = {
        os.path.join(tops[step.root], step.path): step
        for step in plan.steps
        if step.before is not None and step.before.kind is EntryKind.FILE
    }
    for place, process in processes_with_open(replaced).items():
        if database_of(place) is not None or _is_sqlite(place):
            raise Refused(
                f"{_name(replaced[place].shown)} is open in {process}",
                hint="stop that process first; with --force it keeps writing to the replaced file",
            )


def refuse_locked_repositories(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> None:
    """Refuse to change the `.git` of a nested repository that a git process has locked."""
    for repository, step in _nested(plan.steps):
        top = os.path.join(bases[step.root], repository)
        for lock in LOCKS:
            if os.path.lexists(os.path.join(top, lock)):
                raise Refused(
                    f"a git process has locked a repository to restore: {_name(EnvPath(repository))}",
                    hint=f"wait for it; if no git runs there, remove {lock.decode()}",
                )


def _removes_directory(step: PlanStep) -> bool:
    """Return whether a step removes a directory."""
    return (
        step.before is not None
        and step.before.kind is EntryKind.DIRECTORY
        and (step.after is None or step.after.kind is not EntryKind.DIRECTORY)
    )


def _at_or_above(path: bytes, unsaved: Mapping[EnvPath, MissingPath]) -> MissingPath | None:
    while path:
        if (item := unsaved.get(EnvPath(path))) is not None:
            return item
        path = directory_of(path)
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
        descriptor = open_nofollow(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return read_exactly(descriptor, len(SQLITE_HEADER), 0) == SQLITE_HEADER
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _name(path: EnvPath) -> str:
    return f"'{os.fsdecode(path) or '.'}'"


def _paths_text(number: int) -> str:
    return "one path" if number == 1 else f"{number} paths"


MAX_SHOWN = 10
USUAL = 255
"""The longest file name of nearly every file system, in bytes."""
FOREIGN_TYPES = frozenset((b"vfat", b"msdos", b"exfat", b"drvfs"))
"""File systems with the name rules of Windows, on every system."""
WINDOWS_OPTIONS = frozenset((b"windows_names", b"aname=drvfs"))
FORBIDDEN = re.compile(rb'[\x01-\x1f"*:<>?|\\]|[. ]\Z')
DEVICE = re.compile(rb"(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\.|\Z)", re.IGNORECASE)

Change = Callable[[str], str]
Directory = tuple[bytes, EnvPath]
"""A root and a directory in it."""


class NameRules(NamedTuple):
    """The rules of a file system for names."""

    folds_case: bool = False
    folds_form: bool = False
    longest: int | None = None
    reserves: bool = False

    @property
    def is_narrow(self) -> bool:
        """Return whether it allows fewer names than the usual file systems of this system."""
        is_short = self.longest is not None and self.longest < USUAL
        return self.folds_case or self.folds_form or self.reserves or is_short

    def key(self, name: bytes) -> str:
        """Return the same key for names that the file system treats as equal."""
        text = os.fsdecode(name)
        if text.isascii():
            return text.lower() if self.folds_case else text
        if self.folds_case:
            text = text.casefold()
        return unicodedata.normalize("NFD", text) if self.folds_form else text


def refuse_names(plan: RestorePlan, bases: Mapping[bytes, bytes], *, empty: bool = False) -> None:
    """Raise `Refused` if the plan writes names that the file system cannot store.

    `empty`: the target directory does not contain anything yet.
    """
    new_names = new_names_of(plan)
    found: list[str] = []
    for root in sorted({root for root, _ in new_names}):
        if root in bases:
            rules = name_rules(bases[root], empty=empty)
            found += _problems(root, new_names, plan, rules, bases[root])
    if found:
        more = f"; and {len(found) - MAX_SHOWN:,} more" if len(found) > MAX_SHOWN else ""
        raise Refused(
            f"this file system cannot store all names of the snapshot: {'; '.join(found[:MAX_SHOWN])}{more}",
            hint="leave one of each out: git envrestore <rev> -- . ':!<path>'; or restore elsewhere with --to",
        )


def new_names_of(plan: RestorePlan) -> dict[Directory, list[bytes]]:
    """Return the new names of a plan by directory."""
    found: dict[Directory, list[bytes]] = defaultdict(list)
    for step in plan.steps:
        created = [] if step.after is None or step.before is not None else [step.path]
        for path in (*created, *(entry.path for entry in step.below)):
            above, _, name = path.rpartition(b"/")
            found[step.root, EnvPath(above)].append(name)
    return found


def clashes(
    names: Iterable[bytes], existing: Iterable[bytes], rules: NameRules
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of names that the file system treats as equal."""
    known: dict[str, bytes] = {rules.key(name): name for name in existing}
    for name in sorted(names):
        other = known.setdefault(rules.key(name), name)
        if other != name:
            yield other, name


def name_problem(name: bytes, rules: NameRules) -> str | None:
    """Return why a name cannot be stored; None if it can."""
    if rules.longest is not None and len(name) > rules.longest:
        return f"is longer than {rules.longest} bytes"
    if rules.reserves and FORBIDDEN.search(name):
        return "has a forbidden character"
    if rules.reserves and DEVICE.match(name):
        return "is a device name"
    return None


def name_rules(base: bytes, *, empty: bool = False) -> NameRules:
    """Return the rules of a directory's file system for names."""
    longest = os.pathconf(base, "PC_NAME_MAX")
    return NameRules(
        not SYSTEM.case or _folds(base, str.swapcase, "envhist", empty),
        not SYSTEM.forms or _folds(base, _other_form, "envhist-\u00e9", empty),
        longest if longest > 0 else None,
        not SYSTEM.names or _reserves(base),
    )


def _problems(
    root: bytes, new_names: Mapping[Directory, list[bytes]], plan: RestorePlan, rules: NameRules, base: bytes
) -> Iterator[str]:
    removed = {step.path for step in plan.steps if step.root == root and step.action is PlanAction.REMOVE}
    folds = rules.folds_case or rules.folds_form
    for (where, directory), names in new_names.items():
        if where != root:
            continue
        for name in names:
            problem = name_problem(name, rules)
            if problem is not None:
                yield f"{_shown(root, directory, name)} {problem}"
        if folds:
            remaining = [name for name in _listed(base, directory) if _join(directory, name) not in removed]
            for one, other in clashes(names, remaining, rules):
                yield f"{_shown(root, directory, one)} and {_shown(root, directory, other)} are the same name there"


def _listed(base: bytes, directory: EnvPath) -> list[bytes]:
    try:
        return os.listdir(os.path.join(base, directory) if directory else base)
    except OSError:
        return []  # the directory is new


def _folds(base: bytes, change: Change, probe: str, empty: bool) -> bool:
    """Return whether a name and its other spelling are equal, as far as existing names show."""
    listed = set(os.listdir(base))
    for name in listed:
        other = os.fsencode(change(os.fsdecode(name)))
        if other != name and other not in listed:
            return _is_one(base + b"/" + name, base + b"/" + other)
    return empty and _probe_folding(base, os.fsencode(probe), os.fsencode(change(probe)))


def _is_one(path: bytes, other: bytes) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


def _probe_folding(base: bytes, name: bytes, other: bytes) -> bool:
    """Find out with a file of our own in a new, empty directory."""
    from git_envhist.restore.write_elsewhere import (
        private_directory,  # loaded late: hardly any file system folds names
    )

    calls = DiskCalls()
    top = os.open(base, DIRECTORY)
    try:
        # `private_directory` removes leftovers of a killed process and waits for a running one.
        with private_directory(top, calls) as private:
            os.close(calls.create(private, name))
            return stat_entry(private, other) is not None
    finally:
        os.close(top)


def _reserves(base: bytes) -> bool:
    """Return whether the file system reserves names as Windows does."""
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
    return f"'{display_bytes(shown_path(root, _join(directory, name)))}'"


# Free space. Old files keep their space until the end, so new files need space of their own. Sparse files are written
# sparse: only chunks with data count.

BYTES_NEEDED = 1 << 20
"""Bytes that the journal, the slots and the snapshot after the restore need at least."""
BYTES_PER_PATH = 1 << 9
"""Bytes that they need per path."""
OUR_INODES = 32
"""Inodes that a restore needs in addition to the files it writes: slots, the journal, and two snapshots."""
MAX_SIZE = {StoredAs.PLAIN: BIG_FILE, StoredAs.SEALED: 8 * BIG_FILE, StoredAs.FINGERPRINT: 0}
"""Upper bound of a file's size by how it is stored; larger files are chunked."""


class SpaceNeeded(NamedTuple):
    """The paths and files that one file system must store."""

    paths: int
    files: list[Entry]


def refuse_without_space(
    plan: RestorePlan, bases: Mapping[bytes, bytes], state: str, git: Git, contents: ObjectReader
) -> None:
    """Raise `StorageFull` if a file system lacks space for the new files, or that of `state` for the restore itself."""
    if not SYSTEM.statvfs:
        return
    for device, new_names in _by_device(plan, bases, os.fsencode(state)).items():
        place = os.statvfs(device)
        if not place.f_blocks:
            continue  # a file system that does not report its size
        free = place.f_bavail * place.f_frsize - BYTES_NEEDED - BYTES_PER_PATH * new_names.paths
        inodes = new_names.paths + (new_names.paths >> FAN_OUT) + OUR_INODES
        if place.f_files and inodes > place.f_favail:
            raise _full(f"{inodes:,} inodes are needed, and {place.f_favail:,} are free")
        if _upper_bound(new_names.files, contents) > free:
            needed = _exact_size(new_names.files, git, contents, place.f_frsize, free)
            if needed > free:
                raise _full(f"{needed:,} bytes are needed, and {max(0, free):,} are free")


def _by_device(plan: RestorePlan, bases: Mapping[bytes, bytes], state: bytes) -> dict[bytes, SpaceNeeded]:
    """Return the needed space by a directory on each file system; that of `state` is always included."""
    place_of, own_place = _directory_per_device(bases, state)
    paths = Counter({own_place: 0})
    files: dict[bytes, list[Entry]] = {own_place: []}
    groups: set[tuple[bytes, int]] = set()
    for root, entry in _entries(plan):
        place = place_of[root]
        paths[place] += 1
        if entry.link_group is not None:
            if (root, entry.link_group) in groups:
                continue
            groups.add((root, entry.link_group))
        if entry.kind is EntryKind.FILE and entry.oid is not None:
            files.setdefault(place, []).append(entry)
    return {place: SpaceNeeded(number, files.get(place, [])) for place, number in paths.items()}


def _directory_per_device(bases: Mapping[bytes, bytes], state: bytes) -> tuple[dict[bytes, bytes], bytes]:
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


def _upper_bound(files: Iterable[Entry], contents: ObjectReader) -> int:
    """Return an upper bound of the files' size without asking git."""
    return sum(
        read_pointer(contents.blob(entry.oid)).size
        if entry.stored is StoredAs.PIECES and entry.oid is not None
        else MAX_SIZE[entry.stored]
        for entry in files
    )


def _exact_size(files: list[Entry], git: Git, contents: ObjectReader, block: int, free: int) -> int:
    with closing(HeaderReader(git)) as sizes:
        sizes_by_id = sizes.of_many(entry.oid for entry in files if entry.oid is not None)
        needed = 0
        for entry in files:
            assert entry.oid is not None
            size = sizes_by_id[entry.oid].size
            if entry.stored is StoredAs.PIECES:
                size = _chunked_size(contents.blob(entry.oid), contents, sizes, free)
            needed += -(-size // block) * block
    return needed


def _chunked_size(pointer: bytes, contents: ObjectReader, sizes: HeaderReader, free: int) -> int:
    size = read_pointer(pointer).size
    if size <= free:
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


def _full(problem: str) -> StorageFull:
    return StorageFull(f"not enough space to restore: {problem}", hint="free some space; nothing was changed")
