"""Measure how fast objects become a durable pack: `python tests/benchmarks/pack_writer.py [directory of samples]`.

Reads every file below the directory (by default this interpreter's library) into memory first, then reports the time
of each part of the work, the total, and the time of one lookup in the resulting index.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from git_envhist.objects.deflate import adler32, compress
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import PackWriter, StagedPack


def read_samples(root: str) -> list[bytes]:
    paths = (Path(place, name) for place, _, names in os.walk(root) for name in names)
    return [path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()]


def best_of(rounds: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def report(label: str, seconds: float, samples: list[bytes]) -> None:
    megabytes = sum(map(len, samples)) / 1e6
    print(f"{label:32} {megabytes / seconds:7.0f} MB/s {len(samples) / seconds:9.0f} objects/s")


def write_pack(samples: list[bytes], directory: str, level: int) -> StagedPack:
    writer = PackWriter(directory, "sha1", level=level)
    for data in samples:
        writer.add(b"blob", data)
    pack = writer.finish()
    if pack is None:
        raise SystemExit("there is nothing to measure: no files")
    return pack


def time_lookups(pack: StagedPack, samples: list[bytes]) -> None:
    index = PackIndex(pack.index_path, 20)
    ids = [hashlib.sha1(b"blob %d\0" % len(data) + data).digest() for data in samples]
    for label, asked in (("found", ids), ("not found", [oid[:5] + bytes(15) for oid in ids])):
        seconds = best_of(3, lambda asked=asked: [index.find(oid) for oid in asked])  # type: ignore[misc]
        print(f"lookup, {label:24} {seconds / len(ids) * 1e6:7.2f} us, among {index.count} objects")


def main(root: str) -> None:
    samples = read_samples(root)
    report("sha1", best_of(3, lambda: [hashlib.sha1(data).digest() for data in samples]), samples)
    report("adler32", best_of(3, lambda: [adler32(data) for data in samples]), samples)
    report("deflate, level 1", best_of(3, lambda: [compress(data, 1) for data in samples]), samples)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as directory:
        for level in (1, 2):
            seconds = best_of(3, lambda level=level: write_pack(samples, directory, level))  # type: ignore[misc]
            report(f"PackWriter, level {level}, durable", seconds, samples)
        pack = write_pack(samples, directory, 1)
        print(f"{pack.objects} objects, {pack.size / 1e6:.1f} MB on disk")
        time_lookups(pack, samples)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_paths()["stdlib"])
