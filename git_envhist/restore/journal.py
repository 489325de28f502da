"""The journal of a restore: written before the first change, so that any later command can finish or undo it.

A journal is written once and never changed; progress is read from the slots. A small phase file marks a restore that is
complete, before its slots are emptied. Both are in the git directory and are validated when read: a damaged journal, or
one of another place, must not move a file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

from git_envhist.disk import Durability, read_exactly, replace_file, sync_directory, write_all
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
from git_envhist.platform import NOFOLLOW, open_nofollow
from git_envhist.restore.disk_entry import DiskEntry
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.swap import StagedStep

JOURNAL = "journal"
PHASE = "phase"
HEAD = b"envhist-restore 1 "
SECOND = 10**9
RESERVED = "phase.done", "phase.undone"
"""Files with the text of each phase, written before the first change: ending a restore needs no inode and no block."""
OUT = frozenset((b"", b".", b".."))


class Phase(Enum):
    """The progress of a restore, as far as it must be recorded."""

    APPLYING = "applying"
    """It can be finished or undone."""
    DONE = "done"
    """It reached its target; only the replaced files remain to be removed."""
    UNDONE = "undone"
    """It is undone; only the staged files remain to be removed."""


class SlotLocation(NamedTuple):
    """Device and inode of a root's private directory when the journal was written."""

    root: bytes
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class RestoreJournal:
    """Everything that is needed to finish or undo a restore."""

    staged: tuple[StagedStep, ...]
    directories: tuple[PlannedDirectory, ...]
    notes: tuple[tuple[str, str], ...] = ()
    """Notes of the caller."""
    locations: tuple[SlotLocation, ...] = ()


def write_journal(directory: str, journal: RestoreJournal | bytes) -> None:
    """Write a journal, or its text, durably; the restore has started when this returns."""
    if _unlink(directory, PHASE):
        # An earlier restore that was killed at its end may have left this file; its phase is not that of this restore.
        sync_directory(directory)
    for phase in (Phase.DONE, Phase.UNDONE):
        _fill(os.path.join(directory, _reserved(phase)), _phase_text(phase))
    _write(directory, JOURNAL, journal if isinstance(journal, bytes) else journal_text(journal))


def journal_text(journal: RestoreJournal) -> bytes:
    """Return the contents of a journal file."""
    payload = json.dumps(_journal_to_json(journal), separators=(",", ":")).encode("ascii")
    digest = hashlib.sha256(payload).hexdigest().encode("ascii")
    return HEAD + digest + b"\n" + payload


def read_journal(directory: str) -> RestoreJournal | None:
    """Return the journal; None if there is none, `Damaged` if it is not valid."""
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
    """Return the latest time at which the journal was written, in nanoseconds; all staged files are older."""
    mtime = os.lstat(os.path.join(directory, JOURNAL)).st_mtime_ns
    # Some file systems round mtimes down to one or two seconds.
    return mtime if mtime % SECOND else mtime + 2 * SECOND


def set_phase(directory: str, phase: Phase) -> None:
    """Record the progress; works on a full disk if the journal was written by this version."""
    if _is_durable(directory, _reserved(phase), _phase_text(phase)):
        os.rename(os.path.join(directory, _reserved(phase)), os.path.join(directory, PHASE))
        sync_directory(directory)
    elif not _is_durable(directory, PHASE, _phase_text(phase)):
        _write(directory, PHASE, _phase_text(phase))


def read_phase(directory: str) -> Phase:
    """Return the progress of the restore with a journal."""
    data = _read(directory, PHASE)
    try:
        return Phase.APPLYING if data is None else Phase(data.decode("ascii").strip())
    except ValueError as error:
        raise _damaged(directory) from error


