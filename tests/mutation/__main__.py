"""Run the mutation campaign: `python -m tests.mutation --help`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.calls import VARIABLE, read_calls, read_durations
from tests.mutation.mutants import Mutant, draw

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("capture", "capturing", "restore", "restoring", "store", "history", "cli")
MAX_TESTS = 400
"""Tests run for one mutant at most; a function that more tests call is part of nearly everything."""


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        calls = Path(options.calls or f"{scratch}/calls")
        if not calls.exists():
            _record_calls(calls)
        files = [
            path for name in PACKAGES for path in sorted((CHECKOUT / "git_envhist" / name).rglob("*.py"))
        ]
        mutants = draw(files, options.count, options.seed)
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(_copy_checkout(Path(scratch) / f"copy{number}"))
        tests, durations = read_calls(calls), read_durations(calls)

        def judge(mutant: Mutant) -> bool:
            callers = tests.get((str(mutant.path), mutant.function), set())
            ordered = sorted(callers & durations.keys(), key=durations.__getitem__)[:MAX_TESTS]
            copy = copies.get()
            try:
                found = bool(ordered) and _is_found(mutant, copy, ordered)
            finally:
                copies.put(copy)
            place = f"{mutant.path.relative_to(CHECKOUT)}:{mutant.line}"
            result = "found" if found else "ALIVE" if ordered else "ALIVE (no test calls it)"
            print(
                f"{result:<6} {place}  {mutant.before!r} -> {mutant.text!r}  ({len(ordered)} tests)",
                flush=True,
            )
            return found

        with ThreadPoolExecutor(options.jobs) as pool:
            found = sum(pool.map(judge, mutants))
    print(f"found {found} of {len(mutants)} mutants (seed {options.seed})")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="number of mutants (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="which lines are drawn (default 1)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="mutants at once (default: one per core)"
    )
    parser.add_argument("--calls", help="a directory with recorded calls; made there if it does not exist")
    parser.add_argument(
        "--scratch", help="where copies of the checkout are made (default: the temporary directory)"
    )
    return parser.parse_args()


def _record_calls(directory: Path) -> None:
    directory.mkdir(parents=True)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.mutation.calls",
        "--maxfail=0",
        "-p",
        "no:cacheprovider",
    ]
    subprocess.run(words, cwd=CHECKOUT, env={**os.environ, VARIABLE: str(directory)}, check=False)


def _copy_checkout(copy: Path) -> Path:
    copy.mkdir(parents=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, check=True, capture_output=True).stdout.split(b"\0")[:-1]
    for name in map(os.fsdecode, names):
        if (CHECKOUT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name, follow_symlinks=False)
    return copy


def _is_found(mutant: Mutant, copy: Path, tests: list[str]) -> bool:
    """Run the tests in a copy of the checkout with the mutant in place; true if one fails."""
    target = copy / mutant.path.relative_to(CHECKOUT)
    original = target.read_bytes()
    arguments = copy / "mutation-arguments"
    arguments.write_text("\n".join(tests), encoding="utf-8")
    target.write_bytes(mutant.apply(original))
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", f"@{arguments}"]
    try:
        done = subprocess.run(
            words, cwd=copy, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_bytes(original)
    return done.returncode != 0


LONGEST = 900.0
"""Timeout in seconds; a mutant that makes a program wait for ever counts as found."""

if __name__ == "__main__":
    sys.exit(main())
