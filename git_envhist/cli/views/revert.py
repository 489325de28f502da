"""The texts of a revert or a merge: its plan, its conflicts, its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.cli.quote_path import quoted
from git_envhist.cli.views import restore as views
from git_envhist.cli.views.restore import Signed, counts_line, root_lines
from git_envhist.model import MergeConflict, RestoreResult
from git_envhist.printable_text import escape


def plan_lines(planned: RestoreResult) -> Iterator[str]:
    """Yield the short plan that is printed before the files change; nothing if there is nothing to do."""
    if planned.plan.steps or planned.plan.directories:
        yield f"  {_words(planned)}"
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
    yield from skipped_conflict_lines(planned)
    yield from conflict_lines(planned.conflicts)
    if planned.conflicts:
        yield "nothing was changed; to decide: --ours, --theirs, --both, --skip-conflicts, --conflict, --resolve"
    else:
        yield f"nothing was changed; your files would be saved first; to undo: {views.UNDO}"


def conflict_lines(conflicts: Iterable[MergeConflict]) -> Iterator[str]:
    """Yield each conflict with its reason."""
    for conflict in conflicts:
        yield f"conflict: {escape(quoted(conflict.path, quote_all=False))}: {conflict.why}"


def skipped_conflict_lines(planned: RestoreResult) -> Iterator[str]:
    """Yield each conflict that would be skipped."""
    for skipped in planned.kept:
        yield f"skip the conflict: {escape(quoted(skipped.path, quote_all=False))}: {skipped.why}"


def done_lines(done: RestoreResult) -> Iterator[str]:
    """Yield the result, with the command that undoes it."""
    if done.snapshot is None:
        yield from _idle_lines(done)
        return
    yield from views.done_lines(done, did="merged" if done.merged else "reverted")


def _words(planned: RestoreResult) -> str:
    """Return what is taken out or joined: `revert 9ac31f2`, `merge 9ac31f2 of laptop/app-2 (since be19d7d)`."""
    if not planned.merged:
        return f"revert {escape(planned.reverted)}"
    since = f" (since {planned.base.id[:7]})" if planned.base is not None else ""
    return f"merge {escape(planned.merged)}{since}"


def _idle_lines(planned: RestoreResult) -> Iterator[str]:
    if planned.merged:
        yield f"nothing to merge: the files have all changes of {escape(planned.merged)}"
        if planned.base is not None and planned.base.id == planned.target.id:
            yield "it is part of this timeline; to merge changes again, name where they begin: --base <rev>"
    else:
        yield f"nothing to revert: {escape(planned.reverted)} changed nothing that is still in the files"
    yield from views.skipped_lines(planned)
