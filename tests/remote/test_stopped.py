"""Interrupted push, fetch, export and import: by Ctrl-C, by a signal, or by the timeout for a silent server.

The command prints one line, leaves no temporary file and no process, and continues when it is run again. A command that
waits for a lock prints the name of the running command.
"""

from __future__ import annotations

import os
import pty
import re
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from git_envhist.git import limits
from git_envhist.git.limits import (
    MAX_ERRORS,
    ResourceLimits,
    _without_overwritten,
    parse_progress,
    run_limited,
)
from tests.end_to_end.captures import capture
from tests.remote.conftest import hook, refs, timeline
from tests.remote.test_fetch import refs_of_fetched
from tests.support.repository import Repo

CTRL_C = b"\x03"


class Stopped(NamedTuple):
    status: int
    said: str
    steps: list[str]
    """Progress lines that were overwritten later."""


class Terminal:
    """A command that runs in its own pseudo-terminal."""

    def __init__(self, repo: Repo, *words: str) -> None:
        self._process, self._line = pty.fork()
        if not self._process:
            os.chdir(repo.path)
            os.execvpe(words[0], words, {**repo.env, "TERM": "dumb", "COLUMNS": "200"})
        self.session = self._process

    def type(self, text: bytes) -> None:
        os.write(self._line, text)

    def kill(self, number: int) -> None:
        os.kill(self._process, number)

    def end(self) -> Stopped:
        said = b""
        while True:
            try:
                part = os.read(self._line, 4096)
            except OSError:
                break
            if not part:
                break
            said += part
        status = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        os.close(self._line)
        text = said.decode().replace("^C", "").replace("\r\n", "\n")
        steps = re.findall("\r\x1b\\[K([^\r\n]*)(?=\r)", text)
        plain = re.sub("\r\x1b\\[K([^\r\n]*(?=\r))?", "", text)
        return Stopped(status, plain.strip(), steps)


