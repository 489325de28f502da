"""Bundles of git's: timelines with their notes and every object they lead to, written and read with suspicion.

One is written by a repository of its own that lives for as long as that takes and sees our objects; not a ref and not
an object is written into the user's. One is read into a directory of objects of its own: git checks every object and
every link between them there, and only what is whole is moved to where it is used.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import IO, Protocol

from git_envhist.disk import (
    Durability,
    cannot_write,
    locked,
    replacement,
    state_directory,
    sync_directory,
)
from git_envhist.errors import Damaged, EnvhistError, Refused
from git_envhist.git.cat_file import CatFile
from git_envhist.git.limits import (
    LISTED,
    STREAMED,
    DecompressionBomb,
    ResourceLimits,
    limit_error,
    limits_for_pack,
    refuse_large,
    refuse_without_room,
)
from git_envhist.git.process import Git, GitResult, GitStream, why_it_failed
from git_envhist.lazy import dataclass
from git_envhist.objects.compress import packing, unpacking
from git_envhist.remote.remotes import NOTES, REMOTEREFS_HEADS, is_timeline
from git_envhist.remote.selection import SelectedSnapshots
from git_envhist.snapshots.tree_size import TreeSizer, trees_of_notes, trees_of_snapshots

# The file of an export: a tar of two members, compressed with zstd, that other programs can open too.
#
# envhist-export     one line: the version of this form
# history.bundle     a bundle of git's: chosen timelines with their notes, and all objects they lead to
#
# `tar --zstd -xf FILE` and `git fetch history.bundle 'refs/*:refs/*'` read it without us. Reading it here takes nothing
# on trust: these two members, plain files, in this order, and no more bytes than were told.

VERSION_NAME, BUNDLE_NAME = "envhist-export", "history.bundle"
VERSION = b"envhist-export 1\n"
BLOCK = tarfile.BLOCKSIZE
AT_ONCE = 1 << 20
LEVEL = 3
"""What a bundle holds is deflated already: it is names that are left to be made smaller."""
WINDOW = 1 << 27
"""No reader of ours gives more memory to what a file asks for."""

NEVER_A_BOMB, MAX_UNPACKED = 64 << 20, 100
"""So many times itself, at most, comes out of a file that is not small. Of a bundle, deflated already, hardly twice."""


class ArchiveUnreadable(EnvhistError):
    """The file cannot be read."""

    code = "cannot-read"
    usual_hint = "git envlog import <file>, as 'git envlog export' wrote it"


class FileExists(Refused):
    """Something stands where an export is to go."""

    code = "file-exists"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is a file already: '{path}'", hint="to write over it: --force")


class Readable(Protocol):
    """Gives some more bytes, none at the end."""

    def read(self, size: int = -1, /) -> bytes: ...


def write_archive(path: str, bundle: str, *, force: bool = False) -> int:
    """Write the file, whole or not at all, for its owner's eyes; how many bytes it has."""
    if not force and os.path.lexists(path):
        raise FileExists(path)
    temporary = f"{path}.new-{os.urandom(6).hex()}"
    try:
        with replacement(
            path, durability=Durability.FULL, exclusive=True, replace=force, temporary=temporary
        ) as descriptor:
            with open(descriptor, "wb", closefd=False) as file, open(bundle, "rb") as source:
                _write_members(file, source, os.fstat(source.fileno()).st_size)
            return os.fstat(descriptor).st_size
    except FileExistsError as error:
        raise FileExists(path) from error
    except OSError as error:
        raise cannot_write(error, path) from error


def _write_members(file: IO[bytes], bundle: Readable, size: int) -> None:
    with packing(file, LEVEL) as write:
        write(_head(VERSION_NAME, len(VERSION)) + VERSION + _padding(len(VERSION)))
        write(_head(BUNDLE_NAME, size))
        while part := bundle.read(AT_ONCE):
            write(part)
        write(_padding(size) + bytes(2 * BLOCK))


