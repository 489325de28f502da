"""Runs the commands that the user configured for a service: by the shell, in the root, within bounds.

Each runs in a session of its own, so that one that takes too long is ended with all that it started. What it leaves
behind when it ends by itself stays: that is how a server is started.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from git_envhist.config import Service, Settings
from git_envhist.disk import state_directory
from git_envhist.errors import Damaged
from git_envhist.git.process import LOCAL_VARIABLES
from git_envhist.lazy import pattern
from git_envhist.objects.trees import decode_tree
from git_envhist.platform import free_bytes
from git_envhist.secrets.seal import SealingKey, unseal
from git_envhist.snapshots.layout import DIRECTORY, SERVICES, ObjectSink, TreeEntry
from git_envhist.snapshots.names import RESERVED

if TYPE_CHECKING:
    import subprocess

    from git_envhist.git.cat_file import CatFile
    from git_envhist.probes.dumps import Told

UNDER_WAY = "GIT_ENVHIST_SERVICE"
"""Tells a command which service it is for; what captures under it asks no service again."""
PATIENCE = 600.0
"""So many seconds a command has."""
GRACE = 3.0
PAUSE = 0.02
TAIL = 2048
MAX_SAID = 1 << 24
"""So many bytes of what a command says are on the disk at a time: what one that failed said last is enough."""
BLOCK = 512
MAX_WORD = 200
FAILURE = pattern(rb"\b(?:error|fatal|failed|failure|refused|denied|cannot|not found)\b", re.IGNORECASE)


class ServiceCommandContext(NamedTuple):
    """Where and how the commands of services run."""

    root: str
    environ: Mapping[str, str]
    common_dir: str
    """The repository whose configuration names the commands."""
    seconds: float = PATIENCE


def run(
    way: ServiceCommandContext, name: str, command: str, *, source: IO[bytes] | None = None
) -> str | None:
    """Run a command to its end, with some bytes as its input; why it failed, or None."""
    return _run(way, name, command, source, None, 0)


def run_into(way: ServiceCommandContext, name: str, command: str, target: IO[bytes], most: int) -> str | None:
    """Run a command and keep what it writes, at most so many bytes; why that failed, or None."""
    return _run(way, name, command, None, target, most)


def _run(
    way: ServiceCommandContext,
    name: str,
    command: str,
    source: IO[bytes] | None,
    target: IO[bytes] | None,
    most: int,
) -> str | None:
    from git_envhist.consent import (  # loaded late: hardly anybody has a service
        NOT_APPROVED,
        approve,
        may_run,
    )

    if not may_run(way.environ, way.common_dir, command):
        return NOT_APPROVED
    approve(way.environ, way.common_dir, command)
    # Files, no pipes: a server that was started keeps its outputs open for as long as it runs.
    import subprocess  # loaded late: hardly anybody has a service
    from tempfile import TemporaryFile  # loaded late: hardly anybody has a service

    with TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=way.root,
                env=_environment(way, name),
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=said if target is None else target,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            return f"it could not be started: {error.strerror}"
        too_much = _watch(child, way.seconds, lambda: target is not None and _size(target) > most, said)
        if too_much is not None:
            return too_much
        return _told(child.returncode, said)


def _watch(
    child: subprocess.Popen[bytes], seconds: float, is_too_much: Callable[[], bool], said: IO[bytes]
) -> str | None:
    """Wait for its end; why it had to be ended, or None."""
    import subprocess  # loaded late: hardly anybody has a service

    deadline = time.monotonic() + seconds
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(PAUSE)
            _forget_most(said)
            if is_too_much():
                _end(child)
                return "it wrote more than may be kept"
            if child.returncode is not None:
                return None
            if time.monotonic() > deadline:
                _end(child)
                return f"it took longer than {seconds:g} seconds"
    except BaseException:
        # Ctrl-C does not reach another session.
        _end(child)
        raise


def _forget_most(said: IO[bytes]) -> None:
    if os.fstat(said.fileno()).st_blocks * BLOCK > MAX_SAID:
        # Whoever writes goes on where it was: what was before is a hole.
        os.ftruncate(said.fileno(), 0)


def _end(child: subprocess.Popen[bytes]) -> None:
    import subprocess  # loaded late: hardly anybody has a service

    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)


def _told(status: int, said: IO[bytes]) -> str | None:
    from git_envhist.secrets.masking import mask_secrets  # loaded late: hardly anybody has a service

    if status == 0:
        return None
    how = f"it ended with status {status}" if status > 0 else f"it was ended by signal {-status}"
    size = _size(said)
    tail = os.pread(said.fileno(), TAIL, max(0, size - TAIL)).replace(b"\0", b"").strip().splitlines()
    words = mask_secrets(telling_line(tail)).decode("utf-8", "replace")[:MAX_WORD]
    return f"{how}: {words}" if words else how


def telling_line(lines: Sequence[bytes]) -> bytes:
    """Return the line of a program's last words that says what failed: hints and questions follow it."""
    told = [line.strip() for line in lines if line.strip()]
    found = [line for line in told if FAILURE.search(line)]
    return (found or told[::-1] or [b""])[0]


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _environment(way: ServiceCommandContext, name: str) -> dict[str, str]:
    """The caller's, without what was set for one git command alone."""
    without = {os.fsdecode(variable) for variable in LOCAL_VARIABLES}
    kept = {variable: value for variable, value in way.environ.items() if variable not in without}
    return {**kept, "PWD": way.root, UNDER_WAY: name}


