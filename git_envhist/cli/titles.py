"""The moments that restores in a list went back to: the list names them by their words, not by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from git_envhist.errors import EnvhistError
from git_envhist.history.timeline import subject
from git_envhist.model import IntentSource, RestorePart, Snapshot

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.formats import Look
    from git_envhist.history.intents import Others

ROUNDS = 8
"""A restore of a restore: so often the next one is looked for."""


def looking_at(history: EnvHistory, shown: Iterable[Snapshot]) -> Look:
    """How these are told, one by one, in the words that a list has for them."""
    from git_envhist.cli.formats import Look  # loaded late: a list has made its own

    return Look(history.now, others=others_of(history, tuple(shown)))


def title_of(snapshot: Snapshot) -> str:
    """The words that a list will have for what was just captured."""
    if snapshot.intent_source is IntentSource.GIVEN:
        return subject(snapshot.intent)
    from git_envhist.history.intents import title  # loaded late: most captures are given words

    return title(snapshot)


def others_of(history: EnvHistory, shown: Sequence[Snapshot]) -> Others:
    """What `title` asks for; what a short list does not show itself is read, by one git for all of it."""
    if not any(snapshot.restore is not None for snapshot in shown):
        return {}
    from git_envhist.history.intents import by_digits  # loaded late: many lists hold no restore

    known = list(shown)
    # What is damaged is told by others; the ids stand in the intents.
    with suppress(EnvhistError):
        known += _read_further(history, shown)
    return by_digits(known)


def _read_further(history: EnvHistory, shown: Sequence[Snapshot]) -> Iterator[Snapshot]:
    from git_envhist.store.chain import read_snapshot  # loaded late: likewise
    from git_envhist.store.objects import CatFile  # loaded late: likewise

    read = {one for snapshot in shown for one in (snapshot.id, snapshot.commit)}
    fresh: Iterable[Snapshot] = shown
    with CatFile(history.repository.git) as reader:
        for _ in range(ROUNDS):
            asked = [one for snapshot in fresh for one in _whole_ids(snapshot) if one not in read]
            read.update(asked)
            answers = [(one, reader.read(one)) for one in dict.fromkeys(asked)]
            found = [read_snapshot(one, answer.data) for one, answer in answers if answer is not None]
            yield from found
            fresh = [snapshot for snapshot in found if snapshot.restore is not None]
            if not fresh:
                return


def _whole_ids(snapshot: Snapshot) -> Iterator[str]:
    """What it went back to; and the moment before, to which one that was saved may be equal."""
    if snapshot.restored_from:
        yield snapshot.restored_from
    if snapshot.restore is RestorePart.BEFORE and snapshot.parent:
        yield snapshot.parent
