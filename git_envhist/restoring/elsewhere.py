"""Writes a moment into a directory of its own, and touches nothing here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress

from git_envhist.errors import Refused
from git_envhist.model import EnvPath, LeftAlone, Pair, Plan, Restored, Snapshot
from git_envhist.restore.plan import make_plan
from git_envhist.restoring.carrying import Place, carry_out
from git_envhist.store.contents import Contents
from git_envhist.store.durable import cannot_write
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.pairs import read_pairs

OTHER_ROOT = "it belongs to a root beside the working tree"


def write_elsewhere(
    snapshot: Snapshot, directory: str, state: str, open_contents: Callable[[], Contents], how: str
) -> Restored:
    """Write everything that a snapshot holds into a new or an empty directory."""
    started = time.monotonic()
    with closing(open_contents()) as contents:
        pairs = list(read_pairs(contents, None, bytes.fromhex(snapshot.tree)))
    plan = _plan(pairs)
    private = os.path.join(state_directory(state), "elsewhere")
    with locked(private + ".lock"):
        _make_place(directory)
        place = Place(private, {b"": os.fsencode(directory)}, frozenset(), open_contents, how)
        carried = carry_out(place, plan, ())
        with suppress(OSError):
            os.rmdir(private)
    return Restored(
        snapshot,
        plan,
        moment=snapshot,
        verified=carried.verified,
        seconds=time.monotonic() - started,
        kept=carried.kept,
        losses=carried.losses,
    )


def _plan(pairs: list[Pair]) -> Plan:
    plan = make_plan(pair for pair in pairs if not pair.realm)
    roots = sorted({pair.realm for pair in pairs if pair.realm})
    beside = tuple(LeftAlone(EnvPath(root + b"://"), OTHER_ROOT) for root in roots)
    return Plan(plan.steps, plan.directories, plan.unchanged, (*plan.left_alone, *beside))


def _make_place(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
        taken = bool(os.listdir(directory))
    except OSError as error:
        raise cannot_write(error, directory) from error
    if taken:
        raise Refused(
            f"there is something in '{directory}' already", hint="name a new directory, or an empty one"
        )
