"""Who else uses an environment: real processes, seen as they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.restoring.processes import at_work_in, holders

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc here")

HOLD = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that stands in a directory and holds a file in it open."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "held").write_text("x")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, "held"],
        cwd=tmp_path / "in",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        yield child
        child.send_signal(signal.SIGKILL)


def test_a_file_that_another_process_holds_open_is_told_with_that_process(
    tmp_path: Path, guest: subprocess.Popen[str]
) -> None:
    held, free = (os.fsencode(tmp_path.resolve() / "in" / name) for name in ("held", "free"))
    found = holders([held, free])
    assert list(found) == [held]
    assert found[held].pid == guest.pid
    with open(held):
        pass
    assert holders([free]) == {}


def test_a_process_at_work_is_told_and_who_called_us_is_not(
    tmp_path: Path, guest: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = os.fsencode(tmp_path.resolve())
    assert [process.pid for process in at_work_in(root)] == [guest.pid]
    assert str(at_work_in(root)[0]).endswith(f"({guest.pid})")
    assert at_work_in(root + b"/elsewhere") == []
