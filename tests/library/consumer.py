"""A host program under `mypy --strict`: the results of verbs and of their coroutines have types."""

from __future__ import annotations

from typing import assert_type

from git_envhist import AsyncEnvHistory, EnvHistory
from git_envhist.model import (
    CaptureResult,
    CheckResult,
    DropResult,
    Effect,
    ExportResult,
    FetchResult,
    ImportResult,
    IntegrationChange,
    IntegrationStatus,
    PruneResult,
    PurgeResult,
    PushResult,
    RecentChanges,
    RestorePlan,
    RestoreResult,
    ResumePoint,
    Snapshot,
    SnapshotDiff,
    SnapshotExtras,
    Task,
)


def at_once() -> None:
    history = EnvHistory.open(".")
    moment = history.capture("before", verify="npm test")
    assert_type(moment, CaptureResult)
    assert_type(history.log(summary="flask", span="@~3.."), list[Snapshot])
    assert_type(history.diff(moment, "now", renames=50), SnapshotDiff)
    assert_type(history.restore("good", dry_run=True), RestorePlan)
    assert_type(history.restore("good", verify=True), RestoreResult)
    assert_type(history.restore("good", verify="npm test").checked, CheckResult | None)
    assert_type(history.page("history.html"), str)
    assert_type(history.get(moment), SnapshotExtras)
    assert_type(history.tasks.resume(), ResumePoint | None)
    assert_type(EnvHistory.init(".", storage="/tmp/history"), EnvHistory)
    assert_type(history.fork(moment, "../attempt", branch="attempt", relocate=True), EnvHistory)
    assert_type(history.push("origin", "laptop/*", yes=True, allow=["app.log"]), PushResult)
    assert_type(history.fetch("origin", full=True), FetchResult)
    assert_type(history.export("../some.envhist.tar.zst", "@~3..", force=True), ExportResult)
    assert_type(history.import_("../some.envhist.tar.zst", name="mine"), ImportResult)
    assert_type(history.drop(moment, dry_run=True), DropResult)
    assert_type(history.prune(keep_last=10, dry_run=True), PruneResult)
    assert_type(history.purge("secret.txt", dry_run=True), PurgeResult)
    assert_type(history.recent("2h"), RecentChanges)
    assert_type(history.install(["codex"], dry_run=True), tuple[IntegrationChange, ...])
    assert_type(history.status(), IntegrationStatus)
    for captured in history.watch():
        assert_type(captured, CaptureResult)


async def waited_for() -> None:
    history = await AsyncEnvHistory.open(".")
    moment = await history.capture("before", verify="npm test")
    assert_type(moment, CaptureResult)
    assert_type(await history.log(5, summary="flask"), list[Snapshot])
    assert_type(await history.diff(moment, renames=50), SnapshotDiff)
    assert_type(await history.restore("good", dry_run=True), RestorePlan)
    assert_type(await history.restore("good", verify=True), RestoreResult)
    assert_type(await history.get(moment), SnapshotExtras)
    assert_type(await history.tasks.add("write the server"), Task)
    assert_type(await history.tasks.resume(force=True), ResumePoint | None)
    assert_type(await history.effects.note("deployed"), Effect)
    assert_type(await AsyncEnvHistory.init(".", storage="/tmp/history"), AsyncEnvHistory)
    assert_type(await history.fork(moment, "../attempt", branch="attempt"), AsyncEnvHistory)
    assert_type(await history.push("origin", yes=True), PushResult)
    assert_type(await history.prune(keep_last=10, dry_run=True), PruneResult)
    assert_type(await history.export("../some.envhist.tar.zst", "good"), ExportResult)
    async for captured in history.watch(settle=1.0):
        assert_type(captured, CaptureResult)
