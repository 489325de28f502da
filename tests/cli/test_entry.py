"""The outermost part of a program: the exit status of each exception."""

from __future__ import annotations

import signal

import pytest

from git_envhist.cli import main
from git_envhist.cli.errors import SignalReceived


def test_signal_while_a_class_is_made_ends_the_program_with_its_number(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def __set_name__(self, owner: type, name: str) -> None:
            raise SignalReceived(signal.SIGTERM)

    def run(*words: object) -> int:
        type("Made", (), {"attribute": Interrupts()})
        return 0

    monkeypatch.setattr(main, "_run", run)
    assert main.run_program("git-envlog", []) == 143
    assert capfd.readouterr() == ("", "")
