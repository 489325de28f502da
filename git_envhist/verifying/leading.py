"""What in a throw-away environment names the living one: whoever runs it there would run what is alive.

Every file is looked at, since a check may read any. Text is rewritten, whoever's it is: nobody keeps this tree. What
cannot be is left, and then nothing may be said of such an environment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from git_envhist.forking.relocation import Moved, is_text, rewrite

LARGEST_TEXT = 64 << 20
BYTECODE = b".pyc"
"""Its paths are for tracebacks alone."""
CHUNK = 1 << 20


def lead_away(root: str, moved: Moved) -> list[bytes]:
    """Rewrite what names the other place; what still does."""
    return [path for path in _naming(os.fsencode(root), moved) if not _rewritten(path, moved)]


def leads_back(root: str, moved: Moved) -> list[bytes]:
    """What names the other place."""
    return list(_naming(os.fsencode(root), moved))


def _naming(top: bytes, moved: Moved) -> Iterator[bytes]:
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode):
                if moved.is_named_in(os.readlink(path)):
                    yield path
            elif stat.S_ISREG(seen.st_mode) and not name.endswith(BYTECODE) and _is_named_in(path, moved):
                yield path


def _is_named_in(path: bytes, moved: Moved) -> bool:
    with open(path, "rb", opener=_opened) as file:
        before = b""
        while chunk := file.read(CHUNK):
            if moved.is_named_in(before + chunk):
                return True
            # A name may stand on the edge.
            before = chunk[-4096:]
    return False


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, flags)
    except PermissionError:
        # It is closed to its owner, and will be again.
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        os.chmod(path, mode | stat.S_IRUSR)
        try:
            return os.open(path, flags)
        finally:
            os.chmod(path, mode)


def _rewritten(path: bytes, moved: Moved) -> bool:
    seen = os.lstat(path)
    if stat.S_ISLNK(seen.st_mode):
        target = moved.rewritten(os.readlink(path))
        os.unlink(path)
        os.symlink(target, path)
        return True
    if seen.st_size > LARGEST_TEXT:
        return False
    with open(path, "rb", opener=_opened) as file:
        data = file.read()
    new = rewrite(data, moved) if is_text(data) else None
    if new is None:
        return False
    _write(path, new, seen)
    return True


def _write(path: bytes, data: bytes, seen: os.stat_result) -> None:
    """In its place, so that its other names say the same; as old as it was."""
    mode = stat.S_IMODE(seen.st_mode)
    os.chmod(path, mode | stat.S_IWUSR)
    try:
        with open(path, "r+b") as file:
            file.write(data)
            file.truncate()
    finally:
        os.chmod(path, mode)
    with suppress(OSError):
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
