"""Measure how fast a directory is compared with its record: `python tests/benchmarks/scan.py [directory]`.

Reports the CPU time of several ways to find out whether anything below the directory changed (by default this
interpreter's library). The last one is the way of `worktree/stat_cache.py`.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from git_envhist.worktree.stat_cache import DirectoryRecord, differing_records, gc_paused, stat_columns


def make_records(top: bytes) -> list[DirectoryRecord]:
    """Return a record of every directory, as a capture leaves it."""
    found = []
    for place, directories, names in os.walk(top):
        os.chdir(place)
        own = os.lstat(b".")
        links = [name for name in directories if os.path.islink(name)]
        path = os.path.relpath(place, top) if place != top else b""
        record = DirectoryRecord(path, names=names + links, columns=stat_columns(names + links))
        record.ctime_ns, record.mtime_ns = own.st_ctime_ns, own.st_mtime_ns
        record.inode, record.device = own.st_ino, own.st_dev
        found.append(record)
    return found


def loop_over_scandir(top: bytes) -> int:
    """Scan in the usual way."""
    stack, count = [top], 0
    while stack:
        with os.scandir(stack.pop()) as listing:
            for item in listing:
                seen = item.stat(follow_symlinks=False)
                count += bool(seen.st_ctime_ns)
                if item.is_dir(follow_symlinks=False):
                    stack.append(item.path)
    return count


def only_stats(top: bytes, records: list[DirectoryRecord]) -> None:
    """Make only the system calls that cannot be avoided."""
    for record in records:
        os.chdir(top + b"/" + record.path)
        for name in record.names:
            os.lstat(name)


def report(label: str, work: Callable[[], object]) -> None:
    times = []
    for _ in range(5):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    print(f"{label:34}{min(times) * 1000:8.1f} ms")


def main(words: list[str]) -> None:
    top = os.fsencode(os.path.abspath(words[0] if words else sysconfig.get_path("stdlib")))
    records = make_records(top)
    data = b"".join(record.encode() for record in records)
    print(f"{sum(len(record.names) for record in records):,} files in {len(records):,} directories")
    report("a loop over scandir", lambda: loop_over_scandir(top))
    report("lstat of every file, no more", lambda: only_stats(top, records))
    with gc_paused():
        report("compared with the records", lambda: list(differing_records(data, {b"": top}, lambda _: None)))


if __name__ == "__main__":
    main(sys.argv[1:])