# What services gave of their state, on its way into a snapshot.


class Dump(NamedTuple):
    """What a service gave: a file without a name."""

    name: str
    file: IO[bytes]
    told: Told
    """The tables, rows or keys in it."""


class Dumps(NamedTuple):
    """What all of them gave, and why some did not."""

    taken: tuple[Dump, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    def warnings(self) -> list[str]:
        return [f"the state of service '{name}' is not kept: {why}" for name, why in self.failed]


NONE = Dumps()


# Asks each service for its state before a capture: best effort, within bounds, while no lock is held.

KEPT_FREE = 10
"""A tenth of the disk is never taken by what is only on its way."""
SECONDS = 60.0
"""So long a capture waits for one service; it waits for all of them before it begins."""
EMPTY = "it gave nothing"


@contextmanager
def dump_services(
    services: Iterable[Service], way: ServiceCommandContext, settings: Settings, state: str
) -> Iterator[Dumps]:
    """The states of services, for as long as the context is open."""
    from tempfile import TemporaryFile  # loaded late: hardly anybody has a service

    from git_envhist.probes.dumps import describe  # loaded late: hardly anybody has a service

    asked = [service for service in services if service.dump is not None]
    # A dump that captures is not dumped again.
    if not asked or way.environ.get(UNDER_WAY):
        yield NONE
        return
    with ExitStack() as stack:
        taken, failed = [], []
        for service in asked:
            file = stack.enter_context(TemporaryFile(dir=state_directory(state)))
            why = _dump(service, way, settings, state, file)
            if why is None:
                taken.append(Dump(service.name, file, describe(service.name, file)))
            else:
                failed.append((service.name, why))
        yield Dumps(tuple(taken), tuple(failed))


def _dump(
    service: Service, way: ServiceCommandContext, settings: Settings, state: str, file: IO[bytes]
) -> str | None:
    assert service.dump is not None
    room = free_bytes(state, KEPT_FREE)
    most = settings.budget if room is None else min(settings.budget, room)
    why = run_into(way, service.name, service.dump, file, most)
    if why is None and not os.fstat(file.fileno()).st_size:
        return EMPTY
    return why


# How the state of a service stands in a snapshot: cut into pieces, each deflated and sealed, below `services/<name>`.
#
# Cut by content, as big files are, so that a dump that changed a little shares the rest with the one before, but under
# the key (`secretcuts`): the lengths of the sealed pieces confirm no guess. A state holds what its users entrusted to
# the service: nothing of it is stored in the clear, and without a key nothing of it is stored.

KIND = b"service"
COPY_BLOCK = 1 << 20
NO_KEY = "no key can be kept here to seal it"
FindKey = Callable[[str], SealingKey | None]


def keep_dumps(
    sink: ObjectSink, dumps: Dumps, key: SealingKey | None, warnings: list[str]
) -> dict[bytes, TreeEntry]:
    """Store what services gave; where it hangs below the reserved name."""
    from git_envhist.snapshots.sealed_chunks import (
        store_sealed_chunks,  # loaded late: hardly anybody has a service
    )

    warnings += dumps.warnings()
    found: dict[bytes, TreeEntry] = {}
    for dump in dumps.taken:
        name = os.fsencode(dump.name)
        if key is None:
            warnings.append(f"the state of service '{dump.name}' is not kept: {NO_KEY}")
            continue
        tree = store_sealed_chunks(sink, _blocks(dump.file), key, name, KIND)
        found[SERVICES + b"/" + name] = (b"", DIRECTORY, tree)
    return found


def kept_services(reader: CatFile, tree: str) -> dict[str, bytes]:
    """The services whose state a snapshot holds, and the tree of each."""
    answer = reader.read(f"{tree}:{(RESERVED + b'/' + SERVICES).decode()}")
    if answer is None or answer.kind != "tree":
        return {}
    listed = decode_tree(answer.data, len(tree) // 2)
    return {os.fsdecode(name): oid for name, mode, oid in listed if mode == DIRECTORY}


def read_state(reader: CatFile, find_key: FindKey, name: str, tree: bytes) -> Iterator[bytes]:
    """The state of a service, piece by piece; `SealingError` where the key is not here."""
    from git_envhist.snapshots.sealed_chunks import (
        read_sealed_chunks,  # loaded late: hardly anybody has a service
    )

    place = os.fsencode(name)

    def open_sealed(sealed: bytes) -> bytes:
        return unseal(find_key, place, KIND, sealed)

    found = reader.read(tree.hex())
    if found is None or found.kind != "tree":
        raise Damaged(f"the state of service '{name}' is missing", hint="restore another snapshot")
    yield from read_sealed_chunks(
        reader, found.data, len(tree), open_sealed, f"the state of service '{name}'"
    )


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(COPY_BLOCK):
        yield block
