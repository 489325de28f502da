"""State that all rows share: the environment, the installed tools, and a repository of each with a first capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.corpus import Scale
from tests.benchmarks.peers import Borg, Git, Ours, Restic, Setting, Tar, Tool, is_installed
from tests.benchmarks.runs import Job, middle, seconds
from tests.benchmarks.scenarios import Editor
from tests.benchmarks.scratch import Scratch
from tests.benchmarks.table import Line, amount

OFTEN = 3
"""Programs that take well under a second run this many times as often as the others."""


@dataclass
class Bench:
    """A run of the benchmarks."""

    scratch: Scratch
    setting: Setting
    scale: Scale
    runs: int
    say: Callable[[str], None]
    ours: Ours = field(default_factory=Ours)
    git: Git = field(default_factory=Git)
    stores: dict[str, Path] = field(default_factory=dict)
    """The repository of each tool that later rows continue with."""

    def __post_init__(self) -> None:
        self.peers: list[Tool] = [self.git, Restic(), Borg(), Tar()]
        self.editor = Editor(self.setting.top, self.scale.runs)

    @property
    def tools(self) -> list[Tool]:
        """Return git-envhist first, then every peer that is installed."""
        return [self.ours, *(peer for peer in self.peers if is_installed(peer.name))]

    @property
    def keepers(self) -> list[Tool]:
        """Return the tools that build a second capture on the first."""
        return [tool for tool in self.tools if tool.keeps]

    def new_store(self, tool: Tool) -> Path:
        """Return a new file system with an empty repository in it."""
        store = self.scratch.fresh(tool.name.split()[0])
        tool.prepare(self.setting, store)
        return store

    def ensure(self, *tools: Tool) -> None:
        """Capture the environment once with each tool; git finds the repository of git-envhist."""
        for tool in tools or self.keepers:
            if tool.name not in self.stores:
                self.say(f"{tool.name}: first capture, not measured")
                self.stores[tool.name] = self.new_store(tool)
                self.time(tool)
        self.ours.use(self.setting, self.stores[self.ours.name])

    def time(self, tool: Tool) -> float:
        """Time one capture into the repository that is kept."""
        return seconds(tool.capture(self.setting, self.stores[tool.name]))

    def interleaved(self, jobs: dict[str, list[Job]]) -> dict[str, float]:
        """Return the median seconds of quick programs that take turns."""
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(OFTEN * self.runs + 1):
            for name, work in jobs.items():
                times[name].append(seconds(work))
        # The first turn only warms caches.
        return {name: middle(values[1:]) for name, values in times.items()}

    def compare(
        self, work: str, taken: dict[str, float], limits: dict[str, float], unit: str = "s"
    ) -> Iterator[Line]:
        """Yield a line per peer that compares git-envhist with it, with the limits that are set."""
        ours = amount(taken[self.ours.name], unit)
        for peer in (*(name for name in limits if name not in taken), *taken):
            if peer != self.ours.name:
                theirs = amount(taken[peer], unit) if peer in taken else None
                yield Line(work, ours, peer, theirs, limits.get(peer))


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each list."""
    return {name: middle(values) for name, values in samples.items() if values}
