"""Writes a moment into a directory of its own, and touches nothing here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import NamedTuple

from git_envhist.errors import Refused
from git_envhist.model import EnvPath, LeftAlone, Pair, Plan, Restored, Snapshot
from git_envhist.restore.plan import Rules, make_plan
from git_envhist.restoring.carrying import Place, carry_out
from git_envhist.restoring.inspection import inspect, nearest_directory, room_at
from git_envhist.restoring.names import refuse_names
from git_envhist.restoring.planning import chosen_paths
from git_envhist.restoring.scope import NOT_CHOSEN, with_directories
from git_envhist.restoring.trust import told
from git_envhist.restoring.wish import NO_WISH, Wish
from git_envhist.store.contents import Contents
from git_envhist.store.durable import cannot_write
from git_envhist.store.git import Git
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.pairs import read_pairs
from git_envhist.values import replace

OTHER_ROOT = "it belongs to a root beside the working tree"


class Source(NamedTuple):
    """Where the bytes of a snapshot are read."""

    git: Git
    state: str
    open_contents: Callable[[Mapping[bytes, bytes]], Contents]
    """Given blobs, by their ids, that stand in no snapshot."""
    how: str


def write_elsewhere(snapshot: Snapshot, directory: str, source: Source, wish: Wish = NO_WISH) -> Restored:
    """Write what a snapshot holds into a new or an empty directory; of somebody else's what is harmless."""
    started = time.monotonic()
    _refuse_taken(directory)
    planned, made = _prepare(snapshot, directory, source, wish)
    place = nearest_directory(directory)
    is_ours_to_fill = not wish.dry_run and os.path.realpath(directory) == os.path.realpath(place)
    refuse_names(planned.plan, {b"": os.fsencode(place)}, empty=is_ours_to_fill)
    if wish.dry_run:
        return planned
    private = os.path.join(state_directory(source.state), "elsewhere")
    with locked(private + ".lock"):
        _make_place(directory)
        bases = {b"": os.fsencode(directory)}
        ground = Place(private, bases, frozenset(), lambda: source.open_contents(made), source.how)
        carried = carry_out(ground, planned.plan, (), durable=False)
        with suppress(OSError):
            os.rmdir(private)
    return replace(
        planned,
        moment=snapshot,
        verified=carried.verified,
        seconds=time.monotonic() - started,
        kept=carried.kept,
        losses=(*planned.losses, *carried.losses),
    )


def _prepare(
    snapshot: Snapshot, directory: str, source: Source, wish: Wish
) -> tuple[Restored, Mapping[bytes, bytes]]:
    """The plan, and the blobs in it that stand in no snapshot."""
    with closing(source.open_contents({})) as contents:
        if snapshot.trusted:
            pairs = list(read_pairs(contents, None, bytes.fromhex(snapshot.tree)))
            return Restored(snapshot, _plan(pairs, _rules(pairs, snapshot, source, wish))), {}
        room = room_at(directory)
        pairs, findings = inspect(source.git, contents, snapshot.tree, room=room, force=wish.force)
    rules = findings.rules(_rules(pairs, snapshot, source, wish))
    plan = _plan([findings.sanitised(pair) for pair in pairs], rules)
    return told(Restored(snapshot, plan), findings, pairs), findings.blobs


def _rules(pairs: list[Pair], snapshot: Snapshot, source: Source, wish: Wish) -> Rules:
    """All of it, or what was chosen and the directories that it lies in."""
    chosen = chosen_paths(source.git, pairs, wish, (snapshot.tree,))
    if chosen is None:
        return Rules()
    wanted = with_directories(chosen)
    return Rules(lambda path, _: None if not path or path in wanted else NOT_CHOSEN)


def _plan(pairs: list[Pair], rules: Rules) -> Plan:
    plan = make_plan((pair for pair in pairs if not pair.realm), rules)
    roots = sorted({pair.realm for pair in pairs if pair.realm})
    beside = tuple(LeftAlone(EnvPath(root + b"://"), OTHER_ROOT) for root in roots)
    return Plan(plan.steps, plan.directories, plan.unchanged, (*plan.left_alone, *beside))


def _make_place(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, directory) from error
    _refuse_taken(directory)


def _refuse_taken(directory: str) -> None:
    try:
        taken = os.path.lexists(directory) and bool(os.listdir(directory))
    except OSError as error:
        raise cannot_write(error, directory) from error
    if taken:
        raise Refused(
            f"there is something in '{directory}' already", hint="name a new directory, or an empty one"
        )
