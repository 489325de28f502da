"""Run the campaign: `python -m tests.scale --files 300000 --limit 400 --base /var/tmp/scale`.

`--files 1000000 --brief` measures, without a limit: a first capture, captures of no and of few changes, a restore of a
thousand files. `--snapshots 20000`, `--timelines 1000` and `--big 10240` measure one large thing each.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.big_file import write as write_noise
from tests.benchmarks.long_timeline import build as build_timeline
from tests.conftest import sealed_environment
from tests.scale.limited import MIB, Ran, run_limited
from tests.support.oracle import Listing, git_fsck, kernel_listing
from tests.support.programs import make_programs

PER_DIRECTORY = 100
KILLING = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Parts of the memory that a command takes: under these limits the kernel kills one of its processes."""


class Scale:
    """A working tree with many files, and the programs that run in it under a limit."""

    def __init__(self, base: Path) -> None:
        self.root = base / "tree"
        home = base / "home"
        home.mkdir(parents=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.env |= sealed_environment(home)
        programs = make_programs(Path(tempfile.mkdtemp(prefix="programs-", dir=base)))
        self.env["PATH"] = f"{programs}{os.pathsep}{self.env['PATH']}"
        self.wrong: list[str] = []

    def run(self, *words: str, limit: int = 1 << 40) -> Ran:
        """Run a command in the tree under a memory limit, and print what it took."""
        done = run_limited(words, self.root, self.env, limit)
        print(f"{' '.join(words[:5])[:60]:<60} {done.told}", flush=True)
        if "Traceback" in done.err or "unexpected failure" in done.err:
            self.wrong.append(f"{words}: {done.err[-400:]}")
        return done

    def expect(self, holds: bool, what: str) -> None:
        """Record a failed expectation."""
        if not holds:
            self.wrong.append(what)
            print(f"WRONG: {what}", flush=True)

    def look(self) -> Listing:
        return kernel_listing(self.root)


def make_tree(scale: Scale, files: int) -> None:
    """Write many small files, all different, in directories of a hundred."""
    for number in range(files):
        directory = scale.root / f"d{number // 10_000}/e{number // PER_DIRECTORY}"
        if number % PER_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number}").write_bytes(b"%d\n" % number * 12)
    subprocess.run(["git", "init", "-q", "."], cwd=scale.root, env=scale.env, check=True)


def change_tree(scale: Scale, files: int) -> None:
    """Change, remove and add a tenth of the files."""
    for number in range(0, files, 10):
        path = scale.root / f"d{number // 10_000}/e{number // PER_DIRECTORY}/f{number}"
        if number % 20:
            path.unlink()
        else:
            path.write_bytes(b"changed %d\n" % number)


def many_files(scale: Scale, files: int, limit: int) -> None:
    """Capture and restore under a limit; then let the kernel kill them under smaller ones."""
    make_tree(scale, files)
    first = scale.run("git-envlog", "capture", "--porcelain", "-m", "first", limit=limit)
    scale.expect(first.status == 0, f"capture under {limit / MIB:.0f} MiB: {first.err}")
    before = scale.look()
    change_tree(scale, files)
    second = scale.run("git-envlog", "capture", "--porcelain", "-m", "second", limit=limit)
    scale.expect(second.status == 0, f"second capture: {second.err}")
    after = scale.look()
    states = {first.out.strip(): before, second.out.strip(): after}
    for target, listing in states.items():
        done = scale.run("git-envrestore", target, limit=limit)
        scale.expect(done.status == 0, f"restore under {limit / MIB:.0f} MiB: {done.err}")
        scale.expect(scale.look() == listing, "the restored tree is not the captured one")
    for part in KILLING:
        _let_kill(scale, int(first.peak * part), states)


def _let_kill(scale: Scale, limit: int, states: dict[str, Listing]) -> None:
    """Run a restore and a capture under a limit that may be too low; check for losses, and print one line."""
    first, second = states
    done = scale.run("git-envrestore", first, limit=limit)
    if done.status:
        lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
        scale.expect(done.status == -9 or len(lines) == 1, f"not one line: {done.err}")
        if (scale.root / ".git/envhist/restore/journal").exists():
            scale.expect(scale.run("git-envrestore", "--abort").status == 0, "abort after a kill")
        scale.expect(scale.look() == states[second], "a killed restore that was aborted left changes")
    scale.expect(scale.run("git-envrestore", second).status == 0, "restore after a kill")
    top = os.stat(scale.root)
    marker = scale.root / "marker"
    marker.write_text(str(limit))
    cold = scale.root / ".git/envhist/cache"
    shutil.rmtree(cold, ignore_errors=True)
    done = scale.run("git-envlog", "capture", "--porcelain", limit=limit)
    if done.status:
        lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
        scale.expect(done.status == -9 or len(lines) == 1, f"not one line: {done.err}")
    marker.unlink()
    os.utime(scale.root, ns=(top.st_atime_ns, top.st_mtime_ns))
    scale.expect(scale.run("git-envlog", "capture").status == 0, "the capture after a kill")
    scale.expect(scale.look() == states[second], "a killed capture changed the tree")
    scale.expect(git_fsck(scale.root) == "", "git fsck after a kill")


