"""Writes a moment into a directory of its own, and touches nothing here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple

from git_envhist.errors import Refused
from git_envhist.model import TOP, DirectoryPair, EnvPath, RestorePlan, RestoreResult, SkippedPath, Snapshot
from git_envhist.restore.anew import FillResult, fill_directory, is_taken, unplaced_entries
from git_envhist.restore.fresh import TreeSource as Moment
from git_envhist.restore.plan import NOT_CHOSEN, PlanRules, make_plan
from git_envhist.restoring.inspection import inspect, nearest_directory, room_at
from git_envhist.restoring.losses import told_losses
from git_envhist.restoring.names import manner_of, refuse_names
from git_envhist.restoring.planning import chosen_paths
from git_envhist.restoring.scope import with_directories
from git_envhist.restoring.sources import PlanSource, SnapshotSource, plan_of
from git_envhist.restoring.trust import untrusted_warnings
from git_envhist.restoring.wish import NO_WISH, RestoreOptions
from git_envhist.store.contents import ObjectReader
from git_envhist.store.durable import cannot_write
from git_envhist.store.git import Git
from git_envhist.store.pairs import differing_directories
from git_envhist.values import replace

OTHER_ROOT = "it belongs to a root beside the working tree"


class Source(NamedTuple):
    """Where the bytes of a snapshot are read."""

    git: Git
    state: str
    open_contents: Callable[[Mapping[bytes, bytes]], ObjectReader]
    """Given blobs, by their ids, that stand in no snapshot."""
    how: str


def write_elsewhere(
    snapshot: Snapshot, directory: str, source: Source, wish: RestoreOptions = NO_WISH
) -> RestoreResult:
    """Write what a snapshot holds into a new or an empty directory; of somebody else's what is harmless."""
    _refuse_taken(directory)
    return write_into(snapshot, directory, source, wish)


def write_into(
    snapshot: Snapshot, directory: str, source: Source, wish: RestoreOptions = NO_WISH
) -> RestoreResult:
    """The same, where it is known that what stands there is in nobody's way."""
    started = time.monotonic()
    place = nearest_directory(directory)
    is_ours_to_fill = not wish.dry_run and os.path.realpath(directory) == os.path.realpath(place)
    if (
        snapshot.trusted
        and _is_all(wish)
        and not manner_of(os.fsencode(place), empty=is_ours_to_fill).is_narrow
    ):
        written = _write_all(snapshot, directory, source)
    else:
        planned, made = _prepare(snapshot, directory, source, wish)
        refuse_names(planned.plan, {b"": os.fsencode(place)}, empty=is_ours_to_fill)
        if wish.dry_run:
            return planned
        written = _write_planned(planned, directory, source, made)
    return replace(written, moment=snapshot, seconds=time.monotonic() - started)


def _is_all(wish: RestoreOptions) -> bool:
    return not wish.dry_run and not wish.pathspecs and wish.classes is None


def _write_all(snapshot: Snapshot, directory: str, source: Source) -> RestoreResult:
    """All of a snapshot of ours: what there is to do is found out while it is done."""

    def open_contents() -> ObjectReader:
        contents = source.open_contents({})
        contents.by_checksum = True
        return contents

    with closing(open_contents()) as contents:
        whole = SnapshotSource(contents, snapshot.tree)
        beside = _beside(whole.roots())
        filled = _fill(directory, whole, open_contents, source.how)
    return _told(RestoreResult(snapshot, plan_of(filled, snapshot.tree, open_contents, beside)), filled)


def _write_planned(
    planned: RestoreResult, directory: str, source: Source, made: Mapping[bytes, bytes]
) -> RestoreResult:
    top = next((own.after for own in planned.plan.directories if own.path == TOP), None)
    if top is None:
        # There is no such moment: nothing, not even the top, was captured.
        _make(directory)
        return planned
    what = PlanSource(planned.plan, top)
    return _told(planned, _fill(directory, what, partial(source.open_contents, made), source.how))


def _fill(directory: str, what: Moment, open_contents: Callable[[], ObjectReader], how: str) -> FillResult:
    is_new = not os.path.lexists(directory)
    _make(directory)
    process = os.getpid()
    try:
        return fill_directory(os.fsencode(directory), what, open_contents, how=how)
    except BaseException:
        # A worker that is stopped is a copy of this process: it has nothing to clear up.
        if is_new and os.getpid() == process:
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _make(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, directory) from error


def _told(planned: RestoreResult, filled: FillResult) -> RestoreResult:
    losses = told_losses(filled.losses)
    return replace(planned, verified=filled.written, kept=filled.kept, losses=(*planned.losses, *losses))


def _prepare(
    snapshot: Snapshot, directory: str, source: Source, wish: RestoreOptions
) -> tuple[RestoreResult, Mapping[bytes, bytes]]:
    """The plan, and the blobs in it that stand in no snapshot."""
    with closing(source.open_contents({})) as contents:
        if snapshot.trusted:
            pairs = list(differing_directories(contents, None, bytes.fromhex(snapshot.tree)))
            return RestoreResult(snapshot, _plan(pairs, _rules(pairs, snapshot, source, wish))), {}
        room = room_at(directory)
        pairs, findings = inspect(source.git, contents, snapshot.tree, room=room, force=wish.force)
    rules = findings.rules(_rules(pairs, snapshot, source, wish))
    plan = _plan([findings.sanitised(pair) for pair in pairs], rules)
    return untrusted_warnings(RestoreResult(snapshot, plan), findings, pairs), findings.blobs


def _rules(pairs: list[DirectoryPair], snapshot: Snapshot, source: Source, wish: RestoreOptions) -> PlanRules:
    """All of it, or what was chosen and the directories that it lies in."""
    chosen = chosen_paths(source.git, pairs, wish, (snapshot.tree,))
    if chosen is None:
        return PlanRules()
    wanted = with_directories(chosen)
    return PlanRules(lambda path, _: None if not path or path in wanted else NOT_CHOSEN)


def _plan(pairs: list[DirectoryPair], rules: PlanRules) -> RestorePlan:
    plan = make_plan((pair for pair in pairs if not pair.realm), rules)
    beside = _beside(sorted({pair.realm for pair in pairs if pair.realm}))
    return RestorePlan(plan.steps, plan.directories, plan.unchanged, (*plan.left_alone, *beside))


def _beside(roots: Iterable[bytes]) -> tuple[SkippedPath, ...]:
    return tuple(SkippedPath(EnvPath(root + b"://"), OTHER_ROOT) for root in roots)


def _refuse_taken(directory: str) -> None:
    try:
        taken = os.path.lexists(directory) and is_taken(directory)
        left = unplaced_entries(directory) if taken else None
    except OSError as error:
        raise cannot_write(error, directory) from error
    if left is not None:
        # What came has its name since: it may have been changed, so nobody but its owner takes it away.
        raise Refused(
            f"'{directory}' holds a part of what a restore wrote that was killed: {left} at its top had still to come",
            hint="take it away, or name another directory",
        )
    if taken:
        raise Refused(
            f"there is something in '{directory}' already", hint="name a new directory, or an empty one"
        )
