"""Run the random walk: `python -m tests.walk --histories 1000 --steps 100 --fs btrfs`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.conftest import sealed_environment
from tests.support import programs
from tests.support.programs import QuickPrograms, make_programs
from tests.walk.run import run_history, shorten
from tests.walk.steps import draw_history

FILE_SYSTEMS = ("here", "tmpfs", "ext4", "btrfs", "xfs", "overlayfs")
IMAGE_SIZE = 4 << 30
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
    ends = began + options.minutes * 60
    seeds = range(options.seed, options.seed + options.histories)
    run, wrong = 0, 0
    with ProcessPoolExecutor(options.jobs, initializer=_prepare, initargs=(base,)) as pool:
        jobs = [pool.submit(_judge, (seed, options.steps, base, ends)) for seed in seeds]
        for job in as_completed(jobs):
            run += job.result() is not None
            wrong += bool(job.result())
            if job.result() is not None and run % 10 == 0:
                print(f"{run} histories, {wrong} wrong, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{run} histories of {options.steps} steps from seed {options.seed}: {wrong} wrong, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if wrong else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("--histories", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no history after this time")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000 * 1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--fs", choices=FILE_SYSTEMS, default="here", help="mount this file system and run there (as root)"
    )
    parser.add_argument("--base", help="a directory for the histories")
    return parser.parse_args()


def _run_on(kind: str) -> int:
    """Run the campaign again in a mount namespace, on a new file system."""
    # Use an image in memory, so that the histories' syncs do not wait for a disk.
    with tempfile.TemporaryDirectory(prefix="walk-", dir=_memory_or("/var/tmp")) as above:
        place, image = f"{above}/mounted", f"{above}/image"
        os.mkdir(place)
        with open(image, "wb") as file:
            file.truncate(IMAGE_SIZE)
        words = [word for word in sys.argv[1:] if word not in ("--fs", kind, f"--fs={kind}")]
        base = f"{place}/merged" if kind == "overlayfs" else place
        again = [sys.executable, "-m", "tests.walk", *words, "--base", base]
        script = (
            f'{MOUNT[kind].format(place=place, image=image)} && "$@"; status=$?; umount {base}; exit $status'
        )
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *again], check=False
        ).returncode


def _memory_or(directory: str) -> str:
    """Return /dev/shm if it has room for the image, else the directory."""
    memory = "/dev/shm"
    if not os.path.isdir(memory):
        return directory
    room = os.statvfs(memory)
    return memory if room.f_bavail * room.f_frsize > IMAGE_SIZE else directory


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


def _judge(job: tuple[int, int, Path, float]) -> str | None:
    """Return the failure of a history, "" if there is none, and None if the time is over."""
    seed, length, base, ends = job
    if time.monotonic() > ends:
        return None
    steps = draw_history(seed, length)
    failure = run_history(steps, base)
    if failure is None:
        return ""
    print(f"seed {seed}: wrong at step {failure.at}: {failure.message}", flush=True)
    shortest, failure = shorten(steps, failure, base, tries=60)
    told = "\n".join(f"    {step}" for step in shortest)
    line = f"seed {seed}: step {failure.at} of the shortest history: {failure.message}\n{told}"
    print(line, flush=True)
    return line


if __name__ == "__main__":
    sys.exit(main())
