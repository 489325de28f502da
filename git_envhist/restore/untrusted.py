"""Inspect the whole of an unsigned snapshot before anything is planned; nothing is written.

A link is judged by all the links that come with it, a directory by all that will be in it: what comes, and what exists
at its place already.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from git_envhist.diff.walk import differing_directories
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
from git_envhist.objects.reader import ObjectReader
from git_envhist.objects.trees import decode_tree, object_id
from git_envhist.restore.plan import PlanRules
from git_envhist.snapshots.chunks import MAX_SIZE, read_pointer
from git_envhist.snapshots.manifest import BUDGET, scan_shard
from git_envhist.snapshots.names import must_escape
from git_envhist.snapshots.reader import SnapshotReader
from git_envhist.text import show

# How much somebody else's snapshot may ask for, told from the headers of its objects before any is inflated.
#
# A kilobyte that inflates to gigabytes, a file said to be longer than the disk, directories in directories without end:
# each is refused here, before anything is written. What is only large, not absurd, is restored with --force.

POINTER = 256
"""No pointer to pieces is longer."""
SMALL_PIECE = 4096
LAST_PIECES = 64
HINT = "it is not as a capture writes it: restore another snapshot"


class SnapshotLimits(NamedTuple):
    """The most that a snapshot which no key of ours signed may hold."""

    bytes: int = 8 << 30
    blob: int = 64 << 20
    """Of one object that is read as a whole; captures cut files of 8 MiB and more into pieces."""
    entries: int = 2_000_000
    depth: int = 1024
    metadata: int = 256 << 20
    """Of all trees and manifests together."""
    metadata_object: int = 64 << 20


DEFAULT_LIMITS = SnapshotLimits()
UNBOUNDED = SnapshotLimits(bytes=1 << 62, blob=1 << 30, entries=1 << 62)
"""With --force: as much as there is room for."""


class LimitedReader:
    """Reads trees and manifests whose sizes are known beforehand."""

    def __init__(
        self, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits = DEFAULT_LIMITS
    ) -> None:
        self._contents = contents
        self._sizes = sizes
        self._budget = budget
        self._read = 0

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `Damaged` where it, or all together, are absurdly large."""
        size = self._sizes.of(oid).size
        self._read += size
        if size > self._budget.metadata_object or self._read > self._budget.metadata:
            raise Damaged(f"a tree or a manifest holds too much: {oid.hex()}", hint=HINT)
        return self._contents.read(oid)


def gather(pairs: Iterable[DirectoryPair], budget: SnapshotLimits) -> list[DirectoryPair]:
    """The directories of a snapshot, as long as they are not too many, nor too deep."""
    found = []
    entries = 0
    for pair in pairs:
        entries += 1 + (len(pair.after.entries) if pair.after is not None else 0)
        if entries > budget.entries:
            raise _too_much(f"it holds more than {budget.entries:,} paths")
        if pair.path.count(b"/") >= budget.depth:
            raise Damaged(f"a directory stands too deep: '{show(pair.path[:100])}…'", hint=HINT)
        found.append(pair)
    return found


def check_sizes(
    pairs: Iterable[DirectoryPair],
    contents: ObjectReader,
    sizes: HeaderReader,
    budget: SnapshotLimits,
    room: int,
) -> int:
    """How many bytes a snapshot would write; `Refused` where these are too many, `Damaged` where it lies about it."""
    files = _files(pairs)
    told = sizes.of_many(oid for entry in files if (oid := entry.oid) is not None)
    total = 0
    for entry in files:
        assert entry.oid is not None
        kind, size = told[entry.oid]
        if kind != "blob":
            raise Damaged(f"there is no file where one should be: '{show(entry.path)}'", hint=HINT)
        limit = POINTER if entry.stored is StoredAs.PIECES else budget.blob
        if size > limit:
            raise _too_much(f"'{show(entry.path)}' inflates to {size:,} bytes")
        total += read_pointer(contents.blob(entry.oid)).size if entry.stored is StoredAs.PIECES else size
        if total > min(budget.bytes, room):
            what = "than there is room for" if total > room else f"than {budget.bytes:,} bytes"
            raise _too_much(f"it holds more {what}", forcible=total <= room)
    for entry in files:
        if entry.stored is StoredAs.PIECES:
            _check_pieces(entry, contents, sizes, budget)
    return total


