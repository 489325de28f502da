"""Inspect an unsigned snapshot before anything is planned; nothing is written.

- sizes: limits on paths, depth and bytes, checked with object headers before anything is inflated;
- metadata: owners, set-id bits, attributes and devices are reduced or dropped;
- repositories: hooks, configuration and other files that version control programs obey are dropped or reduced, judged
  by everything that will exist at their place after the restore;
- links: symbolic links must not lead outside or into a repository's own directory.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from git_envhist.diff.snapshot_walker import differing_directories
from git_envhist.errors import Damaged, GitFailed, Refused, SealingError
from git_envhist.git.cat_file import CatFile, HeaderReader
from git_envhist.git.process import Git
from git_envhist.lazy import pattern, replace
from git_envhist.model import (
    TOP,
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    ObjectId,
    RestorePlan,
    RestoreResult,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.objects.trees import decode_tree, object_id
from git_envhist.printable_text import display_bytes
from git_envhist.restore.plan_steps import PlanRules
from git_envhist.snapshots.chunks import MAX_SIZE, read_pointer
from git_envhist.snapshots.manifest import BUDGET, scan_shard
from git_envhist.snapshots.reader import SnapshotReader
from git_envhist.snapshots.stored_names import must_escape

# Limits. A kilobyte may inflate to gigabytes, a file may claim to be larger than the disk, trees may be nested without
# end: these are refused before anything is written. What is only large can be restored with --force.

POINTER = 256
"""The maximum length of a pointer to chunks."""
SMALL_PIECE = 4096
LAST_PIECES = 64
HINT = "no capture writes this: restore another snapshot"


class SnapshotLimits(NamedTuple):
    """Limits of an unsigned snapshot."""

    bytes: int = 8 << 30
    blob: int = 64 << 20
    """Per object that is read as a whole; captures split files of 8 MiB and more into chunks."""
    entries: int = 2_000_000
    depth: int = 1024
    metadata: int = 256 << 20
    """All trees and manifests together."""
    metadata_object: int = 64 << 20


DEFAULT_LIMITS = SnapshotLimits()
UNBOUNDED = SnapshotLimits(bytes=1 << 62, blob=1 << 30, entries=1 << 62)
"""Limits with --force: as much as there is space for."""


class LimitedReader:
    """Reads trees and manifests after checking their sizes."""

    def __init__(
        self, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits = DEFAULT_LIMITS
    ) -> None:
        self._contents = contents
        self._sizes = sizes
        self._budget = budget
        self._read = 0

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """Return kind and contents of an object; raise `Damaged` if it, or all together, exceed the limits."""
        size = self._sizes.of(oid).size
        self._read += size
        if size > self._budget.metadata_object or self._read > self._budget.metadata:
            raise Damaged(f"a tree or a manifest is too large: {oid.hex()}", hint=HINT)
        return self._contents.read(oid)


def list_directories(pairs: Iterable[DirectoryPair], budget: SnapshotLimits) -> list[DirectoryPair]:
    """Return the directories of a snapshot; raise if they are too many or too deep."""
    found = []
    entries = 0
    for pair in pairs:
        entries += 1 + (len(pair.after.entries) if pair.after is not None else 0)
        if entries > budget.entries:
            raise _too_much(f"more than {budget.entries:,} paths")
        if pair.path.count(b"/") >= budget.depth:
            raise Damaged(f"a directory is nested too deep: '{display_bytes(pair.path[:100])}…'", hint=HINT)
        found.append(pair)
    return found


def check_sizes(
    pairs: Iterable[DirectoryPair],
    contents: ObjectReader,
    sizes: HeaderReader,
    budget: SnapshotLimits,
    free_bytes: int,
) -> int:
    """Return the bytes that a snapshot would write; raise `Refused` if too many, `Damaged` if sizes disagree."""
    files = _files(pairs)
    sizes_by_id = sizes.of_many(oid for entry in files if (oid := entry.oid) is not None)
    total = 0
    for entry in files:
        assert entry.oid is not None
        kind, size = sizes_by_id[entry.oid]
        if kind != "blob":
            raise Damaged(f"not a file: '{display_bytes(entry.path)}'", hint=HINT)
        limit = POINTER if entry.stored is StoredAs.PIECES else budget.blob
        if size > limit:
            raise _too_much(f"'{display_bytes(entry.path)}' inflates to {size:,} bytes")
        total += read_pointer(contents.blob(entry.oid)).size if entry.stored is StoredAs.PIECES else size
        if total > min(budget.bytes, free_bytes):
            limit_text = "than fits on the disk" if total > free_bytes else f"than {budget.bytes:,} bytes"
            raise _too_much(f"more {limit_text}", forcible=total <= free_bytes)
    for entry in files:
        if entry.stored is StoredAs.PIECES:
            _check_pieces(entry, contents, sizes, budget)
    return total


def _files(pairs: Iterable[DirectoryPair]) -> list[Entry]:
    """Return each file once, also if it has several names."""
    found: dict[object, Entry] = {}
    for pair in pairs:
        for entry in pair.after.entries.values() if pair.after is not None else ():
            if entry.kind is EntryKind.FILE and entry.oid is not None:
                path = shown_path(pair.root, entry.path)
                one = path if entry.link_group is None else (entry.link_group, entry.oid, entry.stored)
                found.setdefault(one, entry)
    return list(found.values())


def _check_pieces(entry: Entry, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits) -> None:
    assert entry.oid is not None
    sizes_by_id = read_pointer(contents.blob(entry.oid))
    remaining = LAST_PIECES + sizes_by_id.size // SMALL_PIECE
    total = 0
    lengths: dict[bytes, list[bytes]] = {}
    for run in _listed(sizes_by_id.tree, contents, sizes, budget):
        if run not in lengths:
            lengths[run] = _listed(run, contents, sizes, budget)
            _check_each(entry.path, lengths[run], sizes)
        known = sizes.of_many(())
        total += sum(known[piece].size for piece in lengths[run])
        remaining -= len(lengths[run])
        if total > sizes_by_id.size or remaining < 0:
            break
    if total != sizes_by_id.size or remaining < 0:
        raise Damaged(
            f"the chunks do not have the size of the file: '{display_bytes(entry.path)}'", hint=HINT
        )


def _check_each(path: EnvPath, pieces: list[bytes], sizes: HeaderReader) -> None:
    known = sizes.of_many(pieces)
    if any(known[piece].kind != "blob" or known[piece].size > MAX_SIZE for piece in pieces):
        raise Damaged(f"a chunk is too large: '{display_bytes(path)}'", hint=HINT)


def _listed(tree: bytes, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits) -> list[bytes]:
    if sizes.of(tree).size > budget.metadata_object:
        raise Damaged(f"a tree of chunks is too large: {tree.hex()}", hint=HINT)
    kind, data = contents.read(tree)
    if kind != b"tree":
        raise Damaged(f"object {tree.hex()} is not a tree of chunks", hint=HINT)
    return [oid for _, _, oid in decode_tree(data, len(tree))]


def _too_much(what: str, *, forcible: bool = True) -> Refused:
    hint = "use --force if you trust its author" if forcible else "free some space, or restore a part of it"
    return Refused(f"this unsigned snapshot is too large: {what}", hint=hint)


# Owners, privileges and repositories of an unsigned snapshot are not trusted: it is reduced to plain files of this user
# (pure).

DEVICES = {
    EntryKind.SOCKET: "a socket",
    EntryKind.CHARACTER_DEVICE: "a device",
    EntryKind.BLOCK_DEVICE: "a device",
}
PRIVILEGES = 0o7000
WORLD_WRITABLE = 0o002
SPACES = (b"security.", b"trusted.", b"system.")
"""Attributes that grant privileges, or that only an administrator sets."""

MODE = "its mode was not restored"
ATTRIBUTES = "attributes were not restored"
CONFIG = "its configuration was reduced to the repository format"
CONFIG_KEPT = "the present configuration of a repository stays"
OWNERS = "owners were not restored: all files are yours"

Key = tuple[bytes, EnvPath]


class Owner(NamedTuple):
    """The owner of all restored files."""

    uid: int
    gid: int


class Findings(NamedTuple):
    """Dropped paths and reduced configurations of an unsigned snapshot."""

    dropped: Mapping[EnvPath, str]
    """Displayed paths that are dropped with everything below them, and why."""
    configs: Mapping[Key, tuple[ObjectId, bytes]]
    """The reduced configurations of repositories."""
    owner: Owner

    @property
    def blobs(self) -> dict[bytes, bytes]:
        """Return contents that are in no snapshot."""
        return dict(self.configs.values())

    def rules(self, rules: PlanRules) -> PlanRules:
        """Return the rules of a plan extended by the dropped paths."""

        def keep(path: EnvPath, directory: bool) -> str | None:
            reason = rules.keep(path, directory)
            return reason if reason is not None else self.dropped.get(path)

        return replace(rules, keep=keep)

    def reduced(self, pair: DirectoryPair) -> DirectoryPair:
        """Return a directory with reduced entries."""
        if pair.after is None:
            return pair
        own = self._entry(pair.root, pair.after.own)
        entries = {name: self._entry(pair.root, entry) for name, entry in pair.after.entries.items()}
        return pair._replace(after=DirectoryListing(own, entries))

    def losses(self, plan: RestorePlan, pairs: Iterable[DirectoryPair]) -> Iterator[SkippedPath]:
        """Yield what a plan drops or reduces; `pairs`: the directories as they are in the snapshot."""
        for left in plan.skipped:
            if self.dropped.get(left.path) == left.why:
                yield left
        written_paths = _written_paths(plan)
        other_owners = False
        for root, entry in _all_entries(pairs):
            shown = shown_path(root, entry.path)
            if shown in written_paths:
                other_owners = other_owners or (entry.uid, entry.gid) != self.owner
                yield from (SkippedPath(shown, reason) for reason in self._changes(root, entry))
        if other_owners:
            yield SkippedPath(EnvPath(b""), OWNERS)

    def _changes(self, root: bytes, entry: Entry) -> Iterator[str]:
        now = self._entry(root, entry)
        if now.oid != entry.oid:
            yield CONFIG
        elif now.mode != entry.mode and entry.kind is not EntryKind.LINK:
            yield MODE
        if now.xattrs != entry.xattrs:
            yield ATTRIBUTES

    def _entry(self, root: bytes, entry: Entry) -> Entry:
        oid, _ = self.configs.get((root, entry.path), (entry.oid, b""))
        mode, xattrs = safe_mode(entry), tuple(x for x in entry.xattrs if not x[0].startswith(SPACES))
        if oid != entry.oid:
            return replace(
                entry, oid=oid, stored=StoredAs.PLAIN, mode=0o644, xattrs=xattrs, link_group=None,
                uid=self.owner.uid, gid=self.owner.gid,
            )  # fmt: skip
        return replace(entry, mode=mode, xattrs=xattrs, uid=self.owner.uid, gid=self.owner.gid)


def safe_mode(entry: Entry) -> int:
    """Return the mode without set-id bits and write permission for others."""
    if entry.kind is EntryKind.LINK:
        return entry.mode
    mode = entry.mode & ~(PRIVILEGES | WORLD_WRITABLE)
    # Its owner must be able to remove it.
    return mode | 0o700 if entry.kind is EntryKind.DIRECTORY else mode


def executables(plan: RestorePlan) -> tuple[EnvPath, ...]:
    """Return the new or changed files of a plan that can be executed."""
    found = []
    for step in plan.steps:
        was = step.before is not None and bool(step.before.mode & 0o111) and step.before.oid
        if step.after is not None and _is_program(step.after) and was != step.after.oid:
            found.append(step.shown)
        found += [shown_path(step.root, entry.path) for entry in step.below if _is_program(entry)]
    return tuple(found)


def _is_program(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and bool(entry.mode & 0o111)


def _all_entries(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, Entry]]:
    """Yield the root and entry of everything; of a directory its own entry."""
    for pair in pairs:
        if pair.after is not None:
            yield pair.root, pair.after.own
            for entry in pair.after.entries.values():
                if entry.kind is not EntryKind.DIRECTORY:
                    yield pair.root, entry


def _written_paths(plan: RestorePlan) -> set[EnvPath]:
    found = set()
    for step in plan.steps:
        if step.after is not None:
            found.add(step.shown)
        found.update(shown_path(step.root, entry.path) for entry in step.below)
    found.update(
        shown_path(directory.root, directory.path)
        for directory in plan.directories
        if directory.after is not None
    )
    return found


# The paths of a manifest, also those that are in no git tree: empty directories, sockets, additional roots.


class _Objects:
    def __init__(self, reader: CatFile) -> None:
        self._reader = reader

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        found = self._reader.read(oid.hex())
        if found is None:
            raise Damaged(f"an object is missing: {oid.hex()}")
        return found.kind.encode("ascii"), found.data


def manifested_paths(git: Git, tree: str) -> Iterator[tuple[bytes, bool]]:
    """Yield each displayed path, and whether it is a directory; without the tops."""
    with CatFile(git, max_size=BUDGET.size) as reader:
        manifest_reader = SnapshotReader(_Objects(reader), bytes.fromhex(tree))
        for outer in manifest_reader.manifest:
            for inner in manifest_reader.shards_below(outer):
                stored = manifest_reader.stored_at(outer, inner)
                place = manifest_reader.place(stored)
                if place.path != TOP:
                    yield shown_path(place.root, place.path), True
                for row in scan_shard(manifest_reader.text(stored)).rows:
                    if row.kind is not EntryKind.DIRECTORY:
                        path = place.path + b"/" + row.name if place.path else row.name
                        yield shown_path(place.root, EnvPath(path)), False


# Names that version control programs obey, in all spellings that a file system may accept (pure). File systems that
# ignore case, HFS+ and NTFS treat several spellings as one name. git protects `.git` in all of them on every system;
# this
# module does the same for everything inside a repository.

HOOKS_DIRECTORY = b"hooks"
CONFIG_FILE = b"config"
NAMED_BY_USERS = frozenset((b"refs", b"logs"))
"""Directories of a repository in which users choose the names."""
FUTURE = frozenset((b"modules", b"worktrees"))
"""Directories of a repository in which git creates further git directories."""
OBEYED_ANYWHERE = frozenset((b"config.worktree", b"commondir"))
OBEYED_FILES = frozenset(
    (
        *(b"info/attributes", b"rebase-merge", b"rebase-apply", b"sequencer", b"remotes", b"branches"),
        *(b"objects/info/alternates", b"objects/info/http-alternates"),
        # Approved commands, hook scripts and keys of git-envhist itself.
        b"envhist",
    )
)
OBEYED_AT_TOP = frozenset(
    (HOOKS_DIRECTORY, CONFIG_FILE, *OBEYED_ANYWHERE, *(path.partition(b"/")[0] for path in OBEYED_FILES))
)

OTHER_SYSTEMS = {
    b".hg": frozenset((b"hgrc", b"hgrc-not-shared", b"sharedpath")),
    b".sl": frozenset((b"config", b"hgrc", b"sharedpath")),
    b".jj": frozenset(
        (
            *(b"repo/config.toml", b"repo/config-id", b"workspace-config.toml", b"workspace-config-id"),
            b"config.toml",
        )
    ),
    b".bzr": frozenset((b"branch/branch.conf", b"branch/location", b"checkout/views")),
    b".pijul": frozenset((b"config", b"config.toml")),
    b"_darcs": frozenset((b"prefs/defaults",)),
}
"""Directories of other systems, and the files in each that name programs or other places."""
JJ_REPOSITORY = b".jj/repo"
"""A directory; a file of this name contains the path of a repository elsewhere."""
JJ_TARGET = b".jj/repo/store/git_target"
JJ_TARGETS = frozenset((b"git", b"../../../.git"))
"""The places within its own directory that jj uses for the git repository."""

_IGNORED = pattern(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
_SHORT = pattern(rb"[^~]{1,6}~[0-9]{1,5}(?:\.[^.]{0,3})?\Z")


def folded(name: bytes) -> bytes:
    """Return one spelling for all names that some file system treats as equal."""
    name = _IGNORED.sub(b"", name.partition(b"\\")[0].partition(b":")[0]).rstrip(b" .")
    if name.isascii():
        name = name.lower()
    else:
        text = name.decode("utf-8", "surrogateescape")
        folded_text = unicodedata.normalize("NFKC", text.casefold()).casefold()
        name = folded_text.encode("utf-8", "surrogateescape")
    return _LONG.get(name, name)


def is_short(name: bytes) -> bool:
    """Return whether a name has the form of those that FAT and NTFS give to files with longer names."""
    return _SHORT.match(name) is not None


_LONG = {system[1:] + b"~1": system for system in OTHER_SYSTEMS if system.startswith(b".")}
_LONG |= {b"common~%d" % number: b"commondir" for number in range(1, 5)}


# Refuse to write an unsigned snapshot into a directory whose files programs obey: the next commit would run any file
# written to `.git/hooks`. The rules above judge only paths below the target directory.

GIT_DIRECTORY_PARTS = ("HEAD", "objects", "refs")
PLACES = ("core.hooksPath", "init.templateDir")
"""Configured directories whose files git runs, or copies to where it runs them."""


class PlaceObeyed(Refused):
    """The target directory is in a place whose files a version control program obeys."""

    code = "place-obeyed"


def refuse_obeyed_place(directory: str, git: Git, top: str) -> None:
    """Raise `PlaceObeyed` if a directory is in a repository's own directory, or in one of hooks.

    `git`, `top`: the configuration that names directories of hooks, and what their paths are relative to.
    """
    root = os.path.realpath(directory)
    found = next(_directories_above(root), None) or next(_configured(root, git, top), None)
    if found is not None:
        raise PlaceObeyed(
            f"this snapshot is unsigned, and programs obey the files in '{found}'",
            hint="write it to a directory elsewhere, and inspect it there",
        )


def _directories_above(root: str) -> Iterator[str]:
    """Yield the repositories' own directories that contain a path, or are it."""
    place = root
    while place != os.path.dirname(place):
        above, name = os.path.split(place)
        is_git = all(os.path.lexists(os.path.join(place, part)) for part in GIT_DIRECTORY_PARTS)
        plain = folded(os.fsencode(name))
        if is_git or plain == b".git" or plain in OTHER_SYSTEMS:
            yield place
        place = above


