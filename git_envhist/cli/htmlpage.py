"""`git envlog --html <file>`: the moments as one file that a browser opens from disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.cli.jsonform import PATHS_IN_LISTS, moment
from git_envhist.cli.measured import json_values_with_sizes
from git_envhist.cli.pagefile import put_page
from git_envhist.cli.placing import refuse_place
from git_envhist.cli.progress import shown_steps
from git_envhist.cli.terminal import escape, escape_invalid
from git_envhist.cli.words import count, size
from git_envhist.errors import EnvhistError, Refused
from git_envhist.history.folding import LogLine, fold_turns
from git_envhist.history.intents import title
from git_envhist.history.timeline import subject
from git_envhist.model import Snapshot
from git_envhist.page import BEGINNING, document
from git_envhist.store.durable import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from git_envhist.cli.command import Session
    from git_envhist.cli.jsonform import Json

TO_OUTPUT = "-"


class NothingToShow(EnvhistError):
    """No moment is left to draw."""

    code = "nothing-to-show"
    exit_code = 4


def write_page(session: Session, file: str, shown: Sequence[Snapshot]) -> None:
    """Write the page that shows these moments, newest first; `-` is standard output."""
    if not shown:
        raise NothingToShow(
            f"no moment to show in '{file}'", hint="'git envlog' with the same words lists what there is"
        )
    history = session.history
    refuse_what_is_no_page(file)
    with shown_steps() as tell:
        tell(f"measuring {count(len(shown), 'moment')}")
        values = with_titles(json_values_with_sizes(history, shown, most_paths=PATHS_IN_LISTS), shown)
        values = folded(values, fold_turns(shown, history.now.tzinfo))
    place = os.path.basename(history.repository.root) or history.repository.root
    text = document(place, moment(history.now), values)
    if file == TO_OUTPUT:
        session.output.exact(text)
        return
    raw = text.encode("utf-8", "backslashreplace")
    refuse_place(session, file)
    put_page(file, raw)
    session.line(f"wrote '{escape(file)}': {count(len(shown), 'moment')}, {size(len(raw))}")


def with_titles(values: Iterable[Json], shown: Sequence[Snapshot]) -> list[Json]:
    """These moments' values, each with the line that a list prints for it where its own words are another."""
    return [
        value if line == subject(one.intent) else {**value, "title": escape_invalid(line)}
        for value, one in zip(values, shown, strict=True)
        for line in (title(one),)
    ]


def folded(values: Sequence[Json], lines: Sequence[LogLine]) -> list[Json]:
    """Return the values, those that a list would fold with the id of the snapshot whose line shows them."""
    into = {str(one.id): line.newest.id for line in lines for one in line.earlier}
    counts = {str(line.newest.id): 1 + len(line.earlier) for line in lines if line.is_turn or line.is_run}
    return [
        {**value, "folded_into": into[str(value["id"])]}
        if value["id"] in into
        else {**value, "folds": counts[str(value["id"])]}
        if value["id"] in counts
        else value
        for value in values
    ]


def refuse_what_is_no_page(file: str) -> None:
    """A file that is there and is no page of ours is somebody's: it is not written over."""
    if file == TO_OUTPUT or not os.path.lexists(file):
        return
    try:
        with open(file, "rb") as found:
            if not os.path.isfile(file) or found.read(len(BEGINNING)) in (b"", BEGINNING):
                return
    except OSError as error:
        raise cannot_write(error, file) from error
    raise Refused(
        f"there is another file, which is no page: '{file}'", hint="name a new file, or take that one away"
    )
