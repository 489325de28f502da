"""What a restore refuses, before anything is changed, and the option that overrides it where one is sane."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from git_envhist.errors import Refused
from git_envhist.history.classes import database_of
from git_envhist.model import (
    SQLITE_HEADER,
    EntryKind,
    EnvPath,
    MissingPath,
    MissingReason,
    PlanStep,
    RestorePlan,
    SkippedPath,
)
from git_envhist.restoring.processes import holders
from git_envhist.restoring.scope import HOLDS_MOUNT, LEFT_OUT_NOW, MOUNTED, above
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.system import open_itself

DOT_GIT = b".git"
SHOWN = 3
LOCKS = (b"index.lock", b"HEAD.lock", b"config.lock", b"packed-refs.lock", b"shallow.lock")


def refuse_unsaved(plan: RestorePlan, missing: Iterable[MissingPath]) -> None:
    """What could not be saved whole is not replaced: it would be lost."""
    unsaved = {item.path: item for item in missing if item.why is not MissingReason.MOUNT}
    if not unsaved:
        return
    # Attributes that could not be read are those of the path alone, not of what lies below it.
    whole = {path: item for path, item in unsaved.items() if item.why is not MissingReason.ATTRIBUTES}
    found = {
        item.path: item
        for step in plan.steps
        if (item := _at_or_above(step.shown, whole) or unsaved.get(step.shown)) is not None
    }
    going = tuple(step.shown + b"/" for step in plan.steps if _goes(step))
    found |= {path: item for path, item in unsaved.items() if going and path.startswith(going)}
    if found:
        first = min(found.values(), key=lambda item: item.path)
        raise Refused(
            f"{_count(len(found))} cannot be saved before {'it is' if len(found) == 1 else 'they are'} replaced: "
            f"{_name(first.path)}, "
            f"{_reason(first)}",
            hint="put that right first, or leave it out: git envrestore <rev> -- . ':!<path>'",
        )


def _reason(item: MissingPath) -> str:
    if item.why is MissingReason.ATTRIBUTES:
        return f"its extended attributes cannot be read: {item.detail}"
    return item.detail or item.why.value


def refuse_left_out(plan: RestorePlan, wish: RestoreOptions) -> None:
    """Who names a path that is left out now, and gets nothing back, is told how to have it."""
    left = [item.path for item in plan.left_alone if item.why == LEFT_OUT_NOW]
    if wish.pathspecs and left and not (plan.steps or plan.directories):
        raise Refused(
            f"{_name(left[0])} is no part of the environment now: .envhistignore or envhist.exclude leaves it out",
            hint="take that pattern away and try again, or have it written elsewhere: --to <directory>",
        )


def refuse_mounted(plan: RestorePlan, missing: Iterable[MissingPath]) -> None:
    """What is mounted is not restored through, and no directory goes from under it."""
    mounts = _mounts(missing)
    hidden = {
        item.path for left in hidden_by_mounts(plan, missing) if (item := _at_or_above(left.path, mounts))
    }
    staying = tuple(left.path + b"/" for left in plan.left_alone if left.why == HOLDS_MOUNT)
    held = {path for path in mounts if staying and path.startswith(staying)}
    if hidden or held:
        first = min(hidden | held)
        why = "it hides what would be restored" if first in hidden else "what it stands in would go"
        more = len(hidden | held) - 1
        raise Refused(
            f"{_name(first)} is mounted from elsewhere, and {why}"
            + (f"; {more} more are, too" if more else ""),
            hint="unmount it first, or have it written elsewhere: --to; with --force it stays as it is, with the "
            "directories that it stands in",
        )


def hidden_by_mounts(plan: RestorePlan, missing: Iterable[MissingPath]) -> tuple[SkippedPath, ...]:
    """What the moment holds where something else is mounted now, and what it does not hold and cannot go for that."""
    mounts = _mounts(missing)
    return tuple(
        left
        for left in plan.left_alone
        if left.why == HOLDS_MOUNT
        or (left.why == MOUNTED and mounts and _at_or_above(left.path, mounts) is not None)
    )


def _mounts(missing: Iterable[MissingPath]) -> dict[EnvPath, MissingPath]:
    return {item.path: item for item in missing if item.why is MissingReason.MOUNT}


def refuse_open_databases(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> None:
    """A database that another process has open would go on being written to where nobody sees it."""
    tops = {realm: os.path.realpath(base) for realm, base in bases.items()}
    # Directories are left out, whatever their names: the scan's own processes keep them open, and no database is one.
    victims = {
        os.path.join(tops[step.realm], step.path): step
        for step in plan.steps
        if step.before is not None and step.before.kind is EntryKind.FILE
    }
    for place, process in holders(victims).items():
        if database_of(place) is not None or _is_sqlite(place):
            raise Refused(
                f"{_name(victims[place].shown)} is open in {process}",
                hint="stop that process first; with --force it goes on writing to the file that was replaced",
            )


def refuse_locked_repositories(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> None:
    """The `.git` of a nested repository is not touched while a git is at work in it."""
    for repository, step in _nested(plan.steps):
        top = os.path.join(bases[step.realm], repository)
        for lock in LOCKS:
            if os.path.lexists(os.path.join(top, lock)):
                raise Refused(
                    f"a git is at work in the repository that would be restored: {_name(EnvPath(repository))}",
                    hint=f"wait until it is done; where none is, remove its {lock.decode()}",
                )


def _goes(step: PlanStep) -> bool:
    """Whether a step takes a directory away."""
    return (
        step.before is not None
        and step.before.kind is EntryKind.DIRECTORY
        and (step.after is None or step.after.kind is not EntryKind.DIRECTORY)
    )


def _at_or_above(path: bytes, unsaved: Mapping[EnvPath, MissingPath]) -> MissingPath | None:
    while path:
        if (item := unsaved.get(EnvPath(path))) is not None:
            return item
        path = above(path)
    return unsaved.get(EnvPath(b""))


def _nested(steps: Iterable[PlanStep]) -> Iterator[tuple[bytes, PlanStep]]:
    seen = set()
    for step in steps:
        names = step.path.split(b"/")
        if DOT_GIT in names:
            repository = b"/".join(names[: names.index(DOT_GIT) + 1])
            if (step.realm, repository) not in seen:
                seen.add((step.realm, repository))
                yield repository, step


def _is_sqlite(path: bytes) -> bool:
    try:
        descriptor = open_itself(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _name(path: EnvPath) -> str:
    return f"'{os.fsdecode(path) or '.'}'"


def _count(number: int) -> str:
    return "one path" if number == 1 else f"{number} paths"
