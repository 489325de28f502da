"""List the packages of a system inside the environment: a chroot or an unpacked image.

The place is the root of that system: `rootfs` for `rootfs/var/lib/dpkg/status`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.apk import parse_installed
from git_envhist.probes.base import Files, Keyed, Parts, ProbedFile, RandomAccessFile
from git_envhist.probes.dpkg import parse_status
from git_envhist.probes.fact_keys import key_of
from git_envhist.probes.rpm import parse_database

PROBE = "rootfs"


def _bytes(file: ProbedFile) -> bytes:
    return file.data if file.data is not None else b"".join(data for _, data in file.parts)


def _text(file: ProbedFile) -> str:
    return _bytes(file).decode("utf-8", "replace")


READERS: dict[bytes, tuple[bytes, Callable[[ProbedFile], Iterable[Fact]]]] = {
    b"var/lib/dpkg": (b"status", lambda file: parse_status(_text(file))),
    b"lib/apk/db": (b"installed", lambda file: parse_installed(_text(file))),
    b"usr/lib/apk/db": (b"installed", lambda file: parse_installed(_text(file))),
    b"var/lib/rpm": (b"rpmdb.sqlite", lambda file: parse_database(_bytes(file))),
    b"usr/lib/sysimage/rpm": (b"rpmdb.sqlite", lambda file: parse_database(_bytes(file))),
}
LISTS = frozenset(name for name, _ in READERS.values())
MAX_SIZE = 100 << 20
STATUS_DIRECTORY = b"var/lib/dpkg/status.d"
"""Images without a package manager have one file per package here."""


def wants(directory: bytes) -> bool:
    return any(_ends_with(directory, below) for below in (*READERS, STATUS_DIRECTORY))


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return whole lists that are too large to be read otherwise: rpm's database has 20 MiB and more."""
    large = {name: file for name, file in files.items() if name in LISTS and file.size <= MAX_SIZE}
    return {name: ((0, file.read(0, file.size)),) for name, file in large.items()}


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the packages of one system."""
    if _ends_with(directory, STATUS_DIRECTORY):
        for file in files.values():
            # These files have no status field: every listed package is installed.
            yield from _relocated(
                directory, STATUS_DIRECTORY, parse_status("Status: install ok installed\n" + _text(file))
            )
        return
    # The longest match wins: `usr/lib/apk/db` also ends with `lib/apk/db`.
    below = max((below for below in READERS if _ends_with(directory, below)), key=len, default=None)
    if below is not None and READERS[below][0] in files:
        name, read = READERS[below]
        yield from _relocated(directory, below, read(files[name]))


def _relocated(directory: bytes, below: bytes, facts: Iterable[Fact]) -> Iterator[Fact]:
    place = directory[: -len(below)].rstrip(b"/")
    for fact in facts:
        yield Fact(PROBE, key_of(place, fact.key), fact.value, EnvPath(directory), fact.by, fact.auto)


def _ends_with(directory: bytes, below: bytes) -> bool:
    return directory == below or directory.endswith(b"/" + below)