def _configured(root: str, git: Git, top: str) -> Iterator[str]:
    for key in PLACES:
        done = git.try_run("config", "--type=path", "-z", "--get-all", key)
        for value in done.out.split(b"\0")[:-1] if done.status == 0 else ():
            place = os.path.realpath(os.path.join(top, os.fsdecode(value)))
            if f"{root}/".startswith(place.rstrip("/") + "/"):
                yield place


# The target of a symbolic link (pure). Links of the same snapshot are followed, because all of them will exist:
# `a -> b/..` depends on whether `b` is a directory or a link to `c/d`.

MAX_TARGET = 4095
MAX_TURNS = 40
"""The maximum number of links that a kernel follows."""
MAX_STEPS = 4096

ABSOLUTE = "a link to an absolute path"
LEAVES = "a link to a path outside"
INTO_GIT = "a link into a repository's own directory"
CIRCLE = "a link in a loop"
NO_PATH = "a link without a valid target"


def is_git(name: bytes) -> bool:
    """Return whether git, on some file system, treats this name as that of its own directory."""
    return name.lower() == b".git" or (must_escape(name) and not name.lower().startswith(_FILES))


_FILES = (b".gitmodules", b".gitattributes", b"gitmod", b"gitatt", b"gi7eba", b"gi7d29")