def of_session(session: int) -> list[str]:
    """Return the command lines of the running processes of a session."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                told = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(told[3]) == session and told[0] != "Z":
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def until(asked: Callable[[], bool]) -> None:
    while not asked():
        time.sleep(0.02)


def left(repo: Repo) -> list[str]:
    """Return temporary files and locks of git and git-envhist that no running command needs."""
    found = [
        path
        for pattern in ("tmp_*", "*.lock", "work", "*.new*")
        for path in (repo.path / ".git").rglob(pattern)
    ]
    # fetch.lock is locked with flock(): an unlocked file is no leftover.
    return sorted(str(path) for path in found if path.name != "fetch.lock")


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[Path]:
    """Return a FIFO: a hanging program writes 'reached' into it, then reads it until it is released."""
    place = tmp_path / "reached"
    os.mkfifo(place)
    yield place
    # Release programs that still wait.
    os.close(os.open(place, os.O_RDWR | os.O_NONBLOCK))


LONGEST_MS = 120_000
"""Milliseconds to wait for a program before the test fails."""


def wait_for(reached: Path) -> None:
    """Wait until the program hangs; a program that ends earlier fails the test instead of blocking it."""
    with open(
        reached, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
    ) as file:
        ready = select.poll()
        ready.register(file, select.POLLIN)
        word = b""
        while word != b"reached\n":
            assert ready.poll(LONGEST_MS), "the program did not reach the point where it hangs"
            word += file.read(16) or b""


def hangs(reached: Path, go_on: str = "") -> str:
    # The script fails when it is released, so that a server without its client accepts nothing. The wait and the exit
    # share a line: a shell reads a script line by line, and the test may replace the file meanwhile.
    return f"#!/bin/sh\n{go_on}echo reached >{reached}\ncat {reached} >/dev/null; exit 1\n"


def hanging_git(repo: Repo, tmp_path: Path, reached: Path, word: str) -> dict[str, str]:
    """Return an environment in which git hangs when it is called with `word`."""
    place = tmp_path / "bin" / "git"
    place.parent.mkdir()
    real = subprocess.run(
        ["sh", "-c", "command -v git"], capture_output=True, text=True, check=True
    ).stdout.strip()
    test = f'case " $* " in *" {word} "*) ;; *) exec {real} "$@" ;; esac\n'
    place.write_text(hangs(reached, test))
    place.chmod(0o755)
    return {**repo.env, "PATH": f"{place.parent}{os.pathsep}{repo.env['PATH']}"}


def prepare_push(
    repo: Repo, bare: Repo, _tmp_path: Path, reached: Path
) -> tuple[list[str], Callable[[], None]]:
    hook(bare, hangs(reached).partition("\n")[2])
    return ["git-envlog", "push", "--yes"], lambda: hook(bare, "exit 0\n")


def push_then_remove_newest_locally(repo: Repo) -> None:
    """Push a timeline and remove its newest snapshot locally: a fetch skips timelines that are complete here."""
    repo.run("envlog", "capture", "more", check=True)
    repo.run("envlog", "push", "--yes", check=True)
    ref = f"refs/envhist/heads/{timeline(repo)}"
    repo.git("update-ref", ref, f"{ref}~1")


def prepare_fetch(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path
) -> tuple[list[str], Callable[[], None]]:
    push_then_remove_newest_locally(repo)
    place = tmp_path / "upload-pack"
    # The first call lists the refs, the second hangs.
    place.write_text(
        hangs(reached, f'[ -e {tmp_path}/told ] || {{ touch {tmp_path}/told; exec git-upload-pack "$@"; }}\n')
    )
    place.chmod(0o755)
    repo.git("config", "remote.origin.uploadpack", str(place))
    return ["git-envlog", "fetch"], lambda: repo.git("config", "--unset", "remote.origin.uploadpack") and None


def prepare_export(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path
) -> tuple[list[str], Callable[[], None]]:
    env = hanging_git(repo, tmp_path, reached, "bundle")
    words = ["env", f"PATH={env['PATH']}", "git-envlog", "export", str(tmp_path / "file")]
    return words, (tmp_path / "bin/git").unlink


def prepare_import(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path
) -> tuple[list[str], Callable[[], None]]:
    repo.run("envlog", "export", str(tmp_path / "file.envhist.tar.zst"), check=True)
    env = hanging_git(repo, tmp_path, reached, "index-pack")
    words = ["env", f"PATH={env['PATH']}", "git-envlog", "import", str(tmp_path / "file.envhist.tar.zst")]
    return words, (tmp_path / "bin/git").unlink


LONGER = "hint: run the command again: it continues where it stopped; for a longer timeout: "
KINDS = {"push": prepare_push, "fetch": prepare_fetch, "export": prepare_export, "import": prepare_import}
AGAIN = "hint: run the command again: it continues where it stopped"
SAYS = {
    "push": f"each timeline on the remote is either complete or unchanged\n{AGAIN}",
    "fetch": f"each timeline is either fetched completely or unchanged\n{AGAIN}",
    "export": "the file is complete, or was not written\nhint: run the command again",
    "import": "each timeline is either imported completely or unchanged\nhint: run the command again",
}


def came(repo: Repo) -> dict[str, str]:
    return refs_of_fetched(repo) if (repo.path / ".git/envhist/fetched.git").exists() else {}


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_command_reports_it_cleans_up_and_continues_later(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path, kind: str, how: str
) -> None:
    capture(repo, "one")
    words, mend = KINDS[kind](repo, bare, tmp_path, reached)
    before = refs(repo), came(repo), refs(bare)
    running = Terminal(repo, *words)
    wait_for(reached)
    if how == "Ctrl-C":
        running.type(CTRL_C)
    else:
        running.kill(signal.SIGTERM)
    # The command does not kill the local server's processes: release them here.
    writer = os.open(reached, os.O_RDWR | os.O_NONBLOCK)
    done = running.end()
    os.close(writer)
    assert done[:2] == (130 if how == "Ctrl-C" else 143, f"error: stopped: {SAYS[kind]}")
    until(lambda: not of_session(running.session))
    assert left(repo) == []
    assert left(bare) == []
    signed = {f"refs/notes/envhist/{timeline(repo)}": ""} if kind == "push" else {}
    # A push first writes the signed head into the notes of the timeline.
    assert ({**refs(repo), **signed}, came(repo), refs(bare)) == ({**before[0], **signed}, *before[1:])
    assert not (tmp_path / "file").exists()
    mend()
    repo.execute(*words, check=True)
    assert left(repo) == []


def test_interrupted_command_leaves_no_running_git(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path
) -> None:
    capture(repo, "one")
    words, _ = prepare_fetch(repo, bare, tmp_path, reached)
    running = subprocess.Popen(
        words, cwd=repo.path, env=repo.env, stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_for(reached)
    running.terminate()
    assert running.wait() == 143
    # The server still hangs, so a git process connected to it would still run.
    assert not [told for told in of_session(running.pid) if told.startswith("git ")]
    assert any(str(reached) in told for told in of_session(running.pid))


def test_progress_is_shown_on_a_terminal(repo: Repo, bare: Repo) -> None:
    for number in range(200):
        repo.write(f"d/{number}", os.urandom(2000))
    capture(repo, "one")
    pushed = Terminal(repo, "git-envlog", "push", "--yes").end()
    # The terminal may lose any progress step, because a later one overwrites it.
    assert any(step.startswith("writing objects ") for step in pushed.steps)
    assert pushed.said.startswith("to 'origin'")
    repo.write("d/more", os.urandom(2000))
    push_then_remove_newest_locally(repo)
    fetched = Terminal(repo, "git-envlog", "fetch", "--full").end()
    assert any(step.startswith("receiving objects ") for step in fetched.steps)
    assert fetched.said.startswith("from 'origin'")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"Receiving objects:  45% (9/20), 1.00 MiB | 3.00 MiB/s\r", "receiving objects 45 %"),
        (b"remote: Counting objects: 100% (7/7), done.\n", "counting objects 100 %"),
        (b"Evil \x1b[2J objects: 10% (1/2)\r", None),
        (b"remote: x\x1b]0;y\x07\n", None),
    ],
)
def test_server_messages_are_cut(said: bytes, shown: str | None) -> None:
    assert parse_progress(said) == shown


def test_only_the_last_of_overwritten_progress_lines_is_shown() -> None:
    said = b"one:   1% \rone: 100% \rone: 100%, done.\r\nerror: two\r\r\nthree\rfour\r"
    assert _without_overwritten(bytearray(said)) == b"one: 100%, done.\r\nerror: two\r\nfour\r"
    assert _without_overwritten(bytearray(b"\r\rone\n\r")) == b"one\n"
    # A regular expression retried at each position would take three hours for this input.
    endless = b"remote: " + b"a" * MAX_ERRORS + b"\r"
    assert _without_overwritten(bytearray(endless)) == endless


def test_fetch_times_out_when_the_server_is_silent(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path
) -> None:
    capture(repo, "one")
    words, mend = prepare_fetch(repo, bare, tmp_path, reached)
    repo.git("config", "envhist.fetchTimeout", "1s")
    running = subprocess.Popen(words, cwd=repo.path, env=repo.env, stderr=subprocess.PIPE, text=True)
    wait_for(reached)
    assert running.communicate()[1].splitlines() == [
        f"error: 'origin' ({bare.path}) sent nothing for 1 s",
        f"{LONGER}git -c envhist.fetchTimeout=1h envlog fetch",
    ]
    assert running.returncode == 128
    os.close(os.open(reached, os.O_RDWR | os.O_NONBLOCK))
    until(lambda: left(repo) == [])
    mend()
    repo.git("config", "--unset", "envhist.fetchTimeout")
    repo.run("envlog", "fetch", check=True)
    assert refs_of_fetched(repo)


def test_push_times_out_when_the_server_is_silent(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path
) -> None:
    capture(repo, "one")
    words, mend = prepare_push(repo, bare, tmp_path, reached)
    repo.git("config", "envhist.pushTimeout", "1s")
    running = subprocess.Popen(words, cwd=repo.path, env=repo.env, stderr=subprocess.PIPE, text=True)
    wait_for(reached)
    assert running.communicate()[1].splitlines() == [
        f"error: 'origin' ({bare.path}) sent nothing for 1 s",
        f"{LONGER}git -c envhist.pushTimeout=1h envlog push",
    ]
    assert running.returncode == 128
    os.close(os.open(reached, os.O_RDWR | os.O_NONBLOCK))
    until(lambda: left(bare) == [])
    assert refs(bare) == {}
    mend()
    repo.git("config", "--unset", "envhist.pushTimeout")
    repo.run("envlog", "push", "--yes", check=True)
    assert refs(bare, "refs/envhist") == refs(repo, "refs/envhist")


class RecordingSelector(selectors.DefaultSelector):
    """A selector that records the timeouts of its calls."""

    timeouts: ClassVar[list[float | None]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.timeouts.append(timeout)
        return super().select(timeout)


def test_git_gets_the_whole_timeout_again_after_each_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """This test only records the timeouts; the tests with slow servers take 10 s each and run with `--full`."""
    monkeypatch.setattr(limits.selectors, "DefaultSelector", RecordingSelector)
    RecordingSelector.timeouts.clear()
    heard: list[bytes] = []
    script = "read word; for number in 1 2 3; do echo $number >&2; echo $number; done"
    done = run_limited(
        ["sh", "-c", script],
        os.environb,
        ResourceLimits(1 << 30, 60),
        b"word\n" + b"x" * 300_000,
        timeout=500.0,
        on_output=heard.append,
    )
    assert (done.status, done.out, b"".join(heard)) == (0, b"1\n2\n3\n", b"1\n2\n3\n")
    assert len(RecordingSelector.timeouts) >= 3
    assert set(RecordingSelector.timeouts) == {500.0}


PATIENCE = 5
"""Timeout in seconds: much longer than a busy machine pauses between two outputs."""
TAKES_SLOWLY = """
import subprocess, sys, time
with subprocess.Popen(["git-receive-pack", *sys.argv[1:]], stdin=subprocess.PIPE) as serving:
    while part := sys.stdin.buffer.raw.read(8192):
        serving.stdin.write(part)
        serving.stdin.flush()
        time.sleep(0.15)
    serving.stdin.close()
