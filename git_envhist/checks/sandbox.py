"""A throw-away environment of an older moment, seen by a check at its original place, where the system allows that.

It is laid over that place in a mount namespace of the check's own: whatever names the place by its path names what is
in there. Where there are no such namespaces it stays where it is, away from every environment, and what names the
original place is rewritten. It is no linked worktree: git in there has a HEAD and an index of its own, and takes the
rest from the repository, which hears nothing of it.
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
from git_envhist.diff.classes import CACHE_DIRECTORIES
from git_envhist.disk import cannot_write, locked, locked_now, state_directory
from git_envhist.fork import clear
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.model import RestoreResult, Snapshot
from git_envhist.platform import SYSTEM
from git_envhist.restore.relocate import Relocation, is_text, origins_of, place_of, rewrite

# Places for throw-away environments: each is held by a lock that goes with its process, then anybody clears it.

LOCK = "lock"
TREE = "tree"


def hidden_base(common_state: str) -> str:
    """Inside the git directory: on its file system, never captured. The environment is above it, so nothing that looks
    for things in the directories above may run there by that path."""
    return os.path.join(common_state, "aside")


def open_base(environ: Mapping[str, str]) -> str:
    """Away from every environment."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_CACHE_HOME", "")
    cache = configured if configured.startswith("/") else f"{home}/.cache"
    return os.path.join(cache, "git-envhist", "aside")


@contextmanager
def area(base: str) -> Iterator[str]:
    """A private directory; it is gone afterwards, and where that was not to be, with the next one."""
    with ExitStack() as held:
        place = _make(base, held)
        try:
            yield place
        finally:
            clear(place)


def sweep(base: str) -> None:
    """Clear what runs that were killed have left."""
    if os.path.isdir(base):
        with locked(base + ".lock"):
            _sweep(base)


def _make(base: str, held: ExitStack) -> str:
    state_directory(base)
    # Nobody takes a place for left between its making and its locking.
    with locked(base + ".lock"):
        _sweep(base)
        try:
            place = tempfile.mkdtemp(dir=base)
        except OSError as error:
            raise cannot_write(error, base) from error
        held.enter_context(locked(os.path.join(place, LOCK)))
    return place


def _sweep(base: str) -> None:
    for name in os.listdir(base):
        place = os.path.join(base, name)
        with suppress(OSError), locked_now(os.path.join(place, LOCK)) as free:
            if free:
                clear(place)


# What in a throw-away environment names the living one: whoever runs it there would run what is alive.
#
# Every file is looked at, since a check may read any. Text is rewritten, whoever's it is: nobody keeps this tree. What
# cannot be is left, and then nothing may be said of such an environment.

MAX_TEXT = 64 << 20
BYTECODE = b".pyc"
"""Its paths are for tracebacks alone."""
CHUNK = 1 << 20
RUNNABLE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ", b"PK\3\4", b"#!")
"""Beginnings of programs, libraries, archives of code, and scripts."""
LOADED = (b".so", b".node", b".dylib", b".dll", b".jar", b".pyz", b".egg", b".wasm")
"""Endings of files that programs load."""
CACHE = b"cache"
WITH_PROGRAMS = frozenset((b".next", b".nuxt", b".svelte-kit", b".angular", b".docusaurus"))
"""Directories of built sites: what they hold is run, but for the directory `cache` in them."""


def rewrite_live_paths(root: str, moved: Relocation) -> list[bytes]:
    """Rewrite what names the other place; return what still does, and would be run or loaded."""
    return [
        path for path in _naming(os.fsencode(root), moved) if not _rewritten(path, moved) and _is_run(path)
    ]


def live_paths_in(root: str, moved: Relocation) -> list[bytes]:
    """Return what names the other place, and would be run, loaded or followed."""
    top = os.fsencode(root)
    return [
        path
        for path in _naming(top, moved)
        if os.path.islink(path) or _is_run(path) or (_is_small_text(path) and not _is_in_cache(path, top))
    ]


def _is_run(path: bytes) -> bool:
    """Return whether a file is a program, a library or a script: a mere path in other data starts nothing."""
    if os.lstat(path).st_mode & 0o111 or path.endswith(LOADED):
        return True
    with open(path, "rb", opener=_opened) as file:
        return file.read(8).startswith(RUNNABLE)


def _is_small_text(path: bytes) -> bool:
    if os.lstat(path).st_size > MAX_TEXT:
        return False
    with open(path, "rb", opener=_opened) as file:
        return is_text(file.read())


def _is_in_cache(path: bytes, top: bytes) -> bool:
    """Return whether a file lies in a cache, which programs read as data and make again."""
    names = path[len(top) :].strip(b"/").split(b"/")[:-1]
    return any(
        name in CACHE_DIRECTORIES - WITH_PROGRAMS or (name == CACHE and above in CACHE_DIRECTORIES)
        for above, name in zip((b"", *names), names, strict=False)
    )


def _naming(top: bytes, moved: Relocation) -> Iterator[bytes]:
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode):
                if moved.is_named_in(os.readlink(path)):
                    yield path
            elif stat.S_ISREG(seen.st_mode) and not name.endswith(BYTECODE) and _is_named_in(path, moved):
                yield path


def _is_named_in(path: bytes, moved: Relocation) -> bool:
    with open(path, "rb", opener=_opened) as file:
        before = b""
        while chunk := file.read(CHUNK):
            if moved.is_named_in(before + chunk):
                return True
            # A name may stand on the edge.
            before = chunk[-4096:]
    return False


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, flags)
    except PermissionError:
        # It is closed to its owner, and will be again.
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        os.chmod(path, mode | stat.S_IRUSR)
        try:
            return os.open(path, flags)
        finally:
            os.chmod(path, mode)