def unsafe_link_reason(path: bytes, targets: Mapping[bytes, bytes]) -> str | None:
    """Return why the link at a path must not be created; `targets`: all links by path below one root."""
    target = targets[path]
    if not target or len(target) > MAX_TARGET or b"\0" in target:
        return NO_PATH
    present = path.split(b"/")[:-1]
    todo = target.split(b"/")[::-1]
    if target.startswith(b"/"):
        return ABSOLUTE
    links_followed = steps = 0
    while todo:
        name = todo.pop()
        steps += 1
        if name in (b"", b"."):
            continue
        if name == b"..":
            if not present:
                return LEAVES
            present.pop()
            continue
        if is_git(name):
            return INTO_GIT
        present.append(name)
        next_target = targets.get(b"/".join(present))
        if next_target is not None:
            links_followed += 1
            if links_followed > MAX_TURNS:
                return CIRCLE
            if next_target.startswith(b"/"):
                return LEAVES
            present.pop()
            todo += next_target.split(b"/")[::-1]
        if steps > MAX_STEPS:
            return CIRCLE
    return None


# Repositories inside an unsigned snapshot (pure). git runs what a repository's configuration and hooks name as soon as
# a prompt asks for its status. A directory is a repository if git will treat it as one after the restore: by its name,
# or
# because it will contain HEAD, objects and refs, new or existing.