"""


@pytest.mark.full
def test_push_to_a_server_that_reads_slowly_is_not_given_up(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    repo.write("much", os.urandom(600_000))
    capture(repo, "one")
    place = tmp_path / "receive-pack"
    place.write_text(f"#!{sys.executable}\n{TAKES_SLOWLY}")
    place.chmod(0o755)
    repo.git("config", "remote.origin.receivepack", str(place))
    repo.git("config", "envhist.pushTimeout", f"{PATIENCE}s")
    started = time.monotonic()
    repo.run("envlog", "push", "--yes", check=True)
    assert time.monotonic() - started > 2 * PATIENCE


@pytest.mark.full
def test_fetch_from_a_server_that_reports_progress_slowly_is_not_given_up(
    repo: Repo, bare: Repo, tmp_path: Path
) -> None:
    capture(repo, "one")
    push_then_remove_newest_locally(repo)
    place = tmp_path / "upload-pack"
    tells = 'for number in 1 2 3 4 5 6 7 8; do printf "slow: %d\\r" $number >&2; sleep 0.9; done\n'
    # Only one of the four connections of a fetch is slow.
    slow = f'if mkdir {tmp_path}/slow 2>/dev/null; then {tells}fi\nexec git-upload-pack "$@"\n'
    place.write_text(f"#!/bin/sh\n{slow}")
    place.chmod(0o755)
    repo.git("config", "remote.origin.uploadpack", str(place))
    repo.git("config", "envhist.fetchTimeout", f"{PATIENCE}s")
    started = time.monotonic()
    assert repo.run("envlog", "fetch", check=True).err == ""
    assert time.monotonic() - started > PATIENCE


# git receives packets of 64 KiB: each takes about a quarter of the timeout.
SLOWLY = """
import subprocess, sys, time
with subprocess.Popen(["git-upload-pack", *sys.argv[1:]], stdout=subprocess.PIPE) as serving:
    while part := serving.stdout.read1(8192):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        time.sleep(0.15)
