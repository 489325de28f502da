"""Failing system calls in every command: `python -m tests.crash.errors [--seconds N] [command…]`.

Each point runs one command on a fresh copy of a prepared repository, under strace, which makes the n-th call of one
kind fail in each process of the command (the program, its workers, its gits). Findings: a traceback, a defect, no line
or several, an unexpected status, a hang, a lost snapshot or byte, a state from which the next command does not recover.
The table counts points; findings are printed and end the program with status 1.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.campaign import sealed_repo
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, Result

CALLS = {
    "open": "openat,open",
    "read": "read,pread64,readv,preadv",
    "write": "write,pwrite64,writev",
    "stat": "newfstatat,fstat,statx,lstat,stat",
    "list": "getdents64",
    "sync": "fsync,fdatasync,syncfs",
    "name": "rename,renameat,renameat2,link,linkat,symlink,symlinkat",
    "remove": "unlink,unlinkat,rmdir",
    "make": "mkdir,mkdirat",
    "mode": "fchmod,fchmodat,chmod,utimensat,ftruncate,fchown,fchownat",
    "attribute": "flistxattr,llistxattr,listxattr,fgetxattr,lgetxattr,getxattr",
    "lock": "flock,fcntl",
    "spawn": "clone,clone3,vfork,fork,execve,pipe2",
    "enter": "chdir,fchdir",
}
FAULTS = {
    "open": ("EIO", "EMFILE", "ENOMEM", "ESTALE", "EINTR", "ENOSPC"),
    "read": ("EIO", "ESTALE", "ENOMEM", "EINTR"),
    "write": ("ENOSPC", "EIO", "EINTR", "ESTALE"),
    "stat": ("EIO", "ESTALE", "ENOMEM"),
    "list": ("EIO", "ESTALE", "ENOMEM"),
    "sync": ("EIO", "ENOSPC"),
    "name": ("EIO", "ENOSPC", "ESTALE"),
    "remove": ("EIO", "ESTALE"),
    "make": ("ENOSPC", "EIO"),
    "mode": ("EIO", "ENOSPC", "ESTALE"),
    "attribute": ("EIO", "ESTALE"),
    "lock": ("EINTR", "EIO", "ENOMEM"),
    "spawn": ("EMFILE", "ENOMEM"),
    "enter": ("EIO", "ESTALE"),
}
SECONDS = 90
"""A command that takes longer hangs."""
STATUSES = {0, 1, 3, 4, 5, 125, 128, 129}


@dataclass(frozen=True)
class Case:
    """A command; `changes`: the snapshots that it may remove, and whether it may change the working tree."""

    words: tuple[str, ...]
    forgets: bool = False
    restores: bool = False
    reads: bool = False
    """Whether the command only reads, so that nothing can be lost."""


COMMANDS = {
    "capture": Case(("envlog", "capture", "-m", "new")),
    "log": Case(("envlog",), reads=True),
    "show": Case(("envlog", "show", "@~1"), reads=True),
    "diff": Case(("envdiff", "@~2", "@"), reads=True),
    "diff-now": Case(("envdiff",)),
    "restore": Case(("envrestore", "@~2"), restores=True),
    "restore-path": Case(("envrestore", "@~2", "--", "d1"), restores=True),
    "restore-to": Case(("envrestore", "@~1", "--to", "../elsewhere")),
    "undo": Case(("envlog", "undo"), restores=True),
    "redo": Case(("envlog", "redo"), restores=True),
    "verify": Case(("envlog", "verify", "--", "true")),
    "verify-older": Case(("envlog", "verify", "@~1", "--", "true")),
    "bisect": Case(("envlog", "bisect", "--good", "@~2", "--bad", "@", "--", "false")),
    "name": Case(("envlog", "name", "called", "@")),
    "note": Case(("envlog", "note", "@", "-m", "words")),
    "run": Case(("envlog", "run", "--", "touch", "made")),
    "fork": Case(("envlog", "fork", "../forked", "@~1")),
    "gc": Case(("envlog", "gc")),
    "drop": Case(("envlog", "drop", "@~1"), forgets=True),
    "undrop": Case(("envlog", "undrop")),
    "prune": Case(("envlog", "prune", "--keep-last", "2"), forgets=True),
    "purge": Case(("envlog", "purge", "d2/f2"), forgets=True),
    "du": Case(("envlog", "du"), reads=True),
    "fsck": Case(("envlog", "fsck"), reads=True),
    "recent": Case(("envlog", "recent"), reads=True),
    "status": Case(("envlog", "status"), reads=True),
    "export": Case(("envlog", "export", "../exported", "@~1"), reads=True),
    "push": Case(("envlog", "push", "--yes", "origin")),
    "fetch": Case(("envlog", "fetch", "origin")),
    "key": Case(("envlog", "key"), reads=True),
    "install": Case(("envlog", "install")),
    "capture-verify": Case(("envlog", "capture", "--verify", "true", "-m", "checked")),
    "restore-new": Case(("envrestore", "--keep-new", "@~2"), restores=True),
    "restore-verify": Case(("envrestore", "--verify", "@~2"), restores=True),
    "task": Case(("envlog", "task", "add", "a task")),
    "task-done": Case(("envlog", "task", "done", "1")),
    "resume": Case(("envlog", "resume"), reads=True),
    "effect": Case(("envlog", "effect", "a deployment")),
    "observe": Case(("envlog", "observe", "checkpoint-1")),
    "import": Case(("envlog", "import", "../archive")),
    "key-new": Case(("envlog", "key", "new")),
    "key-reseal": Case(("envlog", "key", "new", "--reseal"), forgets=True),
    "key-export": Case(("envlog", "key", "export", "-o", "../key"), reads=True),
    "uninstall": Case(("envlog", "uninstall")),
    "log-paths": Case(("envlog", "-p", "--all", "--", "d1"), reads=True),
    "json": Case(("envlog", "--json", "--all"), reads=True),
    "hook": Case(("envhist", "hook", "post-commit")),
}


@dataclass(frozen=True)
class Point:
    """A call that fails."""

    command: str
    kind: str
    fault: str
    when: int

    @property
    def words(self) -> tuple[str, ...]:
        calls = CALLS[self.kind]
        return ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}",
                "-e", f"inject={calls}:error={self.fault}:when={self.when}")  # fmt: skip


@dataclass
class Template:
    """A repository with a history, to be copied for each point; `counts`: the number of calls of each command."""

    place: Path
    repo: Repo
    counts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> Repo:
        target = self.place / "copies"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        beside = [str(self.repo.path.parent / name) for name in ("remote.git", "archive")]
        subprocess.run(["cp", "-a", str(self.repo.path), *beside, str(target)], check=True)
        return Repo(target / self.repo.path.name, self.repo.env)

    def count(self, command: str, kind: str) -> tuple[int, int]:
        """Return the number of the first call of a kind after the interpreter's own, and of the last of all."""
        if (command, kind) not in self.counts:
            repo, log = self.copy(), self.place / "calls"
            words = ("strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS.values())}")
            done = run(repo, words, COMMANDS[command].words)
            if done is None or done.status not in (0, 1):
                raise AssertionError(f"{command} ends with {done and done.status}: {done and done.err}")
            text = log.read_text(errors="replace")
            for each, calls in CALLS.items():
                self.counts[command, each] = _counted(text, calls.split(","))
        return self.counts[command, kind]


