"""A sandbox: an older snapshot in a temporary directory, mounted at its original path for a check.

In a mount namespace of the check, the original path leads to the sandbox. Without namespaces, the sandbox stays where
it is, and references to the original path are rewritten. It is no linked worktree: it has a HEAD and an index of its
own, and uses the repository for the rest, which is not changed.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Protocol

from git_envhist.capture.pipeline import CapturePipeline
from git_envhist.checks import sandbox_exec
from git_envhist.diff.path_classes import CACHE_DIRECTORIES
from git_envhist.directories_of_others import others_component, refuse_others_directory
from git_envhist.disk import cannot_write, state_directory
from git_envhist.fork import remove_fork_directory
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.locks import locked, try_lock
from git_envhist.model import RestoreResult, Snapshot
from git_envhist.platform import SYSTEM
from git_envhist.restore.relocate import Relocation, is_text, origins_of, replace_paths, working_tree_of

# Temporary directories for sandboxes: each is locked by its process; unlocked ones are removed by the next one.

LOCK = "lock"
TREE = "tree"


def mounted_base(common_state: str) -> str:
    """Return the base for mounted sandboxes: in the git directory, so on its file system and never captured. It is
    below the environment, so programs that search parent directories must not run there by that path."""
    return os.path.join(common_state, "aside")


def unmounted_base(environ: Mapping[str, str]) -> str:
    """Return the base for sandboxes that are not mounted: outside of every environment."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_CACHE_HOME", "")
    cache = configured if configured.startswith("/") else f"{home}/.cache"
    return os.path.join(cache, "git-envhist", "aside")


@contextmanager
def temporary_directory(base: str) -> Iterator[str]:
    """Create a private directory and remove it afterwards."""
    with ExitStack() as locks:
        place = _make(base, locks)
        try:
            yield place
        finally:
            remove_fork_directory(place)


def sweep(base: str) -> None:
    """Remove directories of killed processes."""
    if os.path.isdir(base) and others_component(base) is None:
        with locked(base + ".lock"):
            _sweep(base)


def _make(base: str, locks: ExitStack) -> str:
    state_directory(base)
    # Locked, so that no other process removes the directory before its own lock is taken.
    with locked(base + ".lock"):
        _sweep(base)
        try:
            place = tempfile.mkdtemp(dir=base)
        except OSError as error:
            raise cannot_write(error, base) from error
        locks.enter_context(locked(os.path.join(place, LOCK)))
    return place


def _sweep(base: str) -> None:
    for name in os.listdir(base):
        place = os.path.join(base, name)
        with suppress(OSError), try_lock(os.path.join(place, LOCK)) as free:
            if free:
                remove_fork_directory(place)


# References to the living environment: a command in the sandbox would run what is outside of it. Every file is
# searched.
# Text is rewritten, because the sandbox is temporary; if anything else remains, the check must not run.

MAX_TEXT = 64 << 20
BYTECODE = b".pyc"
"""Paths in bytecode are used only in tracebacks."""
CHUNK = 1 << 20
PROGRAM_PREFIXES = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ", b"PK\3\4", b"#!")
"""First bytes of programs, libraries, code archives and scripts."""
LIBRARY_SUFFIXES = (b".so", b".node", b".dylib", b".dll", b".jar", b".pyz", b".egg", b".wasm")
"""Suffixes of files that programs load."""
CACHE = b"cache"
WITH_PROGRAMS = frozenset((b".next", b".nuxt", b".svelte-kit", b".angular", b".docusaurus"))
"""Directories of built sites: their contents are executed, except a directory `cache` in them."""


def rewrite_live_paths(root: str, relocation: Relocation) -> list[bytes]:
    """Rewrite references to the other path; return files that still have one and would be run or loaded."""
    return [
        path
        for path in _files_naming(os.fsencode(root), relocation)
        if not _try_rewrite(path, relocation) and _is_run(path)
    ]


