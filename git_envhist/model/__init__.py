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
    ChangeSide,
    Entry,
    EntryKind,
    EnvPath,
    Fact,
    FactChange,
    GitChange,
    MissingPath,
    MissingReason,
    ObjectId,
    Role,
    SnapshotDiff,
    SnapshotId,
    StoredAs,
)
from git_envhist.model.moments import (
    Actor,
    AgentName,
    Attachment,
    CaptureProgress,
    CaptureResult,
    IntentSource,
    KeptService,
    Moment,
    NoteRecord,
    RestoreRole,
    Snapshot,
    SnapshotAttachments,
    TextNote,
    Trigger,
    Verdict,
    VerdictStatus,
)

if TYPE_CHECKING:
    from git_envhist.model.causing import (
        FileEdit,
        FileState,
        HookRun,
        InstalledPart,
        IntegrationChange,
        IntegrationStatus,
        LogEvent,
        PendingHook,
        RecentChanges,
    )
    from git_envhist.model.doings import (
        BisectResult,
        CheckResult,
        Effect,
        ObservedCheckpoint,
        ResumePoint,
        RunResult,
        Task,
        TaskStatus,
    )
    from git_envhist.model.keeping import (
        DropResult,
        PruneDecision,
        PrunedTimeline,
        PruneResult,
        PurgeResult,
        PushedTimeline,
        RemainingObject,
        RetentionPolicy,
        TrashedSnapshot,
    )
    from git_envhist.model.restores import (
        DirectoryListing,
        DirectoryPair,
        ForkPlan,
        ForkResult,
        OutsideReference,
        PlanAction,
        PlannedDirectory,
        PlanStep,
        RecoveryResult,
        RestorePlan,
        RestoreResult,
        SkippedPath,
        shown_path,
    )
    from git_envhist.model.sharing import (
        ClassSize,
        ExportResult,
        FetchOutcome,
        FetchResult,
        FoundToken,
        ImportResult,
        OutgoingScan,
        PushOutcome,
        PushResult,
        RefPush,
        Remote,
        TimelinePush,
    )
    from git_envhist.model.upkeep import (
        BrokenSnapshot,
        DiskUsage,
        Fault,
        FsckReport,
        GcResult,
        SpaceUser,
    )

__all__ = [
    "SQLITE_HEADER",
    "SQLITE_SIDECARS",
    "TOP",
    "UNREAD",
    "Actor",
    "AgentName",
    "Attachment",
    "BisectResult",
    "BrokenSnapshot",
    "CaptureProgress",
    "CaptureResult",
    "Change",
    "ChangeCount",
    "ChangeKind",
    "ChangeSide",
    "CheckResult",
    "ClassSize",
    "DirectoryListing",
    "DirectoryPair",
    "DiskUsage",
    "DropResult",
    "Effect",
    "Entry",
    "EntryKind",
    "EnvPath",
    "ExportResult",
    "Fact",
    "FactChange",
    "Fault",
    "FetchOutcome",
    "FetchResult",
    "FileEdit",
    "FileState",
    "ForkPlan",
    "ForkResult",
    "FoundToken",
    "FsckReport",
    "GcResult",
    "GitChange",
    "HookRun",
    "ImportResult",
    "InstalledPart",
    "IntegrationChange",
    "IntegrationStatus",
    "IntentSource",
    "KeptService",
    "LogEvent",
    "MissingPath",
    "MissingReason",
    "Moment",
    "NoteRecord",
    "ObjectId",
    "ObservedCheckpoint",
    "OutgoingScan",
    "OutsideReference",
    "PendingHook",
    "PlanAction",
    "PlanStep",
    "PlannedDirectory",
    "PruneDecision",
    "PruneResult",
    "PrunedTimeline",
    "PurgeResult",
    "PushOutcome",
    "PushResult",
    "PushedTimeline",
    "RecentChanges",
    "RecoveryResult",
    "RefPush",
    "RemainingObject",
    "Remote",
    "RestorePlan",
    "RestoreResult",
    "RestoreRole",
    "ResumePoint",
    "RetentionPolicy",
    "Role",
    "RunResult",
    "SkippedPath",
    "Snapshot",
    "SnapshotAttachments",
    "SnapshotDiff",
    "SnapshotId",
    "SpaceUser",
    "StoredAs",
    "Task",
    "TaskStatus",
    "TextNote",
    "TimelinePush",
    "TrashedSnapshot",
    "Trigger",
    "Verdict",
    "VerdictStatus",
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
