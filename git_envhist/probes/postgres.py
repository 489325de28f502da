"""Read PostgreSQL data directories: version, state of the data, whether a server was started.

`global/pg_control` has the state of the data. `postmaster.pid` exists from a start to the clean stop, so it
also remains after a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed

PROBE = "postgres"
VERSION = re.compile(rb"([0-9]{1,2}(?:\.[0-9]{1,2})?)\s*\Z")
PORT_LINE = 3
STATE_AT, SMALLEST_CONTROL = 16, 24
CONTROL_VERSIONS = range(800, 4000)
STATES = (
    *("starting up", "shut down", "shut down in recovery", "shutting down"),
    *("in crash recovery", "in archive recovery", "in production"),
)
SETTINGS = (b"postgresql.auto.conf", b"postgresql.conf", b"pg_hba.conf")
"""The top of a data directory has at least one of these; `PG_VERSION` also exists in each database."""


def wants(directory: bytes) -> bool:
    return True


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield version and server state, or the state of the data."""
    top, _, name = directory.rpartition(b"/")
    if name == b"global" and b"pg_control" in files:
        state = _state(files[b"pg_control"].data or b"")
        if state:
            yield _fact(top, "data", state, directory)
    elif b"PG_VERSION" in files and any(one in files for one in SETTINGS):
        version = VERSION.match(files[b"PG_VERSION"].data or b"")
        if version is not None:
            yield _fact(directory, "version", version[1].decode("ascii"), directory)
            pid = files.get(b"postmaster.pid")
            yield _fact(directory, "server", _server(pid.data) if pid is not None else "stopped", directory)


def _state(control: bytes) -> str:
    number = int.from_bytes(control[STATE_AT : STATE_AT + 4], "little")
    version = int.from_bytes(control[8:12], "little")
    if len(control) < SMALLEST_CONTROL or version not in CONTROL_VERSIONS or number >= len(STATES):
        return ""
    return STATES[number]


def _server(pid: bytes | None) -> str:
    lines = (pid or b"").split(b"\n")
    port = lines[PORT_LINE].strip() if len(lines) > PORT_LINE else b""
    return f"started, port {port.decode('ascii')}" if port.isdigit() and len(port) < 6 else "started"


def _fact(place: bytes, name: str, value: str, directory: bytes) -> Fact:
    key = place.decode("utf-8", "surrogateescape") + "/" + name if place else name
    return Fact(PROBE, key, value, EnvPath(directory))
