"""Databases and what belongs to them: replaced together, or not at all (pure).

Between two renames a new database would stand beside the old one's log, and whoever opened it then would apply the one
to the other. So a log goes before its database is replaced, and the new one comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.model import SQLITE_SIDECARS, EnvPath, PlanAction, PlanStep
from git_envhist.values import replace


def split_units(removals: Iterable[PlanStep], arrivals: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """All steps in their order, those of a unit with its number; a sidecar that is replaced goes and comes."""
    removals, arrivals = list(removals), list(arrivals)
    units = dict(_units([*removals, *arrivals]))
    early, late = [], []
    for step in arrivals:
        step = _numbered(step, units)
        if step.unit is not None and step.action is PlanAction.REPLACE and _owner(step.path) is not None:
            early.append(replace(step, action=PlanAction.REMOVE, after=None))
            late.append(replace(step, action=PlanAction.WRITE, before=None))
        else:
            late.append(step)
    # What goes by itself may hold the directory that it stands in: it stays in its place, behind these.
    return (*early, *(_numbered(step, units) for step in removals), *late)


def _numbered(step: PlanStep, units: dict[tuple[bytes, EnvPath], int]) -> PlanStep:
    unit = units.get((step.realm, step.path))
    return step if unit is None else replace(step, unit=unit)


def _units(steps: list[PlanStep]) -> Iterator[tuple[tuple[bytes, EnvPath], int]]:
    displaced = {(step.realm, step.path) for step in steps if step.action is not PlanAction.ADJUST}
    numbers: dict[tuple[bytes, EnvPath], int] = {}
    for realm, path in displaced:
        owner = _owner(path)
        if owner is not None and (realm, owner) in displaced:
            number = numbers.setdefault((realm, owner), len(numbers))
            yield (realm, path), number
            yield (realm, owner), number


def _owner(path: EnvPath) -> EnvPath | None:
    """The database that a file of this name belongs to."""
    for suffix in SQLITE_SIDECARS:
        if path.endswith(suffix) and not path.endswith(b"/" + suffix) and path != suffix:
            return EnvPath(path.removesuffix(suffix))
    return None
