"""What a restore leaves beside it: the machine as it is now, and git's own view of the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.capturing.factdiff import changed_facts
from git_envhist.capturing.holding import Held
from git_envhist.errors import EnvhistError
from git_envhist.facts import PACKAGES, PROBES, machine_probes
from git_envhist.history.outside import SERVICE, order_outside
from git_envhist.model import FactChange, Snapshot
from git_envhist.restoring.wish import Wish
from git_envhist.values import replace

NOT_GITS = ("?", "!")


def differing(held: Held) -> frozenset[bytes] | None:
    """The tracked files that differ from HEAD; None where git could not tell."""
    changed = held.view.changed
    return None if changed is None else frozenset(one.path for one in changed if one.status not in NOT_GITS)


def outside_of(held: Held, target: Snapshot, wish: Wish) -> tuple[FactChange, ...]:
    """The packages of the machine that are not as they were, and services that ran; nothing for a part of it."""
    if wish.pathspecs or (wish.classes and PACKAGES not in wish.classes):
        return ()
    git = held.context.repository.git.with_objects(held.staging.path)
    try:
        changes = changed_facts(git, held.finish().tree, target.tree)
    except EnvhistError:
        return ()
    services = () if wish.classes else _services_that_ran(changes, target)
    machine = machine_probes()
    packages = (one for one in changes if one.probe in machine and PROBES[one.probe].kind == PACKAGES)
    return (*order_outside(packages), *order_outside(services))


def _services_that_ran(changes: Iterable[FactChange], target: Snapshot) -> Iterator[FactChange]:
    """Those of the moment that do not run now, or on another port."""
    for change in changes:
        if change.probe == SERVICE and change.after is not None:
            # What somebody else wrote is not offered as a command to be copied.
            yield change if target.trusted is not False else replace(change, by="")
