"""What a restore is about to do, on the disk before it does it: any later command can finish it or take it back.

A journal is written once, whole, and never changed; how far a restore came is told by looking at its slots. A small
file beside it says that it is over, once what it put away begins to be thrown away. Both stand in the git directory,
which nobody else fills; they are read with suspicion all the same, since a torn or a foreign one must not move a file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

from git_envhist.disk import Durability, replace_file, sync_directory, write_all
from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, replace
from git_envhist.model import (
    Entry,
    EntryKind,
    EnvPath,
    ObjectId,
    PlanAction,
    PlannedDirectory,
    PlanStep,
    StoredAs,
)
from git_envhist.platform import NOFOLLOW, open_itself
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import DiskEntry
from git_envhist.restore.swap import StagedStep

JOURNAL = "journal"
PHASE = "phase"
HEAD = b"envhist-restore 1 "
SECOND = 10**9
RESERVED = "phase.done", "phase.undone"
"""Files that hold the text of a phase before the first change: the end of a restore needs no inode and no block."""
OUT = frozenset((b"", b".", b".."))


class Phase(Enum):
    """How far a restore came, as far as that must be remembered."""

    APPLYING = "applying"
    """It can go on or be taken back."""
    DONE = "done"
    """It arrived at its target; what is left is to throw away what went."""
    UNDONE = "undone"
    """It is back where it began; what is left is to throw away what should have come."""


class SlotLocation(NamedTuple):
    """Where the slots of a root stood when a journal was written."""

    root: bytes
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class RestoreJournal:
    """Everything that is needed to go on, or back."""

    staged: tuple[StagedStep, ...]
    directories: tuple[PlannedDirectory, ...]
    notes: tuple[tuple[str, str], ...] = ()
    """Whatever the caller has to know again."""
    spots: tuple[SlotLocation, ...] = ()


def write_journal(directory: str, journal: RestoreJournal | bytes) -> None:
    """Make a journal, or its text, durable; from here on the restore has begun."""
    if _unlink(directory, PHASE):
        # Left by a restore that was killed in its very last step: it is not this one's.
        sync_directory(directory)
    for phase in (Phase.DONE, Phase.UNDONE):
        _fill(os.path.join(directory, _reserved(phase)), _phase_text(phase))
    _write(directory, JOURNAL, journal if isinstance(journal, bytes) else journal_text(journal))


def journal_text(journal: RestoreJournal) -> bytes:
    """What stands in the file of a journal."""
    payload = json.dumps(_journal_to_json(journal), separators=(",", ":")).encode("ascii")
    digest = hashlib.sha256(payload).hexdigest().encode("ascii")
    return HEAD + digest + b"\n" + payload


def read_journal(directory: str) -> RestoreJournal | None:
    """The journal that stands there; None where there is none, `Damaged` where it cannot be trusted."""
    data = _read(directory, JOURNAL)
    if data is None:
        return None
    head, _, payload = data.partition(b"\n")
    if head != HEAD + hashlib.sha256(payload).hexdigest().encode("ascii"):
        raise _damaged(directory)
    try:
        return _journal_from_json(json.loads(payload))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _damaged(directory) from error


def written_at(directory: str) -> int:
    """When the journal that stands there was written, at the latest, in nanoseconds: all that comes was made before."""
    told = os.lstat(os.path.join(directory, JOURNAL)).st_mtime_ns
    # A file system that counts in seconds, or in twos, rounds them down.
    return told if told % SECOND else told + 2 * SECOND


def set_phase(directory: str, phase: Phase) -> None:
    """Remember how far the restore came; on a full disk too if the journal was written by this version."""
    if _is_durable(directory, _reserved(phase), _phase_text(phase)):
        os.rename(os.path.join(directory, _reserved(phase)), os.path.join(directory, PHASE))
        sync_directory(directory)
    elif not _is_durable(directory, PHASE, _phase_text(phase)):
        _write(directory, PHASE, _phase_text(phase))


def read_phase(directory: str) -> Phase:
    """How far the restore came of which a journal stands here."""
    data = _read(directory, PHASE)
    try:
        return Phase.APPLYING if data is None else Phase(data.decode("ascii").strip())
    except ValueError as error:
        raise _damaged(directory) from error


def remove_journal(directory: str) -> None:
    """Forget a restore that is over: the journal first and for good, so that its phase is never missing beside it."""
    if _unlink(directory, JOURNAL):
        sync_directory(directory)
    for name in (PHASE, *RESERVED):
        _unlink(directory, name)


def _reserved(phase: Phase) -> str:
    return f"{PHASE}.{phase.value}"


def _phase_text(phase: Phase) -> bytes:
    return phase.value.encode("ascii") + b"\n"


def _write(directory: str, name: str, data: bytes) -> None:
    replace_file(os.path.join(directory, name), data, durability=Durability.FULL, exclusive=True)


def _fill(path: str, data: bytes) -> None:
    """Make a new file with these bytes, in the place of a leftover of the same name."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | NOFOLLOW, 0o600)
    try:
        write_all(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _is_durable(directory: str, name: str, data: bytes) -> bool:
    """Bring a file onto the medium if it holds these bytes; False if it does not, e.g. after a power cut."""
    try:
        descriptor = open_itself(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if os.read(descriptor, len(data) + 1) != data:
            return False
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _read(directory: str, name: str) -> bytes | None:
    try:
        descriptor = open_itself(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def _unlink(directory: str, name: str) -> bool:
    try:
        os.unlink(os.path.join(directory, name))
    except FileNotFoundError:
        return False
    return True


def _damaged(directory: str) -> Damaged:
    return Damaged(
        f"the journal of a restore cannot be read: '{os.path.join(directory, JOURNAL)}'",
        hint="what the restore had put away lies beside it; 'git envlog' lists the moment saved before it",
    )


def _journal_to_json(journal: RestoreJournal) -> dict[str, Any]:
    return {
        "steps": [_staged_to_json(staged) for staged in journal.staged],
        "directories": [_directory_to_json(own) for own in journal.directories],
        "notes": dict(journal.notes),
        "spots": [[_text(spot.root), spot.device, spot.inode] for spot in journal.spots],
    }


def _journal_from_json(value: Mapping[str, Any]) -> RestoreJournal:
    notes = tuple((str(name), str(text)) for name, text in value["notes"].items())
    staged = tuple(_staged_from_json(row) for row in value["steps"])
    directories = tuple(_directory_from_json(row) for row in value["directories"])
    spots = tuple(
        SlotLocation(_bytes(root), int(device), int(inode)) for root, device, inode in value["spots"]
    )
    return RestoreJournal(staged, directories, notes, spots)


def _staged_to_json(staged: StagedStep) -> list[Any]:
    step = staged.step
    below = [_entry_to_json(entry) for entry in step.below]
    entries = [_entry_to_json(step.before), _entry_to_json(step.after)]
    place = [_text(step.root), _text(step.path), step.action.value, step.unit]
    return [place, entries, below, staged.slot, staged.new, staged.victim]


def _staged_from_json(row: list[Any]) -> StagedStep:
    (root, path, action, unit), (before, after), below, slot, new, victim = row
    inside = tuple(entry for entry in map(_entry_from_json, below) if entry is not None)
    sides = _entry_from_json(before), _entry_from_json(after)
    number = None if unit is None else int(unit)
    step = PlanStep(_bytes(root), _path(path), PlanAction(action), *sides, inside, number)
    return StagedStep(step, int(slot), _seen(new), _seen(victim))


def _directory_to_json(own: PlannedDirectory) -> list[Any]:
    return [_text(own.root), _text(own.path), _entry_to_json(own.before), _entry_to_json(own.after)]


def _directory_from_json(row: list[Any]) -> PlannedDirectory:
    root, path, before, after = row
    return PlannedDirectory(_bytes(root), _path(path), _entry_from_json(before), _entry_from_json(after))


def _entry_to_json(entry: Entry | None) -> list[Any] | None:
    if entry is None:
        return None
    oid = None if entry.oid is None else entry.oid.hex()
    xattrs = [[_text(name), _text(value)] for name, value in entry.xattrs]
    row = [_text(entry.path), entry.kind.value, entry.mode, entry.mtime_ns, oid, entry.stored.value]
    return [*row, entry.uid, entry.gid, xattrs, entry.link_group, entry.device]


def _entry_from_json(row: list[Any] | None) -> Entry | None:
    if row is None:
        return None
    path, kind, mode, mtime, oid, stored, uid, gid, xattrs, group, device = row
    return Entry(
        _path(path),
        EntryKind(kind),
        int(mode),
        int(mtime),
        None if oid is None else ObjectId(bytes.fromhex(oid)),
        StoredAs(stored),
        uid,
        gid,
        tuple((_bytes(name), _bytes(value)) for name, value in xattrs),
        group,
        device,
    )


def _seen(row: list[int] | None) -> DiskEntry | None:
    return None if row is None else DiskEntry(*map(int, row))


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _bytes(value: str) -> bytes:
    return value.encode("latin-1")


def _path(value: str) -> EnvPath:
    path = EnvPath(_bytes(value))
    if path and not OUT.isdisjoint(path.split(b"/")):
        raise ValueError("not a path of the environment")
    return path


# Whether a journal speaks of what is here: the numbers of devices are given anew at every mount, those of files stay.
#
# What changed places is told by its number. Where a journal was copied along with an environment, or where a file
# system numbers its files anew, these tell nothing, and nobody may go by them.


def spots_of(door: RestoreDisk) -> tuple[SlotLocation, ...]:
    """Where the slots of each root stand."""
    found = {root: os.fstat(slots.private) for root, slots in door.roots.items()}
    return tuple(SlotLocation(root, seen.st_dev, seen.st_ino) for root, seen in sorted(found.items()))


def with_current_devices(journal: RestoreJournal, door: RestoreDisk) -> RestoreJournal | None:
    """The journal with the numbers that the devices have now; None where it was not written here."""
    here = {spot.root: spot for spot in spots_of(door)}
    now: dict[int, int] = {}
    for spot in journal.spots:
        there = here.get(spot.root)
        # A root that is configured no more is missed by its own steps.
        if there is not None and spot.inode != there.inode:
            return None
        if there is not None:
            now[spot.device] = there.device
    if all(before == device for before, device in now.items()):
        return journal
    return replace(journal, staged=tuple(_renumbered(staged, now) for staged in journal.staged))


def _renumbered(staged: StagedStep, now: Mapping[int, int]) -> StagedStep:
    return replace(staged, new=_seen_places(staged.new, now), victim=_seen_places(staged.victim, now))


def _seen_places(seen: DiskEntry | None, now: Mapping[int, int]) -> DiskEntry | None:
    return None if seen is None else seen._replace(device=now.get(seen.device, seen.device))
