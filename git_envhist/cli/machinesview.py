"""A story between two machines: where a reason is looked for first, and last, in few words, what differs by nature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from git_envhist.cli.configview import config_texts
from git_envhist.cli.diffsource import DiffSource, DiffStyle
from git_envhist.cli.factview import fact_texts
from git_envhist.cli.rows import row_of_cells
from git_envhist.cli.storyview import file_texts, split_by_class, variable_texts
from git_envhist.cli.terminal import escape
from git_envhist.facts import PACKAGES, TOOLS, kinds
from git_envhist.history.diff import count
from git_envhist.history.facts import SECRET
from git_envhist.history.nature import split_machine_differences
from git_envhist.history.story import describe_marks
from git_envhist.model import FactChange
from git_envhist.values import replace

SYSTEM = "system"
"""The probe of the machine's own packages: there are many, and most have nothing to do with it."""


def machine_diff_text(source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """Packages, tools, variables, the system's packages; services and databases; files; what differs by nature."""
    first, system, others = _by_rank(source.facts)
    apart = split_machine_differences(source.changes, lambda place: _is_explained(place, first))
    in_env, in_files = split_by_class(apart.told)
    yield from fact_texts(first, manner)
    yield from variable_texts(source, in_env, manner)
    yield from fact_texts(system, manner)
    yield from fact_texts(others, manner)
    yield from config_texts(replace(source, changes=apart.told), manner)
    yield from file_texts(in_files, manner)
    cells = [f"{escape(why)} {describe_marks(count(changes))}" for why, changes in apart.by_nature]
    if cells:
        yield from row_of_cells(
            "by nature", [*cells, "(as between any two machines; --no-fold lists them)"], manner
        )


def _by_rank(
    facts: Sequence[FactChange],
) -> tuple[list[FactChange], list[FactChange], list[FactChange]]:
    classes = kinds()
    first: list[FactChange] = []
    system: list[FactChange] = []
    others: list[FactChange] = []
    for fact in facts:
        if fact.probe == SYSTEM:
            system.append(fact)
        elif classes.get(fact.probe) in (PACKAGES, TOOLS) or fact.probe == "program":
            first.append(fact)
        elif fact.probe not in SECRET:
            others.append(fact)
    return first, system, others


def _is_explained(place: bytes, facts: Sequence[FactChange]) -> bool:
    """Whether packages are told to differ that lie in a directory."""
    text = place.decode("utf-8", "surrogateescape")
    above = text.rpartition("/")[0]
    return any(
        fact.at == place
        or fact.at.startswith(place + b"/")
        or fact.key.startswith((text + "/", (above or text) + "/"))
        for fact in facts
    )
