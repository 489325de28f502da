"""A blocking call in a background thread: the call and the body both finish, and errors are raised."""

from __future__ import annotations

from threading import Event

import pytest

from git_envhist.restore.execute import in_background_thread


def test_body_runs_while_the_thread_waits() -> None:
    begun, done = Event(), Event()

    def wait() -> None:
        begun.set()
        # The call waits for the body, so this would block if the body started after the call.
        assert done.wait(60)

    with in_background_thread(wait):
        assert begun.wait(60)
        done.set()


def test_error_of_the_thread_is_raised_after_the_body() -> None:
    done: list[str] = []

    def fail() -> None:
        raise OSError(5, "the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"), in_background_thread(fail):
        done.append("body")
    assert done == ["body"]


def test_error_of_the_body_is_raised_after_the_thread_has_ended() -> None:
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


def test_call_runs_before_the_body_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("git_envhist.restore.execute.start_new_thread", none)
    done: list[str] = []
    with in_background_thread(lambda: done.append("waiting")):
        done.append("body")
    assert done == ["waiting", "body"]
