"""A throw-away environment of an older moment, seen by a check at its original place, where the system allows that.

It is laid over that place in a mount namespace of the check's own: whatever names the place by its path names what is
in there. Where there are no such namespaces it stays where it is, away from every environment, and what names the
original place is rewritten. It is no linked worktree: git in there has a HEAD and an index of its own, and takes the
rest from the repository, which hears nothing of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.forking.origins import origins_of, place_of
from git_envhist.forking.relocation import Relocation
from git_envhist.model import RestoreResult, Snapshot
from git_envhist.store.git import Git
from git_envhist.store.repository import Repository
from git_envhist.system import SYSTEM
from git_envhist.verifying import inside
from git_envhist.verifying.areas import TREE, area, hidden_base, open_base, sweep
from git_envhist.verifying.leading import live_paths_in, rewrite_live_paths

PROGRAM = (sys.executable, "-IS", os.path.abspath(inside.__file__))
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
        beside = [
            os.fsdecode(item.path) for item in self.written.plan.left_alone if item.path.endswith(b"://")
        ]
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
