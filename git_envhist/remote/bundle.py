"""Write and read export files: git bundles in a small tar archive.

A bundle is written by a temporary repository that reads our objects; nothing is written to the user's repository. A
bundle is read into an object directory of its own, where git checks every object and every link; only complete data
is moved to the repository.
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

from git_envhist.disk import Durability, cannot_write, open_replacement, state_directory, sync_directory
from git_envhist.errors import Damaged, FileUnreadable, Refused
from git_envhist.git.cat_file import CatFile
from git_envhist.git.limits import (
    LISTED,
    STREAMED,
    DecompressionBomb,
    ResourceLimits,
    limit_error,
    limits_for_pack,
    refuse_large,
    refuse_without_space,
)
from git_envhist.git.process import Git, GitResult, GitStream, git_error
from git_envhist.lazy import dataclass
from git_envhist.locks import locked
from git_envhist.objects.zstd_frames import packing, unpacking
from git_envhist.remote.export_chain import SelectedSnapshots
from git_envhist.remote.push_plan import HEADS_PREFIX, NOTES, is_timeline
from git_envhist.snapshots.oversized_trees import TreeSizer, trees_of_notes, trees_of_snapshots

# The format of an export file is a tar archive with two members, compressed with zstd: `envhist-export` (one line
# with the version of the format) and `history.bundle` (a git bundle of the chosen timelines, their notes, and all
# objects). `tar --zstd -xf FILE` and `git fetch history.bundle 'refs/*:refs/*'` read it without git-envhist. The
# reader here accepts only these two members, as plain files, in this order and with the declared size.

VERSION_NAME, BUNDLE_NAME = "envhist-export", "history.bundle"
VERSION = b"envhist-export 1\n"
BLOCK = tarfile.BLOCKSIZE
READ_SIZE = 1 << 20
LEVEL = 3
"""zstd level: a bundle is compressed already, so only names are left to compress."""
WINDOW = 1 << 27
"""Memory limit of the decompression window, as in other readers."""

SMALL_FILE, MAX_RATIO = 64 << 20, 100
"""Maximum ratio of declared to packed size of a file that is not small; a bundle hardly reaches twice its size."""


IMPORT_HINT = "git envlog import <file>, as 'git envlog export' wrote it"


class FileExists(Refused):
    """The target file of an export already exists."""

    code = "file-exists"

    def __init__(self, path: str) -> None:
        super().__init__(f"the file already exists: '{path}'", hint="to replace it: --force")


class Readable(Protocol):
    """A source of bytes, empty at the end."""

    def read(self, size: int = -1, /) -> bytes: ...


def write_archive(path: str, bundle: str, *, force: bool = False) -> int:
    """Write the file completely or not at all, readable only by its owner; return its size."""
    if not force and os.path.lexists(path):
        raise FileExists(path)
    temporary = f"{path}.new-{os.urandom(6).hex()}"
    try:
        with open_replacement(
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
        write(_member_header(VERSION_NAME, len(VERSION)) + VERSION + _padding(len(VERSION)))
        write(_member_header(BUNDLE_NAME, size))
        while part := bundle.read(READ_SIZE):
            write(part)
        write(_padding(size) + bytes(2 * BLOCK))


def _member_header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


@contextmanager
def read_archive(path: str) -> Iterator[BundleStream]:
    """Open an export file and yield its bundle."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileUnreadable(f"cannot read '{path}': {reason}", hint=IMPORT_HINT) from error
    with file:
        try:
            with unpacking(file, WINDOW) as read:
                yield _open_bundle(_errors_as_damage(read), os.fstat(file.fileno()).st_size)
        except IsADirectoryError as error:
            raise FileUnreadable(f"cannot read '{path}': it is a directory", hint=IMPORT_HINT) from error


