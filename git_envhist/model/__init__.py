"""The whole vocabulary, as frozen dataclasses; read this first: here in outline, then `entries` and `moments`.

An *environment* is every path under a working tree. A *snapshot* is one captured moment of it, a *timeline* the
chain of snapshots of one working tree. An *entry* is one path as it was; a *change* one difference between two
moments. *Notes* hold what is said about a snapshot afterwards: names, verdicts, remarks. A *fact* is one derived
statement about a snapshot, and a *story* the facts and files that differ between two.

What only some commands speak of (`doings`, `restores`, `upkeep`, `keeping`, `sharing`, `causing`) is loaded when one of
its words is asked for: of the 60 ms that `git envlog` may take, two went into words that it never says.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from git_envhist.model.entries import (
    SQLITE_HEADER,
    SQLITE_SIDECARS,
    TOP,
    UNREAD,
    Change,
    ChangeCount,
    ChangeKind,
    Comparison,
    Entry,
    EntryKind,
    EnvPath,
    Fact,
    FactChange,
    GitChange,
    Missing,
    ObjectId,
    Role,
    Side,
    SnapshotId,
    StoredAs,
    WhyMissing,
)
from git_envhist.model.moments import (
    Actor,
    Agent,
    Attached,
    Captured,
    IntentSource,
    Kept,
    KeptService,
    Moment,
    Progress,
    Record,
    Remark,
    RestorePart,
    Snapshot,
    Trigger,
    Verdict,
    VerdictStatus,
)

if TYPE_CHECKING:
    from git_envhist.model.causing import (
        Content,
        Edit,
        Happened,
        HookRun,
        Installed,
        Mark,
        Part,
        Recent,
        Status,
    )
    from git_envhist.model.doings import (
        Bisected,
        Checked,
        Effect,
        Observed,
        Ran,
        Resumed,
        Task,
        TaskStatus,
    )
    from git_envhist.model.keeping import (
        Decision,
        Dropped,
        InTrash,
        Left,
        Policy,
        Pruned,
        Purged,
        Sent,
        Thinned,
    )
    from git_envhist.model.restores import (
        Ended,
        Forked,
        ForkPlan,
        LeftAlone,
        Listing,
        Pair,
        Plan,
        PlanAction,
        PlannedDirectory,
        PlanStep,
        PointsBack,
        Restored,
        shown_path,
    )
    from git_envhist.model.sharing import (
        Arrival,
        Exported,
        Fetch,
        Imported,
        Look,
        Pushed,
        PushOutcome,
        RefPush,
        Remote,
        Share,
        TimelinePush,
        Token,
    )
    from git_envhist.model.upkeep import (
        Broken,
        Collected,
        Fault,
        Health,
        Holder,
        Space,
    )

__all__ = [
    "SQLITE_HEADER",
    "SQLITE_SIDECARS",
    "TOP",
    "UNREAD",
    "Actor",
    "Agent",
    "Arrival",
    "Attached",
    "Bisected",
    "Broken",
    "Captured",
    "Change",
    "ChangeCount",
    "ChangeKind",
    "Checked",
    "Collected",
    "Comparison",
    "Content",
    "Decision",
    "Dropped",
    "Edit",
    "Effect",
    "Ended",
    "Entry",
    "EntryKind",
    "EnvPath",
    "Exported",
    "Fact",
    "FactChange",
    "Fault",
    "Fetch",
    "ForkPlan",
    "Forked",
    "GitChange",
    "Happened",
    "Health",
    "Holder",
    "HookRun",
    "Imported",
    "InTrash",
    "Installed",
    "IntentSource",
    "Kept",
    "KeptService",
    "Left",
    "LeftAlone",
    "Listing",
    "Look",
    "Mark",
    "Missing",
    "Moment",
    "ObjectId",
    "Observed",
    "Pair",
    "Part",
    "Plan",
    "PlanAction",
    "PlanStep",
    "PlannedDirectory",
    "PointsBack",
    "Policy",
    "Progress",
    "Pruned",
    "Purged",
    "PushOutcome",
    "Pushed",
    "Ran",
    "Recent",
    "Record",
    "RefPush",
    "Remark",
    "Remote",
    "RestorePart",
    "Restored",
    "Resumed",
    "Role",
    "Sent",
    "Share",
    "Side",
    "Snapshot",
    "SnapshotId",
    "Space",
    "Status",
    "StoredAs",
    "Task",
    "TaskStatus",
    "Thinned",
    "TimelinePush",
    "Token",
    "Trigger",
    "Verdict",
    "VerdictStatus",
    "WhyMissing",
    "shown_path",
]

LATE = ("doings", "restores", "upkeep", "keeping", "sharing", "causing")


def __getattr__(name: str) -> object:
    for module in LATE if name in __all__ else ():
        vocabulary = vars(import_module(f"git_envhist.model.{module}"))
        globals().update({word: vocabulary[word] for word in __all__ if word in vocabulary})
        if name in vocabulary:
            return vocabulary[name]
    raise AttributeError(f"module 'git_envhist.model' has no attribute '{name}'")