def brief(scale: Scale, files: int) -> None:
    """Time captures and restores of many files with few changes."""
    make_tree(scale, files)
    first = scale.run("git-envlog", "capture", "--porcelain", "-m", "first")
    for words in (("-m", "unchanged"), ("-m", "unchanged again"), ("--if-changed",)):
        scale.expect(scale.run("git-envlog", "capture", *words).status == 0, f"capture {words}")
    for count in (FEW, MANY):
        changed = _change_some(scale, files, count)
        print(f"{count:,} files changed", flush=True)
        scale.expect(scale.run("git-envlog", "capture", "-m", "changed").status == 0, "capture of changes")
    done = scale.run("git-envrestore", first.out.strip())
    scale.expect(done.status == 0, f"restore: {done.err[-300:]}")
    wrong = sum(path.read_bytes() != content for path, content in changed.items())
    scale.expect(not wrong, f"{wrong} files were not restored")


FEW, MANY = 10, 1_000


def _change_some(scale: Scale, files: int, count: int) -> dict[Path, bytes]:
    """Change files in many directories; return the contents that they had."""
    before = {}
    for number in range(0, files, files // count):
        path = scale.root / f"d{number // 10_000}/e{number // PER_DIRECTORY}/f{number}"
        before[path] = b"%d\n" % number * 12
        path.write_bytes(b"changed %d of %d\n" % (number, count))
    return before


def many_timelines(scale: Scale, number: int) -> None:
    """Time commands in a repository with many timelines of 20 and more snapshots, each with a newest one of its own."""
    _make_timeline(scale, "timelines", number + 20)
    tips = _git(scale, "rev-list", "--glob=refs/envhist/heads").split()[:number]
    refs = "".join(
        f"create refs/envhist/heads/host{n % 50}/tree-{n:04} {tip}\n" for n, tip in enumerate(tips)
    )
    _git(scale, "update-ref", "--stdin", given=refs)
    _time_all(
        scale, ("git-envlog", "-n", "20"), ("git-envlog", "--all", "-n", "20"), ("git-envlog", "status"),
        ("git-envlog", "capture"), ("git-envdiff", "--name-status", "@~3"), ("git-envrestore", "@~3"),
    )  # fmt: skip


def big_file(scale: Scale, mebibytes: int) -> None:
    """Time the capture and the restore of one file that cannot be compressed, and of the file with one changed byte."""
    scale.root = scale.root.with_name("big")
    scale.root.mkdir()
    _git(scale, "init", "-q", ".")
    path = scale.root / "disk.img"
    write_noise(path, mebibytes)
    _time_all(scale, ("git-envlog", "capture", "-m", "first"), ("git-envlog", "capture", "-m", "unchanged"))
    with open(path, "r+b") as file:
        file.seek(mebibytes << 19)
        file.write(b"changed")
    _time_all(scale, ("git-envlog", "capture", "-m", "changed"), ("git-envrestore", "@~1"))


def _time_all(scale: Scale, *commands: tuple[str, ...]) -> None:
    for words in commands:
        done = scale.run(*words)
        scale.expect(done.status == 0, f"{words}: {done.err[-300:]}")


def _git(scale: Scale, *words: str, given: str = "") -> str:
    return subprocess.run(
        ["git", *words],
        cwd=scale.root,
        env=scale.env,
        check=True,
        input=given,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def _make_timeline(scale: Scale, name: str, number: int) -> None:
    scale.root = scale.root.with_name(name)
    scale.root.mkdir()
    _git(scale, "init", "-q", ".")
    os.environ.update(
        {name: value for name, value in scale.env.items() if name.startswith(("GIT_", "HOME", "XDG"))}
    )
    began = time.monotonic()
    build_timeline(scale.root, number)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    (scale.root / "more").write_text("1")


def many_snapshots(scale: Scale, number: int) -> None:
    """Time the commands over a long timeline."""
    _make_timeline(scale, "snapshots", number)
    _time_all(
        scale, ("git-envlog", "-n", "20"), ("git-envlog", "--oneline", "-n", str(number)), ("git-envlog", "status"),
        ("git-envlog", "capture"), ("git-envlog", "show", f"@~{number // 2}"),
        ("git-envdiff", "--name-status", f"@~{number // 2}", "@"), ("git-envlog", "why", "more"),
        ("git-envrestore", "@~5"), ("git-envrestore", "--undo"), ("git-envlog", "fsck"), ("git-envlog", "gc"),
        ("git-envlog", "prune", "--keep-last", str(number // 2)), ("git-envlog", "undrop", "--all"),
        ("git-envlog", "-n", "20"),
    )  # fmt: skip
    scale.expect(git_fsck(scale.root) == "", "git fsck")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--snapshots", type=int, default=0)
    parser.add_argument(
        "--brief", action="store_true", help="time few changes of these files, without a limit"
    )
    parser.add_argument("--timelines", type=int, default=0)
    parser.add_argument("--big", type=int, default=0, help="MiB of one file")
    parser.add_argument("--limit", type=int, default=400, help="MiB for a capture or a restore")
    parser.add_argument("--base", help="an existing directory, on the file system to use")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="scale-", dir=options.base))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    scale = Scale(base)
    try:
        if options.files and options.brief:
            brief(scale, options.files)
        elif options.files:
            many_files(scale, options.files, options.limit * MIB)
        if options.snapshots:
            many_snapshots(scale, options.snapshots)
        if options.timelines:
            many_timelines(scale, options.timelines)
        if options.big:
            big_file(scale, options.big)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"{len(scale.wrong)} wrong")
    return 1 if scale.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
