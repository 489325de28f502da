"""The rows of the table: each measures one kind of work and yields its lines. A new row is a function in `ROWS`."""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.benchmarks.bench import OFTEN, Bench, medians
from tests.benchmarks.forks import fork
from tests.benchmarks.peers import CHECKOUT, Setting, Tool
from tests.benchmarks.restores import everything, reverted, some
from tests.benchmarks.runs import Job, peak_memory, seconds, text
from tests.benchmarks.scenarios import PAGES
from tests.benchmarks.scratch import du
from tests.benchmarks.series import series
from tests.benchmarks.table import MEGA, Amount, Line, amount

GIT, RESTIC, BORG, TAR = "git add -A -f, write-tree", "restic", "borg lz4", "tar | zstd -T0 -3"
MEMORY_LIMIT = 400 * MEGA
LISTED = 20
START_FACTOR = 60 / 8
"""`git envlog` may take 60 ms where an interpreter that does nothing takes 8."""


def first(bench: Bench) -> Iterator[Line]:
    """Time a first capture, and measure the space that it takes."""
    times: dict[str, list[float]] = defaultdict(list)
    sizes: dict[str, list[float]] = defaultdict(list)
    for run in range(bench.runs):
        for tool in bench.tools:
            _first_capture(bench, tool, times[tool.name], sizes[tool.name])
            bench.say(f"{tool.name}: first capture {run + 1}: {times[tool.name][-1]:.2f} s")
    yield from bench.compare("first capture", medians(times), {GIT: 0.25, BORG: 0.5, TAR: 0.5})
    yield from bench.compare("space after it", medians(sizes), {BORG: 0.85, GIT: 0.7}, "bytes")


def _first_capture(bench: Bench, tool: Tool, times: list[float], sizes: list[float]) -> None:
    store = bench.new_store(tool)
    empty = du(store)
    times.append(seconds(tool.capture(bench.setting, store)))
    sizes.append(float(du(store) - empty))
    old = bench.stores.pop(tool.name, None)
    if tool.keeps:
        bench.stores[tool.name] = store
    for unneeded in (old, None if tool.keeps else store):
        if unneeded is not None:
            bench.scratch.drop(unneeded)


def memory(bench: Bench) -> Iterator[Line]:
    """Measure the peak memory of a first capture, all processes together."""
    store = bench.new_store(bench.ours)
    peak = peak_memory(bench.ours.capture(bench.setting, store)[0])
    bench.scratch.drop(store)
    yield Line("memory of a first capture", Amount(peak, "bytes"), limit=Amount(MEMORY_LIMIT, "bytes"))


def unchanged(bench: Bench) -> Iterator[Line]:
    """Time a capture without changes."""
    bench.ensure()
    samples: dict[str, list[float]] = defaultdict(list)
    others = _scanners(bench)
    for run in range(OFTEN * bench.runs + 1):
        for tool in _on_turn(bench, run):
            samples[tool.name].append(bench.time(tool))
        for name, job in others.items():
            samples[name].append(seconds([job]))
    taken = medians({name: values[1:] or values for name, values in samples.items()})
    skipped = taken.pop("--if-changed")
    yield from bench.compare("nothing changed", taken, {GIT: 0.9, RESTIC: 0.08, BORG: 0.08})
    yield Line("nothing changed, --if-changed", amount(skipped), GIT, amount(taken[GIT]))


def _scanners(bench: Bench) -> dict[str, Job]:
    setting = bench.setting
    found = ["find", ".", "-path", "./.git", "-prune", "-o", "-printf", "%T@ %s %i %m %p\\n"]
    return {
        "--if-changed": setting.job("git-envlog", "capture", "--if-changed"),
        "find -printf": setting.job(*found),
        "git status": bench.git.job(setting, bench.stores[GIT], "status", "--porcelain"),
    }


def _on_turn(bench: Bench, run: int) -> list[Tool]:
    """Return the tools of this turn; slow ones take part in every third."""
    return [tool for tool in bench.keepers if run % OFTEN == 0 or tool.name in (bench.ours.name, GIT)]


def few(bench: Bench) -> Iterator[Line]:
    """Time a capture after ten files changed."""
    yield from _changed(bench, "10 files changed", bench.editor.change_few)


