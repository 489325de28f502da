"""Plan, apply and record changes of files that belong to other programs, so that they can be undone byte for byte.

Integrations return `FileEdit` values: the expected state of a file and the new one. `apply_edits` alone writes: it
refuses before the first write if a file is not in the expected state, and writes all edits or none.

One record (`installed`) per repository, or in the user's data directory, stores the earlier content of each changed
file. It is written before the files, so that an interrupted installation is found and finished or removed. If the
record is lost, only the earlier bytes are lost: our own lines are also found by their marks.
"""

from __future__ import annotations

import difflib
import json
import os
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from git_envhist.directories_of_others import refuse_others_directory
from git_envhist.disk import (
    Durability,
    cannot_write,
    remove_if_present,
    replace_file,
    replace_with_symlink,
    state_directory,
    sync_directory,
)
from git_envhist.errors import EnvhistError, Refused
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model.integrations import FileEdit, FileState
from git_envhist.platform import open_file_only

FILE_MODE = 0o644
PROGRAM_MODE = 0o755
NEW = ".envhist-new"
"""The suffix of a new file until it is complete."""


def read_state(path: str) -> FileState | None:
    """Return the state of the file or link at a path, or None; a link is not followed."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return FileState(os.readlink(os.fsencode(path)), None)
        if not stat.S_ISREG(status.st_mode):
            raise EnvhistError(f"neither a file nor a link: '{path}'")
        with open(path, "rb", opener=open_file_only) as file:
            return FileState(file.read(), stat.S_IMODE(status.st_mode))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EnvhistError(f"cannot read '{path}': {reason}") from error


def plan_content(path: str, data: bytes | None, mode: int | None = None) -> FileEdit:
    """Return the edit that leaves these bytes in a file, following links, as root only its own; None removes the file.

    `mode` is for a new file; an existing file keeps its own.
    """
    place = os.path.realpath(path)
    if place != os.path.abspath(path):
        refuse_others_directory(path)
    before = read_state(place)
    if data is None:
        return FileEdit(place, before, None)
    saved = before.mode if before is not None and before.mode is not None else None
    return FileEdit(place, before, FileState(data, saved if saved is not None else mode or FILE_MODE))


def changed_edits(edits: Iterable[FileEdit]) -> tuple[FileEdit, ...]:
    """Return the edits that change something."""
    return tuple(edit for edit in edits if edit.before != edit.after)


def missing_directories(edits: Iterable[FileEdit]) -> tuple[str, ...]:
    """Return the directories to create for the edits, outermost first."""
    places = (os.path.dirname(edit.path) for edit in edits if edit.after is not None)
    return tuple(dict.fromkeys(each for place in places for each in _missing(place)))


def apply_edits(edits: Sequence[FileEdit]) -> None:
    """Apply all edits or none, and sync them to disk."""
    for edit in edits:
        _refuse_changed(edit)
    made: list[str] = []
    done: list[FileEdit] = []
    try:
        for edit in edits:
            made += _make_directories(os.path.dirname(edit.path))
            _write_state(edit.path, edit.after)
            done.append(edit)
        for directory in dict.fromkeys(os.path.dirname(edit.path) for edit in edits):
            sync_directory(directory)
    except OSError as error:
        for earlier in reversed(done):
            _write_state(earlier.path, earlier.before)
        remove_empty(made)
        raise cannot_write(error, os.path.dirname(edit.path)) from error


def remove_empty(directories: Iterable[str]) -> None:
    """Remove empty directories, the innermost first."""
    for directory in sorted(directories, key=len, reverse=True):
        try:
            os.rmdir(directory)
        except OSError:
            continue


def patch_lines(edits: Iterable[FileEdit]) -> Iterator[str]:
    """Yield every change of the edits as a patch."""
    for edit in edits:
        yield from _patch_lines(edit)


def _patch_lines(edit: FileEdit) -> Iterator[str]:
    yield _headline(edit)
    if edit.after is None:
        return
    old = _lines(edit.before)
    yield from difflib.unified_diff(old, _lines(edit.after), edit.path, edit.path, lineterm="", n=3)


def _headline(edit: FileEdit) -> str:
    if edit.after is None:
        return f"remove {edit.path}"
    mode = "a link" if edit.after.mode is None else f"{edit.after.mode:04o}"
    return f"{'write' if edit.before is None else 'change'} {edit.path} ({mode})"


def _lines(content: FileState | None) -> list[str]:
    if content is None:
        return []
    text = content.data.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    # git and diff mark a last line without a newline this way.
    return lines[:-1] if not lines[-1] else [*lines[:-1], lines[-1], "\\ No newline at end of file"]


def _refuse_changed(edit: FileEdit) -> None:
    if read_state(edit.path) != edit.before:
        raise Refused(
            f"'{edit.path}' was changed meanwhile", hint="nothing was written: run the command again"
        )


def _missing(directory: str) -> list[str]:
    missing: list[str] = []
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing[::-1]


def _make_directories(directory: str) -> list[str]:
    missing = _missing(directory)
    for each in missing:
        os.mkdir(each)
    return missing


def _write_state(path: str, content: FileState | None) -> None:
    """Replace a file atomically."""
    if content is None:
        remove_if_present(path)
        return
    if content.mode is None:
        replace_with_symlink(path, content.data, temporary=path + NEW)
    else:
        replace_file(
            path,
            content.data,
            durability=Durability.FILE,
            mode=content.mode,
            exclusive=True,
            temporary=path + NEW,
        )


FILE = "installed"


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file that we changed: its earlier content, and the content that we wrote."""

    owner: str
    """The name of the integration that changed it."""
    before: FileState | None
    after: FileState | None
    at: float


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """The recorded files by path, and the directories that were created for them."""

    files: dict[str, SavedFile] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    pending: dict[str, SavedFile] = field(default_factory=dict)
    """Files that an installation is changing, or was changing when it was interrupted."""

    def of(self, owner: str) -> dict[str, SavedFile]:
        return {path: saved for path, saved in self.files.items() if saved.owner == owner}