"""


@pytest.mark.full
def test_fetch_over_a_slow_line_is_not_given_up(repo: Repo, bare: Repo, tmp_path: Path) -> None:
    capture(repo, "one")
    repo.write("much", os.urandom(700_000))
    push_then_remove_newest_locally(repo)
    place = tmp_path / "upload-pack"
    place.write_text(f"#!{sys.executable}\n{SLOWLY}")
    place.chmod(0o755)
    repo.git("config", "remote.origin.uploadpack", str(place))
    repo.git("config", "envhist.fetchTimeout", f"{PATIENCE}s")
    started = time.monotonic()
    repo.run("envlog", "fetch", "--full", check=True)
    assert time.monotonic() - started > 2 * PATIENCE


def test_invalid_limit_warns_and_the_default_applies(repo: Repo, bare: Repo) -> None:
    capture(repo, "one")
    repo.git("config", "envhist.fetchTimeout", "for ever")
    done = repo.run("envlog", "push", "--yes", check=True)
    assert "envhist.fetchtimeout is not a duration: 'for ever'" in done.err


def test_very_long_timeout_is_accepted(repo: Repo, bare: Repo) -> None:
    """The kernel's limit for a wait is 596 hours, so longer timeouts are shortened."""
    capture(repo, "one")
    repo.git("config", "envhist.fetchTimeout", "9999h")
    repo.run("envlog", "push", "--yes", check=True)
    repo.run("envlog", "fetch", check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_command_reports_that_it_waits_for_a_lock(
    repo: Repo, bare: Repo, tmp_path: Path, reached: Path, kind: str
) -> None:
    capture(repo, "one")
    words, mend = KINDS[kind](repo, bare, tmp_path, reached)
    first = subprocess.Popen(
        words, cwd=repo.path, env=repo.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(reached)
    mend()
    second = subprocess.Popen(words, cwd=repo.path, env=repo.env, stderr=subprocess.PIPE, text=True)
    assert second.stderr is not None
    whom = {"push": "another push", "export": "another export"}.get(kind, "another fetch or import")
    assert second.stderr.readline() == f"waiting for {whom} of this repository to finish\n"
    first.terminate()
    first.wait()
    writer = os.open(reached, os.O_RDWR | os.O_NONBLOCK)
    second.communicate()
    os.close(writer)
    assert second.returncode == 0
