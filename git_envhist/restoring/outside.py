"""What the facts say of a restore: what it brings, the machine that stays as it is; and git's own view of the files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from git_envhist.capturing.factdiff import changed_facts, path_of_fact_change
from git_envhist.capturing.holding import CapturedTree
from git_envhist.errors import EnvhistError
from git_envhist.facts import PACKAGES, PROBES, machine_probes, tree_probes
from git_envhist.history.machineneeds import LISTS, RUNTIMES, mark_used
from git_envhist.history.outside import SERVICE, order_outside
from git_envhist.model import TOP, FactChange, RestorePlan, RestoreResult, Snapshot
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.store.facts import read_fact_text
from git_envhist.store.objects import CatFile
from git_envhist.system import open_file_only
from git_envhist.values import replace

LARGEST_LIST = 1 << 18
NOT_GITS = ("?", "!")


def differing(held: CapturedTree) -> frozenset[bytes] | None:
    """The tracked files that differ from HEAD; None where git could not tell."""
    changed = held.view.changed
    return None if changed is None else frozenset(one.path for one in changed if one.status not in NOT_GITS)


def add_machine_facts(planned: RestoreResult, held: CapturedTree, wish: RestoreOptions) -> RestoreResult:
    """A plan, with what of the machine is not as it was; one that is only shown tells also what it would bring."""
    outside_is_told = not wish.pathspecs and (not wish.classes or PACKAGES in wish.classes)
    if not outside_is_told and not wish.dry_run:
        return planned
    git = held.context.repository.git.with_objects(held.staging.path)
    try:
        changes = changed_facts(
            git, held.finish().tree, planned.target.tree, find_key=held.context.keys.opening
        )
    except EnvhistError:
        return planned
    outside = tuple(_outside_of(changes, planned.target, wish, held)) if outside_is_told else ()
    return replace(
        planned, outside=outside, story=_brought(changes, planned.plan, wish) if wish.dry_run else ()
    )


def _brought(
    changes: Iterable[FactChange], plan: RestorePlan, wish: RestoreOptions
) -> tuple[FactChange, ...]:
    """The facts that the plan's own files tell: of a part that is restored, of no more than that."""
    touched = [path for step in plan.steps for path in (step.shown, *(entry.path for entry in step.below))]
    places = {place for path in touched for place in _places(path)}
    if plan.steps and not (wish.pathspecs or wish.classes):
        places.add(TOP)
    told = tree_probes()
    return tuple(
        change for change in changes if change.probe in told and path_of_fact_change(change) in places
    )


def _places(path: bytes) -> Iterator[bytes]:
    """A path, and every directory below the top that it lies in."""
    while path:
        yield path
        path = path.rpartition(b"/")[0]


def _outside_of(
    changes: Iterable[FactChange], target: Snapshot, wish: RestoreOptions, held: CapturedTree
) -> Iterator[FactChange]:
    """The packages of the machine that are not as they were, those that are used here first; services that ran."""
    changes = tuple(changes)
    machine = machine_probes()
    packages = [one for one in changes if one.probe in machine and PROBES[one.probe].kind == PACKAGES]
    if packages:
        packages = list(mark_used(packages, _lists(held, target), _installed(held)))
    yield from order_outside(packages)
    yield from order_outside(() if wish.classes else _services_that_ran(changes, target))


def _lists(held: CapturedTree, target: Snapshot) -> Iterator[str]:
    """The files that name packages of a machine, as they are now and as the snapshot has them."""
    repository = held.context.repository
    with CatFile(repository.git) as reader:
        for name in LISTS:
            path = os.path.join(repository.root, name)
            with suppress(OSError), open(path, "rb", opener=open_file_only) as file:
                yield file.read(LARGEST_LIST).decode("utf-8", "replace")
            then = reader.read(f"{target.tree}:{name}")
            if then is not None and then.kind == "blob":
                yield then.data[:LARGEST_LIST].decode("utf-8", "replace")


def _installed(held: CapturedTree) -> dict[str, frozenset[str]]:
    """By probe, the names of what the environment holds now."""
    found = {}
    for name in RUNTIMES:
        kept = held.facts.kept.get(name)
        text = read_fact_text(name, held.facts.text(name, kept.oid)) if kept is not None else None
        lines = text.lines if text is not None else []
        found[name] = frozenset(os.fsdecode(line.partition(b" ")[0].rpartition(b"/")[2]) for line in lines)
    return found


def _services_that_ran(changes: Iterable[FactChange], target: Snapshot) -> Iterator[FactChange]:
    """Those of the moment that do not run now, or on another port."""
    for change in changes:
        if change.probe == SERVICE and change.after is not None:
            # What somebody else wrote is not offered as a command to be copied.
            yield change if target.trusted is not False else replace(change, by="")
