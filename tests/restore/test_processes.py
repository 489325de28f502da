"""Processes that use an environment, tested with real processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.git.process import COMMAND
from git_envhist.model import Entry, EntryKind, EnvPath, PlanAction, PlanStep, RestorePlan
from git_envhist.restore.processes import AffectedPaths, package_of, processes_with_open, still_running

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc")

HOLD = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process in a directory, with an open file."""
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


def test_process_with_an_open_file_is_found(tmp_path: Path, guest: subprocess.Popen[str]) -> None:
    held, free = (os.fsencode(tmp_path.resolve() / "in" / name) for name in ("held", "free"))
    found = processes_with_open([held, free])
    assert list(found) == [held]
    assert found[held].pid == guest.pid
    with open(held):
        pass
    assert processes_with_open([free]) == {}


def replacing(top: Path, *paths: str) -> AffectedPaths:
    steps = [_replaced(os.fsencode(path)) for path in paths]
    return AffectedPaths.by(RestorePlan(tuple(steps), ()), {b"": os.fsencode(top)})


def _replaced(path: bytes) -> PlanStep:
    entry = Entry(EnvPath(path), EntryKind.FILE, 0o644, 0)
    return PlanStep(b"", EnvPath(path), PlanAction.REPLACE, entry, entry)


def pids(touched: AffectedPaths) -> list[int]:
    return [process.pid for process in still_running(touched)]


def test_process_in_a_replaced_directory_is_reported_and_callers_are_not(
    tmp_path: Path, guest: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pids(replacing(tmp_path, "in/app.js")) == [guest.pid]
    assert str(still_running(replacing(tmp_path, "app.js"))[0]).endswith(f"({guest.pid})")
    assert pids(replacing(tmp_path / "elsewhere", "app.js")) == []
    assert pids(replacing(tmp_path)) == []


@pytest.mark.parametrize(
    ("word", "is_told"), [("anything", True), ("git_envhist.capture.capture_worker", False)]
)
def test_own_workers_are_not_reported(tmp_path: Path, word: str, is_told: bool) -> None:
    called = [sys.executable, "-c", "import sys; sys.stdin.read()", word]
    with subprocess.Popen(called, cwd=tmp_path, stdin=subprocess.PIPE) as child:
        assert pids(replacing(tmp_path, "app.js")) == [child.pid] * is_told
        child.send_signal(signal.SIGKILL)


def test_own_git_and_its_children_are_not_reported(tmp_path: Path) -> None:
    def waiting(*git: str) -> subprocess.Popen[bytes]:
        reading = f"{sys.executable} -c 'import sys; print(\"there\", flush=True); sys.stdin.read()'"
        words = [*git, "-c", f"alias.wait=!{reading}; :", "wait"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(words, cwd=tmp_path, **pipes)

    for git, are_told in ((COMMAND, False), (["git"], True)):
        with waiting(*git) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"there\n"
            assert bool(pids(replacing(tmp_path, "app.js"))) == are_told
            child.communicate(b"")


def test_process_is_not_reported_when_its_package_is_unchanged(
    tmp_path: Path, guest: subprocess.Popen[str]
) -> None:
    (tmp_path / "in/package.json").write_text("{}")
    assert pids(replacing(tmp_path, "in/deep/app.js")) == [guest.pid]
    assert pids(replacing(tmp_path, "in/node_modules/x/index.js")) == [guest.pid]
    assert pids(replacing(tmp_path, "backend/app.py", "in.txt")) == []


def test_process_with_a_replaced_file_open_or_mapped_is_reported(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/lib.so").write_bytes(b"x" * 4096)
    hold = (
        "import mmap, sys; f = open(sys.argv[1], 'rb');"
        " m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); f.close();"
        " print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "there/lib.so")],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert pids(replacing(tmp_path, "there/lib.so")) == [child.pid]
        assert pids(replacing(tmp_path, "there/other.so")) == []
        child.send_signal(signal.SIGKILL)


def test_installed_package_belongs_to_its_project(tmp_path: Path) -> None:
    top = os.fsencode(tmp_path)
    for place in ("app/src", "app/node_modules/x", "tools"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "app/package.json").write_text("{}")
    (tmp_path / "app/node_modules/x/package.json").write_text("{}")
    assert package_of(top + b"/app/src", top) == top + b"/app"
    assert package_of(top + b"/app/node_modules/x", top) == top + b"/app"
    assert package_of(top + b"/tools", top) == top
    assert package_of(top, top) == top


@pytest.mark.parametrize(
    ("program", "is_told"),
    [
        ("vim.basic", False),
        ("less", False),
        ("tmux: server", False),
        ("xterm", False),
        ("sleep", False),
        ("node", True),
    ],
)
def test_only_programs_that_run_files_are_reported(tmp_path: Path, program: str, is_told: bool) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/app.js").write_text("x")
    # The name of the program decides, so a copy of 'cat' is enough.
    copied = tmp_path / "bin" / program
    shutil.copy(shutil.which("cat") or "/bin/cat", copied)
    with (
        open(tmp_path / "project/app.js") as shown,
        subprocess.Popen(
            [copied], cwd=tmp_path / "project", stdin=subprocess.PIPE, pass_fds=[shown.fileno()]
        ) as child,
    ):
        found = pids(replacing(tmp_path / "project", "other.js"))
        assert found == ([child.pid] if is_told else [])
        if program != "sleep":
            # An open file is displayed, not run.
            assert pids(replacing(tmp_path / "project", "app.js")) == ([child.pid] if is_told else [])
        child.communicate(b"")


def test_server_without_an_interpreter_is_reported(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    with subprocess.Popen(
        ["cat"], cwd=tmp_path, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]
    ) as child:
        shown = pids(replacing(tmp_path, "app.js"))
        child.communicate(b"")
    with subprocess.Popen(
        ["sleep", "30"], cwd=tmp_path, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]
    ) as child:
        served = pids(replacing(tmp_path, "app.js"))
        child.kill()
    listening.close()
    assert (shown, served) == ([], [child.pid])


@pytest.mark.parametrize("word", ["/opt/x/bin/git-envlog", "/opt/x/git_envhist/checks/sandbox_exec.py"])
def test_own_program_is_recognized_by_its_path(tmp_path: Path, word: str) -> None:
    called = [sys.executable, "-c", "import sys; sys.stdin.read()", word]
    with subprocess.Popen(called, cwd=tmp_path, stdin=subprocess.PIPE) as child:
        assert pids(replacing(tmp_path, "app.js")) == []
        child.communicate(b"")