def remove_journal(directory: str) -> None:
    """Remove the journal of a completed restore, durably and before its phase, which must not be missing next to it."""
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
    """Create a file with these bytes, replacing a leftover of the same name."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | NOFOLLOW, 0o600)
    try:
        write_all(descriptor, data, 0)
    finally:
        os.close(descriptor)


def _is_durable(directory: str, name: str, data: bytes) -> bool:
    """Sync a file if it has these bytes; return False if not, e.g. after a power failure."""
    try:
        descriptor = open_nofollow(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if read_exactly(descriptor, len(data) + 1, 0) != data:
            return False
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _read(directory: str, name: str) -> bytes | None:
    try:
        descriptor = open_nofollow(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
        hint="replaced files are next to it; 'git envlog' lists the snapshot taken before the restore",
    )


def _journal_to_json(journal: RestoreJournal) -> dict[str, Any]:
    return {
        "steps": [_staged_to_json(staged) for staged in journal.staged],
        "directories": [_directory_to_json(own) for own in journal.directories],
        "notes": dict(journal.notes),
        "spots": [[_text(location.root), location.device, location.inode] for location in journal.locations],
    }


def _journal_from_json(value: Mapping[str, Any]) -> RestoreJournal:
    notes = tuple((str(name), str(text)) for name, text in value["notes"].items())
    staged = tuple(_staged_from_json(row) for row in value["steps"])
    directories = tuple(_directory_from_json(row) for row in value["directories"])
    locations = tuple(
        SlotLocation(_bytes(root), int(device), int(inode)) for root, device, inode in value["spots"]
    )
    return RestoreJournal(staged, directories, notes, locations)


def _staged_to_json(staged: StagedStep) -> list[Any]:
    step = staged.step
    below = [_entry_to_json(entry) for entry in step.below]
    entries = [_entry_to_json(step.before), _entry_to_json(step.after)]
    place = [_text(step.root), _text(step.path), step.action.value, step.unit]
    return [place, entries, below, staged.slot, staged.new, staged.replaced]


def _staged_from_json(row: list[Any]) -> StagedStep:
    (root, path, action, unit), (before, after), below, slot, new, replaced = row
    inside = tuple(entry for entry in map(_entry_from_json, below) if entry is not None)
    sides = _entry_from_json(before), _entry_from_json(after)
    number = None if unit is None else int(unit)
    step = PlanStep(_bytes(root), _path(path), PlanAction(action), *sides, inside, number)
    return StagedStep(step, int(slot), _entry_from_row(new), _entry_from_row(replaced))


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


def _entry_from_row(row: list[int] | None) -> DiskEntry | None:
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


# A journal is valid only where it was written. Device numbers change with every mount, inodes do not: if the inode of a
# private directory differs, the journal was copied, or the file system numbers inodes afresh.


def slot_locations(disk: EnvironmentDisk) -> tuple[SlotLocation, ...]:
    """Return the location of each root's slots."""
    found = {root: os.fstat(slots.private) for root, slots in disk.roots.items()}
    return tuple(SlotLocation(root, seen.st_dev, seen.st_ino) for root, seen in sorted(found.items()))


def with_current_devices(journal: RestoreJournal, disk: EnvironmentDisk) -> RestoreJournal | None:
    """Return the journal with the present device numbers; None if a slot directory is not the journal's."""
    locations_now = {location.root: location for location in slot_locations(disk)}
    devices: dict[int, int] = {}
    for location in journal.locations:
        found = locations_now.get(location.root)
        # The steps of a root that is no longer configured fail by themselves.
        if found is not None and location.inode != found.inode:
            return None
        if found is not None:
            devices[location.device] = found.device
    if all(before == device for before, device in devices.items()):
        return journal
    return replace(journal, staged=tuple(_renumbered(staged, devices) for staged in journal.staged))


def _renumbered(staged: StagedStep, devices: Mapping[int, int]) -> StagedStep:
    return replace(
        staged, new=_with_device(staged.new, devices), replaced=_with_device(staged.replaced, devices)
    )


def _with_device(seen: DiskEntry | None, devices: Mapping[int, int]) -> DiskEntry | None:
    return None if seen is None else seen._replace(device=devices.get(seen.device, seen.device))
