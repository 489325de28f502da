"""`git envlog --html <file>`: write the snapshots as one web page.

The values of all snapshots are computed with their sizes (`json_values_with_sizes`), titled and grouped as in the list,
and written by `git_envhist.html`. `put_page` replaces the file atomically under a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from git_envhist.cli.formats import count, size
from git_envhist.cli.json_values import PATHS_IN_LISTS, Json, extent_json, iso_time, snapshot_json
from git_envhist.cli.progress import shown_steps
from git_envhist.cli.refused_arguments import refuse_place
from git_envhist.cli.views.details import details_of, with_lists, with_outputs
from git_envhist.diff.size_history import steps_of
from git_envhist.disk import Durability, cannot_write, open_replacement, remove_if_present, write_all
from git_envhist.errors import EnvhistError, Refused
from git_envhist.git.cat_file import CatFile
from git_envhist.history.graph import LogLine, fold_snapshots
from git_envhist.html import BEGINNING, document
from git_envhist.model import Snapshot
from git_envhist.platform import SYSTEM, open_nofollow
from git_envhist.printable_text import escape
from git_envhist.probes import kinds

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.command import Session


# Snapshots as JSON values with the size of their environment, as `--json --stat` prints them.

MAX_AREAS = 40


def json_values_with_sizes(
    history: EnvHistory, shown: Sequence[Snapshot], *, most_paths: int, most_areas: int = MAX_AREAS
) -> list[Json]:
    """Yield the JSON value of each snapshot, in order, with its `extent`."""
    values: dict[str, Json] = {}
    for snapshots in _runs(history, shown):
        values |= _measured(history, snapshots, {one.commit for one in shown}, most_paths, most_areas)
    return [values[one.commit] for one in shown]


def _runs(history: EnvHistory, shown: Sequence[Snapshot]) -> Iterator[list[Snapshot]]:
    """Yield the snapshots of each timeline from the oldest shown one to the newest; sizes are added up along them."""
    known = {one.commit: one for one in shown}
    left = dict(known)
    for name in dict.fromkeys(one.timeline for one in shown):
        whole = history.log(None, name)[::-1]
        places = [place for place, one in enumerate(whole) if left.pop(one.commit, None)]
        if places:
            yield [known.get(one.commit, one) for one in whole[places[0] : places[-1] + 1]]
    # Snapshots that are on no timeline any more are measured individually.
    yield from ([one] for one in left.values())


def _measured(
    history: EnvHistory, snapshots: list[Snapshot], wanted: set[str], most_paths: int, most_areas: int
) -> dict[str, Json]:
    git = history.repository.git
    values: dict[str, Json] = {}
    here = [with_lists(history, one) for one in snapshots]
    with CatFile(git) as reader:
        for snapshot, step in steps_of(git, here, kinds(), most_areas):
            if snapshot.commit in wanted:
                details = details_of(history, reader, snapshot, step.changes)
                value = snapshot_json(with_outputs(history, snapshot), details, most_paths=most_paths)
                values[snapshot.commit] = {**value, "extent": extent_json(step.extent)}
    return values


# Replace a page: write a temporary file, sync it, rename it. The next run removes temporary files of killed runs.

TEMPORARY_NAME = "{}.{}.new"
"""The name of the page, and the process that writes it."""


def put_page(file: str, data: bytes) -> None:
    """Replace the page atomically, and keep the mode of an existing file."""
    whole = os.path.realpath(file)
    try:
        # Devices and pipes are written to directly.
        if os.path.lexists(whole) and not os.path.isfile(whole):
            _write_through(whole, data)
        else:
            _sweep(whole)
            _replace(whole, data)
    except OSError as error:
        raise cannot_write(error, file) from error


def _write_through(place: str, data: bytes) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _replace(whole: str, data: bytes) -> None:
    temporary = TEMPORARY_NAME.format(whole, os.getpid())
    with open_replacement(
        whole, durability=Durability.FILE, mode=None, keep_mode=True, temporary=temporary
    ) as descriptor:
        # The lock is held until the rename; other runs do not remove a locked file.
        if SYSTEM.flock:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        write_all(descriptor, data, 0)


def _sweep(whole: str) -> None:
    """Remove temporary files of killed runs for this page: named by this program and not locked."""
    if not SYSTEM.flock:
        return
    directory, name = os.path.split(whole)
    ours = re.compile(re.escape(name) + r"\.([0-9]+)\.new")
    with suppress(OSError):
        found = [(one, match[1]) for one in os.listdir(directory) if (match := ours.fullmatch(one))]
        for one in [one for one, process in found if not _lives(int(process))]:
            # A file that cannot be removed is skipped; the page can be written anyway.
            with suppress(OSError):
                _take_away(os.path.join(directory, one))


def _take_away(path: str) -> None:
    descriptor = open_nofollow(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # In another container, process numbers have another meaning.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            remove_if_present(path)
    finally:
        os.close(descriptor)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


TO_OUTPUT = "-"


class NothingToShow(EnvhistError):
    """There are no snapshots to draw."""

    code = "nothing-to-show"
    exit_code = 4


def write_page(session: Session, file: str, shown: Sequence[Snapshot]) -> None:
    """Write the page of these snapshots, newest first; `-` is standard output."""
    if not shown:
        raise NothingToShow(
            f"no snapshot to write to '{file}'", hint="list snapshots with the same options: git envlog"
        )
    history = session.history
    refuse_what_is_no_page(file)
    with shown_steps() as report:
        report(f"measuring {count(len(shown), 'snapshot')}")
        values = json_values_with_sizes(history, shown, most_paths=PATHS_IN_LISTS)
        values = folded(values, fold_snapshots(shown, history.now.tzinfo))
    place = os.path.basename(history.repository.root) or history.repository.root
    text = document(place, iso_time(history.now), values)
    if file == TO_OUTPUT:
        session.output.exact(text)
        return
    raw = text.encode("utf-8", "backslashreplace")
    refuse_place(session, file)
    put_page(file, raw)
    session.line(f"wrote '{escape(file)}': {count(len(shown), 'snapshot')}, {size(len(raw))}")


def folded(values: Sequence[Json], lines: Sequence[LogLine]) -> list[Json]:
    """Yield the values; those that a list would group get the id of the snapshot whose line represents them."""
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
    """Raise Refused if the file exists and is not such a page."""
    if file == TO_OUTPUT or not os.path.lexists(file):
        return
    try:
        with open(file, "rb") as found:
            if not os.path.isfile(file) or found.read(len(BEGINNING)) in (b"", BEGINNING):
                return
    except OSError as error:
        raise cannot_write(error, file) from error
    raise Refused(
        f"this file is no page of git-envhist, and is not overwritten: '{file}'",
        hint="give another file name, or delete the file first",
    )