def _files(pairs: Iterable[DirectoryPair]) -> list[Entry]:
    """Each file once, also where it has many names."""
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
    told = read_pointer(contents.blob(entry.oid))
    most = LAST_PIECES + told.size // SMALL_PIECE
    total = 0
    lengths: dict[bytes, list[bytes]] = {}
    for run in _listed(told.tree, contents, sizes, budget):
        if run not in lengths:
            lengths[run] = _listed(run, contents, sizes, budget)
            _check_each(entry.path, lengths[run], sizes)
        known = sizes.of_many(())
        total += sum(known[piece].size for piece in lengths[run])
        most -= len(lengths[run])
        if total > told.size or most < 0:
            break
    if total != told.size or most < 0:
        raise Damaged(
            f"the pieces are not as long as the file is said to be: '{show(entry.path)}'", hint=HINT
        )


def _check_each(path: EnvPath, pieces: list[bytes], sizes: HeaderReader) -> None:
    known = sizes.of_many(pieces)
    if any(known[piece].kind != "blob" or known[piece].size > MAX_SIZE for piece in pieces):
        raise Damaged(f"a piece is larger than pieces are: '{show(path)}'", hint=HINT)


def _listed(tree: bytes, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits) -> list[bytes]:
    if sizes.of(tree).size > budget.metadata_object:
        raise Damaged(f"a tree of pieces holds too much: {tree.hex()}", hint=HINT)
    kind, data = contents.read(tree)
    if kind != b"tree":
        raise Damaged(f"object {tree.hex()} is no tree of pieces", hint=HINT)
    return [oid for _, _, oid in decode_tree(data, len(tree))]


def _too_much(what: str, *, forcible: bool = True) -> Refused:
    hint = "--force, if you trust who made it" if forcible else "make room, or restore a part of it"
    return Refused(f"this snapshot, which no key that is here signed, asks for too much: {what}", hint=hint)


# What becomes of a snapshot that no key of ours signed before a plan is made of it (pure).
#
# What it says about owners, privileges and repositories is somebody else's word: it is reduced to what a directory of
# plain files needs, and everything that is not brought, or is brought otherwise, is told.

DEVICES = {
    EntryKind.SOCKET: "a socket",
    EntryKind.CHARACTER_DEVICE: "a device",
    EntryKind.BLOCK_DEVICE: "a device",
}
PRIVILEGES = 0o7000
WORLD_WRITABLE = 0o002
SPACES = (b"security.", b"trusted.", b"system.")
"""Attributes that grant something, or that only an administrator sets."""

MODE = "its mode was not taken over"
ATTRIBUTES = "attributes were not taken over"
CONFIG = "its configuration was reduced to the form of the repository"
OWNERS = "owners were not taken over: all of it is yours"

Key = tuple[bytes, EnvPath]


class Owner(NamedTuple):
    """To whom everything will belong."""

    uid: int
    gid: int


class Findings(NamedTuple):
    """What was found in somebody else's snapshot."""

    dropped: Mapping[EnvPath, str]
    """Paths, as people see them, that are not brought, with all below them."""
    configs: Mapping[Key, tuple[ObjectId, bytes]]
    """Configurations of repositories: what each was reduced to."""
    owner: Owner

    @property
    def blobs(self) -> dict[bytes, bytes]:
        """The bytes that are in no snapshot."""
        return dict(self.configs.values())

    def rules(self, rules: PlanRules) -> PlanRules:
        """The rules of a plan, and what is not brought."""

        def keep(path: EnvPath, directory: bool) -> str | None:
            why = rules.keep(path, directory)
            return why if why is not None else self.dropped.get(path)

        return replace(rules, keep=keep)

    def sanitised(self, pair: DirectoryPair) -> DirectoryPair:
        """A directory as it may come."""
        if pair.after is None:
            return pair
        own = self._entry(pair.root, pair.after.own)
        entries = {name: self._entry(pair.root, entry) for name, entry in pair.after.entries.items()}
        return pair._replace(after=DirectoryListing(own, entries))

    def losses(self, plan: RestorePlan, pairs: Iterable[DirectoryPair]) -> Iterator[SkippedPath]:
        """What a plan does not bring, or brings otherwise, because of whose word it is; `pairs`: as they were told."""
        for left in plan.left_alone:
            if self.dropped.get(left.path) == left.why:
                yield left
        brought = _brought(plan)
        others = False
        for root, entry in _told(pairs):
            shown = shown_path(root, entry.path)
            if shown in brought:
                others = others or (entry.uid, entry.gid) != self.owner
                yield from (SkippedPath(shown, why) for why in self._changes(root, entry))
        if others:
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
    """The mode without what it would grant to others than its owner."""
    if entry.kind is EntryKind.LINK:
        return entry.mode
    mode = entry.mode & ~(PRIVILEGES | WORLD_WRITABLE)
    # Nobody shall need to be an administrator to get rid of it.
    return mode | 0o700 if entry.kind is EntryKind.DIRECTORY else mode