def live_paths_in(root: str, relocation: Relocation) -> list[bytes]:
    """Return files with references to the other path that would be run, loaded or followed."""
    top = os.fsencode(root)
    return [
        path
        for path in _files_naming(top, relocation)
        if os.path.islink(path) or _is_run(path) or (_is_small_text(path) and not _is_in_cache(path, top))
    ]


def _is_run(path: bytes) -> bool:
    """Return whether a file is a program, a library or a script; a path in other data starts nothing."""
    if os.lstat(path).st_mode & 0o111 or path.endswith(LIBRARY_SUFFIXES):
        return True
    with open(path, "rb", opener=_opened) as file:
        return file.read(8).startswith(PROGRAM_PREFIXES)


def _is_small_text(path: bytes) -> bool:
    if os.lstat(path).st_size > MAX_TEXT:
        return False
    with open(path, "rb", opener=_opened) as file:
        return is_text(file.read())


def _is_in_cache(path: bytes, top: bytes) -> bool:
    """Return whether a file is in a cache, which programs read as data and create again."""
    names = path[len(top) :].strip(b"/").split(b"/")[:-1]
    return any(
        name in CACHE_DIRECTORIES - WITH_PROGRAMS or (name == CACHE and above in CACHE_DIRECTORIES)
        for above, name in zip((b"", *names), names, strict=False)
    )


def _files_naming(top: bytes, relocation: Relocation) -> Iterator[bytes]:
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                if relocation.occurs_in(os.readlink(path)):
                    yield path
            elif stat.S_ISREG(status.st_mode) and not name.endswith(BYTECODE) and _contains(path, relocation):
                yield path


def _contains(path: bytes, relocation: Relocation) -> bool:
    with open(path, "rb", opener=_opened) as file:
        before = b""
        while chunk := file.read(CHUNK):
            if relocation.occurs_in(before + chunk):
                return True
            # A path may cross the edge of a block.
            before = chunk[-4096:]
    return False


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, flags)
    except PermissionError:
        # Make an unreadable file readable only while it is opened.
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        os.chmod(path, mode | stat.S_IRUSR)
        try:
            return os.open(path, flags)
        finally:
            os.chmod(path, mode)


def _try_rewrite(path: bytes, relocation: Relocation) -> bool:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        target = relocation.replaced(os.readlink(path))
        os.unlink(path)
        os.symlink(target, path)
        return True
    if status.st_size > MAX_TEXT:
        return False
    with open(path, "rb", opener=_opened) as file:
        data = file.read()
    new = replace_paths(data, relocation) if is_text(data) else None
    if new is None:
        return False
    _write_through_link(path, new, status)
    return True


def _write_through_link(path: bytes, data: bytes, status: os.stat_result) -> None:
    """Rewrite a file in place, keeping its other names, mode and times."""
    mode = stat.S_IMODE(status.st_mode)
    os.chmod(path, mode | stat.S_IWUSR)
    try:
        with open(path, "r+b") as file:
            file.write(data)
            file.truncate()
    finally:
        os.chmod(path, mode)
    with suppress(OSError):
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


PROGRAM = (sys.executable, "-IS", os.path.abspath(sandbox_exec.__file__))
COMMON = "common"
FIRST_PATHS = 3


class SnapshotWriter(Protocol):
    """Writes a snapshot into a directory."""

    def write_to(self, snapshot: Snapshot, directory: str) -> RestoreResult: ...


class Sandbox(NamedTuple):
    """A temporary environment of a snapshot."""

    tree: str
    """Its path."""
    visible_at: str
    """Its path as the check sees it."""
    words: Sequence[str]
    """The words that run a command in its namespace; empty if there is none."""
    written: RestoreResult
    live_paths: tuple[str, ...]
    """Files that refer to the living environment."""

    @property
    def problem(self) -> str | None:
        """Return why a check in it would be meaningless; None if it is not."""
        if self.live_paths:
            first = ", ".join(f"'{path}'" for path in self.live_paths[:FIRST_PATHS])
            more = (
                f" and {len(self.live_paths) - FIRST_PATHS:,} more"
                if len(self.live_paths) > FIRST_PATHS
                else ""
            )
            return f"the check would run files of the living environment, named in {first}{more}"
        other_roots = [
            os.fsdecode(item.path) for item in self.written.plan.skipped if item.path.endswith(b"://")
        ]
        if other_roots:
            return f"the check would see the present additional root '{other_roots[0]}'"
        return None

    @property
    def is_complete(self) -> bool:
        """Return whether the snapshot was restored completely; otherwise a failure is no result."""
        return self.written.target.complete and self.written.exact


