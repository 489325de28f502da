"""Measure the memory that one big file needs: `python -m tests.benchmarks.big_file [--size 3072]` captures and
restores it.

The bytes cannot be compressed and do not repeat, so the whole file is cut, hashed, written, read back and compared.
The peak is that of all processes together; it must not grow with the file.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.peers import surroundings
from tests.benchmarks.runs import Job, peak_memory
from tests.benchmarks.table import MEGA

BLOCK = 1 << 20
LIMIT = 300 * MEGA


def main(words: Sequence[str]) -> int:
    """Print the peaks; return 1 if one is over the limit or the file was not restored exactly."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.big_file", description=__doc__)
    parser.add_argument(
        "--size", type=int, default=3072, metavar="MIB", help="size of the file (default 3072)"
    )
    # On the disk, not in memory: the file, its pack and its copy are three times its size.
    base = Path(tempfile.mkdtemp(prefix="envhist-big-", dir="/var/tmp"))
    try:
        captured, restored, same = measure(base, parser.parse_args(words).size)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"capture: {captured / MEGA:.0f} MB at most, restore: {restored / MEGA:.0f} MB at most")
    print("the file was restored exactly" if same else "the file was NOT restored exactly")
    return 0 if same and max(captured, restored) <= LIMIT else 1


def measure(base: Path, size: int) -> tuple[int, int, bool]:
    """Return the peak memory of a capture and of a restore, and whether the file was restored exactly."""
    top, place = base / "app", base / "back"
    top.mkdir()
    environment = surroundings(base)
    subprocess.run(["git", "init", "-q", top], check=True, env=dict(environment))
    write(top / "disk.img", size)
    captured = peak_memory(Job(["git-envlog", "capture", "-m", "big"], top, environment))
    restored = peak_memory(Job(["git-envrestore", "--to", str(place), "@"], top, environment))
    return captured, restored, filecmp.cmp(top / "disk.img", place / "disk.img", shallow=False)


def write(path: Path, size: int) -> None:
    """Write this many MiB of noise, the same every time."""
    noise = random.Random(size)
    with open(path, "xb") as file:
        file.writelines(noise.randbytes(BLOCK) for _ in range(size))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
