"""Cause faults in a running capture by strace, and check the result.

strace counts the calls of each process separately: the n-th rename of the capture, of each of its workers and of
every git that it runs. Calls of git only are reached through a `git` script that is first on PATH.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_envhist.git.running_git import LONG_AGO
from tests.end_to_end.captures import assert_holds, capture, history
from tests.hygiene.user_data import Belongings, belongings
from tests.support.needs import needs
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, Result
from tests.support.trees import File, build

CALLS = {
    "write": "write,pwrite64",
    "sync": "fsync,fdatasync,syncfs",
    "rename": "rename,renameat,renameat2,link,linkat",
    "unlink": "unlink,unlinkat,rmdir",
    "mkdir": "mkdir,mkdirat",
    "open": "openat",
    "mode": "chmod,fchmod,fchmodat,ftruncate,utimensat",
    "lock": "flock",
    "spawn": "clone,clone3,vfork,fork",
}
"""The system calls that change a disk, by kind; the calls of each kind are counted together."""

GIT = """\
#!/bin/sh
case " $* " in
*" {command} "*) exec {strace} {real} "$@" ;;
esac
exec {real} "$@"
"""


def strace_works() -> bool:
    """Return whether this machine permits tracing a process."""
    if shutil.which("strace") is None:
        return False
    return os.spawnvp(os.P_WAIT, "strace", ["strace", "-o", "/dev/null", "true"]) == 0


needs_strace = (
    pytest.mark.skipif(not strace_works(), reason="strace cannot trace a process here")
    if shutil.which("strace")
    else needs("strace")
)


@dataclass(frozen=True)
class Before:
    """The state before a fault."""

    known: list[str]
    users: Belongings


def prepare(repo: Repo) -> None:
    """Make a small environment with every kind of stored entry, and one snapshot."""
    build({b"d%d/f%d" % (n % 7, n): File(b"first %d" % n * 40) for n in range(60)}, repo.path)
    repo.write(".env.local", b"API_KEY=1234\n")
    repo.write("staged", b"1\n")
    repo.git("add", "staged")
    capture(repo, "before")


def change(repo: Repo, stamp: str) -> Before:
    """Change the environment; return the state before the capture."""
    build({b"d%d/new%d" % (n, n): File(f"{stamp} {n}".encode() * 40) for n in range(5)}, repo.path)
    (repo.path / "d6" / "f6").unlink(missing_ok=True)
    return Before(history(repo), belongings(repo))


def traced(call: str, fault: str, when: str) -> tuple[str, ...]:
    """Return the words before a command that make its n-th call of a kind fail."""
    calls = CALLS.get(call, call)
    return ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}",
            "-e", f"inject={calls}:{fault}:when={when}")  # fmt: skip


def capture_with_fault(repo: Repo, call: str, fault: str, when: str, *words: str) -> Result:
    return repo.run(
        "envlog", "capture", "--porcelain", "-m", "faulty", *words, prefix=traced(call, fault, when)
    )


def capture_with_faulty_git(repo: Repo, command: str, call: str, fault: str, when: str) -> Result:
    """Capture while one git command meets the fault."""
    place = repo.path.parent / "faulty-git"
    place.mkdir(exist_ok=True)
    script = GIT.format(command=command, strace=" ".join(traced(call, fault, when)), real=shutil.which("git"))
    (place / "git").write_text(script)
    (place / "git").chmod(0o755)
    path = os.pathsep.join((str(place), repo.env["PATH"]))
    return repo.run("envlog", "capture", "--porcelain", "-m", "faulty", env={"PATH": path})


def first_open_of_ours(repo: Repo) -> int:
    """Return how many files the interpreter opens before git-envhist's first one, the lock."""
    log = repo.path.parent / "opened"
    words = ("strace", "-qq", "-o", str(log), "-e", "trace=openat")
    repo.run("envlog", "capture", "-m", "counted", prefix=words, check=True)
    opened = [line for line in log.read_text(errors="replace").splitlines() if "openat(" in line]
    return next(at for at, line in enumerate(opened) if "/envhist/lock" in line)


def judge(repo: Repo, before: Before, done: Result | None = None) -> list[str]:
    """Return the problems after a fault."""
    wrong = []
    if complaint := git_fsck(repo.path):
        wrong.append(f"fsck: {complaint}")
    after = history(repo)
    if after[-len(before.known) :] != before.known or len(after) > len(before.known) + 1:
        wrong.append(f"the history was {before.known} and is {after}")
    elif after != before.known and not (done and "not captured" in done.err):
        wrong += _incomplete(repo, after[0])
    if belongings(repo) != before.users:
        wrong.append("something of the user's changed")
    if done is not None:
        wrong += _badly_told(done, published=after != before.known)
    return wrong


def age_locks(repo: Repo) -> None:
    """Make locks that a killed git left look old."""
    at = time.time() - LONG_AGO - 5
    for place in ("refs", "objects/pack", "objects/info"):
        for lock in (repo.path / ".git" / place).rglob("*.lock"):
            os.utime(lock, (at, at))


def judge_the_next(repo: Repo) -> list[str]:
    """Return the problems with the next capture, and with leftovers after it."""
    # A git that continues after the capture's end keeps its staging directory locked until it ends.
    deadline = time.monotonic() + 10
    done = repo.run("envlog", "capture", "--porcelain", "-m", "next")
    if done.status != 0 or done.err:
        return [f"the next capture ended with {done.status}: {done.err}"]
    wrong = _incomplete(repo, done.out.strip())
    while (left := debris(repo)) and time.monotonic() < deadline:
        time.sleep(0.2)
        capture(repo, "once more")
    return [*wrong, *(f"left behind: {name}" for name in left)]


def _incomplete(repo: Repo, snapshot: str) -> list[str]:
    try:
        assert_holds(repo, snapshot)
    except AssertionError as error:
        return [f"{snapshot} is not whole: {error}"]
    return []


def _badly_told(done: Result, *, published: bool) -> list[str]:
    wrong = []
    if "Traceback" in done.err or "unexpected failure" in done.err:
        wrong.append(f"reported as a defect: {done.err}")
    if done.status == 0 and not published:
        wrong.append("status 0, and no snapshot")
    return wrong


def debris(repo: Repo) -> list[str]:
    """Return leftovers that no command will remove."""
    git_dir = repo.path / ".git"
    stagings = [git_dir / "envhist" / "staging", git_dir / "objects" / ".envhist-staging"]
    left = [path for place in stagings if place.is_dir() for path in place.iterdir() if path.is_dir()]
    packs = git_dir / "objects" / "pack"
    known = (".pack", ".idx", ".keep", ".rev")
    left += [path for path in packs.iterdir() if path.suffix not in known and path.name != "multi-pack-index"]
    left += [path for path in packs.glob("*.keep") if not path.with_suffix(".idx").exists()]
    left += [path for path in packs.glob("*.pack") if not path.with_suffix(".idx").exists()]
    left += [path for path in git_dir.rglob("tmp_*") if path.parent != packs]
    left += list(git_dir.rglob("*.lock"))
    left += _unknown_state(git_dir / "envhist")
    return [str(path.relative_to(git_dir)) for path in left]


def _unknown_state(state: Path) -> list[Path]:
    known = {"lock", "lock.shared", "timeline", "cache", "keys", "staging", "indexes"}
    known |= {"lock.upkeep", "upkeep", "packs.json", "repository", "sealed-sources"}
    odd = [path for path in state.iterdir() if path.name not in known]
    cache = state / "cache"
    shards = cache.iterdir() if cache.is_dir() else ()
    return odd + [path for path in shards if "." in path.name]
