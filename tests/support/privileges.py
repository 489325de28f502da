"""Make permission bits apply to a test that runs as root."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.needs import require

# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID: with these, root ignores owners and modes.
FILE_CAPABILITIES = 0b11111
CAPABILITY_VERSION = 0x20080522
WITHOUT = "-chown,-dac_override,-dac_read_search,-fowner,-fsetid"


def as_ordinary_user() -> tuple[str, ...]:
    """Return the words before a command that make permission bits apply to it; skip the test if there are none."""
    if os.geteuid() != 0:
        return ()
    require("setpriv")
    if not _can_drop():
        pytest.skip("running as root, and setpriv cannot drop root's rights here")
    return _prefix()


def _prefix() -> tuple[str, ...]:
    return ("setpriv", f"--bounding-set={WITHOUT}", f"--inh-caps={WITHOUT}", "--")


@functools.cache
def _can_drop() -> bool:
    if shutil.which("setpriv") is None:
        return False
    return subprocess.run((*_prefix(), "true"), capture_output=True, check=False).returncode == 0


@contextmanager
def permissions_bind() -> Iterator[None]:
    """Make permission bits apply to this thread during the block, even as root (also to its forks, not to executed
    programs)."""
    if os.geteuid() != 0:
        yield
        return
    before = _capabilities()
    effective, permitted, inheritable = before[0]
    _set_capabilities([(effective & ~FILE_CAPABILITIES, permitted, inheritable), before[1]])
    try:
        yield
    finally:
        _set_capabilities(before)


def _capabilities() -> list[tuple[int, int, int]]:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    _call("capget", header, data)
    return [(data[0], data[1], data[2]), (data[3], data[4], data[5])]


def _set_capabilities(sets: list[tuple[int, int, int]]) -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)(*sets[0], *sets[1])
    _call("capset", header, data)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        pytest.skip(f"running as root, and its rights cannot be dropped here ({name})")
