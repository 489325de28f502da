"""A fork: the whole environment of a moment in a directory of its own, on a timeline that begins there.

Everything is written from the snapshot and read back, as by any restore; where the file system can, what is unchanged
here shares its blocks with the original until either is written to. The first moment is taken before anything is
rewritten, so that forks of one moment begin with one content.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.placing import refuse_place
from git_envhist.capturing.request import CaptureOptions
from git_envhist.capturing.timelines import current_timeline
from git_envhist.errors import EnvhistError, Refused, UsageError, in_words
from git_envhist.forking.clones import CloningReader
from git_envhist.forking.grounds import ForkDirectory, make_beside, make_worktree
from git_envhist.forking.origins import origins_of
from git_envhist.forking.pointing import Rewriter, files_in, paths_naming, relocate
from git_envhist.forking.relocation import Relocation, is_shell_safe
from git_envhist.forking.seeding import seed
from git_envhist.forking.submodules import SubmoduleInstaller, changed_submodules
from git_envhist.model import CaptureProgress, EnvPath, ForkPlan, ForkResult, RestoreResult, Snapshot, Trigger
from git_envhist.opening import OpenedRepository, homes_of
from git_envhist.restoring.elsewhere import Source, write_into
from git_envhist.restoring.obeyedplaces import refuse_obeyed_place
from git_envhist.restoring.planning import tracked
from git_envhist.settings import read_settings
from git_envhist.store.contents import ObjectReader
from git_envhist.store.durable import cannot_write
from git_envhist.store.modules import has_submodules
from git_envhist.store.repository import HEADS, NOTES, RefUpdate, Repository
from git_envhist.values import replace

UNLIMITED = 1 << 62
PLAN_ID = 16
Unseal = Callable[[EnvPath, bytes], bytes]


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """One fork, as it was asked for."""

    branch: str | None = None
    relocate: bool = False
    foreign: bool = False
    trigger: Trigger = Trigger.API
    progress: Callable[[CaptureProgress], None] | None = None


def fork(
    source: CapturePipeline, unseal: Unseal, snapshot: Snapshot, directory: str, wish: ForkOptions
) -> tuple[ForkResult, OpenedRepository]:
    """Make one; what fails leaves nothing behind."""
    started = time.monotonic()
    root = plan_fork(source, snapshot, directory, wish).root
    there, process = os.path.isdir(root), os.getpid()
    made_above = _missing_above(root)
    ground: ForkDirectory | None = None
    try:
        ground = _make_ground(source, snapshot, root, wish)
        forked = _Fork(source, unseal, snapshot, ground, wish).run(started)
    except BaseException:
        # A worker that is stopped is a copy of this process: it has nothing to clear up.
        if os.getpid() != process:
            raise
        if ground is not None:
            _forget_timeline(ground.repository)
            ground.take_away()
        _leave_as_it_was(root, there, made_above)
        raise
    return forked, OpenedRepository(ground.repository)


def plan_fork(source: CapturePipeline, snapshot: Snapshot, directory: str, wish: ForkOptions) -> ForkPlan:
    """What a fork would do; refused as the fork itself would be. Nothing is written."""
    root = _choose_place(source, directory)
    _refuse(source.repository, snapshot, root, wish)
    told = (snapshot.id, snapshot.commit, root, wish.branch, wish.relocate)
    digest = hashlib.sha256(repr(told).encode("utf-8", "surrogateescape")).hexdigest()
    return ForkPlan(snapshot, root, wish.branch, wish.relocate, digest[:PLAN_ID])


@dataclass(slots=True)
class _Fork:
    """One fork on its way."""

    source: CapturePipeline
    unseal: Unseal
    snapshot: Snapshot
    ground: ForkDirectory
    wish: ForkOptions

    def run(self, started: float) -> ForkResult:
        own = self._capturing()
        brought, moment = self._write(own)
        repository = self.ground.repository
        forked = ForkResult(
            self.snapshot,
            repository.root,
            moment.timeline,
            moment,
            moment.head,
            self.ground.branch,
            self.ground.orphan,
            brought.verified,
            0.0,
            left_alone=brought.plan.left_alone,
            kept=brought.kept,
            losses=brought.losses,
            warnings=brought.warnings,
        )
        forked = self._look_back(own, forked)
        return replace(forked, seconds=time.monotonic() - started)

    def _write(self, own: CapturePipeline) -> tuple[RestoreResult, Snapshot]:
        mine, repository = self.source.repository, self.ground.repository
        # Another process may have put a link into the path after it was judged.
        refuse_place(repository.root, mine, self.source.environ)
        source = Source(mine.git, repository.state, self._contents, "fork" if own.how == "fork" else "here")
        with own.locked(CaptureOptions()):
            brought = write_into(self.snapshot, repository.root, source)
            if self.snapshot.trusted and not brought.kept:
                lost = frozenset(loss.path for loss in brought.losses)
                seed(self.source, own, self.snapshot, lost)
            words = os.fsencode(f"forked from {self.snapshot.id[:7]}")
            request = CaptureOptions(
                words,
                trigger=self.wish.trigger,
                forked_from=self.snapshot.id,
                progress=self.wish.progress,
            )
            with own.hold(request) as held:
                held.told_as(self.snapshot)
                moment = held.publish(request).snapshot
        assert moment is not None
        return brought, moment

    def _look_back(self, own: CapturePipeline, forked: ForkResult) -> ForkResult:
        """What names the place it was made of; what was rewritten, by need or by wish, is a moment of its own."""
        repository = self.ground.repository
        origins = origins_of(self.source, self.snapshot.timeline, repository)
        settled, warnings = self._settle(origins)
        moved = Relocation.between(origins, repository.root)
        found = tuple(paths_naming(files_in(repository.root), repository, moved))
        done: tuple[EnvPath, ...] = ()
        if self.wish.relocate and found:
            code = frozenset() if repository.plain else tracked(repository.git)
            done, found = relocate(Rewriter(repository.root, moved, code), found)
        done = (*settled, *done)
        warnings += _record(own, self.wish, len(done)) if done else ()
        return replace(forked, relocated=done, pointing=found, warnings=(*forked.warnings, *warnings))

    def _settle(self, origins: tuple[str, ...]) -> tuple[tuple[EnvPath, ...], tuple[str, ...]]:
        repository = self.ground.repository
        if repository.plain or not has_submodules(repository.common_dir):
            return (), ()
        moved = changed_submodules(self.source.repository.git, self.snapshot)
        return SubmoduleInstaller(repository, origins, moved).settle(files_in(repository.root))

    def _capturing(self) -> CapturePipeline:
        repository, mine = self.ground.repository, self.source
        # What a fork begins with is saved whole, whatever a capture may add.
        settings = replace(read_settings(repository.read_config()), budget=UNLIMITED)
        return CapturePipeline(repository, settings, mine.keys, mine.how, mine.environ)

    def _contents(self, made: Mapping[bytes, bytes]) -> ObjectReader:
        own = self.source.repository
        contents = CloningReader(own.git, own.pack_dir, own.object_format, self.unseal, made=made)
        contents.look_below(own.root)
        return contents


def _record(own: CapturePipeline, wish: ForkOptions, number: int) -> tuple[str, ...]:
    words = f"relocated {number} path{'' if number == 1 else 's'}"
    try:
        own.capture(CaptureOptions(words.encode("ascii"), trigger=wish.trigger, progress=wish.progress))
    except EnvhistError as error:
        return (f"paths were rewritten, but that could not be recorded: {in_words(error)}",)
    return ()


def _make_ground(source: CapturePipeline, snapshot: Snapshot, root: str, wish: ForkOptions) -> ForkDirectory:
    try:
        if source.repository.plain:
            return make_beside(source.repository, homes_of(source.environ), root)
        return make_worktree(source.repository, snapshot, root, wish.branch)
    except OSError as error:
        raise cannot_write(error, root) from error


def _choose_place(source: CapturePipeline, directory: str) -> str:
    """Where the fork is to stand, absolute and without links."""
    root = os.path.realpath(directory)
    try:
        taken = os.path.lexists(root) and bool(os.listdir(root))
    except OSError as error:
        raise cannot_write(error, root) from error
    if taken:
        raise Refused(
            f"there is something in '{directory}' already", hint="name a new directory, or an empty one"
        )
    repository = source.repository
    refuse_place(root, repository, source.environ)
    inside = [os.fsdecode(base) for base in source.survey(None).bases.values()]
    for top in (*inside, repository.root, repository.git_dir, repository.common_dir):
        if f"{root}/".startswith(os.path.realpath(top).rstrip("/") + "/"):
            raise Refused(
                f"'{directory}' is inside '{top}': the fork would be captured with it",
                hint=f"beside it: git envlog fork '{repository.root}-2'",
            )
    return root


def _refuse(repository: Repository, snapshot: Snapshot, root: str, wish: ForkOptions) -> None:
    if repository.plain and wish.branch is not None:
        raise UsageError("there are no branches without git: -b", hint="git envlog fork <directory> [<rev>]")
    if wish.relocate and not is_shell_safe(root):
        raise Refused(
            f"scripts cannot name a place like '{root}' everywhere",
            hint="with --relocate, name a directory of letters, digits and . _ - / only",
        )
    if not snapshot.trusted and not wish.foreign:
        raise Refused(
            f"no key that is here signed '{snapshot.id[:7]}': what it holds is somebody else's word",
            hint="--allow-unsigned, if you trust who made it",
        )
    if not snapshot.trusted:
        refuse_obeyed_place(root, repository.git, repository.root)


def _missing_above(root: str) -> list[str]:
    """The directories above that are not there yet, the deepest first."""
    missing = []
    while not os.path.lexists(root := os.path.dirname(root)):
        missing.append(root)
    return missing


def _leave_as_it_was(root: str, there: bool, made_above: list[str]) -> None:
    with suppress(OSError):
        if there:
            os.makedirs(root, exist_ok=True)
        for directory in made_above:
            os.rmdir(directory)


def _forget_timeline(repository: Repository) -> None:
    """Let go of the timeline of a fork that never was; it holds one moment at most, and nobody has seen it."""
    with suppress(EnvhistError):
        name = current_timeline(repository, read_settings(()))
        for ref in (HEADS + name, NOTES + name) if name else ():
            tip = repository.resolve_ref(ref)
            if tip is not None:
                repository.move_refs([RefUpdate(ref, None, tip)])
