"""What stood in others' files before we changed them: a file that nobody has touched since comes back byte for byte.

One record for each repository, in its git directory (for what is installed for every repository: in the user's data
directory). It says what is about to be changed before anything is, so that whatever breaks off an installation, the
files themselves tell how far that came. Losing it costs nothing but the bytes: what is ours is found by its marks, too.
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
from git_envhist.model.work import FileEdit, FileState
from git_envhist.platform import open_file_only

# Changes of files that belong to others, as values: what stands there, what is to stand there.
#
# Whoever decides reads and returns edits; `carry_out` alone writes. An edit that finds something else than it was made
# for is refused before anything is written.

FILE_MODE = 0o644
PROGRAM_MODE = 0o755
NEW = ".envhist-new"
"""The ending of what is to stand at a path, until it is whole."""


def look(path: str) -> FileState | None:
    """What stands at a path; a link is not followed."""
    try:
        seen = os.lstat(path)
        if stat.S_ISLNK(seen.st_mode):
            return FileState(os.readlink(os.fsencode(path)), None)
        if not stat.S_ISREG(seen.st_mode):
            raise EnvhistError(f"neither a file nor a link: '{path}'")
        with open(path, "rb", opener=open_file_only) as file:
            return FileState(file.read(), stat.S_IMODE(seen.st_mode))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EnvhistError(f"cannot read '{path}': {reason}") from error


def rewrite(path: str, data: bytes | None, mode: int | None = None) -> FileEdit:
    """The edit that leaves these bytes in a file, where it is or where its links lead; None: no file.

    `mode` is for a file that is made; one that is there keeps its own.
    """
    place = os.path.realpath(path)
    before = look(place)
    if data is None:
        return FileEdit(place, before, None)
    kept = before.mode if before is not None and before.mode is not None else None
    return FileEdit(place, before, FileState(data, kept if kept is not None else mode or FILE_MODE))


def changed_edits(edits: Iterable[FileEdit]) -> tuple[FileEdit, ...]:
    """The edits that change something."""
    return tuple(edit for edit in edits if edit.before != edit.after)


def missing_directories(edits: Iterable[FileEdit]) -> tuple[str, ...]:
    """The directories that have to be made for edits, outermost first."""
    places = (os.path.dirname(edit.path) for edit in edits if edit.after is not None)
    return tuple(dict.fromkeys(each for place in places for each in _missing(place)))


def carry_out(edits: Sequence[FileEdit]) -> None:
    """Make every edit, or none of them; they are on the medium then."""
    for edit in edits:
        _refuse_another(edit)
    made: list[str] = []
    done: list[FileEdit] = []
    try:
        for edit in edits:
            made += _make_directories(os.path.dirname(edit.path))
            _put(edit.path, edit.after)
            done.append(edit)
        for directory in dict.fromkeys(os.path.dirname(edit.path) for edit in edits):
            sync_directory(directory)
    except OSError as error:
        for earlier in reversed(done):
            _put(earlier.path, earlier.before)
        remove_empty(made)
        raise cannot_write(error, os.path.dirname(edit.path)) from error


def remove_empty(directories: Iterable[str]) -> None:
    """Remove directories that hold nothing, the innermost first."""
    for directory in sorted(directories, key=len, reverse=True):
        try:
            os.rmdir(directory)
        except OSError:
            continue


def describe(edits: Iterable[FileEdit]) -> Iterator[str]:
    """Every byte that would be written, as a patch."""
    for edit in edits:
        yield from _describe(edit)


def _describe(edit: FileEdit) -> Iterator[str]:
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
    # As git and diff tell it: the last line lacks the newline that ends all others.
    return lines[:-1] if not lines[-1] else [*lines[:-1], lines[-1], "\\ No newline at end of file"]


def _refuse_another(edit: FileEdit) -> None:
    if look(edit.path) != edit.before:
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


def _put(path: str, content: FileState | None) -> None:
    """Let exactly this stand at a path; whoever reads meanwhile sees the old or the new."""
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
    """A file we changed: what it was, and what we left."""

    owner: str
    """The integration that changed it."""
    before: FileState | None
    after: FileState | None
    at: float


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """All of them by path, and the directories that were made for them."""

    files: dict[str, SavedFile] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    begun: dict[str, SavedFile] = field(default_factory=dict)
    """What is about to be changed, or was when something broke off."""

    def of(self, owner: str) -> dict[str, SavedFile]:
        return {path: kept for path, kept in self.files.items() if kept.owner == owner}


def read_record(state: str) -> InstallRecord:
    """What is remembered; nothing where there is no record, or none that can be read."""
    try:
        with open(os.path.join(state, FILE), "rb", opener=open_file_only) as file:
            value = json.load(file)
        files = {path: _kept(row) for path, row in value["files"].items()}
        begun = {path: _kept(row) for path, row in value.get("begun", {}).items()}
        done = {path: kept for path, kept in begun.items() if _stands(path, kept.after)}
        return InstallRecord({**files, **done}, tuple(map(str, value["made"])), begun)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return InstallRecord()


def install_edits(state: str, owner: str, edits: Sequence[FileEdit]) -> tuple[FileEdit, ...]:
    """Carry edits out and remember what stood there; returns those that changed something."""
    wanted = changed_edits(edits)
    if not wanted:
        return ()
    record = read_record(state)
    _sweep(record)
    now = time.time()
    begun = {edit.path: _remembered(record, owner, edit, now) for edit in wanted}
    made = tuple(dict.fromkeys((*record.made, *missing_directories(wanted))))
    # First of all: what a file was stands nowhere else once it is changed.
    _write(state, InstallRecord(record.files, made, begun))
    try:
        carry_out(wanted)
    except BaseException:
        with suppress(EnvhistError):
            _write(state, replace(record, begun={}))
        raise
    _write(state, InstallRecord({**record.files, **begun}, made))
    return wanted


def uninstall_plan(record: InstallRecord, owner: str, edits: Iterable[FileEdit]) -> tuple[FileEdit, ...]:
    """The edits that take ours away; a file that is as we left it becomes what it was."""
    planned = {edit.path: _as_before(record.files.get(edit.path), edit) for edit in edits}
    # What an installation that was broken off has left beside is in no plan.
    rest = [(path, kept) for path, kept in record.of(owner).items() if path not in planned]
    left = [FileEdit(path, kept.after, kept.before) for path, kept in rest if _stands(path, kept.after)]
    return (*planned.values(), *left)


def uninstall_edits(state: str, owner: str, edits: Sequence[FileEdit]) -> tuple[FileEdit, ...]:
    """Carry out the edits that take ours away, and forget them; returns those that changed something."""
    record = read_record(state)
    _sweep(record)
    wanted = changed_edits(uninstall_plan(record, owner, edits))
    carry_out(wanted)
    files = {path: kept for path, kept in record.files.items() if kept.owner != owner}
    _write(state, InstallRecord(files, record.made if files else ()))
    # Our own record may have stood in one of them.
    remove_empty(record.made)
    return wanted


def _as_before(kept: SavedFile | None, edit: FileEdit) -> FileEdit:
    untouched = kept is not None and edit.before == kept.after and edit.before != edit.after
    return replace(edit, after=kept.before) if untouched and kept is not None else edit


def _remembered(record: InstallRecord, owner: str, edit: FileEdit, now: float) -> SavedFile:
    older = record.files.get(edit.path)
    # Installed twice: what was there first is what comes back.
    before = older.before if older is not None and older.after == edit.before else edit.before
    return SavedFile(owner, before, edit.after, now)


def _sweep(record: InstallRecord) -> None:
    """Remove what was half written beside files when something broke off."""
    for path in {**record.files, **record.begun}:
        with suppress(OSError):
            remove_if_present(path + NEW)


def _stands(path: str, content: FileState | None) -> bool:
    try:
        return look(path) == content
    except EnvhistError:
        return False


def _write(state: str, record: InstallRecord) -> None:
    path = os.path.join(state, FILE)
    if not record.files and not record.begun:
        if os.path.lexists(path):
            os.unlink(path)
            remove_empty([state])
        return
    state_directory(state)
    try:
        _replace(path, record)
    except OSError as error:
        raise cannot_write(error, state) from error


def _replace(path: str, record: InstallRecord) -> None:
    files, begun = (
        {each: _row(kept) for each, kept in rows.items()} for rows in (record.files, record.begun)
    )
    value = {"files": files, "made": record.made, **({"begun": begun} if begun else {})}
    # The earlier contents that the record remembers are stored nowhere else.
    replace_file(path, json.dumps(value).encode("utf-8"), durability=Durability.FULL)


def _row(kept: SavedFile) -> dict[str, Any]:
    return {"owner": kept.owner, "at": kept.at, "before": _text(kept.before), "after": _text(kept.after)}


def _kept(row: dict[str, Any]) -> SavedFile:
    return SavedFile(str(row["owner"]), _content(row["before"]), _content(row["after"]), float(row["at"]))


def _text(content: FileState | None) -> list[Any] | None:
    return None if content is None else [b64encode(content.data).decode("ascii"), content.mode]


def _content(row: list[Any] | None) -> FileState | None:
    return None if row is None else FileState(b64decode(row[0]), row[1])