def executables(plan: RestorePlan) -> tuple[EnvPath, ...]:
    """The files of a plan that can be run and are new or changed."""
    found = []
    for step in plan.steps:
        was = step.before is not None and bool(step.before.mode & 0o111) and step.before.oid
        if step.after is not None and _runs(step.after) and was != step.after.oid:
            found.append(step.shown)
        found += [shown_path(step.root, entry.path) for entry in step.below if _runs(entry)]
    return tuple(found)


def _runs(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and bool(entry.mode & 0o111)


def _told(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, Entry]]:
    """(root, entry) of everything; of a directory what it says itself."""
    for pair in pairs:
        if pair.after is not None:
            yield pair.root, pair.after.own
            for entry in pair.after.entries.values():
                if entry.kind is not EntryKind.DIRECTORY:
                    yield pair.root, entry


def _brought(plan: RestorePlan) -> set[EnvPath]:
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


# The paths that a manifest names, also those that no git tree holds: empty directories, sockets, further roots.


class _Objects:
    def __init__(self, reader: CatFile) -> None:
        self._reader = reader

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        found = self._reader.read(oid.hex())
        if found is None:
            raise Damaged(f"an object is missing: {oid.hex()}")
        return found.kind.encode("ascii"), found.data


def manifested_paths(git: Git, tree: str) -> Iterator[tuple[bytes, bool]]:
    """Yield each path as people see it, and whether it is a directory; the tops are left out."""
    with CatFile(git, largest=BUDGET.size) as reader:
        half = SnapshotReader(_Objects(reader), bytes.fromhex(tree))
        for outer in half.manifest:
            for inner in half.shards_below(outer):
                stored = half.stored_at(outer, inner)
                place = half.place(stored)
                if place.path != TOP:
                    yield shown_path(place.root, place.path), True
                for row in scan_shard(half.text(stored)).rows:
                    if row.kind is not EntryKind.DIRECTORY:
                        path = place.path + b"/" + row.name if place.path else row.name
                        yield shown_path(place.root, EnvPath(path)), False


# Names that version control programs obey, as any file system may spell them (pure).
#
# A file system that ignores case, HFS+ and NTFS each take several spellings for one name. git protects `.git` in all of
# them on every system; the same is done here for everything inside a repository.

HOOKS_DIRECTORY = b"hooks"
CONFIG_FILE = b"config"
NAMED_BY_USERS = frozenset((b"refs", b"logs"))
"""Directories of a repository in which users choose the names."""
FUTURE = frozenset((b"modules", b"worktrees"))
"""Directories of a repository in which git makes further ones, some of them later."""
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
"""A directory; a file of this name holds the path of a repository elsewhere."""
JJ_TARGET = b".jj/repo/store/git_target"
JJ_TARGETS = frozenset((b"git", b"../../../.git"))
"""The places within its own directory that jj gives for the git repository."""

