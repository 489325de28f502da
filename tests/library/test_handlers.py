"""Handlers in threads and event loops, kinds of tools, and lookups per thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from git_envhist import AsyncEnvHistory, EnvHistory
from git_envhist.guarded_work import Handlers, in_thread
from tests.support.repository import Repo

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(repo.path, workers="here")


def test_handler_added_by_another_thread_is_called() -> None:
    handlers, heard, asked = Handlers(print), [], []

    class Interrupted(str):
        """Simulates another thread that adds a handler whenever the event is looked up."""

        __slots__ = ()

        def __hash__(self) -> int:
            asked.append(len(asked))
            handlers.add("captured", partial(heard.append, asked[-1]))
            return super().__hash__()

    forget = handlers.add(Interrupted("captured"), partial(heard.append, "the first"))
    handlers.call("captured")
    assert heard == [*asked, "the first"]
    forget()
    heard.clear()
    handlers.call("captured")
    assert heard == asked != []


def test_handler_added_twice_is_called_once_when_one_is_removed() -> None:
    handlers, heard = Handlers(print), []
    forget = handlers.add("captured", heard.append)
    handlers.add("captured", heard.append)
    forget()
    forget()
    handlers.call("captured", "once")
    assert heard == ["once"]


def test_thread_does_not_use_the_catalog_of_another_thread(history: EnvHistory, repo: Repo) -> None:
    history.capture("first")
    history.refresh()
    looks = threading.Thread(target=lambda: (history.catalog, history.now))
    looks.start()
    looks.join()
    EnvHistory.open(repo.path, workers="here").capture("second")
    assert history.catalog.own.snapshots[0].intent == "second"


def test_every_verb_resolves_revisions_on_current_timelines(
    history: EnvHistory, repo: Repo, tmp_path: Path
) -> None:
    history.capture("first")
    assert len(history.catalog.own.snapshots) == 1
    EnvHistory.open(repo.path, workers="here").capture("by another", name="theirs")
    assert [one.intent for one in history.drop("@~1..", dry_run=True).snapshots] == ["by another"]
    assert len(history.catalog.own.snapshots) == 2
    EnvHistory.open(repo.path, workers="here").capture("by another again", name="newest")
    assert len(history.export(tmp_path / "some", "newest").timelines[0][1]) == 1
    EnvHistory.open(repo.path, workers="here").capture("and again", name="last")
    assert history.remove_name("last").intent == "and again"


def test_remote_configured_after_opening_is_known(history: EnvHistory, repo: Repo, tmp_path: Path) -> None:
    history.capture("first")
    repo.git("init", "-q", "--bare", str(tmp_path / "shared.git"))
    repo.git("remote", "add", "shared", str(tmp_path / "shared.git"))
    assert history.push("shared", yes=True).remote.name == "shared"
    repo.git("remote", "rename", "shared", "other")
    assert history.fetch("other").remote.name == "other"


def test_object_made_of_old_settings_is_made_again(history: EnvHistory, repo: Repo) -> None:
    def make() -> str:
        # Simulate another thread that changed the settings.
        repo.git("config", "envhist.exclude", "left-out")
        assert history.settings.exclude == ("left-out",)
        return "of the old ones"

    assert history._made_of_settings("restorer", make) == "of the old ones"
    assert history._made_of_settings("restorer", lambda: "of the new ones") == "of the new ones"
    history._made.clear()
    repo.write("left-out", b"1")
    repo.write("kept", b"1")
    found = history.capture("under the new ones")
    assert found.snapshot is not None
    assert history.read_file(found, "kept") == b"1"
    assert [change.path for change in history.diff(found).files] == []
    assert found.files == 2


def test_verb_ends_before_a_repeated_cancellation_is_raised() -> None:
    ended: list[str] = []

    def verb() -> None:
        time.sleep(0.2)
        ended.append("verb")

    async def work() -> None:
        waiting = asyncio.ensure_future(in_thread(verb))
        for _ in range(3):
            await asyncio.sleep(0.01)
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == ["verb"]

    asyncio.run(work())


def test_exception_of_an_asynchronous_handler_is_a_warning(repo: Repo) -> None:
    async def work() -> list[str]:
        history = await AsyncEnvHistory.open(repo.path)
        failed = asyncio.Event()

        async def late(_: object) -> None:
            await asyncio.sleep(0)
            failed.set()
            raise ValueError("late")

        def at_once(_: object) -> None:
            raise ValueError("at once")

        history.on("captured", at_once)
        history.on("captured", late)
        await history.capture("heard")
        await failed.wait()
        await asyncio.sleep(0)
        return [one for one in history.history.warnings if "handler" in one]

    assert asyncio.run(work()) == [
        "a handler of 'captured' failed: ValueError: at once",
        "a handler of 'captured' failed: ValueError: late",
    ]


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("not in words")


def test_tool_may_be_a_generator_and_take_any_argument(history: EnvHistory, repo: Repo) -> None:
    @history.tool(rollback=True)
    def lines(what: object, fail: bool = False) -> Iterator[int]:
        for number in range(3):
            repo.write("app.py", b"%d" % number)
            yield number
        if fail:
            raise ValueError("at the end")

    assert list(lines(Unspeakable())) == [0, 1, 2]
    newest = history.log(limit=1)[0]
    assert newest.intent == "lines(<Unspeakable>)"
    assert history.read_file(newest, "app.py") == b"2"
    stream = lines("again", fail=True)
    with pytest.raises(ValueError, match="at the end"):
        list(stream)
    assert repo.read("app.py") == b"2"
    # A caller may stop iterating; this is no failure.
    stream = lines("half")
    assert next(stream) == 0
    stream.close()
    assert repo.read("app.py") == b"0"
    assert history.log(limit=1)[0].intent == "lines('half')"


def test_tool_may_be_an_asynchronous_generator(repo: Repo) -> None:
    async def work() -> list[int]:
        history = await AsyncEnvHistory.open(repo.path)

        @history.tool
        async def lines() -> AsyncIterator[int]:
            for number in range(2):
                repo.write("app.py", b"%d" % number)
                yield number

        found = [one async for one in lines()]
        newest = (await history.log(limit=1))[0]
        assert newest.intent == "lines()"
        assert await history.read_file(newest, "app.py") == b"1"
        return found

    assert asyncio.run(work()) == [0, 1]
