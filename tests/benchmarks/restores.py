"""The rows about going back: a whole environment into an empty directory, and a thousand files where they stand.

git does the second by `read-tree -u`: it neither saves what it replaces nor reads back what it wrote, which is in our
time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.bench import Bench, medians
from tests.benchmarks.peers import is_installed
from tests.benchmarks.runs import Job, peak_memory, seconds, text
from tests.benchmarks.table import MEGA, Amount, Line

GIT_ALL, RESTIC, BORG, COPY = "git checkout-index -a", "restic restore", "borg extract", "cp -a"
LOST = "git-envhist, all out of the store"
GIT_SOME = "git read-tree --reset -u"
MEMORY_LIMIT = 300 * MEGA


def everything(bench: Bench) -> Iterator[Line]:
    """A whole environment into an empty directory."""
    bench.ensure()
    times: dict[str, list[float]] = defaultdict(list)
    for run in range(bench.runs):
        for name, jobs in _ways(bench).items():
            target = bench.scratch.fresh("restored")
            times[name].append(seconds(jobs(target / "app")))
            bench.say(f"{name}: full restore {run + 1}: {times[name][-1]:.2f} s")
            bench.scratch.drop(target)
    limits = {GIT_ALL: 0.6, RESTIC: 0.5, BORG: 0.5}
    costs = medians(times)
    lost = costs.pop(LOST)
    yield from bench.compare("full restore", costs, limits)
    yield from bench.compare("full restore, nothing here", {**costs, bench.ours.name: lost}, limits)
    target = bench.scratch.fresh("restored")
    peak = peak_memory(_ways(bench)[bench.ours.name](target / "app")[0])
    bench.scratch.drop(target)
    yield Line("memory of a full restore", Amount(peak, "bytes"), limit=Amount(MEMORY_LIMIT, "bytes"))


def _ways(bench: Bench) -> dict[str, Callable[[Path], list[Job]]]:
    setting, stores = bench.setting, bench.stores
    ways: dict[str, Callable[[Path], list[Job]]] = {
        bench.ours.name: lambda place: [setting.job("git-envrestore", "--to", place, "@")],
        # As where nothing of it stands here any more.
        LOST: lambda place: [
            setting.job("git-envrestore", "--to", place, "@", GIT_ENVHIST_WITHOUT="nowait"),
        ],
        GIT_ALL: lambda place: [
            setting.job("mkdir", place),
            setting.job(
                "git", "checkout-index", "-a",
                GIT_DIR=str(stores[bench.git.name] / "git"), GIT_WORK_TREE=str(place),
                GIT_INDEX_FILE=str(stores[bench.git.name] / "index"),
            ),
        ],
        COPY: lambda place: [setting.job("cp", "-a", setting.top, place)],
    }  # fmt: skip
    if is_installed("restic"):
        store = stores["restic"] / "restic"
        ways[RESTIC] = lambda place: [
            setting.job("restic", "-q", "-r", store, "restore", "latest", "--target", place)
        ]
    if is_installed("borg lz4"):
        store_of_borg = stores["borg lz4"] / "borg"
        last = text(setting.job("borg", "list", "--last", "1", "--short", store_of_borg)).strip()
        ways[BORG] = lambda place: [
            setting.job("mkdir", place),
            Job(["borg", "extract", f"{store_of_borg}::{last}"], place, setting.variables),
        ]
    return ways


def some(bench: Bench) -> Iterator[Line]:
    """A thousand changed files, back to what they were and forth again."""
    bench.ensure(bench.ours, bench.git)
    setting = bench.setting
    bench.time(bench.ours)
    before = text(bench.git.job(setting, bench.stores[bench.git.name], "write-tree")).strip()
    bench.editor.change_many()
    bench.time(bench.ours)
    bench.time(bench.git)
    after = text(bench.git.job(setting, bench.stores[bench.git.name], "write-tree")).strip()
    older, newer = (
        text(setting.job("git", "envlog", "-n1", *skip, "--format=%H")).strip() for skip in (["@~1"], ["@"])
    )
    times: dict[str, list[float]] = defaultdict(list)
    for mine, theirs in [(older, before), (newer, after)] * (bench.runs + 1):
        times[bench.ours.name].append(seconds([setting.job("git-envrestore", mine)]))
        # git has the same to do: its index is at the other moment, and so are the files.
        text(setting.job("git-envrestore", newer if mine == older else older))
        times[GIT_SOME].append(
            seconds(
                [bench.git.job(setting, bench.stores[bench.git.name], "read-tree", "--reset", "-u", theirs)]
            )
        )
    work = f"restore of {bench.editor.many:,} files"
    yield from bench.compare(work, medians(times), {GIT_SOME: 1.0})
