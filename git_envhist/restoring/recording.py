"""The moment that records where a restore arrived."""

from __future__ import annotations

import os

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.request import CaptureOptions
from git_envhist.capturing.since import KnownWrites
from git_envhist.history.intents import operation_words
from git_envhist.model import RestoreRole, Snapshot, SnapshotId, Trigger
from git_envhist.restoring.outside import differing
from git_envhist.trace import step

NOT_RECORDED = "the restore is done, but could not be recorded"


@step("the moment after is recorded")
def publish_now(
    capturing: CapturePipeline,
    source: SnapshotId | None,
    part: RestoreRole,
    since: KnownWrites | None = None,
    target: Snapshot | None = None,
    *,
    undone: SnapshotId | None = None,
    paths: str = "",
) -> tuple[Snapshot | None, frozenset[bytes] | None]:
    """The environment as it is now, as a moment that says where it comes from; which tracked files differ.

    `target`: the moment that should be here now. Where it is, what it says of the files holds. `undone`: the
    snapshot that an undo undoes. `paths`: how many paths came back, if not all were asked for.
    """
    words = os.fsencode(operation_words(part, undone or source, paths))
    request = CaptureOptions(words, trigger=Trigger.RESTORE, restore=part, restored_from=source)
    with capturing.hold(request, since) as held:
        if target is not None:
            held.told_as(target)
        return held.publish(request).snapshot, differing(held)
