"""`python -m tests.benchmarks`: make the environment, run git-envhist and its peers, print the table."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.benchmarks.bench import Bench
from tests.benchmarks.corpus import FULL, MIDDLE, SMALL, Scale, build, is_built, shape
from tests.benchmarks.peers import Setting, surroundings
from tests.benchmarks.rows import ROWS
from tests.benchmarks.runs import Failed
from tests.benchmarks.scratch import Scratch
from tests.benchmarks.table import Line, render

VERSIONS = (("git", "--version"), ("restic", "version"), ("borg", "--version"), ("zstd", "--version"))


def main(words: Sequence[str]) -> int:
    """Measure, print the table and remove all files."""
    options = _options(words)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    with Scratch() as scratch:
        bench = _make_bench(scratch, options)
        facts = _facts(bench)
        lines: list[Line] = []
        try:
            for name in options.only or ROWS:
                lines += ROWS[name](bench)
        finally:
            # Print what was measured before an interruption, too.
            print("\n".join(facts), end="\n\n")
            print(render(lines, judged=not options.small))
        if options.small:
            print(
                "\nThe limits hold for the full environment; in the small one the start of programs counts for more."
            )
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--small", action="store_true", help="a fiftieth of the environment; takes under a minute"
    )
    parser.add_argument(
        "--middle", action="store_true", help="a fifth of the environment, for many captures in a row"
    )
    parser.add_argument(
        "--only", nargs="+", choices=ROWS, metavar="ROW", help=f"rows to measure: {', '.join(ROWS)}"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        metavar="N",
        help="turns of each program (default 3); the median counts",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the environment in this directory for the next run"
    )
    return parser.parse_args(words)


def _make_bench(scratch: Scratch, options: argparse.Namespace) -> Bench:
    scale = SMALL if options.small else MIDDLE if options.middle else FULL
    variables = surroundings(scratch.base)
    os.environ.update({name: value for name, value in variables.items() if name.startswith(("GIT_", "HOME"))})
    top = scratch.fresh("environment") / "app"
    _say(f"making the {scale.name} environment")
    if options.keep:
        _kept(options.keep, scale, top)
    else:
        build(top, scale)
    git_dir = scratch.base / "app.git"
    shutil.move(top / ".git", git_dir)
    return Bench(scratch, Setting(top, git_dir, variables), scale, max(1, options.runs), _say)


def _kept(place: Path, scale: Scale, top: Path) -> None:
    """Return a copy of the kept environment, because measuring changes it."""
    if not is_built(place, scale):
        if place.exists() and any(place.iterdir()):
            raise SystemExit(f"'{place}' holds something else")
        build(place, scale)
    top.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(place), str(top)], check=True)


def _facts(bench: Bench) -> list[str]:
    made = shape(bench.setting.top)
    versions = [_version(program, word) for program, word in VERSIONS]
    programs = f"{platform.system()}, Python {platform.python_version()}, {', '.join(versions)}"
    files = (
        f"{made.files:,} files, {made.bytes / 1e9:.2f} GB, {made.small_share:.0%} of the files at most 3 KiB"
    )
    return [
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the start; {programs}",
        f"{files}; {bench.scratch.kind}; medians of {bench.runs} turns or more",
    ]


def _version(program: str, word: str) -> str:
    if shutil.which(program) is None:
        return f"no {program}"
    printed = subprocess.run([program, word], capture_output=True, text=True).stdout
    numbers = [part.strip("v,") for part in printed.split() if part.strip("v,")[:1].isdigit()]
    return f"{program} {numbers[0] if numbers else '?'}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except Failed as failure:
        sys.exit(f"error: {failure}")