PARTS = frozenset((b"head", b"objects", b"refs"))
BORROWING = frozenset((b"head", b"commondir"))
"""Also a repository: the rest of it is elsewhere."""

POINTS_AWAY = "it points to a repository elsewhere"
HOOKS = "hooks are not restored"
OBEYED = "git obeys it"
OTHER_OBEYED = "a version control program obeys it"
GIT_LINK = "a link in a repository's own directory"
NO_FILE = "not a plain file, in a repository's own directory"
SHORT_NAME = "a short name in a repository's own directory"
FORMING = "it would turn an existing directory into a repository"

_TRUTH = frozenset((b"true", b"false"))
KEPT_SETTINGS: Mapping[bytes, frozenset[bytes]] = {
    b"core.repositoryformatversion": frozenset((b"0", b"1")),
    b"core.filemode": _TRUTH,
    b"core.bare": _TRUTH,
    b"core.ignorecase": _TRUTH,
    b"core.precomposeunicode": _TRUTH,
    b"core.symlinks": _TRUTH,
    b"core.logallrefupdates": _TRUTH | {b"always"},
    b"extensions.objectformat": frozenset((b"sha1", b"sha256")),
    b"extensions.refstorage": frozenset((b"files", b"reftable")),
}
"""Settings that describe how a repository is stored; none of them names a program, a file or a place."""

