"""Programs that some tests need and a bare machine lacks; a test without its program is skipped as `needs <program>`.

The summary at the end of a run counts these skips by program, with the command that installs them (`tests/summary.py`).
"""

from __future__ import annotations

import shutil

import pytest

PREFIX = "needs "
"""A skip reason that starts with this is counted by program, and not printed separately."""

PACKAGES = {
    "zstd": "zstd",
    "ps": "procps",
    "patch": "patch",
    "bash-completion": "bash-completion",
    "busybox": "busybox-static",
    "cargo": "cargo",
    "cc": "gcc",
    "chromium": "chromium",
    "cmake": "cmake",
    "dockerd": "docker.io",
    "dpkg-deb": "dpkg",
    "filefrag": "e2fsprogs",
    "fish": "fish",
    "initdb": "postgresql",
    "make": "make",
    "man": "man-db",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.xfs": "xfsprogs",
    "ninja": "ninja-build",
    "npm": "npm",
    "pg_dump": "postgresql",
    "pg_isready": "postgresql",
    "podman": "podman",
    "postgres": "postgresql",
    "psql": "postgresql",
    "python3-lmdb": "python3-lmdb",
    "python3-plyvel": "python3-plyvel",
    "redis-cli": "redis-tools",
    "redis-server": "redis-server",
    "rsync": "rsync",
    "runc": "runc",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "strace": "strace",
    "tmux": "tmux",
    "unshare": "util-linux",
    "zsh": "zsh",
}
"""Program -> the Debian package that has it."""


def require(program: str, path: str | None = None) -> str:
    """Return where a program is installed; skip the test if it is not."""
    found = shutil.which(program, path=path)
    if found is None:
        skip_without(program)
    return found


def skip_without(program: str) -> None:
    """Skip the test because a program is missing."""
    raise pytest.skip.Exception(f"{PREFIX}{program}")


def needs(*programs: str) -> pytest.MarkDecorator:
    """Mark a test that is skipped where one of the programs is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=PREFIX + " ".join(missing))