_IGNORED = pattern(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
_SHORT = pattern(rb"[^~]{1,6}~[0-9]{1,5}(?:\.[^.]{0,3})?\Z")


def folded(name: bytes) -> bytes:
    """Return one spelling for all names that some file system takes for the same."""
    name = _IGNORED.sub(b"", name.partition(b"\\")[0].partition(b":")[0]).rstrip(b" .")
    if name.isascii():
        name = name.lower()
    else:
        text = name.decode("utf-8", "surrogateescape")
        folded_text = unicodedata.normalize("NFKC", text.casefold()).casefold()
        name = folded_text.encode("utf-8", "surrogateescape")
    return _LONG.get(name, name)


def is_short(name: bytes) -> bool:
    """Whether a name has the form of those that FAT and NTFS give to files with longer names."""
    return _SHORT.match(name) is not None


_LONG = {system[1:] + b"~1": system for system in OTHER_SYSTEMS if system.startswith(b".")}
_LONG |= {b"common~%d" % number: b"commondir" for number in range(1, 5)}


# Refuse to write an unsigned snapshot where a version control program obeys what it finds.
#
# Into `.git/hooks`, a file of a snapshot would be run by the next commit, under whatever name it has. The rules for the
# repositories that a snapshot brings (`gitdirs`) do not see that, because they judge paths below the directory alone.

GIT_DIRECTORY_PARTS = ("HEAD", "objects", "refs")
PLACES = ("core.hooksPath", "init.templateDir")
"""Configured directories whose files git runs, or copies to where it runs them."""


class PlaceObeyed(Refused):
    """An unsigned snapshot was to be written where a version control program obeys what it finds."""

    code = "place-obeyed"


def refuse_obeyed_place(directory: str, git: Git, top: str) -> None:
    """Raise `PlaceObeyed` if a directory is in a repository's own directory, or in one of hooks.

    `git`, `top`: the configuration that names directories of hooks, and what their paths are relative to.
    """
    root = os.path.realpath(directory)
    found = next(_directories_above(root), None) or next(_configured(root, git, top), None)
    if found is not None:
        raise PlaceObeyed(
            f"no key that is here signed this snapshot, and programs obey what is in '{found}'",
            hint="write it to a directory outside of it, and look at it there",
        )


def _directories_above(root: str) -> Iterator[str]:
    """Yield the repositories' own directories that a path is in, or is itself."""
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


# Where a symbolic link leads (pure): out of the tree, into a repository's own directory, or nowhere harmful.
#
# The links of the same snapshot are followed, since they will all stand when the last is made: `a -> b/..` is one thing
# where `b` is a directory and another where it is a link to `c/d`.

MAX_TARGET = 4095
MAX_TURNS = 40
"""As many links as a kernel follows."""
MAX_STEPS = 4096

ABSOLUTE = "a link to an absolute path"
LEAVES = "a link that leads out"
INTO_GIT = "a link into a repository's own directory"
CIRCLE = "a link in a circle"
NO_PATH = "a link to what is no path"


def is_git(name: bytes) -> bool:
    """Whether git, on some file system, would take this name for that of its own directory."""
    return name.lower() == b".git" or (must_escape(name) and not name.lower().startswith(_FILES))


_FILES = (b".gitmodules", b".gitattributes", b"gitmod", b"gitatt", b"gi7eba", b"gi7d29")


def why_unsafe(path: bytes, targets: Mapping[bytes, bytes]) -> str | None:
    """Why the link at a path shall not be made; `targets`: of all links, by their paths below one root."""
    target = targets[path]
    if not target or len(target) > MAX_TARGET or b"\0" in target:
        return NO_PATH
    here = path.split(b"/")[:-1]
    todo = target.split(b"/")[::-1]
    if target.startswith(b"/"):
        return ABSOLUTE
    turns = steps = 0
    while todo:
        name = todo.pop()
        steps += 1
        if name in (b"", b"."):
            continue
        if name == b"..":
            if not here:
                return LEAVES
            here.pop()
            continue
        if is_git(name):
            return INTO_GIT
        here.append(name)
        onward = targets.get(b"/".join(here))
        if onward is not None:
            turns += 1
            if turns > MAX_TURNS:
                return CIRCLE
            if onward.startswith(b"/"):
                return LEAVES
            here.pop()
            todo += onward.split(b"/")[::-1]
        if steps > MAX_STEPS:
            return CIRCLE
    return None


# Decide what may come from the repositories within an unsigned snapshot (pure).
#
# git runs what a repository's configuration and hooks name as soon as somebody asks for its status. A directory counts
# as a repository if git would take it for one in the end: by its name, or because HEAD, objects and refs are in it, no
# matter which of these come and which exist already.

PARTS = frozenset((b"head", b"objects", b"refs"))
BORROWING = frozenset((b"head", b"commondir"))
"""A repository too: the rest of it is elsewhere."""

POINTS_AWAY = "it points to a repository elsewhere"
HOOKS = "hooks are not taken over"
OBEYED = "it commands git"
OTHER_OBEYED = "it commands a version control program"
GIT_LINK = "a link in a repository's own directory"
NO_FILE = "no plain file in a repository's own directory"
SHORT_NAME = "a short name in a repository's own directory"
FORMING = "it would make a repository of what exists there"

_TRUTH = frozenset((b"true", b"false"))
KEPT: Mapping[bytes, frozenset[bytes]] = {
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
"""What says how a repository is stored; nothing of it names a program, a file or a place."""

Directory = tuple[bytes, bytes]
"""A root and a directory in it."""
Standing = Callable[[bytes, bytes], Collection[bytes]]
"""The names that exist already in a directory of a root."""


def nothing_exists(root: bytes, path: bytes) -> Collection[bytes]:
    """Return no name: the place to restore to is new."""
    return ()


class Repositories(NamedTuple):
    """The directories that git would take for repositories after the restore."""

    inside: frozenset[Directory]
    forming: frozenset[Directory]
    """Those that hold something git obeys already, and that only the restore would make repositories."""


def repositories(pairs: Iterable[DirectoryPair], standing: Standing = nothing_exists) -> Repositories:
    """Return the repositories of the side after, joined with what exists at the same places."""
    inside, forming = set(), set()
    for pair in pairs:
        if pair.after is None:
            continue
        key = pair.root, pair.path
        coming = {folded(name) for name in pair.after.entries}
        here = {folded(name) for name in standing(*key)}
        if is_git(pair.path.rpartition(b"/")[2]):
            inside.add(key)
        elif _is_repository(coming | here):
            inside.add(key)
            if not _is_repository(here) and here & OBEYED_AT_TOP:
                forming.add(key)
    return Repositories(frozenset(inside), frozenset(forming))


def _is_repository(names: set[bytes]) -> bool:
    return names >= PARTS or names >= BORROWING


def git_skip_reason(root: bytes, entry: Entry, found: Repositories) -> str | None:
    """Return why an entry does not come, as far as repositories have to do with it."""
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
        why = _why_not_in_git(entry, below, has_config)
        if why is not None and not (named_by_users and why in (HOOKS, OBEYED)):
            return why
    return _why_not_in_others(entry)


def _why_not_in_git(entry: Entry, below: list[bytes], has_config: bool) -> str | None:
    """`below`: the path within a repository; `has_config`: the file next to HEAD is reduced by the caller."""
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


def _why_not_in_others(entry: Entry) -> str | None:
    """The same for Mercurial, jj and their like, whose directories are known by name alone."""
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
    """Return whether the content of a file says where jj finds its git repository."""
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
    """Return a configuration with the form of the repository alone, made from the output of `git config --list -z`."""
    told = {b"core.repositoryformatversion": b"0"}
    for item in listed.split(b"\0"):
        key, has_value, value = item.partition(b"\n")
        key, value = key.lower(), value.lower() if has_value else b"true"
        if value in KEPT.get(key, ()):
            told[key] = value
    lines = []
    for section in (b"core", b"extensions"):
        found = [key for key in KEPT if key in told and key.startswith(section + b".")]
        if found:
            lines.append(b"[%b]\n" % section)
            lines += [b"\t%b = %b\n" % (key.partition(b".")[2], told[key]) for key in found]
    return b"".join(lines)


NO_KEY = "it is sealed, and no key here opens it"
UNTOLD = 16 << 30
"""So many bytes may come from elsewhere to where nobody says how much room there is."""
MAX_CONFIG = 1 << 20


def inspect(
    git: Git,
    contents: ObjectReader,
    tree: str,
    *,
    room: int,
    force: bool,
    links: bool = True,
    standing: Standing = nothing_exists,
) -> tuple[list[DirectoryPair], Findings]:
    """Return every directory of a snapshot and the findings; `Damaged` or `Refused` if there is too much.

    `room`: bytes that fit; `force`: no limits, and with `links` these may lead anywhere; `standing`: names that exist
    at the place to restore to.
    """
    budget = UNBOUNDED if force else DEFAULT_LIMITS
    with closing(HeaderReader(git)) as sizes:
        pairs = gather(
            differing_directories(LimitedReader(contents, sizes), None, bytes.fromhex(tree)), budget
        )
        check_sizes(pairs, contents, sizes, budget, room)
        look = _Inspection(git, contents, sizes, pairs, standing)
        dropped = dict(look.dropped(unsafe_links=force and links))
        configs = dict(look.configs(dropped))
    return pairs, Findings(dropped, configs, Owner(os.geteuid(), os.getegid()))


class _Inspection:
    def __init__(
        self,
        git: Git,
        contents: ObjectReader,
        sizes: HeaderReader,
        pairs: list[DirectoryPair],
        standing: Standing,
    ) -> None:
        self._git = git
        self._contents = contents
        self._sizes = sizes
        self._pairs = pairs
        self._repositories = repositories(pairs, standing)

    def dropped(self, *, unsafe_links: bool) -> Iterator[tuple[EnvPath, str]]:
        """(path as people see it, why) of all that is not brought."""
        targets = self._targets()
        for root, entry in _entries(self._pairs):
            why = git_skip_reason(root, entry, self._repositories) or self._why_not(root, entry)
            if why is None and entry.kind is EntryKind.LINK:
                why = why_unsafe(entry.path, targets.get(root, {}))
                if unsafe_links and why != NO_PATH:
                    why = None
            if why is not None:
                yield shown_path(root, entry.path), why

    def configs(self, dropped: Mapping[EnvPath, str]) -> Iterator[tuple[Key, tuple[ObjectId, bytes]]]:
        """What the configuration of each repository is reduced to, where that is less."""
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

    def _why_not(self, root: bytes, entry: Entry) -> str | None:
        if entry.kind in DEVICES:
            return f"{DEVICES[entry.kind]} is not taken over"
        if is_pointer(entry) and (self._bytes(root, entry) or b"").strip() not in JJ_TARGETS:
            return POINTS_AWAY
        if entry.stored is StoredAs.SEALED and entry.oid is not None and self._bytes(root, entry) is None:
            return NO_KEY
        return None

    def _bytes(self, root: bytes, entry: Entry) -> bytes | None:
        """The bytes of a file that is to be looked into; None where they cannot be had, or are too many."""
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
        """git reads it, so that it means here what it would mean there; nothing in it is followed or run."""
        listed = self._git.try_run("config", "--file", "-", "--no-includes", "--null", "--list", stdin=config)
        return listed.out if listed.status == 0 else b""


def _entries(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, Entry]]:
    for pair in pairs:
        for entry in pair.after.entries.values() if pair.after is not None else ():
            yield pair.root, entry


def room_at(directory: str) -> int:
    """How many bytes the file system of a place, or of the next directory above it, still has."""
    found = os.statvfs(nearest_directory(directory))
    # One that has no size, or does not tell of it, says zero of everything.
    return found.f_bavail * found.f_frsize if found.f_blocks else UNTOLD


def names_in(bases: Mapping[bytes, bytes]) -> Standing:
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
    """A place, or the next directory above it that is there."""
    place = os.path.abspath(place)
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    return place


# What is said about a snapshot of somebody else, and kept of it beside the snapshot.


def untrusted_warnings(
    restored: RestoreResult, findings: Findings, pairs: Iterable[DirectoryPair]
) -> RestoreResult:
    """With what is not brought as it was told, and a word about running it."""
    plan = restored.plan
    if not plan.steps and not plan.directories:
        return restored
    number = len(executables(plan))
    count = {0: "no program is", 1: "one program is"}.get(number, f"{number:,} programs are")
    warning = f"{count} new or changed: to run what is restored here means trusting whoever made it"
    return replace(
        restored,
        losses=tuple(findings.losses(plan, pairs)),
        warnings=(*restored.warnings, warning),
    )


def write_blobs(git: Git, blobs: Mapping[bytes, bytes]) -> None:
    """Put what stands in no snapshot into the repository: a restore that is broken off reads it again."""
    for oid, data in blobs.items():
        written = git.run("hash-object", "-w", "-t", "blob", "--no-filters", "--stdin", stdin=data)
        if written.strip() != oid.hex().encode("ascii"):
            raise GitFailed("git has another hash for what was written")