Directory = tuple[bytes, bytes]
"""A root and a directory in it."""
ExistingNames = Callable[[bytes, bytes], Collection[bytes]]
"""Return the names that exist already in a directory of a root."""


def nothing_exists(root: bytes, path: bytes) -> Collection[bytes]:
    """Return no name: the target directory is new."""
    return ()


class Repositories(NamedTuple):
    """The directories that git will treat as repositories after the restore."""

    inside: frozenset[Directory]
    forming: frozenset[Directory]
    """Directories with files that git obeys, which only the restore would turn into repositories."""


def repositories(pairs: Iterable[DirectoryPair], existing: ExistingNames = nothing_exists) -> Repositories:
    """Return the repositories of the side `after`, combined with what exists at the same places."""
    inside, forming = set(), set()
    for pair in pairs:
        if pair.after is None:
            continue
        key = pair.root, pair.path
        new_names = {folded(name) for name in pair.after.entries}
        present = {folded(name) for name in existing(*key)}
        if is_git(pair.path.rpartition(b"/")[2]):
            inside.add(key)
        elif _is_repository(new_names | present):
            inside.add(key)
            if not _is_repository(present) and present & OBEYED_AT_TOP:
                forming.add(key)
    return Repositories(frozenset(inside), frozenset(forming))


