"""What in a throw-away environment names the living one: whoever runs it there would run what is alive.

Every file is looked at, since a check may read any. Text is rewritten, whoever's it is: nobody keeps this tree. What
cannot be is left, and then nothing may be said of such an environment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from git_envhist.forking.relocation import Relocation, is_text, rewrite
from git_envhist.history.classes import CACHES

LARGEST_TEXT = 64 << 20
BYTECODE = b".pyc"
"""Its paths are for tracebacks alone."""
CHUNK = 1 << 20
RUNNABLE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ", b"PK\3\4", b"#!")
"""Beginnings of programs, libraries, archives of code, and scripts."""
LOADED = (b".so", b".node", b".dylib", b".dll", b".jar", b".pyz", b".egg", b".wasm")
"""Endings of files that programs load."""
CACHE = b"cache"
WITH_PROGRAMS = frozenset((b".next", b".nuxt", b".svelte-kit", b".angular", b".docusaurus"))
"""Directories of built sites: what they hold is run, but for the directory `cache` in them."""


def rewrite_live_paths(root: str, moved: Relocation) -> list[bytes]:
    """Rewrite what names the other place; return what still does, and would be run or loaded."""
    return [
        path for path in _naming(os.fsencode(root), moved) if not _rewritten(path, moved) and _is_run(path)
    ]


def live_paths_in(root: str, moved: Relocation) -> list[bytes]:
    """Return what names the other place, and would be run, loaded or followed."""
    top = os.fsencode(root)
    return [
        path
        for path in _naming(top, moved)
        if os.path.islink(path) or _is_run(path) or (_is_small_text(path) and not _is_in_cache(path, top))
    ]


def _is_run(path: bytes) -> bool:
    """Return whether a file is a program, a library or a script: a mere path in other data starts nothing."""
    if os.lstat(path).st_mode & 0o111 or path.endswith(LOADED):
        return True
    with open(path, "rb", opener=_opened) as file:
        return file.read(8).startswith(RUNNABLE)


def _is_small_text(path: bytes) -> bool:
    if os.lstat(path).st_size > LARGEST_TEXT:
        return False
    with open(path, "rb", opener=_opened) as file:
        return is_text(file.read())


def _is_in_cache(path: bytes, top: bytes) -> bool:
    """Return whether a file lies in a cache, which programs read as data and make again."""
    names = path[len(top) :].strip(b"/").split(b"/")[:-1]
    return any(
        name in CACHES - WITH_PROGRAMS or (name == CACHE and above in CACHES)
        for above, name in zip((b"", *names), names, strict=False)
    )


def _naming(top: bytes, moved: Relocation) -> Iterator[bytes]:
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            seen = os.lstat(path)
            if stat.S_ISLNK(seen.st_mode):
                if moved.is_named_in(os.readlink(path)):
                    yield path
            elif stat.S_ISREG(seen.st_mode) and not name.endswith(BYTECODE) and _is_named_in(path, moved):
                yield path


def _is_named_in(path: bytes, moved: Relocation) -> bool:
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


def _rewritten(path: bytes, moved: Relocation) -> bool:
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
