"""The id of a plan: who was shown one can ask for that very one, and is refused where it would be another by now."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from git_envhist.errors import Refused
from git_envhist.model import RestoreResult

LENGTH = 16


class StalePlan(Refused):
    """What a restore would do is not what was shown."""

    code = "stale-plan"

    def __init__(self, shown: str, again: str = "git envrestore --dry-run --json") -> None:
        super().__init__(
            f"the plan '{shown}' is stale: what is here, or what is wanted, has changed since",
            hint=f"look at the plan again: {again}",
        )


def plan_id(planned: RestoreResult) -> str:
    """Equal for two plans that do the same to the same files, as they stand here."""
    digest = hashlib.sha256(planned.target.id.encode())
    for step in planned.plan.steps:
        told = (step.realm, step.path, step.action.value, step.before, step.after, len(step.below), step.unit)
        digest.update(repr(told).encode("utf-8", "surrogateescape"))
    for directory in planned.plan.directories:
        digest.update(
            repr((directory.realm, directory.path, directory.after)).encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()[:LENGTH]


def require_plan(
    shown: str | None, also: Callable[[RestoreResult], None] | None
) -> Callable[[RestoreResult], None] | None:
    """What to do with a plan before it is carried out: refuse another than the one that was shown."""
    if shown is None:
        return also

    def look(planned: RestoreResult) -> None:
        if plan_id(planned) != shown:
            raise StalePlan(shown)
        if also is not None:
            also(planned)

    return look