def _is_repository(names: set[bytes]) -> bool:
    return names >= PARTS or names >= BORROWING


def git_skip_reason(root: bytes, entry: Entry, found: Repositories) -> str | None:
    """Return why an entry is dropped because of a repository; None if it is not."""
    above, _, name = entry.path.rpartition(b"/")
    if is_git(name) and entry.kind is not EntryKind.DIRECTORY:
        return POINTS_AWAY
    if (root, above) in found.forming and folded(name) == b"head":
        return FORMING
    around = [
        [folded(part) for part in entry.path[len(one) + 1 if one else 0 :].split(b"/")]
        for one in _around(root, above, found.inside)
    ]
    named_by_users = any(len(below) > 1 and below[0] in NAMED_BY_USERS for below in around)
    has_config = (root, above) in found.inside
    for below in around:
        reason = _skip_in_git(entry, below, has_config)
        if reason is not None and not (named_by_users and reason in (HOOKS, OBEYED)):
            return reason
    return _skip_in_other_systems(entry)


def _skip_in_git(entry: Entry, below: list[bytes], has_config: bool) -> str | None:
    """`below`: the path within a repository; `has_config`: the caller reduces the file next to HEAD."""
    if entry.kind is EntryKind.LINK:
        return GIT_LINK
    if entry.kind not in (EntryKind.FILE, EntryKind.DIRECTORY):
        return NO_FILE
    if is_short(entry.path.rpartition(b"/")[2]):
        return SHORT_NAME
    in_future = below[0] in FUTURE
    if below == [HOOKS_DIRECTORY] or (in_future and below[-1] == HOOKS_DIRECTORY):
        return HOOKS
    if in_future and below[-1] == CONFIG_FILE and entry.kind is EntryKind.FILE and not has_config:
        return OBEYED
    if below[-1] in OBEYED_ANYWHERE or b"/".join(below) in OBEYED_FILES:
        return OBEYED
    return None


def _skip_in_other_systems(entry: Entry) -> str | None:
    """Return why an entry of Mercurial, jj or a similar system is dropped; their directories are known by name."""
    names = [folded(name) for name in entry.path.split(b"/")]
    for number, name in enumerate(names):
        files = OTHER_SYSTEMS.get(name)
        if files is None:
            continue
        if entry.kind is EntryKind.LINK:
            return GIT_LINK
        path = b"/".join(names[number:])
        if path == JJ_REPOSITORY and entry.kind is not EntryKind.DIRECTORY:
            return POINTS_AWAY
        if path.partition(b"/")[2] in files:
            return OTHER_OBEYED
    return None


def is_pointer(entry: Entry) -> bool:
    """Return whether a file names, for jj, the git repository to use."""
    path = b"/".join(folded(name) for name in entry.path.split(b"/"))
    return entry.kind is EntryKind.FILE and (b"/" + path).endswith(b"/" + JJ_TARGET)


def is_config(root: bytes, entry: Entry, found: Repositories) -> bool:
    """Return whether an entry is the configuration of a repository."""
    above, _, name = entry.path.rpartition(b"/")
    is_file = entry.kind is EntryKind.FILE
    return is_file and folded(name) == CONFIG_FILE and (root, above) in found.inside


