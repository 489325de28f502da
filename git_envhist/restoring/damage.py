"""Which paths a damaged store concerns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.model import Entry, EnvPath, RestorePlan, StoredAs, shown_path
from git_envhist.store.contents import ObjectReader

SHOWN = 3


@contextmanager
def report_damage_in_target(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> Iterator[None]:
    """What cannot be read of the moment is told by its paths, before anything is touched."""
    coming = [
        (shown_path(step.realm, entry.path), entry)
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
            for _ in contents.stream_pieces(blob):
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
