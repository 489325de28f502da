"""What a plan would come to: whether there is anything to do, what else would change, and what would be refused."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.capturing.holding import CapturedTree
from git_envhist.errors import Refused
from git_envhist.model import RestoreResult
from git_envhist.restoring.head import is_there, plan_move
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.store.repository import Repository
from git_envhist.values import replace


def changes_files(planned: RestoreResult) -> bool:
    """Whether anything in the environment would differ."""
    return bool(planned.plan.steps or planned.plan.directories)


def is_idle(planned: RestoreResult, wish: RestoreOptions, repository: Repository) -> bool:
    """Whether there is nothing to do, for the files or beside them."""
    if changes_files(planned) or wish.stopped:
        return False
    return not wish.head or is_there(repository, planned.target)


def preview(
    planned: RestoreResult, wish: RestoreOptions, held: CapturedTree, guard: Callable[[], object]
) -> RestoreResult:
    """A plan that is only shown, with where HEAD would go; what stands in its way is said, and refuses nothing yet."""
    moves: list[str] = []

    def try_all() -> None:
        guard()
        repository = held.context.repository
        if wish.head and (move := plan_move(repository, planned.target, held.view, force=wish.force)):
            moves.append(str(move))

    planned = preview_refusals(planned, try_all)
    return replace(planned, head=moves[0]) if moves else planned


def preview_refusals(planned: RestoreResult, guard: Callable[[], object]) -> RestoreResult:
    """A plan that is only shown, and what would refuse it."""
    try:
        guard()
    except Refused as refused:
        warning = f"as it is now, this would be refused: {refused.message}"
        return replace(planned, warnings=(*planned.warnings, warning))
    return planned