@contextmanager
def sandbox(
    capturing: CapturePipeline, writer: SnapshotWriter, snapshot: Snapshot, original: str
) -> Iterator[Sandbox]:
    """Create the sandbox of a snapshot for the body; `original`: the path at which it was captured."""
    repository = capturing.repository
    bases = mounted_base(repository.common_state), unmounted_base(capturing.environ)
    for base in bases:
        sweep(base)
    with temporary_directory(bases[0]) as probe:
        can_mount = _can_mount(probe, original)
    if not can_mount:
        refuse_others_directory(bases[1])
    with temporary_directory(bases[0] if can_mount else bases[1]) as place:
        tree = os.path.join(place, TREE)
        written = writer.write_to(snapshot, tree)
        words = _wrapper_words(repository, snapshot, tree, original) if can_mount else ()
        if not can_mount and not repository.plain:
            _make_git(repository, snapshot, tree)
        live_paths = _find_live_paths(capturing, snapshot, tree, original, can_mount)
        names = tuple(os.fsdecode(path[len(os.fsencode(tree)) + 1 :]) for path in live_paths)
        yield Sandbox(tree, original if can_mount else tree, words, written, names)


def original_path(capturing: CapturePipeline, snapshot: Snapshot) -> str:
    """Return the path at which a snapshot was captured: its timeline's working tree, if it still exists."""
    return working_tree_of(capturing, snapshot.timeline) or capturing.repository.root


def _can_mount(place: str, original: str) -> bool:
    """Return whether a directory can be mounted over another in a private namespace."""
    if not SYSTEM.namespaces or not sys.platform.startswith("linux") or not os.path.isdir(original):
        return False
    done = subprocess.run(
        [*PROGRAM, original, place, "", "", "/bin/sh", "-c", ":"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _wrapper_words(repository: Repository, snapshot: Snapshot, tree: str, original: str) -> tuple[str, ...]:
    if repository.plain:
        return (*PROGRAM, original, tree, "", "")
    git_dir = _make_git(repository, snapshot, tree)
    if not f"{repository.common_dir}/".startswith(original.rstrip("/") + "/"):
        return (*PROGRAM, original, tree, "", "")
    # The original's own git directory would be hidden by the mount.
    os.mkdir(os.path.join(git_dir, COMMON))
    _write(os.path.join(git_dir, "commondir"), COMMON)
    return (*PROGRAM, original, tree, repository.common_dir, f".git/{COMMON}")


def _make_git(repository: Repository, snapshot: Snapshot, tree: str) -> str:
    """Create a git directory: HEAD and index of the snapshot's code commit, the rest from the repository."""
    git_dir = os.path.join(tree, ".git")
    os.mkdir(git_dir, 0o700)
    _write(os.path.join(git_dir, "commondir"), repository.common_dir)
    head = snapshot.head
    has_head = head is not None and repository.git.try_run("cat-file", "-e", head + "^{tree}").status == 0
    _write(os.path.join(git_dir, "HEAD"), f"{head}" if has_head else "ref: refs/heads/no-code-commit")
    if has_head:
        Git(git_dir, tree).run("read-tree", f"{head}")
    return git_dir


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text + "\n")


def _find_live_paths(
    capturing: CapturePipeline, snapshot: Snapshot, tree: str, original: str, can_mount: bool
) -> list[bytes]:
    """Return files that refer to a living environment, after rewriting."""
    places = origins_of(capturing, snapshot.timeline, capturing.repository)
    if not can_mount:
        return rewrite_live_paths(tree, Relocation.between(places, tree))
    others = [place for place in places if place != original]
    return live_paths_in(tree, Relocation.between(others, original)) if others else []