def _counted(log: str, calls: list[str]) -> tuple[int, int]:
    seen: dict[str, int] = {}
    first = 0
    main = log.partition(" ")[0]
    for line in log.splitlines():
        process, _, call = line.partition(" ")
        name = call.strip().partition("(")[0]
        if name in calls and "resumed>" not in call:
            seen[process] = seen.get(process, 0) + 1
        if not first and process == main and re.search(r"git_envhist/cli/(__pycache__/)?entry", call):
            first = seen.get(main, 0) + 1
    return max(1, first), max(seen.values(), default=0)


def prepare(place: Path) -> Template:
    """Make a small history with a restore to undo, a dropped snapshot and a remote."""
    repo = sealed_repo(place)
    remote = place / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    repo.git("remote", "add", "origin", "../remote.git")
    for n in range(30):
        repo.write(f"d{n % 4}/f{n}", f"first {n}\n" * 30)
    repo.write(".env.local", b"API_KEY=1234\n")
    (repo.path / "d3" / "empty").mkdir()
    for step in range(5):
        repo.write(f"d{step % 4}/f{step}", f"step {step}\n")
        repo.write(f"d1/new{step}", f"new {step}\n")
        repo.run("envlog", "capture", "-m", f"step {step}", check=True)
    repo.run("envlog", "drop", "@~3", check=True)
    repo.run("envlog", "push", "--yes", "origin", check=True)
    repo.run("envlog", "export", "../archive", "@~1", check=True)
    repo.run("envlog", "task", "add", "the first task", check=True)
    repo.run("envrestore", "@~1", check=True)
    repo.run("envrestore", "@~1", check=True)
    repo.run("envlog", "undo", check=True)
    repo.run("envlog", "verify", "@~2", "--", "true", check=True)
    return Template(place, repo)


def run(repo: Repo, prefix: Sequence[str], words: Sequence[str]) -> Result | None:
    """Run a command to its end; None if it hangs."""
    name = words[0] if words[0].startswith("git-") else f"git-{words[0]}"
    with subprocess.Popen(
        [*prefix, name, *words[1:]], cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)
            process.communicate()
            return None
    return Result(process.returncode, out, err)


def snapshots(repo: Repo) -> dict[str, str]:
    """Return every snapshot of every timeline and of the trash, with its tree."""
    listed = repo.git("log", "--format=%H %T", "--glob=refs/envhist/*").splitlines()
    return dict(line.split(" ") for line in listed)  # type: ignore[misc]


def files(repo: Repo) -> dict[str, bytes]:
    """Return the contents of the working tree, of links their targets."""
    found = {}
    for path in repo.path.rglob("*"):
        name = path.relative_to(repo.path).as_posix()
        if name.startswith(".git") or ".envhist" in name or path.is_dir():
            continue
        found[name] = path.read_bytes()
    return found


