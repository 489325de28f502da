"""Additional facts in the result of a restore: damaged paths, unstable files, packages of the machine, services."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from git_envhist.capture.captured_tree import CapturedTree
from git_envhist.diff.facts import SERVICE, changed_facts, order_outside, path_of_fact_change
from git_envhist.diff.used_machine_packages import LISTS, RUNTIMES, assign_machine_roles
from git_envhist.errors import EnvhistError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    FactChange,
    MissingPath,
    RestorePlan,
    RestoreResult,
    Snapshot,
)
from git_envhist.platform import open_file_only
from git_envhist.probes import PACKAGES, PROBES, file_probes, machine_probes
from git_envhist.restore.options import RestoreOptions
from git_envhist.snapshots.fact_text import read_fact_text
from git_envhist.snapshots.layout import UNSTABLE
from git_envhist.snapshots.list_texts import read_missing
from git_envhist.snapshots.manifest import BUDGET
from git_envhist.snapshots.stored_names import RESERVED

# Files that changed while they were captured.

MAX_SHOWN = 5


def unstable_path_warnings(git: Git, tree: str, plan: RestorePlan | None = None) -> tuple[str, ...]:
    """Return warnings about restored files that changed while they were captured; without a plan, about all of them."""
    with CatFile(git, max_size=BUDGET.size) as reader:
        found = reader.read(f"{tree}:{os.fsdecode(RESERVED + b'/' + UNSTABLE)}")
    items = read_missing(found.data) if found is not None else []
    if plan is not None:
        items = list(_touched(items, plan))
    warnings = [
        f"'{os.fsdecode(item.path)}' was captured while it changed{': ' if item.detail else ''}{item.detail}"
        for item in items[:MAX_SHOWN]
    ]
    more = len(items) - MAX_SHOWN
    return (
        (*warnings, f"and {more:,} more paths were read while they changed") if more > 0 else tuple(warnings)
    )


def _touched(items: Iterable[MissingPath], plan: RestorePlan) -> Iterator[MissingPath]:
    restored = [step.shown for step in plan.steps if step.after is not None]
    for item in items:
        inside = item.path + b"/" if item.path else b""
        # A directory in use by a server, or a file in a directory that is restored as a whole.
        if any(
            path == item.path or path.startswith(inside) or item.path.startswith(path + b"/")
            for path in restored
        ):
            yield item


MAX_LIST = 1 << 18
NOT_GITS = ("?", "!")


def tracked_differences(captured: CapturedTree) -> frozenset[bytes] | None:
    """Return the tracked files that differ from HEAD; None if git could not list them."""
    changed = captured.view.changed
    return None if changed is None else frozenset(one.path for one in changed if one.status not in NOT_GITS)


def add_machine_facts(
    planned: RestoreResult, captured: CapturedTree, options: RestoreOptions
) -> RestoreResult:
    """Return a plan with the packages and services that still differ; a dry run also lists facts of restored files."""
    with_outside = not options.pathspecs and (not options.classes or PACKAGES in options.classes)
    if not with_outside and not options.dry_run:
        return planned
    git = captured.context.repository.git.with_objects(captured.staging.path)
    try:
        changes = changed_facts(
            git, captured.finish().tree, planned.target.tree, find_key=captured.context.keys.opening
        )
    except EnvhistError:
        return planned
    outside = tuple(_outside_of(changes, planned.target, options, captured)) if with_outside else ()
    return replace(
        planned,
        outside=outside,
        story=_facts_of_files(changes, planned.plan, options) if options.dry_run else (),
    )


def _facts_of_files(
    changes: Iterable[FactChange], plan: RestorePlan, options: RestoreOptions
) -> tuple[FactChange, ...]:
    """Return the facts of files in the plan."""
    touched = [path for step in plan.steps for path in (step.shown, *(entry.path for entry in step.below))]
    places = {place for path in touched for place in _places(path)}
    if plan.steps and not (options.pathspecs or options.classes):
        places.add(TOP)
    probes = file_probes()
    return tuple(
        change for change in changes if change.probe in probes and path_of_fact_change(change) in places
    )


def _places(path: bytes) -> Iterator[bytes]:
    """Yield a path and every directory above it, below the top."""
    while path:
        yield path
        path = path.rpartition(b"/")[0]


def _outside_of(
    changes: Iterable[FactChange], target: Snapshot, options: RestoreOptions, captured: CapturedTree
) -> Iterator[FactChange]:
    """Yield packages of the machine that differ, those in use first; and services that ran."""
    changes = tuple(changes)
    machine = machine_probes()
    packages = [one for one in changes if one.probe in machine and PROBES[one.probe].kind == PACKAGES]
    if packages:
        packages = list(assign_machine_roles(packages, _lists(captured, target), _installed(captured)))
    yield from order_outside(packages)
    yield from order_outside(() if options.classes else _services_that_ran(changes, target))


def _lists(captured: CapturedTree, target: Snapshot) -> Iterator[str]:
    """Yield the files that name packages of a machine, as they are now and as in the target."""
    repository = captured.context.repository
    with CatFile(repository.git) as reader:
        for name in LISTS:
            path = os.path.join(repository.root, name)
            with suppress(OSError), open(path, "rb", opener=open_file_only) as file:
                yield file.read(MAX_LIST).decode("utf-8", "replace")
            then = reader.read(f"{target.tree}:{name}")
            if then is not None and then.kind == "blob":
                yield then.data[:MAX_LIST].decode("utf-8", "replace")


def _installed(captured: CapturedTree) -> dict[str, frozenset[str]]:
    """Return the names of installed packages, by probe."""
    found = {}
    for name in RUNTIMES:
        kept = captured.facts.kept.get(name)
        text = read_fact_text(name, captured.facts.text(name, kept.oid)) if kept is not None else None
        lines = text.lines if text is not None else []
        found[name] = frozenset(os.fsdecode(line.partition(b" ")[0].rpartition(b"/")[2]) for line in lines)
    return found


def _services_that_ran(changes: Iterable[FactChange], target: Snapshot) -> Iterator[FactChange]:
    """Yield services of the target that do not run now, or on another port."""
    for change in changes:
        if change.probe == SERVICE and change.after is not None:
            # A command of an unsigned snapshot is not offered for copying.
            yield change if target.trusted is not False else replace(change, by="")
