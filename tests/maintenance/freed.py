"""Check the sizes that `du` prints for a large environment: `python -m tests.maintenance.freed [--at DIR]`.

The environment of the benchmarks, about 100,000 files, is captured, changed like in days of work, captured again, and
packed by `gc`. The bytes that `du` prints for snapshots or a directory are compared with the bytes that `du -s` counts
less in a copy of the repository in which they were dropped (or the directory purged), the trash emptied, and `gc` run.
`--at`: an environment left by `--keep` of the benchmarks; it is changed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.corpus import FULL, MIDDLE, SMALL, build
from tests.crash.campaign import sealed_repo
from tests.objects.packing import noise
from tests.support.repository import Repo

MOMENTS = 6
MEASURE = """
import os, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
CASES: tuple[tuple[str, ...], ...] = (("@~1",), ("@~2", "@~3"), ("@",), ("--", "build"), ("--", "d1"))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--at", type=Path)
    words.add_argument("--small", action="store_true", help="2,000 files")
    words.add_argument("--middle", action="store_true", help="20,000 files")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="freed-", dir=asked.at.parent if asked.at else None) as base:
        sealed = sealed_repo(Path(base))
        top = asked.at or Path(base) / "environment"
        if asked.at is None:
            build(top, SMALL if asked.small else MIDDLE if asked.middle else FULL)
        repo = Repo(top, sealed.env)
        if not (top / ".git").exists():
            repo.git("init", "-q", "--template=")
        _live(repo)
        print("| | took | most memory |\n| --- | ---: | ---: |", flush=True)
        _measured(repo, "gc", "--prune=now")
        _measured(repo, "gc", "--prune=now", told="gc once more")
        _measured(repo, "du")
        print("\n| dropped | `du` printed | freed | |\n| --- | ---: | ---: | ---: |", flush=True)
        for case in CASES:
            _hold_against(repo, case, Path(base))
    return 0


def _live(repo: Repo) -> None:
    """Make snapshots that share most objects, each with some of its own, and a few large changes."""
    chance = random.Random("freed")
    files = sorted(path for path in repo.path.rglob("*.js") if path.is_file() and ".git" not in path.parts)
    for number in range(MOMENTS):
        for path in chance.sample(files, min(300, len(files) // 4)):
            text = path.read_bytes()
            path.unlink()
            path.write_bytes(text + b"// %d\n" % number)
        for one in range(20):
            repo.write(f"d{number % 2}/f{one}", noise(40_000, number * 100 + one))
        begun = time.monotonic()
        repo.run("envlog", "capture", f"moment {number}", check=True)
        print(f"captured in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


def _measured(repo: Repo, *words: str, told: str = "") -> None:
    begun = time.monotonic()
    # Start it from a small process: memory inherited from a parent counts as the child's.
    script = [sys.executable, "-c", MEASURE, "git-envlog", *words]
    done = subprocess.run(script, cwd=repo.path, env=repo.env, capture_output=True, text=True, check=True)
    processors, memory = done.stdout.split()[-2:]
    seconds = f"{time.monotonic() - begun:.1f} s, {float(processors):.1f} s of processors"
    print(f"| {told or ' '.join(words)} | {seconds} | {int(memory) >> 10} MB |", flush=True)


def _hold_against(repo: Repo, case: tuple[str, ...], base: Path) -> None:
    printed = json.loads(repo.run("envlog", "du", "--json", *case, check=True).out)["together"]
    copy = base / "copy"
    copy.mkdir()
    shutil.copytree(repo.path / ".git", copy / ".git", symlinks=True)
    there = Repo(copy, repo.env)
    before = _counted(copy)
    if case[0] == "--":
        there.run("envlog", "purge", *case[1:], check=True)
    else:
        there.run("envlog", "drop", *case, check=True)
        for ref in there.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").split():
            there.git("update-ref", "-d", ref)
    there.run("envlog", "gc", "--prune=now", check=True)
    back = before - _counted(copy)
    shutil.rmtree(copy)
    print(f"| {' '.join(case)} | {printed:,} | {back:,} | {printed / max(1, back):.2f} |", flush=True)


def _counted(place: Path) -> int:
    """Return the bytes of packs, counted by another program."""
    packs = sorted(map(str, (place / ".git/objects/pack").glob("*.pack")))
    told = subprocess.run(["du", "-cb", *packs], check=True, capture_output=True, text=True).stdout
    return int(told.splitlines()[-1].split()[0])


if __name__ == "__main__":
    sys.exit(main())
