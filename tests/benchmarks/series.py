"""Two hundred captures in a row, like two weeks of work: their time, and the space before and after `gc`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.benchmarks.bench import Bench
from tests.benchmarks.runs import seconds
from tests.benchmarks.scratch import du
from tests.benchmarks.table import Line, amount

CAPTURES = 200
PAGES_EVERY, MANY_EVERY = 4, 20
BORG, RESTIC = "borg lz4", "restic"
TOLD_EVERY = 50


def series(bench: Bench) -> Iterator[Line]:
    """Measure each tool capturing the same states into a new repository; git itself would need an hour."""
    tools = [tool for tool in bench.keepers if tool.name in (bench.ours.name, RESTIC, BORG)]
    stores = {tool.name: bench.new_store(tool) for tool in tools}
    empty = {name: du(store) for name, store in stores.items()}
    bench.ours.use(bench.setting, stores[bench.ours.name])
    taken: dict[str, float] = defaultdict(float)
    for number in range(CAPTURES):
        _change(bench, number)
        for tool in tools:
            taken[tool.name] += seconds(tool.capture(bench.setting, stores[tool.name]))
        if number % TOLD_EVERY == TOLD_EVERY - 1:
            bench.say(
                f"{number + 1} captures: " + ", ".join(f"{name} {of:.0f} s" for name, of in taken.items())
            )
    space = {name: float(du(store) - empty[name]) for name, store in stores.items()}
    work = f"{CAPTURES} captures"
    yield from bench.compare(work, taken, {})
    yield from bench.compare(f"space after {work}", space, {RESTIC: 1.5}, "bytes")
    cleaning = seconds([bench.setting.job("git-envlog", "gc")])
    space[bench.ours.name] = float(du(stores[bench.ours.name]) - empty[bench.ours.name])
    yield from bench.compare("the same, after gc", space, {RESTIC: 1.0}, "bytes")
    yield Line("git envlog gc after them", amount(cleaning))


def _change(bench: Bench, number: int) -> None:
    bench.editor.change_few()
    if number % PAGES_EVERY == 0:
        bench.editor.change_pages()
    if number % MANY_EVERY == MANY_EVERY - 1:
        bench.editor.change_many()
