"""The list of git processes that may work in a repository, from a hand-made `/proc`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.git.running_git import gits_at_work

BOOTED = 1_700_000_000


def process(place: Path, pid: int, name: str, words: list[str], cwd: Path, *, state: str = "S") -> None:
    """Create a process's directory; it was started as many seconds after the boot as its number."""
    own = place / str(pid)
    own.mkdir(parents=True)
    ticks = pid * os.sysconf("SC_CLK_TCK")
    fields = [state, *["0"] * 18, str(ticks), "0", "0"]
    (own / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (own / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (own / "environ").write_bytes(b"HOME=/\0")
    (own / "cwd").symlink_to(cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty `/proc`, and a repository `here`."""
    (tmp_path / "here" / ".git" / "objects").mkdir(parents=True)
    (tmp_path / "here" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text(f"cpu 1 2 3\nbtime {BOOTED}\n")
    return tmp_path


def found(place: Path) -> list[tuple[int, str]] | None:
    gits = gits_at_work(str(place / "here/.git"), [str(place / "here")], str(place / "proc"))
    assert all(git.started == BOOTED + git.pid for git in gits or ())
    return None if gits is None else sorted((git.pid, git.command) for git in gits)


def test_ended_gits_and_own_programs_are_not_listed(place: Path) -> None:
    here, proc = place / "here", place / "proc"
    process(proc, 1, "git", ["git", "-c", "a.b=c", "--no-pager", "gc", "--auto"], here)
    process(proc, 2, "git-upload-pack", ["/usr/lib/git-core/git-upload-pack", "."], here)
    process(proc, 3, "git", ["git", "update-ref"], here, state="Z")
    process(proc, 4, "python", ["python", "git"], here)
    process(proc, 5, "git-envlog", ["/usr/bin/python3", "/usr/bin/git-envlog", "capture"], here)
    process(proc, 6, "a (git) b", ["git"], here)
    assert found(place) == [(1, "gc"), (2, "upload-pack")]


def test_git_in_a_nested_repository_is_not_listed_for_the_outer_one(place: Path) -> None:
    nested = place / "here" / "vendor" / "other"
    (nested / ".git").mkdir(parents=True)
    (nested / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    process(place / "proc", 1, "git", ["git", "commit"], nested)
    process(place / "proc", 2, "git", ["git", "commit"], place / "here" / "vendor")
    process(place / "proc", 3, "git", ["git", "commit"], place)
    assert found(place) == [(2, "commit")]


def test_git_that_names_the_repository_in_an_argument_is_listed(place: Path) -> None:
    process(place / "proc", 1, "git", ["git", "clone", "-q", "here", "there"], place)
    process(place / "proc", 2, "git", ["git", f"--git-dir={place}/here/.git", "repack"], Path("/"))
    process(place / "proc", 3, "git", ["git", "clone", "-q", "elsewhere", "there"], place)
    assert found(place) == [(1, "clone"), (2, "repack")]


def test_system_without_proc_returns_none(place: Path) -> None:
    (place / "proc" / "stat").unlink()
    assert found(place) is None
