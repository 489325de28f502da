"""What has to be made for a plan, where, and who makes it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

from git_envhist.model import Entry, EntryKind, PlanAction, PlanStep, StoredAs
from git_envhist.restore.links import link_class
from git_envhist.restore.slots import slot_directory, slot_name
from git_envhist.restore.workers import portion

NO_STEP = -1


class StagedItem(NamedTuple):
    """One thing to be made: where, and for which step if it is that step's own."""

    realm: bytes
    directory: bytes
    """Below the private directory."""
    name: bytes
    entry: Entry
    number: int


class Batch(NamedTuple):
    """Things to be made in a few directories, by one worker."""

    spots: tuple[StagedItem, ...]


def spots_of(steps: Iterable[PlanStep]) -> Iterator[StagedItem]:
    """Everything but directories."""
    for number, step in enumerate(steps):
        if step.after is None or step.action is PlanAction.ADJUST:
            continue
        if step.after.kind is not EntryKind.DIRECTORY:
            yield StagedItem(step.realm, slot_directory(number), slot_name(number), step.after, number)
            continue
        for path, entries in by_directory(number, step, lambda entry: entry.kind is not EntryKind.DIRECTORY):
            for entry in entries:
                yield StagedItem(step.realm, path, name_of(entry), entry, NO_STEP)


def by_directory(
    number: int, step: PlanStep, wanted: Callable[[Entry], bool]
) -> Iterator[tuple[bytes, list[Entry]]]:
    """The wanted entries of a new directory, by the directories that they are staged in, those above first."""
    base = slot_directory(number) + b"/" + slot_name(number)
    found: dict[bytes, list[Entry]] = {}
    for entry in step.below:
        if wanted(entry):
            found.setdefault(entry.path.rpartition(b"/")[0], []).append(entry)
    for path, entries in found.items():
        yield base + path[len(step.path) :], entries


def first_names(spots: Iterable[StagedItem]) -> tuple[list[StagedItem], list[tuple[StagedItem, StagedItem]]]:
    """What is to be made, and (what is made, what is one more name of it)."""
    first: dict[Hashable, StagedItem] = {}
    made: list[StagedItem] = []
    twins: list[tuple[StagedItem, StagedItem]] = []
    for spot in spots:
        leader = spot
        if spot.entry.link_group is not None:
            leader = first.setdefault(link_class(spot.entry), spot)
        if leader is spot:
            made.append(spot)
        else:
            twins.append((leader, spot))
    return made, twins


def batches(spots: list[StagedItem]) -> Iterator[Batch]:
    """Portions of work."""
    # Big files first, each by itself: nobody shall be left with one when all else is done.
    big = [spot for spot in spots if spot.entry.stored is StoredAs.PIECES]
    yield from (Batch((spot,)) for spot in big)
    rest = [spot for spot in spots if spot.entry.stored is not StoredAs.PIECES] if big else spots
    size = portion(len(rest))
    for start in range(0, len(rest), size):
        yield Batch(tuple(rest[start : start + size]))


def brings_directory(step: PlanStep) -> bool:
    """Whether a step is a new directory with all that is in it."""
    return step.after is not None and step.after.kind is EntryKind.DIRECTORY


def name_of(entry: Entry) -> bytes:
    """The last name of its path."""
    return entry.path.rpartition(b"/")[2]
