"""What is waited for beside something else: both are done when it ends, and what failed is told."""

from __future__ import annotations

from threading import Event

import pytest

from git_envhist.restore.sync import in_background_thread


def test_the_body_runs_while_it_is_waited() -> None:
    begun, done = Event(), Event()

    def wait() -> None:
        begun.set()
        # Were the body to begin only when this ends, neither would.
        assert done.wait(60)

    with in_background_thread(wait):
        assert begun.wait(60)
        done.set()


def test_what_fails_of_the_waiting_is_raised_behind_the_body() -> None:
    done: list[str] = []

    def fail() -> None:
        raise OSError(5, "the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"), in_background_thread(fail):
        done.append("body")
    assert done == ["body"]


def test_whoever_fails_meanwhile_leaves_nobody_waiting() -> None:
    ended: list[str] = []
    failed = Event()

    def wait() -> None:
        assert failed.wait(60)
        ended.append("waiting")

    def fail() -> None:
        failed.set()
        raise ValueError("the body")

    with pytest.raises(ValueError, match="the body"), in_background_thread(wait):
        fail()
    assert ended == ["waiting"]


def test_where_there_is_no_thread_to_be_had_it_is_waited_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("git_envhist.restore.sync.start_new_thread", none)
    done: list[str] = []
    with in_background_thread(lambda: done.append("waiting")):
        done.append("body")
    assert done == ["waiting", "body"]