def _head(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


@contextmanager
def read_archive(path: str) -> Iterator[BundleStream]:
    """The bundle in a file, to be read from its beginning."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ArchiveUnreadable(f"cannot read '{path}': {(error.strerror or str(error)).lower()}") from error
    with file:
        try:
            with unpacking(file, WINDOW) as read:
                yield _open_bundle(_told_as_damage(read), os.fstat(file.fileno()).st_size)
        except IsADirectoryError as error:
            raise ArchiveUnreadable(f"cannot read '{path}': it is a directory") from error


class BundleStream:
    """The bytes of a bundle, one after the other; `Damaged` where the file ends before it does."""

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self.size = size
        self._read = read
        self._left = size

    def line(self, longest: int) -> bytes:
        """A line without its line feed."""
        line = b""
        while len(line) <= longest and self._left:
            # A byte at a time: what follows the last line is not ours to take.
            one = self._exactly(1)
            if one == b"\n":
                return line
            line += one
        raise Damaged("the bundle's head cannot be read")

    def rest(self) -> Iterator[bytes]:
        """What is left, in parts; the file has to end with it."""
        while self._left:
            yield self._exactly(min(self._left, AT_ONCE))
        end = read_exactly(self._read, -self.size % BLOCK + 2 * BLOCK)
        if end.strip(b"\0") or self._read(1):
            raise Damaged("the file of an export goes on behind its end")

    def _exactly(self, size: int) -> bytes:
        found = read_exactly(self._read, size)
        if len(found) != size:
            raise Damaged("the file of an export was cut short")
        self._left -= size
        return found


def read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """So many bytes; fewer only at the end."""
    parts = []
    while size and (part := read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _open_bundle(read: Callable[[int], bytes], packed: int) -> BundleStream:
    """The bundle that a file of so many bytes (0: nobody knows) tells of."""
    size = _member(read, VERSION_NAME)
    version = read_exactly(read, min(size, BLOCK)) if size <= BLOCK else b""
    if version != VERSION:
        raise Damaged(
            "the file of an export is in a form that this version does not read",
            hint="a newer git-envhist reads it",
        )
    read_exactly(read, -size % BLOCK)
    size = _member(read, BUNDLE_NAME)
    if packed and size > max(NEVER_A_BOMB, MAX_UNPACKED * packed):
        raise DecompressionBomb(f"the file of an export has {packed:,} bytes and tells of {size:,}")
    return BundleStream(read, size)


def _member(read: Callable[[int], bytes], name: str) -> int:
    """The size of the member that has to come next."""
    head = read_exactly(read, BLOCK)
    try:
        member = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError as broken:
        raise _no_export() from broken
    if member.name != name or not member.isreg() or member.type != tarfile.REGTYPE or member.size < 0:
        raise _no_export()
    return member.size


def _told_as_damage(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def told(size: int) -> bytes:
        try:
            return read(size)
        except ValueError as broken:
            raise _no_export() from broken

    return told


def _no_export() -> Damaged:
    hint = "'git envlog export' writes one; one that was cut off on its way is none"
    return Damaged("this is not the file of an export", hint=hint)


REF = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (refs/[!-~]+)")
FIRST = {b"# v2 git bundle": "sha1", b"# v3 git bundle": ""}
FORMAT = b"@object-format="
MAX_LINE = 4096
MAX_LINES = 20_000
SUFFIXES = (".pack", ".rev", ".idx")
"""In this order they become visible: git sees a pack when its index appears."""


@contextmanager
def workplace(state: str, name: str, waiting: Callable[[], None] | None = None) -> Iterator[str]:
    """A directory to work in, alone; what somebody left there who was killed goes first."""
    place = state_directory(os.path.join(state_directory(state), name))
    with locked(os.path.join(place, "lock"), waiting=waiting):
        work = os.path.join(place, "work")
        try:
            shutil.rmtree(work, ignore_errors=True)
            os.mkdir(work, 0o700)
            yield work
        except OSError as error:
            raise cannot_write(error, place) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


def make_repository(path: str, object_format: str, alternates: Sequence[str]) -> Git:
    """A repository for a while, which sees the objects of others."""
    git = Git(path, None, alternates=tuple(alternates))
    git.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", path)
    return git


def write_bundle(git: Git, path: str, chosen: Sequence[SelectedSnapshots]) -> None:
    """A bundle of some timelines."""
    refs = refs_of(chosen)
    text = "".join(f"create {ref} {oid}\n" for ref, oid in refs.items())
    git.run("update-ref", "--stdin", stdin=text.encode("ascii"))
    done = _held(git, ResourceLimits(), (), "bundle", "create", "--quiet", path, "--all")
    if done.status != 0:
        raise why_it_failed(done)


def refs_of(chosen: Sequence[SelectedSnapshots]) -> dict[str, str]:
    """The refs that a bundle holds."""
    heads = {REMOTEREFS_HEADS + one.timeline: one.head for one in chosen}
    return {**heads, **{NOTES + one.timeline: one.notes for one in chosen if one.notes is not None}}


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """What a bundle brought, checked and not yet where it is used."""

    heads: Mapping[str, str]
    notes: Mapping[str, str]
    git: Git
    """Sees the objects that came, and no others."""


def take_bundle(bundle: BundleStream, git_dir: str, objects: str, object_format: str) -> CheckedBundle:
    """Check a bundle into a directory of objects: each is what its id says, nothing is missing, all is well-formed."""
    heads, notes = _read_refs(bundle, object_format)
    git = Git(git_dir, None)
    git.environment[b"GIT_OBJECT_DIRECTORY"] = os.fsencode(objects)
    os.makedirs(os.path.join(objects, "pack"))
    bounds = _index(git, bundle, notes.values())
    tips = "".join(f"{oid}\n" for oid in (*heads.values(), *notes.values()))
    done = _held(git, bounds, iter([tips.encode("ascii")]), "rev-list", "--objects", "--quiet", "--stdin")
    if done.status != 0:
        raise limit_error(done, bounds, objects, "is not whole")
    with CatFile(git) as reader:
        trees = [*trees_of_notes(git, notes.values()), *trees_of_snapshots(git, heads.values())]
        if TreeSizer(reader, 20 if object_format == "sha1" else 32).find_endless(trees) is not None:
            raise DecompressionBomb(
                "the archive contains trees that stand for more paths than an environment has"
            )
    return CheckedBundle(heads, notes, git)


def _read_refs(bundle: BundleStream, object_format: str) -> tuple[dict[str, str], dict[str, str]]:
    told = FIRST.get(bundle.line(MAX_LINE))
    if told is None:
        raise Damaged("what was exported is no bundle that this version reads")
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    for _ in range(MAX_LINES):
        line = bundle.line(MAX_LINE)
        if not line:
            break
        if line.startswith(FORMAT):
            told = line.removeprefix(FORMAT).decode("ascii", "replace")
            continue
        found = REF.fullmatch(line.decode("ascii", "replace"))
        place = next(
            (p for p in (REMOTEREFS_HEADS, NOTES) if found is not None and found[2].startswith(p)), None
        )
        if found is None or place is None or not is_timeline(found[2].removeprefix(place)):
            raise Damaged("the archive contains a ref that no export has")
        (heads if place == REMOTEREFS_HEADS else notes)[found[2].removeprefix(place)] = found[1]
    if (told or "sha1") != object_format:
        raise Damaged(f"what was exported is in the object format '{told or 'sha1'}', not '{object_format}'")
    if not heads or set(notes) - set(heads):
        raise Damaged("the archive contains no timeline")
    return heads, notes


def _index(git: Git, bundle: BundleStream, notes: Iterable[str]) -> ResourceLimits:
    place = os.fsdecode(git.environment[b"GIT_OBJECT_DIRECTORY"])
    refuse_without_room(place, bundle.size)
    parts = bundle.rest()
    first = next(parts, b"")
    bounds = limits_for_pack(first, bundle.size)
    words = ("index-pack", "--stdin", "--strict", "--threads=4", f"--max-input-size={bundle.size}")
    done = _held(git, bounds, chain((first,), parts), *STREAMED, *words)
    if done.status != 0:
        raise limit_error(done, bounds, place, "is damaged or was made to harm")
    refuse_large(git, notes, git.run("cat-file", "--batch-all-objects", "--unordered", "--buffer", LISTED))
    return bounds


def _held(git: Git, bounds: ResourceLimits, said: Iterable[bytes], *words: str) -> GitResult:
    child = GitStream(git, *words, talks=True)
    try:
        # It waits for its first byte until it is held.
        bounds.apply(child.process)
        # Where git ends before its input does, it says why.
        with suppress(BrokenPipeError):
            for part in said:
                child.write(part)
        return child.finish()
    except BaseException:
        # It may have much to do still, and nobody wants it any more.
        child.stop()
        raise
    finally:
        child.close()


def publish(taken: str, objects_dir: str) -> None:
    """Move what was checked to where it is used, whole and durable."""
    source, goal = os.path.join(taken, "pack"), os.path.join(objects_dir, "pack")
    try:
        with suppress(FileExistsError):
            os.mkdir(goal)
        names = sorted(os.listdir(source))
        for suffix in SUFFIXES:
            for name in (name for name in names if name.endswith(suffix)):
                os.rename(os.path.join(source, name), os.path.join(goal, name))
        sync_directory(goal)
    except OSError as error:
        raise cannot_write(error, objects_dir) from error
