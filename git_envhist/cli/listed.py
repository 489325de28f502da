"""Many moments as JSON values: one git tells what they changed, where asking of each took two processes a moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.details import details_of, with_outputs
from git_envhist.cli.jsonform import PATHS_IN_LISTS, Json, snapshot_json
from git_envhist.cli.jsontext import dump
from git_envhist.cli.ondemand import with_lists
from git_envhist.model import Snapshot
from git_envhist.store.objects import CatFile
from git_envhist.store.series import AT_ONCE, changes_of

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.command import Session


def json_values(history: EnvHistory, shown: Sequence[Snapshot], *, most_paths: int) -> Iterator[Json]:
    """The moments in their order, each as `--json` has it, some at a time."""
    git = history.repository.git
    with CatFile(git) as reader:
        for start in range(0, len(shown), AT_ONCE):
            moments = [with_lists(history, one) for one in shown[start : start + AT_ONCE]]
            steps = changes_of(git, reader, [(one.commit, one.parent) for one in moments])
            for snapshot, (_, changes) in zip(moments, steps, strict=True):
                details = details_of(history, reader, snapshot, changes)
                yield snapshot_json(with_outputs(history, snapshot), details, most_paths=most_paths)


def print_list(session: Session, shown: list[Snapshot], *, measured: bool) -> None:
    """Print the list as JSON: an array, or one object per line."""
    values = map(dump, _json_values(session.history, shown, measured=measured))
    if session.json == "lines":
        for value in values:
            session.line(value)
        return
    session.output.exact("[")
    for number, value in enumerate(values):
        session.output.exact(("," if number else "") + "\n" + value)
    session.line("\n]" if shown else "]")


def _json_values(history: EnvHistory, shown: list[Snapshot], *, measured: bool) -> Iterable[Json]:
    if measured:
        from git_envhist.cli.measured import json_values_with_sizes  # loaded late: only --stat needs it

        return json_values_with_sizes(history, shown, most_paths=PATHS_IN_LISTS)
    return json_values(history, shown, most_paths=PATHS_IN_LISTS)