def many(bench: Bench) -> Iterator[Line]:
    """Time a capture after a thousand files changed."""
    yield from _changed(bench, f"{bench.editor.many:,} files changed", bench.editor.change_many)


def _changed(bench: Bench, work: str, change: Callable[[], None]) -> Iterator[Line]:
    bench.ensure()
    samples: dict[str, list[float]] = defaultdict(list)
    for run in range(OFTEN * bench.runs):
        change()
        for tool in _on_turn(bench, run):
            samples[tool.name].append(bench.time(tool))
    yield from bench.compare(work, medians(samples), {GIT: 0.9})


def database(bench: Bench) -> Iterator[Line]:
    """Measure time and added bytes of a capture after pages of the large database changed."""
    bench.ensure()
    times: dict[str, list[float]] = defaultdict(list)
    added: dict[str, list[float]] = defaultdict(list)
    for _ in range(bench.runs):
        bench.editor.change_pages()
        for tool in bench.keepers:
            before = du(bench.stores[tool.name])
            times[tool.name].append(bench.time(tool))
            added[tool.name].append(float(du(bench.stores[tool.name]) - before))
    work = f"SQLite, {PAGES} pages changed"
    yield from bench.compare(f"{work}: added", medians(added), {RESTIC: 0.25, GIT: 0.03}, "bytes")
    yield from bench.compare(work, medians(times), {})


def log(bench: Bench) -> Iterator[Line]:
    """Time the listing of the newest snapshots of a long timeline."""
    there = _long_timeline(bench)
    ref = text(there.job("git", "for-each-ref", "--format=%(refname)", "refs/envhist/heads"))
    taken = bench.interleaved({
        bench.ours.name: [there.job("git", "envlog", f"-n{LISTED}")],
        "python -c pass": [there.job(sys.executable, "-c", "pass")],
        f"git log -{LISTED}": [there.job("git", "log", f"-{LISTED}", ref)],
    })  # fmt: skip
    work = f"git envlog, {LISTED} of {bench.scale.snapshots:,}"
    yield from bench.compare(work, taken, {"python -c pass": START_FACTOR})


def _long_timeline(bench: Bench) -> Setting:
    place = bench.scratch.fresh("timeline") / "app"
    shutil.copytree(bench.setting.top / "src", place / "src")
    there = Setting(place, place / ".git", bench.setting.variables)
    text(there.job("git", "init", "-q"))
    build = there.job(
        sys.executable,
        "-m",
        "tests.benchmarks.long_timeline",
        place,
        str(bench.scale.snapshots),
        PYTHONPATH=f"{bench.scratch.base / 'programs' / 'lib'}:{CHECKOUT}",
    )
    text(build)
    return there


def diff(bench: Bench) -> Iterator[Line]:
    """Time a comparison of two snapshots that differ in a thousand files."""
    bench.ensure(bench.ours)
    bench.time(bench.ours)
    bench.editor.change_many()
    bench.time(bench.ours)
    setting = bench.setting
    before, after = (
        text(setting.job("git", "envlog", "-n1", *skip, "--format=%H")) for skip in (["@~1"], ["@"])
    )
    git = "git diff-tree -r"
    taken = bench.interleaved({
        bench.ours.name: [setting.job("git", "envdiff", "--name-status", before, after)],
        git: [setting.job("git", "diff-tree", "-r", before, after, "--", ".", ":!.envhist")],
        "start": [setting.job("git", "envdiff", "-h")],
    })  # fmt: skip
    limit = Amount(1.5 * taken[git] + taken["start"], "s")
    yield Line(
        f"git envdiff, {bench.editor.many:,} changed",
        amount(taken[bench.ours.name]),
        git,
        amount(taken[git]),
        limit=limit,
        limit_text=f"1.50 + start: {limit}",
    )


Row = Callable[[Bench], Iterator[Line]]

ROWS: dict[str, Row] = {
    "first": first,
    "memory": memory,
    "unchanged": unchanged,
    "few": few,
    "many": many,
    "database": database,
    "log": log,
    "diff": diff,
    "some": some,
    "reverted": reverted,
    "everything": everything,
    "fork": fork,
    "series": series,
}
"""The rows in the order in which they are measured: the first capture fills the repositories that the others use."""
