"""The vocabulary of the program, as frozen values. Read this first, then `entries` and `snapshots`.

An *environment* is every path under a working tree. A *snapshot* is one captured state of it, a *timeline* the chain
of snapshots of one working tree. An *entry* is one path in a snapshot; a *change* is one difference between two
snapshots. *Notes* store what is added to a snapshot later: names, verdicts, remarks. A *fact* is one derived
statement about a snapshot (`numpy 2.1 is installed`), and a *summary* the facts and files that differ between two.

All modules but `entries` and `snapshots` are loaded when one of their names is first used: `git envlog` uses none of
them, and loading them takes 2 of its 60 ms.
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
from git_envhist.model.snapshots import (
    Actor,
    AgentName,
    Attachment,
    CallWindow,
    CaptureProgress,
    CaptureResult,
    IntentSource,
    KeptService,
    NoteRecord,
    RestoreRole,
    Snapshot,
    SnapshotExtras,
    SnapshotRef,
    TextNote,
    ToolCall,
    Trigger,
    Verdict,
    VerdictStatus,
)

if TYPE_CHECKING:
    from git_envhist.model.checks import BisectResult, CheckResult
    from git_envhist.model.integrations import (
        FileEdit,
        FileState,
        HookRun,
        InstalledPart,
        IntegrationChange,
        IntegrationStatus,
        PendingHook,
    )
    from git_envhist.model.maintenance import (
        BrokenSnapshot,
        DiskUsage,
        Fault,
        FsckReport,
        GcResult,
        SpaceUser,
    )
    from git_envhist.model.recent import LogEvent, RecentChanges
    from git_envhist.model.restores import (
        DirectoryListing,
        DirectoryPair,
        ForkPlan,
        ForkResult,
        MergeConflict,
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
    from git_envhist.model.retention import (
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
    from git_envhist.model.tasks import Effect, ObservedCheckpoint, ResumePoint, RunResult, Task, TaskStatus


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
    "CallWindow",
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
    "MergeConflict",
    "MissingPath",
    "MissingReason",
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
    "SnapshotDiff",
    "SnapshotExtras",
    "SnapshotId",
    "SnapshotRef",
    "SpaceUser",
    "StoredAs",
    "Task",
    "TaskStatus",
    "TextNote",
    "TimelinePush",
    "ToolCall",
    "TrashedSnapshot",
    "Trigger",
    "Verdict",
    "VerdictStatus",
    "shown_path",
]

LATE = ("checks", "tasks", "restores", "integrations", "recent", "retention", "sharing", "maintenance")


def __getattr__(name: str) -> object:
    for module in LATE if name in __all__ else ():
        vocabulary = vars(import_module(f"git_envhist.model.{module}"))
        globals().update({word: vocabulary[word] for word in __all__ if word in vocabulary})
        if name in vocabulary:
            return vocabulary[name]
    raise AttributeError(f"module 'git_envhist.model' has no attribute '{name}'")
