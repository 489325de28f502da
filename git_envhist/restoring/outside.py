"""What a restore leaves beside it: the machine as it is now, and git's own view of the files."""

from __future__ import annotations

from git_envhist.capturing.factdiff import changed_facts
from git_envhist.capturing.holding import Held
from git_envhist.errors import EnvhistError
from git_envhist.facts import PACKAGES, PROBES, machine_probes
from git_envhist.history.outside import order_outside
from git_envhist.model import FactChange, Snapshot
from git_envhist.restoring.wish import Wish

NOT_GITS = ("?", "!")


def differing(held: Held) -> frozenset[bytes] | None:
    """The tracked files that differ from HEAD; None where git could not tell."""
    changed = held.view.changed
    return None if changed is None else frozenset(one.path for one in changed if one.status not in NOT_GITS)


def outside_of(held: Held, target: Snapshot, wish: Wish) -> tuple[FactChange, ...]:
    """The packages of the machine that are not as they were; nothing where only a part is to be restored."""
    if wish.pathspecs or (wish.classes and PACKAGES not in wish.classes):
        return ()
    git = held.context.repository.git.with_objects(held.staging.path)
    try:
        changes = changed_facts(git, held.finish().tree, target.tree)
    except EnvhistError:
        return ()
    machine = machine_probes()
    return order_outside(
        change for change in changes if change.probe in machine and PROBES[change.probe].kind == PACKAGES
    )