def read_record(state: str) -> InstallRecord:
    """Return the record; an empty one if there is none, or none that can be read."""
    try:
        with open(os.path.join(state, FILE), "rb", opener=open_file_only) as file:
            value = json.load(file)
        files = {path: _parse_saved(row) for path, row in value["files"].items()}
        pending = {path: _parse_saved(row) for path, row in value.get("begun", {}).items()}
        done = {path: saved for path, saved in pending.items() if _is_at(path, saved.after)}
        return InstallRecord({**files, **done}, tuple(map(str, value["made"])), pending)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return InstallRecord()


def install_edits(state: str, owner: str, edits: Sequence[FileEdit]) -> tuple[FileEdit, ...]:
    """Apply the edits and record the earlier content; return the edits that changed something."""
    wanted = changed_edits(edits)
    if not wanted:
        return ()
    record = read_record(state)
    _remove_temporary(record)
    now = time.time()
    pending = {edit.path: _saved_file(record, owner, edit, now) for edit in wanted}
    made = tuple(dict.fromkeys((*record.made, *missing_directories(wanted))))
    # Write the record first: once a file is changed, its earlier content exists nowhere else.
    _write_record(state, InstallRecord(record.files, made, pending))
    try:
        apply_edits(wanted)
    except BaseException:
        with suppress(EnvhistError):
            _write_record(state, replace(record, pending={}))
        raise
    _write_record(state, InstallRecord({**record.files, **pending}, made))
    return wanted


def plan_uninstall_edits(
    record: InstallRecord, owner: str, edits: Iterable[FileEdit]
) -> tuple[FileEdit, ...]:
    """Return the edits of a removal; a file unchanged since the installation gets its earlier content back."""
    planned = {edit.path: _edit_to_earlier(record.files.get(edit.path), edit) for edit in edits}
    # Files that only an interrupted installation changed are not in the plan of the integration.
    rest = [(path, saved) for path, saved in record.of(owner).items() if path not in planned]
    left = [FileEdit(path, saved.after, saved.before) for path, saved in rest if _is_at(path, saved.after)]
    return (*planned.values(), *left)


def uninstall_edits(state: str, owner: str, edits: Sequence[FileEdit]) -> tuple[FileEdit, ...]:
    """Apply the edits of a removal and delete them from the record; return the edits that changed something."""
    record = read_record(state)
    _remove_temporary(record)
    wanted = changed_edits(plan_uninstall_edits(record, owner, edits))
    apply_edits(wanted)
    files = {path: saved for path, saved in record.files.items() if saved.owner != owner}
    _write_record(state, InstallRecord(files, record.made if files else ()))
    # Our own record may have been in one of these directories.
    remove_empty(record.made)
    return wanted


def _edit_to_earlier(saved: SavedFile | None, edit: FileEdit) -> FileEdit:
    untouched = saved is not None and edit.before == saved.after and edit.before != edit.after
    return replace(edit, after=saved.before) if untouched and saved is not None else edit


def _saved_file(record: InstallRecord, owner: str, edit: FileEdit, now: float) -> SavedFile:
    older = record.files.get(edit.path)
    # After a second installation, the content before the first one is still the one to restore.
    before = older.before if older is not None and older.after == edit.before else edit.before
    return SavedFile(owner, before, edit.after, now)


def _remove_temporary(record: InstallRecord) -> None:
    """Remove temporary files that an interrupted installation left."""
    for path in {**record.files, **record.pending}:
        with suppress(OSError):
            remove_if_present(path + NEW)


def _is_at(path: str, content: FileState | None) -> bool:
    try:
        return read_state(path) == content
    except EnvhistError:
        return False


def _write_record(state: str, record: InstallRecord) -> None:
    path = os.path.join(state, FILE)
    if not record.files and not record.pending:
        if os.path.lexists(path):
            os.unlink(path)
            remove_empty([state])
        return
    state_directory(state)
    try:
        _replace_record(path, record)
    except OSError as error:
        raise cannot_write(error, state) from error


def _replace_record(path: str, record: InstallRecord) -> None:
    files, pending = (
        {each: _saved_row(saved) for each, saved in rows.items()} for rows in (record.files, record.pending)
    )
    value = {"files": files, "made": record.made, **({"begun": pending} if pending else {})}
    # The earlier contents in the record are stored nowhere else.
    replace_file(path, json.dumps(value).encode("utf-8"), durability=Durability.FULL)


def _saved_row(saved: SavedFile) -> dict[str, Any]:
    return {
        "owner": saved.owner,
        "at": saved.at,
        "before": _state_row(saved.before),
        "after": _state_row(saved.after),
    }


def _parse_saved(row: dict[str, Any]) -> SavedFile:
    return SavedFile(
        str(row["owner"]), _parse_state(row["before"]), _parse_state(row["after"]), float(row["at"])
    )


def _state_row(content: FileState | None) -> list[Any] | None:
    return None if content is None else [b64encode(content.data).decode("ascii"), content.mode]


def _parse_state(row: list[Any] | None) -> FileState | None:
    return None if row is None else FileState(b64decode(row[0]), row[1])
