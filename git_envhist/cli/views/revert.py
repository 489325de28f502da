"""The texts of a revert: its plan, its conflicts, its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.cli.path_arguments import quoted
from git_envhist.cli.views import restore as views
from git_envhist.cli.views.restore import Signed, counts_line, root_lines
from git_envhist.model import Conflict, RestoreResult
from git_envhist.text import escape


def plan_lines(planned: RestoreResult) -> Iterator[str]:
    """Yield the short plan that is printed before a revert; nothing if there is nothing to do."""
    if planned.plan.steps or planned.plan.directories:
        yield f"  revert {planned.reverted}"
        yield "  " + counts_line(planned)
        yield from root_lines(planned.roots)


def dry_run_lines(planned: RestoreResult, signed: Signed) -> Iterator[str]:
    """Yield the whole plan, and the conflicts."""
    if not (planned.plan.steps or planned.plan.directories or planned.conflicts):
        yield from _idle_lines(planned)
        return
    yield from plan_lines(planned)
    yield from views.step_lines(planned.plan, signed)
    yield from views.skipped_lines(planned)
    yield from conflict_lines(planned.conflicts)
    if planned.conflicts:
        yield "nothing was changed; to decide: --ours, --theirs, --conflict=markers, or name other paths"
    else:
        yield f"nothing was changed; your files would be saved first; to undo: {views.UNDO}"


def conflict_lines(conflicts: Iterable[Conflict]) -> Iterator[str]:
    """Yield each conflict with its reason."""
    for conflict in conflicts:
        yield f"conflict: {escape(quoted(conflict.path, quote_all=False))}: {conflict.why}"


def done_lines(reverted: RestoreResult) -> Iterator[str]:
    """Yield the result of a revert, with the command that undoes it."""
    if reverted.snapshot is None:
        yield from _idle_lines(reverted)
        return
    yield from views.done_lines(reverted, did="reverted")


def _idle_lines(reverted: RestoreResult) -> Iterator[str]:
    yield f"nothing to revert: {reverted.reverted} changed nothing that is still in the files"
    yield from views.skipped_lines(reverted)
