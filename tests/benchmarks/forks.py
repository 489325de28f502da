"""The row about forks: a copy of the whole environment, compared with programs that copy it without a description."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.benchmarks.bench import Bench, medians
from tests.benchmarks.runs import seconds, text
from tests.benchmarks.table import Line

COPY = "cp -a --reflink=auto"


def fork(bench: Bench) -> Iterator[Line]:
    """Time a fork: a new working tree with all files, and a new timeline."""
    bench.ensure(bench.ours)
    setting = bench.setting
    # Fork the newest snapshot of an unchanged working tree each time.
    bench.time(bench.ours)
    times: dict[str, list[float]] = defaultdict(list)
    for run in range(bench.runs):
        for name, words in {
            bench.ours.name: ["git", "envlog", "fork"],
            COPY: ["cp", "-a", "--reflink=auto", "."],
        }.items():
            place = bench.scratch.fresh("fork")
            times[name].append(seconds([setting.job(*words, place / "app")]))
            bench.say(f"{name}: fork {run + 1}: {times[name][-1]:.2f} s")
            bench.scratch.drop(place)
        text(setting.job("git", "worktree", "prune"))
    yield from bench.compare("fork, all unchanged", medians(times), {})
