"""Moments as JSON values with how large they were: what `--json --stat` prints, and all that a page is drawn of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.details import details_of, with_outputs
from git_envhist.cli.jsonform import Json, extent_json, snapshot_json
from git_envhist.cli.ondemand import with_lists
from git_envhist.facts import kinds
from git_envhist.measuring.extents import steps_of
from git_envhist.model import Snapshot
from git_envhist.store.objects import CatFile

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory

MOST_AREAS = 40


def json_values_with_sizes(
    history: EnvHistory, shown: Sequence[Snapshot], *, most_paths: int, most_areas: int = MOST_AREAS
) -> list[Json]:
    """The moments in their order, each as `--json` has it, with its `extent`."""
    values: dict[str, Json] = {}
    for moments in _runs(history, shown):
        values |= _measured(history, moments, {one.commit for one in shown}, most_paths, most_areas)
    return [values[one.commit] for one in shown]


def _runs(history: EnvHistory, shown: Sequence[Snapshot]) -> Iterator[list[Snapshot]]:
    """For each timeline all moments from the oldest shown to the newest, oldest first: sizes add up along them."""
    known = {one.commit: one for one in shown}
    left = dict(known)
    for name in dict.fromkeys(one.timeline for one in shown):
        whole = history.log(None, name)[::-1]
        places = [place for place, one in enumerate(whole) if left.pop(one.commit, None)]
        if places:
            yield [known.get(one.commit, one) for one in whole[places[0] : places[-1] + 1]]
    # What no timeline holds any more is measured by itself.
    yield from ([one] for one in left.values())


def _measured(
    history: EnvHistory, moments: list[Snapshot], wanted: set[str], most_paths: int, most_areas: int
) -> dict[str, Json]:
    git = history.repository.git
    told: dict[str, Json] = {}
    here = [with_lists(history, one) for one in moments]
    with CatFile(git) as reader:
        for snapshot, step in steps_of(git, here, kinds(), most_areas):
            if snapshot.commit in wanted:
                details = details_of(history, reader, snapshot, step.changes)
                value = snapshot_json(with_outputs(history, snapshot), details, most_paths=most_paths)
                told[snapshot.commit] = {**value, "extent": extent_json(step.extent)}
    return told
