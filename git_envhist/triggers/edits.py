"""Changes of files that belong to others, as values: what stands there, what is to stand there.

Whoever decides reads and returns edits; `carry_out` alone writes. An edit that finds something else than it was made
for is refused before anything is written.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from git_envhist.errors import EnvhistError, Refused
from git_envhist.model.causing import FileEdit, FileState
from git_envhist.store.durable import cannot_write, remove_if_present, sync_directory
from git_envhist.system import open_file_only

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
    new = path + NEW
    remove_if_present(new)
    if content.mode is None:
        os.symlink(content.data, os.fsencode(new))
    else:
        _write(new, content.data, content.mode)
    os.rename(new, path)


def _write(path: str, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
