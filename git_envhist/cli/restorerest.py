"""What of a moment did not come back, where a part of it was wanted.

That part is the newest moment then: whoever goes to `@` next would believe that all is well.
"""

from __future__ import annotations

from git_envhist.cli.command import Session
from git_envhist.errors import SnapshotNotFound
from git_envhist.model import RestoreResult, RestoreRole, Snapshot
from git_envhist.store.compare import compare


def not_restored_line(session: Session, restored: RestoreResult, *, partly: bool) -> str:
    """One line where anything beside the part is not as it was in the moment; nothing else."""
    target, now = restored.target, restored.moment
    if now is None and target.restore is RestoreRole.TO and target.restored_from:
        # What is here is what the restore of a part left.
        source = _find(session, target.restored_from)
        return _told(session, source, target) if source is not None else ""
    return _told(session, target, now) if partly and now is not None else ""


def _find(session: Session, name: str) -> Snapshot | None:
    try:
        return session.history.resolve(name)
    except SnapshotNotFound:
        return None


def _told(session: Session, target: Snapshot, now: Snapshot) -> str:
    if now.content == target.content:
        return ""
    differing = len(compare(session.history.repository.git, target.commit, now.commit, brief=True))
    if not differing:
        return ""
    rest = "1 path beside differs" if differing == 1 else f"{differing:,} paths beside differ"
    return f"{rest} from {target.id[:7]}; to bring all of it back: git envrestore {target.id[:7]}"
