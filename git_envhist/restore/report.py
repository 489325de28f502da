"""What the facts say of a restore: what it brings, the machine that stays as it is; and git's own view of the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress

from git_envhist.capture.captured_tree import CapturedTree
from git_envhist.diff.facts import SERVICE, changed_facts, order_outside, path_of_fact_change
from git_envhist.diff.machine_packages import LISTS, RUNTIMES, mark_used
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    Entry,
    EnvPath,
    FactChange,
    MissingPath,
    RestorePlan,
    RestoreResult,
    Snapshot,
    StoredAs,
    shown_path,
)
from git_envhist.objects.reader import ObjectReader
from git_envhist.platform import open_file_only
from git_envhist.probes import PACKAGES, PROBES, machine_probes, tree_probes
from git_envhist.restore.options import RestoreOptions
from git_envhist.snapshots.chunks import stream_chunks
from git_envhist.snapshots.layout import UNSTABLE
from git_envhist.snapshots.manifest import BUDGET
from git_envhist.snapshots.names import RESERVED
from git_envhist.snapshots.records import read_fact_text, read_missing

# Which paths a damaged store concerns.

SHOWN = 3


@contextmanager
def report_damage_in_target(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> Iterator[None]:
    """What cannot be read of the moment is told by its paths, before anything is touched."""
    coming = [
        (shown_path(step.root, entry.path), entry)
        for step in plan.steps
        for entry in (step.after, *step.below)
        if entry is not None
    ]
    with _told(
        coming,
        open_contents,
        "of that moment",
        "'git envlog fsck --repair' brings back what is still to be had; or leave them out: "
        "git envrestore <rev> -- . ':!<path>'",
    ):
        yield


@contextmanager
def report_damage_in_safety(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> Iterator[None]:
    """What was saved and cannot be read back is told by its paths; nothing starts then."""
    going = [(step.shown, step.before) for step in plan.steps if step.before is not None]
    with _told(
        going, open_contents, "just saved", "nothing was changed; 'git envlog fsck' says more of the store"
    ):
        yield


@contextmanager
def _told(
    entries: list[tuple[EnvPath, Entry]], open_contents: Callable[[], ObjectReader], what: str, hint: str
) -> Iterator[None]:
    try:
        yield
    except (Damaged, GitFailed) as error:
        with closing(open_contents()) as contents:
            found = [path for path, entry in entries if not _is_whole(contents, path, entry)]
        if not found:
            raise
        raise _damaged(what, found, hint) from error


def _is_whole(contents: ObjectReader, path: EnvPath, entry: Entry) -> bool:
    if entry.oid is None:
        return True
    try:
        blob = contents.blob(entry.oid)
        if entry.stored is StoredAs.PIECES:
            for _ in stream_chunks(contents, blob):
                pass
        elif entry.stored is StoredAs.SEALED:
            contents.open_sealed(path, blob)
    except EnvhistError:
        return False
    return True


def _damaged(what: str, paths: list[EnvPath], hint: str) -> Damaged:
    names = ", ".join(f"'{os.fsdecode(path)}'" for path in paths[:SHOWN])
    more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
    return Damaged(f"bytes {what} cannot be read: {names}{more}", hint=hint)


# What a moment holds and does not vouch for: files that changed under every reading.

TOLD = 5


def unstable_path_warnings(git: Git, tree: str, plan: RestorePlan | None = None) -> tuple[str, ...]:
    """Warnings about what a plan, or else the whole of a moment, brings as it was read while it changed."""
    with CatFile(git, largest=BUDGET.size) as reader:
        found = reader.read(f"{tree}:{os.fsdecode(RESERVED + b'/' + UNSTABLE)}")
    items = read_missing(found.data) if found is not None else []
    if plan is not None:
        items = list(_touched(items, plan))
    words = [
        f"'{os.fsdecode(item.path)}' comes as it was read while it changed{': ' if item.detail else ''}{item.detail}"
        for item in items[:TOLD]
    ]
    more = len(items) - TOLD
    return (*words, f"and {more:,} more paths were read while they changed") if more > 0 else tuple(words)


def _touched(items: Iterable[MissingPath], plan: RestorePlan) -> Iterator[MissingPath]:
    brought = [step.shown for step in plan.steps if step.after is not None]
    for item in items:
        inside = item.path + b"/" if item.path else b""
        # A directory that a server was at work on, or a file in a directory that comes as a whole.
        if any(
            path == item.path or path.startswith(inside) or item.path.startswith(path + b"/")
            for path in brought
        ):
            yield item


MAX_LIST = 1 << 18
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
                yield file.read(MAX_LIST).decode("utf-8", "replace")
            then = reader.read(f"{target.tree}:{name}")
            if then is not None and then.kind == "blob":
                yield then.data[:MAX_LIST].decode("utf-8", "replace")


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
