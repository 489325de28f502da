"""Report damaged objects by the paths that need them, while files are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.model import Entry, EnvPath, RestorePlan, shown_path
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.restore.write_entry import read_content

# Damaged objects, reported by path.

MAX_PATHS = 3


@contextmanager
def report_damage_in_target(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> Iterator[None]:
    """Report unreadable contents of the target by path."""
    coming = [
        (shown_path(step.root, entry.path), entry)
        for step in plan.steps
        for entry in (step.after, *step.below)
        if entry is not None
    ]
    with _damage_reported(
        coming,
        open_contents,
        "of the snapshot",
        "'git envlog fsck --repair' repairs what it can; or leave them out: "
        "git envrestore <rev> -- . ':!<path>'",
    ):
        yield


@contextmanager
def report_damage_in_safety(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> Iterator[None]:
    """Report unreadable contents of the safety snapshot by path; nothing has been changed then."""
    replaced = [(step.shown, step.before) for step in plan.steps if step.before is not None]
    with _damage_reported(
        replaced, open_contents, "just saved", "nothing was changed; for details run: git envlog fsck"
    ):
        yield


@contextmanager
def _damage_reported(
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
    try:
        read_content(contents, path, entry)
    except EnvhistError:
        return False
    return True


def _damaged(what: str, paths: list[EnvPath], hint: str) -> Damaged:
    names = ", ".join(f"'{os.fsdecode(path)}'" for path in paths[:MAX_PATHS])
    more = f" and {len(paths) - MAX_PATHS:,} more" if len(paths) > MAX_PATHS else ""
    return Damaged(f"bytes {what} cannot be read: {names}{more}", hint=hint)
