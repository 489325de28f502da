"""Run the random walk: `python -m tests.walk --histories 1000 --steps 100 --fs btrfs`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.conftest import sealed_environment
from tests.support import programs
from tests.support.programs import QuickPrograms, make_programs
from tests.walk.run import run_history, shorten
from tests.walk.steps import draw_history

FILE_SYSTEMS = ("here", "tmpfs", "ext4", "btrfs", "xfs", "overlayfs")
MOUNT = {
    "tmpfs": "mount -t tmpfs tmpfs {place}",
    "ext4": "mkfs.ext4 -q {image} && mount -o loop {image} {place}",
    "btrfs": "mkfs.btrfs -q {image} && mount -o loop {image} {place}",
    "xfs": "mkfs.xfs -q {image} && mount -o loop {image} {place}",
    "overlayfs": "mount -t tmpfs tmpfs {place} && mkdir {place}/lower {place}/upper {place}/work {place}/merged && "
    "mount -t overlay overlay -o lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work {place}/merged",
}


def main() -> int:
    options = _parse()
    if options.fs != "here":
        return _run_on(options.fs)
    base = Path(options.base or tempfile.mkdtemp(prefix="walk-"))
    began = time.monotonic()
    seeds = range(options.seed, options.seed + options.histories)
    with ProcessPoolExecutor(options.jobs, initializer=_prepare, initargs=(base,)) as pool:
        jobs = [(seed, options.steps, base) for seed in seeds]
        wrong = [line for line in pool.map(_judge, jobs) if line]
    print(f"{len(seeds)} histories of {options.steps} steps from seed {options.seed}: {len(wrong)} wrong, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if wrong else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("--histories", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000 * 1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--fs", choices=FILE_SYSTEMS, default="here", help="mount this file system and walk there (root)"
    )
    parser.add_argument("--base", help="a directory for the histories")
    return parser.parse_args()


def _run_on(kind: str) -> int:
    """Run the campaign again in a mount namespace, on a new file system."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/var/tmp") as above:
        place, image = f"{above}/mounted", f"{above}/image"
        os.mkdir(place)
        with open(image, "wb") as file:
            file.truncate(4 << 30)
        words = [word for word in sys.argv[1:] if word not in ("--fs", kind, f"--fs={kind}")]
        base = f"{place}/merged" if kind == "overlayfs" else place
        again = [sys.executable, "-m", "tests.walk", *words, "--base", base]
        script = (
            f'{MOUNT[kind].format(place=place, image=image)} && "$@"; status=$?; umount {base}; exit $status'
        )
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *again], check=False
        ).returncode


def _prepare(base: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="home-", dir=base))
    for name in list(os.environ):
        if name.startswith("GIT_"):
            del os.environ[name]
    os.environ.update(sealed_environment(home))
    directory = Path(tempfile.mkdtemp(prefix="programs-"))
    make_programs(directory)
    os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"
    programs.quick.append(QuickPrograms(directory, os.environ))


def _judge(job: tuple[int, int, Path]) -> str | None:
    seed, length, base = job
    steps = draw_history(seed, length)
    failure = run_history(steps, base)
    if failure is None:
        return None
    shortest, failure = shorten(steps, failure, base)
    told = "\n".join(f"    {step}" for step in shortest)
    line = f"seed {seed}: wrong at step {failure.at}: {failure.message}\n  shortest history:\n{told}"
    print(line, flush=True)
    return line


if __name__ == "__main__":
    sys.exit(main())
