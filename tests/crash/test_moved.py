"""A repository that is moved while a command runs is not created again at its old path."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.crash.faults import needs_strace
from tests.end_to_end.captures import capture, history
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

pytestmark = needs_strace
SLOWLY = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=flock,fsync,mkdir,rename,pwrite64",
          "-e", "inject=flock,fsync,mkdir,rename,pwrite64:delay_enter=40000")  # fmt: skip
COMMANDS = {
    "capture": ("git-envlog", "capture", "-m", "moved"),
    "hook": ("git-envhist", "hook", "post-commit", "--wait"),
    "gc": ("git-envlog", "gc"),
    "drop": ("git-envlog", "drop", "@~1"),
    "purge": ("git-envlog", "purge", "data"),
    "restore": ("git-envrestore", "@~2"),
}


@pytest.fixture
def kept(repo: Repo) -> Repo:
    for version in b"123":
        repo.write("data", bytes([version]) * 2000)
        repo.write(".env", b"API_KEY=%d\n" % version)
        capture(repo, f"version {version}")
    return repo


def moved_while(repo: Repo, words: tuple[str, ...], seconds: float) -> tuple[int, str, Path]:
    """Run a command slowly and move its repository away after a time; return status, errors and the new path."""
    away = repo.path.with_name("away")
    with subprocess.Popen([*SLOWLY, *words], cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        time.sleep(seconds)
        os.rename(repo.path, away)
        _, err = process.communicate(timeout=120)
    return process.returncode, err, away


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("seconds", [0.3, 0.8, pytest.param(0.5, marks=pytest.mark.full),
                                     pytest.param(1.2, marks=pytest.mark.full)])  # fmt: skip
def test_repository_is_not_made_again_when_it_is_moved(kept: Repo, command: str, seconds: float) -> None:
    known = history(kept)
    status, err, away = moved_while(kept, COMMANDS[command], seconds)
    # A hook captures in a background process.
    deadline = time.monotonic() + (4 if command == "hook" else 0)
    while not kept.path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not kept.path.exists(), (status, err, sorted(kept.path.rglob("*")))
    assert "Traceback" not in err
    assert "unexpected failure" not in err
    assert err.count("error: ") == (0 if command == "hook" or status == 0 else 1), err
    os.rename(away, kept.path)
    kept.run("envrestore", "--abort")
    assert git_fsck(kept.path) == ""
    capture(kept, "after it came back")
    if command not in ("drop", "purge"):
        assert set(known) <= set(history(kept))


def test_command_reports_that_the_repository_was_removed(kept: Repo) -> None:
    status, err, away = moved_while(kept, COMMANDS["capture"], 0.5)
    shutil.rmtree(away)
    assert status == 128
    assert err.startswith("error: ")
    assert "Traceback" not in err


SLOW_GIT = """\
#!/bin/sh
case " $* " in
*" update-ref "*) touch {started}; exec strace -f -qq -o /dev/null -e trace=mkdir -e inject=mkdir:delay_enter=1500000 {git} "$@" ;;
*) exec {git} "$@" ;;
esac
"""  # noqa: E501


@pytest.mark.full
@pytest.mark.parametrize("comes_back", [False, True])
def test_git_makes_no_directory_at_the_old_place_when_it_moves_a_ref(
    repo: Repo, tmp_path: Path, comes_back: bool
) -> None:
    started, away = tmp_path / "started", repo.path.with_name("away")
    (tmp_path / "bin").mkdir()
    place = tmp_path / "bin/git"
    place.write_text(SLOW_GIT.format(started=started, git=shutil.which("git")))
    place.chmod(0o755)
    env = {**repo.env, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{repo.env['PATH']}"}
    with subprocess.Popen(
        ["git-envlog", "capture"], cwd=repo.path, env=env, stderr=subprocess.PIPE, text=True
    ) as run:
        while not started.exists():
            time.sleep(0.05)
        time.sleep(0.5)
        os.rename(repo.path, away)
        if comes_back:
            time.sleep(2.0)
            os.rename(away, repo.path)
        _, err = run.communicate(timeout=120)
    assert "Traceback" not in err
    if not comes_back:
        assert not repo.path.exists(), (err, sorted(repo.path.rglob("*")))
        os.rename(away, repo.path)
    assert not (repo.path / "away").exists()
    capture(repo, "after it came back")
    assert git_fsck(repo.path) == ""
