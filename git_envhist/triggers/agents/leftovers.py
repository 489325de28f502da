"""What agents that were installed leave in our own directories: it goes with the last of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator

from git_envhist.triggers.agents.sessions import held
from git_envhist.triggers.forgetting import states_of
from git_envhist.triggers.integration import InstallTarget

SPOOL = "spool"


def leftovers(place: InstallTarget, gone: Collection[str]) -> tuple[str, ...]:
    """The directories that no agent needs once those agents are gone: what was spooled, the state of sessions."""
    return tuple(path for path in _unneeded(place, gone) if os.path.isdir(path))


def remove(directories: Collection[str]) -> None:
    """Remove them; a process that takes from a spool ends that first."""
    for directory in directories:
        if os.path.basename(directory) == SPOOL:
            with held(directory):
                shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def _unneeded(place: InstallTarget, gone: Collection[str]) -> Iterator[str]:
    trusted, named = place.trusted, place.named
    if trusted.agents(named) - set(gone):
        return
    if not any(one != named for one in trusted.places_of()):
        yield os.path.join(place.own_data, "hooks", SPOOL)
    if place.repository is None:
        return
    # An agent that is installed for every repository has its sessions in this one, too, and the other way round.
    other = place.repository.common_dir if place.everywhere else None
    if not trusted.agents(other):
        yield from (os.path.join(state, "agents") for state in states_of(place.repository))
