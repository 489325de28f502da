"""What agents that were installed leave behind in our own directories: it goes with the last of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator

from git_envhist.triggers.agents.sessions import held
from git_envhist.triggers.forgetting import states_of
from git_envhist.triggers.integration import Place
from git_envhist.values import replace

SHIM = "agent-"
SPOOL = "spool"


def leftovers(place: Place, gone: Collection[str]) -> tuple[str, ...]:
    """The directories that nobody needs once those agents are gone: what was spooled, where sessions stood."""
    return tuple(path for path in _unneeded(place, gone) if os.path.isdir(path))


def remove(directories: Collection[str]) -> None:
    """Take them away; whoever takes from a spool ends that first."""
    for directory in directories:
        if os.path.basename(directory) == SPOOL:
            with held(directory):
                shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def _unneeded(place: Place, gone: Collection[str]) -> Iterator[str]:
    if _agents(place.state) - set(gone):
        return
    yield os.path.join(place.state, "hooks", SPOOL)
    if place.repository is None:
        return
    # An agent of the user has its sessions in the repository, too, and the other way round.
    other = replace(place, everywhere=not place.everywhere)
    if not _agents(other.state):
        yield from (os.path.join(state, "agents") for state in states_of(place.repository))


def _agents(state: str) -> set[str]:
    """The agents that have a shim in a directory of ours."""
    try:
        names = os.listdir(os.path.join(state, "hooks"))
    except OSError:
        return set()
    return {name.removeprefix(SHIM) for name in names if name.startswith(SHIM)}
