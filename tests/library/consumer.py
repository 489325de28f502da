"""A program of others under `mypy --strict`: what the verbs give has its type, waited for or not."""

from __future__ import annotations

from typing import assert_type

from git_envhist import AsyncEnvHistory, EnvHistory
from git_envhist.model import (
    Captured,
    Checked,
    Comparison,
    Dropped,
    Effect,
    Exported,
    Fetch,
    Imported,
    Installed,
    Kept,
    Plan,
    Pruned,
    Purged,
    Pushed,
    Recent,
    Restored,
    Resumed,
    Snapshot,
    Status,
    Task,
)


def at_once() -> None:
    history = EnvHistory.open(".")
    moment = history.capture("before", verify="npm test")
    assert_type(moment, Captured)
    assert_type(history.log(summary="flask", span="@~3.."), list[Snapshot])
    assert_type(history.diff(moment, "now", renames=50), Comparison)
    assert_type(history.restore("good", dry_run=True), Plan)
    assert_type(history.restore("good", verify=True), Restored)
    assert_type(history.restore("good", verify="npm test").checked, Checked | None)
    assert_type(history.page("history.html"), str)
    assert_type(history.get(moment), Kept)
    assert_type(history.tasks.resume(), Resumed | None)
    assert_type(EnvHistory.init(".", storage="/tmp/history"), EnvHistory)
    assert_type(history.fork(moment, "../attempt", branch="attempt", relocate=True), EnvHistory)
    assert_type(history.push("origin", "laptop/*", yes=True, allow=["app.log"]), Pushed)
    assert_type(history.fetch("origin", full=True), Fetch)
    assert_type(history.export("../some.envhist.tar.zst", "@~3..", force=True), Exported)
    assert_type(history.import_("../some.envhist.tar.zst", name="mine"), Imported)
    assert_type(history.drop(moment, dry_run=True), Dropped)
    assert_type(history.prune(keep_last=10, dry_run=True), Pruned)
    assert_type(history.purge("secret.txt", dry_run=True), Purged)
    assert_type(history.recent("2h"), Recent)
    assert_type(history.install(["codex"], dry_run=True), tuple[Installed, ...])
    assert_type(history.status(), Status)
    for captured in history.watch():
        assert_type(captured, Captured)


async def waited_for() -> None:
    history = await AsyncEnvHistory.open(".")
    moment = await history.capture("before", verify="npm test")
    assert_type(moment, Captured)
    assert_type(await history.log(5, summary="flask"), list[Snapshot])
    assert_type(await history.diff(moment, renames=50), Comparison)
    assert_type(await history.restore("good", dry_run=True), Plan)
    assert_type(await history.restore("good", verify=True), Restored)
    assert_type(await history.get(moment), Kept)
    assert_type(await history.tasks.add("write the server"), Task)
    assert_type(await history.tasks.resume(force=True), Resumed | None)
    assert_type(await history.effects.note("deployed"), Effect)
    assert_type(await AsyncEnvHistory.init(".", storage="/tmp/history"), AsyncEnvHistory)
    assert_type(await history.fork(moment, "../attempt", branch="attempt"), AsyncEnvHistory)
    assert_type(await history.push("origin", yes=True), Pushed)
    assert_type(await history.prune(keep_last=10, dry_run=True), Pruned)
    assert_type(await history.export("../some.envhist.tar.zst", "good"), Exported)
    async for captured in history.watch(settle=1.0):
        assert_type(captured, Captured)
