"""The rows about restores: a whole environment into an empty directory, and a thousand files in place.

For the second, git uses `read-tree -u`. It neither saves the files that it replaces nor reads back what it wrote,
both of which are part of git-envhist's time. So there are two rows: plain git, and git that first saves everything
and then verifies the written files. The same for restic with and without verification; borg has no verification.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench import Bench, medians
from tests.benchmarks.peers import is_installed
from tests.benchmarks.runs import Job, peak_memory, seconds, text
from tests.benchmarks.table import MEGA, Amount, Line

GIT_ALL, RESTIC, BORG, COPY = "git checkout-index -a", "restic restore", "borg extract", "cp -a"
RESTORE_SOME = "git envrestore"
RESTIC_READS = "restic restore --verify"
LOST = "git-envhist, all out of the store"
GIT_SOME = "git read-tree --reset -u"
GIT_CAREFUL = "git, saved before and read back"
MEMORY_LIMIT = 300 * MEGA


def everything(bench: Bench) -> Iterator[Line]:
    """Time a restore of the whole environment into an empty directory."""
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
        # The files are lost from the working tree.
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
        restore = ("restic", "-q", "-r", store, "restore", "latest", "--target")
        ways[RESTIC] = lambda place: [setting.job(*restore, place)]
        ways[RESTIC_READS] = lambda place: [setting.job(*restore, place, "--verify")]
    if is_installed("borg lz4"):
        store_of_borg = stores["borg lz4"] / "borg"
        last = text(setting.job("borg", "list", "--last", "1", "--short", store_of_borg)).strip()
        ways[BORG] = lambda place: [
            setting.job("mkdir", place),
            Job(["borg", "extract", f"{store_of_borg}::{last}"], place, setting.variables),
        ]
    return ways


def some(bench: Bench) -> Iterator[Line]:
    """Time a restore of a thousand changed files and the way back."""
    bench.ensure(bench.ours, bench.git)
    setting = bench.setting
    before = _moment(bench)
    bench.editor.change_many()
    after = _moment(bench)
    times: dict[str, list[float]] = defaultdict(list)
    for (mine, tree), other in [(before, after), (after, before)] * (bench.runs + 1):
        # Each program finds the files of the other snapshot, written by another program.
        ways = {
            bench.ours.name: [setting.job("git-envrestore", mine)],
            GIT_SOME: [git_job(bench, "read-tree", "--reset", "-u", tree)],
            GIT_CAREFUL: careful_jobs(bench, other.tree, tree),
        }
        for number, (name, jobs) in enumerate(ways.items()):
            if number:
                text(setting.job("git-envrestore", other.id))
            times[name].append(seconds(jobs))
    work = f"restore of {bench.editor.many:,} files"
    yield from bench.compare(work, medians(times), {GIT_SOME: 1.0, GIT_CAREFUL: 1.0})


def reverted(bench: Bench) -> Iterator[Line]:
    """Time the revert of a step that changed a thousand files, beside the restore of these files."""
    bench.ensure(bench.ours)
    setting = bench.setting
    before = _own_moment(bench)
    bench.editor.change_many()
    after = _own_moment(bench)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(bench.runs + 1):
        for name, job in (
            (bench.ours.name, setting.job("git-envlog", "revert", after)),
            (RESTORE_SOME, setting.job("git-envrestore", before)),
        ):
            times[name].append(seconds([job]))
            text(setting.job("git-envrestore", after))
    work = f"revert of a step of {bench.editor.many:,} files"
    yield from bench.compare(work, medians(times), {RESTORE_SOME: 1.2})


def _own_moment(bench: Bench) -> str:
    bench.time(bench.ours)
    return text(bench.setting.job("git", "envlog", "-n1", "@", "--format=%H")).strip()


class Moment(NamedTuple):
    """A state of the environment, as a snapshot of git-envhist and as a git tree."""

    id: str
    tree: str


def _moment(bench: Bench) -> Moment:
    bench.time(bench.ours)
    bench.time(bench.git)
    newest = bench.setting.job("git", "envlog", "-n1", "@", "--format=%H")
    return Moment(text(newest).strip(), text(git_job(bench, "write-tree")).strip())


def careful_jobs(bench: Bench, here: str, there: str) -> list[Job]:
    """Return jobs that save the current state first and verify the written files by the target's ids."""
    changed = f"git diff-tree -r --no-renames --diff-filter=d {here} {there}"
    written = "cut -f2 | git hash-object --no-filters --stdin-paths"
    wanted = "cut -d' ' -f4"
    compared = f'test "$({changed} | {written})" = "$({changed} | {wanted})"'
    return [
        git_job(bench, "add", "-A", "-f", "."),
        git_job(bench, "write-tree"),
        git_job(bench, "read-tree", "--reset", "-u", there),
        bench.git.program(bench.setting, bench.stores[bench.git.name], "sh", "-c", compared),
    ]


def git_job(bench: Bench, *words: str) -> Job:
    return bench.git.job(bench.setting, bench.stores[bench.git.name], *words)