class BundleStream:
    """Read the bytes of a bundle in order; raise `Damaged` if the file ends too early."""

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self.size = size
        self._read = read
        self._left = size

    def line(self, max_size: int) -> bytes:
        """Return a line without its line feed."""
        line = b""
        while len(line) <= max_size and self._left:
            # Read single bytes: data after the last line belongs to the next reader.
            one = self._exactly(1)
            if one == b"\n":
                return line
            line += one
        raise Damaged("the bundle's head cannot be read")

    def rest(self) -> Iterator[bytes]:
        """Yield the rest in parts; the file must end after it."""
        while self._left:
            yield self._exactly(min(self._left, READ_SIZE))
        end = read_up_to(self._read, -self.size % BLOCK + 2 * BLOCK)
        if end.strip(b"\0") or self._read(1):
            raise Damaged("the export file has data after its end")

    def _exactly(self, size: int) -> bytes:
        found = read_up_to(self._read, size)
        if len(found) != size:
            raise Damaged("the export file is truncated")
        self._left -= size
        return found


def read_up_to(read: Callable[[int], bytes], size: int) -> bytes:
    """Return this many bytes; fewer only at the end."""
    parts = []
    while size and (part := read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _open_bundle(read: Callable[[int], bytes], packed: int) -> BundleStream:
    """Return the bundle in an export file. `packed`: the size of that file in bytes, 0 if it is unknown."""
    size = _member(read, VERSION_NAME)
    version = read_up_to(read, min(size, BLOCK)) if size <= BLOCK else b""
    if version != VERSION:
        raise Damaged(
            "the export file has a format that this version does not read",
            hint="a newer git-envhist reads it",
        )
    read_up_to(read, -size % BLOCK)
    size = _member(read, BUNDLE_NAME)
    if packed and size > max(SMALL_FILE, MAX_RATIO * packed):
        raise DecompressionBomb(f"the export file has {packed:,} bytes and declares {size:,}")
    return BundleStream(read, size)


def _member(read: Callable[[int], bytes], name: str) -> int:
    """Return the size of the next member, which must have this name."""
    head = read_up_to(read, BLOCK)
    try:
        member = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError as broken:
        raise _no_export() from broken
    if member.name != name or not member.isreg() or member.type != tarfile.REGTYPE or member.size < 0:
        raise _no_export()
    return member.size


def _errors_as_damage(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def read_checked(size: int) -> bytes:
        try:
            return read(size)
        except ValueError as broken:
            raise _no_export() from broken

    return read_checked


def _no_export() -> Damaged:
    hint = "'git envlog export' writes such files; this one may be truncated"
    return Damaged("this is not an export file", hint=hint)


REF = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (refs/[!-~]+)")
FIRST = {b"# v2 git bundle": "sha1", b"# v3 git bundle": ""}
FORMAT = b"@object-format="
MAX_LINE = 4096
MAX_LINES = 20_000
SUFFIXES = (".pack", ".rev", ".idx")
"""The order in which files become visible: git uses a pack once its index exists."""


@contextmanager
def working_directory(state: str, name: str, waiting: Callable[[], None] | None = None) -> Iterator[str]:
    """Yield a locked working directory; remains of a killed process are deleted first."""
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


def create_temporary_repository(path: str, object_format: str, alternates: Sequence[str]) -> Git:
    """Create a temporary repository that reads the objects of others."""
    git = Git(path, None, alternates=tuple(alternates))
    git.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", path)
    return git


def write_bundle(git: Git, path: str, chosen: Sequence[SelectedSnapshots]) -> None:
    """Write a bundle of some timelines."""
    refs = bundle_refs(chosen)
    text = "".join(f"create {ref} {oid}\n" for ref, oid in refs.items())
    git.run("update-ref", "--stdin", stdin=text.encode("ascii"))
    done = _run_limited(git, ResourceLimits(), (), "bundle", "create", "--quiet", path, "--all")
    if done.status != 0:
        raise git_error(done)


def bundle_refs(chosen: Sequence[SelectedSnapshots]) -> dict[str, str]:
    """Return the refs of a bundle."""
    heads = {HEADS_PREFIX + one.timeline: one.head for one in chosen}
    return {**heads, **{NOTES + one.timeline: one.notes for one in chosen if one.notes is not None}}


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """The content of a bundle, checked but not yet moved to the repository."""

    heads: Mapping[str, str]
    notes: Mapping[str, str]
    git: Git
    """Reads only the objects of the bundle."""


def check_bundle(bundle: BundleStream, git_dir: str, objects: str, object_format: str) -> CheckedBundle:
    """Check a bundle into an object directory: ids match, nothing is missing, all objects are well-formed."""
    heads, notes = _read_refs(bundle, object_format)
    git = Git(git_dir, None)
    git.environment[b"GIT_OBJECT_DIRECTORY"] = os.fsencode(objects)
    os.makedirs(os.path.join(objects, "pack"))
    bounds = _index(git, bundle, notes.values())
    tips = "".join(f"{oid}\n" for oid in (*heads.values(), *notes.values()))
    done = _run_limited(
        git, bounds, iter([tips.encode("ascii")]), "rev-list", "--objects", "--quiet", "--stdin"
    )
    if done.status != 0:
        raise limit_error(done, bounds, objects, "is not whole")
    with CatFile(git) as reader:
        trees = [*trees_of_notes(git, notes.values()), *trees_of_snapshots(git, heads.values())]
        if TreeSizer(reader, 20 if object_format == "sha1" else 32).find_endless(trees) is not None:
            raise DecompressionBomb("the archive contains trees with more paths than any environment has")
    return CheckedBundle(heads, notes, git)


def _read_refs(bundle: BundleStream, object_format: str) -> tuple[dict[str, str], dict[str, str]]:
    object_hash = FIRST.get(bundle.line(MAX_LINE))
    if object_hash is None:
        raise Damaged("the export is not a bundle that this version reads")
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    for _ in range(MAX_LINES):
        line = bundle.line(MAX_LINE)
        if not line:
            break
        if line.startswith(FORMAT):
            object_hash = line.removeprefix(FORMAT).decode("ascii", "replace")
            continue
        found = REF.fullmatch(line.decode("ascii", "replace"))
        place = next((p for p in (HEADS_PREFIX, NOTES) if found is not None and found[2].startswith(p)), None)
        if found is None or place is None or not is_timeline(found[2].removeprefix(place)):
            raise Damaged("the archive contains a ref that no export has")
        (heads if place == HEADS_PREFIX else notes)[found[2].removeprefix(place)] = found[1]
    if (object_hash or "sha1") != object_format:
        raise Damaged(f"the export has the object format '{object_hash or 'sha1'}', not '{object_format}'")
    if not heads or set(notes) - set(heads):
        raise Damaged("the archive contains no timeline")
    return heads, notes


def _index(git: Git, bundle: BundleStream, notes: Iterable[str]) -> ResourceLimits:
    place = os.fsdecode(git.environment[b"GIT_OBJECT_DIRECTORY"])
    refuse_without_space(place, bundle.size)
    parts = bundle.rest()
    first = next(parts, b"")
    bounds = limits_for_pack(first, bundle.size)
    words = ("index-pack", "--stdin", "--strict", "--threads=4", f"--max-input-size={bundle.size}")
    done = _run_limited(git, bounds, chain((first,), parts), *STREAMED, *words)
    if done.status != 0:
        raise limit_error(done, bounds, place, "is damaged or malicious")
    refuse_large(git, notes, git.run("cat-file", "--batch-all-objects", "--unordered", "--buffer", LISTED))
    return bounds


def _run_limited(git: Git, bounds: ResourceLimits, stdin: Iterable[bytes], *words: str) -> GitResult:
    child = GitStream(git, *words, talks=True)
    try:
        # The child waits for its first byte until the limits are set.
        bounds.apply(child.process)
        # If git ends before its input does, its error output has the reason.
        with suppress(BrokenPipeError):
            for part in stdin:
                child.write(part)
        return child.finish()
    except BaseException:
        # After an error its result is no longer needed.
        child.stop()
        raise
    finally:
        child.close()


def move_checked_packs(taken: str, objects_dir: str) -> None:
    """Move checked objects to the repository and sync them."""
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