def _around(root: bytes, above: bytes, inside: frozenset[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield every repository that contains a directory, or is it."""
    while True:
        if (root, above) in inside:
            yield above
        if not above:
            return
        above = EnvPath(above.rpartition(b"/")[0])


def reduced_config(listed: bytes) -> bytes:
    """Return a configuration with only the repository format, given the output of `git config --list -z`."""
    sizes_by_id = {b"core.repositoryformatversion": b"0"}
    for item in listed.split(b"\0"):
        key, has_value, value = item.partition(b"\n")
        key, value = key.lower(), value.lower() if has_value else b"true"
        if value in KEPT_SETTINGS.get(key, ()):
            sizes_by_id[key] = value
    lines = []
    for section in (b"core", b"extensions"):
        found = [key for key in KEPT_SETTINGS if key in sizes_by_id and key.startswith(section + b".")]
        if found:
            lines.append(b"[%b]\n" % section)
            lines += [b"\t%b = %b\n" % (key.partition(b".")[2], sizes_by_id[key]) for key in found]
    return b"".join(lines)


NO_KEY = "it is sealed with a key that you do not have"
UNKNOWN_SPACE = 16 << 30
"""The limit of bytes if the free space is unknown."""
MAX_CONFIG = 1 << 20


def inspect(
    git: Git,
    contents: ObjectReader,
    tree: str,
    *,
    free_bytes: int,
    force: bool,
    links: bool = True,
    existing: ExistingNames = nothing_exists,
) -> tuple[list[DirectoryPair], Findings]:
    """Return every directory of a snapshot and the findings; raise `Damaged` or `Refused` if limits are exceeded.

    `free_bytes`: space at the target; `force`: no limits, and with `links` links may lead anywhere; `existing`: returns
    the names that exist at the target.
    """
    budget = UNBOUNDED if force else DEFAULT_LIMITS
    with closing(HeaderReader(git)) as sizes:
        pairs = list_directories(
            differing_directories(LimitedReader(contents, sizes), None, bytes.fromhex(tree)), budget
        )
        check_sizes(pairs, contents, sizes, budget, free_bytes)
        inspection = _Inspector(git, contents, sizes, pairs, existing)
        dropped = dict(inspection.dropped(unsafe_links=force and links))
        configs = dict(inspection.configs(dropped))
    return pairs, Findings(dropped, configs, Owner(os.geteuid(), os.getegid()))


class _Inspector:
    def __init__(
        self,
        git: Git,
        contents: ObjectReader,
        sizes: HeaderReader,
        pairs: list[DirectoryPair],
        existing: ExistingNames,
    ) -> None:
        self._git = git
        self._contents = contents
        self._sizes = sizes
        self._pairs = pairs
        self._repositories = repositories(pairs, existing)

    def dropped(self, *, unsafe_links: bool) -> Iterator[tuple[EnvPath, str]]:
        """Yield the displayed path of each dropped entry, and why."""
        targets = self._targets()
        for root, entry in _entries(self._pairs):
            reason = git_skip_reason(root, entry, self._repositories) or self._skip_reason(root, entry)
            if reason is None and entry.kind is EntryKind.LINK:
                reason = unsafe_link_reason(entry.path, targets.get(root, {}))
                if unsafe_links and reason != NO_PATH:
                    reason = None
            if reason is not None:
                yield shown_path(root, entry.path), reason

    def configs(self, dropped: Mapping[EnvPath, str]) -> Iterator[tuple[Key, tuple[ObjectId, bytes]]]:
        """Yield the reduced configuration of each repository whose configuration must be reduced."""
        for root, entry in _entries(self._pairs):
            if is_config(root, entry, self._repositories) and shown_path(root, entry.path) not in dropped:
                data = self._bytes(root, entry)
                reduced = reduced_config(self._list(data or b""))
                if reduced != data and entry.oid is not None:
                    oid = object_id(b"blob", reduced, "sha1" if len(entry.oid) == 20 else "sha256")
                    yield (root, entry.path), (oid, reduced)

    def _targets(self) -> dict[bytes, dict[bytes, bytes]]:
        links = [(root, entry) for root, entry in _entries(self._pairs) if entry.kind is EntryKind.LINK]
        known = self._sizes.of_many(entry.oid for _, entry in links if entry.oid is not None)
        found: dict[bytes, dict[bytes, bytes]] = {}
        for root, entry in links:
            target = b""
            if (
                entry.oid is not None
                and entry.stored is StoredAs.PLAIN
                and known[entry.oid].size <= MAX_TARGET
            ):
                target = self._contents.blob(entry.oid)
            found.setdefault(root, {})[entry.path] = target
        return found

    def _skip_reason(self, root: bytes, entry: Entry) -> str | None:
        if entry.kind in DEVICES:
            return f"{DEVICES[entry.kind]} is not restored"
        if is_pointer(entry) and (self._bytes(root, entry) or b"").strip() not in JJ_TARGETS:
            return POINTS_AWAY
        if entry.stored is StoredAs.SEALED and entry.oid is not None and self._bytes(root, entry) is None:
            return NO_KEY
        return None

    def _bytes(self, root: bytes, entry: Entry) -> bytes | None:
        """Return the contents of a file to inspect; None if it cannot be read or is too large."""
        if entry.oid is None or entry.stored not in (StoredAs.PLAIN, StoredAs.SEALED):
            return None
        if entry.stored is StoredAs.PLAIN and self._sizes.of(entry.oid).size > MAX_CONFIG:
            return None
        blob = self._contents.blob(entry.oid)
        if entry.stored is StoredAs.PLAIN:
            return blob
        try:
            return self._contents.open_sealed(shown_path(root, entry.path), blob)
        except SealingError:
            return None

    def _list(self, config: bytes) -> bytes:
        """Return the settings as git parses them; git follows and runs nothing in it."""
        listed = self._git.try_run("config", "--file", "-", "--no-includes", "--null", "--list", stdin=config)
        return listed.out if listed.status == 0 else b""


def _entries(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, Entry]]:
    for pair in pairs:
        for entry in pair.after.entries.values() if pair.after is not None else ():
            yield pair.root, entry


def free_bytes_at(directory: str) -> int:
    """Return the free bytes of the file system of a directory, or of the nearest existing one above it."""
    found = os.statvfs(nearest_directory(directory))
    # File systems without a size report zero everywhere.
    return found.f_bavail * found.f_frsize if found.f_blocks else UNKNOWN_SPACE


def names_lister(bases: Mapping[bytes, bytes]) -> ExistingNames:
    """Return a function that lists a directory of the environment; no name if it cannot be listed."""

    def listed(root: bytes, path: bytes) -> list[bytes]:
        base = bases.get(root)
        if base is None:
            return []
        try:
            return os.listdir(os.path.join(base, path) if path else base)
        except OSError:
            return []

    return listed


def nearest_directory(place: str) -> str:
    """Return a directory, or the nearest existing one above it."""
    place = os.path.abspath(place)
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    return place


# Unsigned sides of a merge.


class MergeFindings(Findings):
    """The findings about the sides of a merge; what is as it is now is not reduced."""

    __slots__ = ()

    def reduced(self, pair: DirectoryPair) -> DirectoryPair:
        """Return a directory with reduced entries where the merge changes them."""
        if pair.after is None:
            return pair
        before = pair.before
        known = {} if before is None else before.entries
        own = self._changed(pair.root, None if before is None else before.own, pair.after.own)
        entries = {
            name: self._changed(pair.root, known.get(name), entry)
            for name, entry in pair.after.entries.items()
        }
        return pair._replace(after=DirectoryListing(own, entries))

    def _changed(self, root: bytes, before: Entry | None, after: Entry) -> Entry:
        if before is None:
            return self._entry(root, after)
        if before == after:
            return after
        found = after if before.oid == after.oid else self._entry(root, after)
        if before.mode != after.mode:
            found = replace(found, mode=safe_mode(after))
        if before.xattrs != after.xattrs:
            found = replace(found, xattrs=tuple(x for x in after.xattrs if not x[0].startswith(SPACES)))
        # The owner is never that of the unsigned side.
        return replace(found, uid=before.uid, gid=before.gid)


class InspectedSources(NamedTuple):
    """The findings about all unsigned snapshots of a merge, and their directories."""

    findings: MergeFindings
    pairs: list[DirectoryPair]

    @classmethod
    def of(
        cls,
        findings: Sequence[Findings],
        pairs: Sequence[list[DirectoryPair]],
        existing: ExistingNames = lambda root, path: (),
    ) -> InspectedSources:
        """Join the findings; a path that one of them drops is dropped, and a configuration that exists is kept."""
        dropped = {path: why for one in findings for path, why in one.dropped.items()}
        for root, path in (key for one in findings for key in one.configs):
            above, _, name = path.rpartition(b"/")
            # Reduced, it would lose the settings of this repository too.
            if folded(name) in map(folded, existing(root, above)):
                dropped.setdefault(shown_path(root, path), CONFIG_KEPT)
        configs = {key: reduced for one in findings for key, reduced in one.configs.items()}
        everything = [pair for listed in pairs for pair in listed]
        return cls(MergeFindings(dropped, configs, findings[0].owner), everything)

    def with_warnings(self, planned: RestoreResult) -> RestoreResult:
        """Return a plan with what the inspection takes from it."""
        warned = untrusted_warnings(planned, self.findings, self.pairs)
        return replace(warned, losses=tuple(dict.fromkeys((*planned.losses, *warned.losses))))


# Warnings about an unsigned snapshot.


def untrusted_warnings(
    restored: RestoreResult, findings: Findings, pairs: Iterable[DirectoryPair]
) -> RestoreResult:
    """Return a result with the losses, and a warning about new programs."""
    plan = restored.plan
    if not plan.steps and not plan.directories:
        return restored
    number = len(executables(plan))
    count = {0: "no program is", 1: "one program is"}.get(number, f"{number:,} programs are")
    warning = f"run restored files only if you trust the author of the snapshot ({count} new or changed)"
    return replace(
        restored,
        losses=tuple(findings.losses(plan, pairs)),
        warnings=(*restored.warnings, warning),
    )


def write_blobs(git: Git, blobs: Mapping[bytes, bytes]) -> None:
    """Write blobs that are in no snapshot into the repository, so that an interrupted restore can read them."""
    for oid, data in blobs.items():
        written = git.run("hash-object", "-w", "-t", "blob", "--no-filters", "--stdin", stdin=data)
        if written.strip() != oid.hex().encode("ascii"):
            raise GitFailed("git returned another object id for the written contents")
