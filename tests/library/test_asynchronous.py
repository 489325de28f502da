"""The verbs as coroutines."""

# ruff: noqa: PT012 - the block before the failing statement is under test

from __future__ import annotations

import asyncio
import inspect
import time

import pytest

from git_envhist import AsyncEnvHistory, EnvHistory
from git_envhist.model import TaskStatus, Trigger
from tests.support.repository import Repo

INNER = {
    **dict.fromkeys(("keys", "settings", "catalog", "now", "signature", "problems"), "values, read at once"),
    **dict.fromkeys(("checks", "restorer", "dropper", "pruner"), "objects that do the work"),
    **dict.fromkeys(("capturing", "capturing_fetched", "progress_handler"), "objects that do the work"),
    **dict.fromkeys(
        (
            "judge",
            "origins",
            "snapshot_of",
            "snapshots_of",
            "tree_of",
            "with_contents",
            "open_sealed",
            "newest",
            "pushed_tip",
        ),
        "questions of packages",
    ),
    **dict.fromkeys(
        (
            "add_records",
            "warn",
            "notify",
            "refresh",
            "fetch_missing",
            "fetch_blobs",
            "pushed_tip",
            "thin",
            "daily",
        ),
        "steps of packages",
    ),
    **dict.fromkeys(("tool_keywords", "environment_path", "watch_or_timeout"), "parts of a verb"),
    **dict.fromkeys(("reader", "sides", "present"), "belongs to the thread that opened it"),
}
"""Members that `AsyncEnvHistory` does not have, and why; its `history` has them."""


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_asynchronous_history_has_every_verb() -> None:
    assert public(EnvHistory) - public(AsyncEnvHistory) == set(INNER)
    assert public(AsyncEnvHistory) - public(EnvHistory) == {"history"}


def test_coroutines_have_the_parameters_of_their_verbs() -> None:
    for name in public(AsyncEnvHistory) - {"history", "restore", "fork"}:
        mine, its = getattr(AsyncEnvHistory, name), getattr(EnvHistory, name)
        if inspect.iscoroutinefunction(mine):
            parameters = set(inspect.signature(its).parameters) - {"one_command"}
            assert set(inspect.signature(mine).parameters) == parameters, name


def test_verbs_work_as_coroutines(repo: Repo) -> None:
    async def work() -> None:
        history = await AsyncEnvHistory.open(repo.path)
        heard: list[int] = []
        told = asyncio.Event()

        async def hear(captured: object) -> None:
            heard.append(1)
            told.set()

        history.on("captured", hear)
        moment = await history.capture("first")
        await told.wait()
        with pytest.raises(ValueError, match="broken"):
            async with history.around("upgrade", rollback=True):
                repo.write("app.py", b"broken")
                raise ValueError("broken")
        assert repo.read("app.py") == b"print('hello')\n"

        @history.tool(rollback=True)
        async def write(text: str) -> str:
            await asyncio.sleep(0)
            repo.write("app.py", text)
            return text

        assert await write("by a tool") == "by a tool"
        assert (await history.diff(moment, "now")).files[0].path == b"app.py"
        plan = await history.restore(moment, dry_run=True)
        assert len(plan.steps) == 1
        assert (await history.restore(moment)).exact
        both = await asyncio.gather(history.capture("one"), history.capture("two"))
        assert len({one.id for one in both}) == 2
        assert (await history.get(moment)).snapshot.intent == "first"

    asyncio.run(work())


def test_cancellation_is_raised_when_the_verb_has_ended(repo: Repo) -> None:
    async def work() -> None:
        history = await AsyncEnvHistory.open(repo.path)
        ended: list[str] = []
        history.history.on("captured", lambda _: (time.sleep(0.2), ended.append("captured")))
        capturing = asyncio.ensure_future(history.capture("to its end"))
        await asyncio.sleep(0.05)
        capturing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await capturing
        assert ended == ["captured"]
        assert [one.intent for one in await history.log()] == ["to its end"]

    asyncio.run(work())


def test_tasks_and_effects_work_as_coroutines(repo: Repo) -> None:
    async def work() -> None:
        history = await AsyncEnvHistory.open(repo.path)
        await history.tasks.add("write the server")
        task = await history.tasks.set(1, TaskStatus.IN_PROGRESS)
        resumed = await history.tasks.resume()
        assert resumed is not None
        assert resumed.task == task
        effect = await history.effects.note("deployed")
        assert await history.effects.all() == (effect,)
        assert await history.observed.all() == ()
        assert history.timeline == history.history.timeline

    asyncio.run(work())


def test_watch_ends_when_its_iteration_ends(repo: Repo) -> None:
    async def work() -> None:
        history = await AsyncEnvHistory.open(repo.path)
        seen: list[Trigger] = []
        first = asyncio.Event()

        async def follow() -> None:
            async for captured in history.watch(settle=0.05):
                assert captured.snapshot is not None
                seen.append(captured.snapshot.trigger)
                first.set()

        following = asyncio.ensure_future(follow())
        await first.wait()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert seen == [Trigger.WATCH]
        # The watch has ended: another one may start.
        watch = history.watch(settle=0.05)
        repo.write("file", b"changed")
        assert (await anext(watch)).snapshot is not None
        await watch.aclose()  # type: ignore[attr-defined]

    asyncio.run(work())


def test_history_is_created(tmp_path: object) -> None:
    async def work() -> None:
        history = await AsyncEnvHistory.init(str(tmp_path), force=True)
        assert (await history.capture("begun")).files == 0

    asyncio.run(work())