def try_point(template: Template, point: Point) -> list[str]:
    """Run a command with one fault and return findings."""
    case = COMMANDS[point.command]
    repo = template.copy()
    if point.command != "redo":
        repo.write("d2/later", b"not captured yet\n")
    known, before = snapshots(repo), files(repo)
    done = run(repo, point.words, case.words)
    if done is None:
        return ["it hangs"]
    first, _ = template.count(point.command, point.kind)
    wrong = [] if point.when < first else judge_words(done)
    return wrong if case.reads else [*wrong, *judge_state(repo, case, known, before)]


def judge_words(done: Result) -> list[str]:
    """Check the output and the status of a command."""
    wrong = []
    both = done.err + done.out
    if ("in run_program" not in both and "importlib" in both) or "unsupported hash type" in both:
        return []  # the interpreter could not load the program, so git-envhist cannot report the error
    if "Traceback" in both or "unexpected failure" in both or "Error: " in done.err:
        wrong.append("a defect is reported")
    lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
    if len(lines) > 1:
        wrong.append("more than one error is reported")
    if done.status not in STATUSES:
        wrong.append(f"status {done.status}")
    # With --json the error is a JSON object on standard output.
    if done.status >= 128 and not lines and not re.search(r"\S", done.err) and '"error": {' not in done.out:
        wrong.append("it fails without a word")
    if done.status == 0 and lines:
        wrong.append("an error, and status 0")
    return [f"{line} [{done.status}: {done.err.strip()[-400:]}]" for line in wrong]


def judge_state(repo: Repo, case: Case, known: dict[str, str], before: dict[str, bytes]) -> list[str]:
    """Check that no snapshot or byte is lost, and that the next commands recover."""
    wrong = []
    if case.restores:
        left = run(repo, (), ("envrestore", "--abort"))
        if left is None or (left.status not in (0, 3, 4, 128)) or "unexpected" in left.err:
            wrong.append(f"--abort: {left and left.err}")
    if complaint := git_fsck(repo.path):
        wrong.append(f"git fsck: {complaint}")
    after = files(repo)
    if not case.restores and any(after.get(name) != data for name, data in before.items()):
        wrong.append("files of the working tree differ")
    trees = snapshots(repo)
    if not case.forgets and not set(known.values()) <= set(trees.values()):
        wrong.append("a snapshot is lost")
    captured = run(repo, (), ("envlog", "capture", "--porcelain", "-m", "next"))
    if captured is None or captured.status != 0 or captured.err:
        wrong.append(f"the next capture: {captured and (captured.status, captured.err)}")
    elif case.restores:
        wrong += _lost_bytes(repo, before)
    checked = run(repo, (), ("envlog", "fsck"))
    if checked is None or checked.status != 0:
        wrong.append(f"fsck: {checked and (checked.status, checked.out, checked.err)}")
    return wrong


def _lost_bytes(repo: Repo, before: dict[str, bytes]) -> list[str]:
    """Return files whose previous bytes are neither in the working tree nor in a snapshot."""
    after = files(repo)
    stored = set()
    listed = repo.git("log", "--format=%H", "--glob=refs/envhist/*").split()
    for commit in listed:
        stored.update(
            line.partition("\t")[0].split()[2] for line in repo.git("ls-tree", "-r", commit).splitlines()
        )
    lost = []
    for name, data in before.items():
        if after.get(name) == data or name.startswith(".env"):
            continue
        if repo.git("hash-object", "--stdin", "--no-filters", input=data) not in stored:
            lost.append(f"lost: {name}")
    return lost


def sample(template: Template, commands: Sequence[str], chance: random.Random) -> Iterator[Point]:
    """Yield points endlessly, each command and kind equally often."""
    while True:
        command = chance.choice(commands)
        kind = chance.choice(list(CALLS))
        first, last = template.count(command, kind)
        if last:
            # A quarter of the points may fail in a child before its count reaches the program's first call.
            low = first if chance.random() < 0.75 and first <= last else 1
            yield Point(command, kind, chance.choice(FAULTS[kind]), chance.randint(low, last))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=1800, help="time limit of the campaign")
    words.add_argument("--seed", type=int, default=time.time_ns())
    words.add_argument("commands", nargs="*", help=f"{', '.join(COMMANDS)} (default: all)")
    asked = words.parse_args()
    deadline = time.monotonic() + asked.seconds
    counts: dict[str, list[int]] = {}
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="errors-") as place:
        template = prepare(Path(place))
        for point in sample(template, asked.commands or list(COMMANDS), random.Random(asked.seed)):
            wrong = try_point(template, point)
            row = counts.setdefault(point.command, [0, 0])
            row[0] += 1
            row[1] += bool(wrong)
            for line in wrong:
                print(f"{point}: {line}", flush=True)
            if time.monotonic() > deadline:
                break
    print("| command | points | wrong |\n| --- | --- | --- |")
    for command, (points, bad) in sorted(counts.items()):
        print(f"| {command} | {points} | {bad} |")
    return 1 if any(bad for _, bad in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
