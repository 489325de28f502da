"""The row about forks: everything as it is, once more, beside what copies it without a word about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.benchmarks.bench import Bench, medians
from tests.benchmarks.runs import seconds, text
from tests.benchmarks.table import Line

COPY = "cp -a --reflink=auto"


def fork(bench: Bench) -> Iterator[Line]:
    """A working tree of its own with all that is here, on a timeline that begins there."""
    bench.ensure(bench.ours)
    setting = bench.setting
    # What is forked is the newest moment, and everything is as it was then.
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