def _rewritten(path: bytes, moved: Relocation) -> bool:
    seen = os.lstat(path)
    if stat.S_ISLNK(seen.st_mode):
        target = moved.rewritten(os.readlink(path))
        os.unlink(path)
        os.symlink(target, path)
        return True
    if seen.st_size > MAX_TEXT:
        return False
    with open(path, "rb", opener=_opened) as file:
        data = file.read()
    new = rewrite(data, moved) if is_text(data) else None
    if new is None:
        return False
    _write_through_link(path, new, seen)
    return True


def _write_through_link(path: bytes, data: bytes, seen: os.stat_result) -> None:
    """In its place, so that its other names say the same; as old as it was."""
    mode = stat.S_IMODE(seen.st_mode)
    os.chmod(path, mode | stat.S_IWUSR)
    try:
        with open(path, "r+b") as file:
            file.write(data)
            file.truncate()
    finally:
        os.chmod(path, mode)
    with suppress(OSError):
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


PROGRAM = (sys.executable, "-IS", os.path.abspath(sandbox_exec.__file__))
COMMON = "common"
FIRST_PATHS = 3


class Going(Protocol):
    """What writes a moment into a directory."""

    def write_to(self, snapshot: Snapshot, directory: str) -> RestoreResult: ...


class Sandbox(NamedTuple):
    """A throw-away environment."""

    tree: str
    """Where it is."""
    seen_at: str
    """Where the check sees it."""
    words: Sequence[str]
    """What puts a command in there; none where it runs in the tree itself."""
    written: RestoreResult
    leading: tuple[str, ...]
    """What in it names a living environment."""

    @property
    def why_not(self) -> str | None:
        """Why a check in there would say nothing of the moment; None where it would."""
        if self.leading:
            first = ", ".join(f"'{path}'" for path in self.leading[:FIRST_PATHS])
            more = f" and {len(self.leading) - FIRST_PATHS:,} more" if len(self.leading) > FIRST_PATHS else ""
            return f"it would run what is alive, which is named in {first}{more}"
        beside = [os.fsdecode(item.path) for item in self.written.plan.skipped if item.path.endswith(b"://")]
        if beside:
            return f"what is here now would be seen in the further root '{beside[0]}'"
        return None

    @property
    def is_whole(self) -> bool:
        """Whether all of the moment is there: what fails without something may not fail with it."""
        return self.written.target.complete and self.written.exact


@contextmanager
def sandbox(capturing: CapturePipeline, going: Going, snapshot: Snapshot, original: str) -> Iterator[Sandbox]:
    """The environment of a moment, for as long as the context is open; `original` is where it stood."""
    repository = capturing.repository
    bases = hidden_base(repository.common_state), open_base(capturing.environ)
    for base in bases:
        sweep(base)
    with area(bases[0]) as probing:
        can_mount = _can_mount(probing, original)
    with area(bases[0] if can_mount else bases[1]) as place:
        tree = os.path.join(place, TREE)
        written = going.write_to(snapshot, tree)
        words = _words(repository, snapshot, tree, original) if can_mount else ()
        if not can_mount and not repository.plain:
            _make_git(repository, snapshot, tree)
        leading = _leading(capturing, snapshot, tree, original, can_mount)
        told = tuple(os.fsdecode(path[len(os.fsencode(tree)) + 1 :]) for path in leading)
        yield Sandbox(tree, original if can_mount else tree, words, written, told)


def original_place(capturing: CapturePipeline, snapshot: Snapshot) -> str:
    """Where the environment of a moment stood: the working tree of its timeline, where there still is one."""
    return place_of(capturing, snapshot.timeline) or capturing.repository.root


def _can_mount(place: str, original: str) -> bool:
    """Whether something can be laid over a directory so that nobody else sees it."""
    if not SYSTEM.namespaces or not sys.platform.startswith("linux") or not os.path.isdir(original):
        return False
    done = subprocess.run(
        [*PROGRAM, original, place, "", "", "/bin/sh", "-c", ":"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _words(repository: Repository, snapshot: Snapshot, tree: str, original: str) -> tuple[str, ...]:
    if repository.plain:
        return (*PROGRAM, original, tree, "", "")
    git_dir = _make_git(repository, snapshot, tree)
    if not f"{repository.common_dir}/".startswith(original.rstrip("/") + "/"):
        return (*PROGRAM, original, tree, "", "")
    # The original's own git directory would be hidden by what is laid over it.
    os.mkdir(os.path.join(git_dir, COMMON))
    _write(os.path.join(git_dir, "commondir"), COMMON)
    return (*PROGRAM, original, tree, repository.common_dir, f".git/{COMMON}")


def _make_git(repository: Repository, snapshot: Snapshot, tree: str) -> str:
    """A git directory for it: the code commit of the moment, its index, and all else as the repository has it."""
    git_dir = os.path.join(tree, ".git")
    os.mkdir(git_dir, 0o700)
    _write(os.path.join(git_dir, "commondir"), repository.common_dir)
    head = snapshot.head
    there = head is not None and repository.git.try_run("cat-file", "-e", head + "^{tree}").status == 0
    _write(os.path.join(git_dir, "HEAD"), f"{head}" if there else "ref: refs/heads/no-code-commit")
    if there:
        Git(git_dir, tree).run("read-tree", f"{head}")
    return git_dir


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text + "\n")


def _leading(
    capturing: CapturePipeline, snapshot: Snapshot, tree: str, original: str, can_mount: bool
) -> list[bytes]:
    """What leads to a living environment, once what can be is rewritten."""
    places = origins_of(capturing, snapshot.timeline, capturing.repository)
    if not can_mount:
        return rewrite_live_paths(tree, Relocation.between(places, tree))
    others = [place for place in places if place != original]
    return live_paths_in(tree, Relocation.between(others, original)) if others else []
