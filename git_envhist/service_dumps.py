"""Dump the state of services and store it in snapshots; run the commands configured for services.

Commands run in a shell in the root, in a session of their own, so that the whole session can be killed after
a timeout. Processes that remain after a command has ended keep running: a restore command may start a server.
A dump is cut into chunks, compressed and sealed; without a key it is not stored.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple

from git_envhist.config import Service, Settings
from git_envhist.disk import read_exactly, state_directory
from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.objects.trees import decode_tree
from git_envhist.platform import free_bytes
from git_envhist.secrets.seal import SealingKey, unseal
from git_envhist.snapshots.layout import DIRECTORY, SERVICES, ObjectSink, TreeEntry
from git_envhist.snapshots.stored_names import RESERVED

if TYPE_CHECKING:
    from git_envhist.child_command import ChildCommand
    from git_envhist.git.cat_file import CatFile
    from git_envhist.probes.dumps import DumpContents

SERVICE_VARIABLE = "GIT_ENVHIST_SERVICE"
"""Environment variable with the name of the service, set for its commands; a capture inside such a command
dumps no service."""
TIMEOUT = 600.0
"""Timeout of a command in seconds."""
POLL_SECONDS = 0.02
TAIL = 2048
MAX_OUTPUT = 1 << 24
"""Maximum size of a command's output on disk; of a failed command only the end is needed."""
BLOCK = 512
MAX_WORD = 200
FAILURE = pattern(rb"\b(?:error|fatal|failed|failure|refused|denied|cannot|not found)\b", re.IGNORECASE)


class ServiceCommandContext(NamedTuple):
    """Directory, environment and timeout for service commands."""

    root: str
    environ: Mapping[str, str]
    common_dir: str
    """The repository with the configuration of the commands."""
    seconds: float = TIMEOUT


def run(
    context: ServiceCommandContext, name: str, command: str, *, source: IO[bytes] | None = None
) -> str | None:
    """Run a command with `source` as its input; return why it failed, or None."""
    return _run(context, name, command, source, None, 0)


def run_into(
    context: ServiceCommandContext, name: str, command: str, target: IO[bytes], max_bytes: int
) -> str | None:
    """Run a command and write its output to `target`, at most `max_bytes`; return why it failed, or None."""
    return _run(context, name, command, None, target, max_bytes)


def _run(
    context: ServiceCommandContext,
    name: str,
    command: str,
    source: IO[bytes] | None,
    target: IO[bytes] | None,
    max_bytes: int,
) -> str | None:
    from git_envhist.consent import (  # loaded late: few users have services
        NOT_APPROVED,
        approve_command,
        may_run,
    )

    if not may_run(context.environ, context.common_dir, command):
        return NOT_APPROVED
    approve_command(context.environ, context.common_dir, command)
    # Use files, not pipes: a server started by the command keeps its outputs open.
    import subprocess  # loaded late: few users have services
    from tempfile import TemporaryFile  # loaded late: likewise

    from git_envhist.child_command import SHELL, ChildCommand, command_environment  # loaded late: likewise

    with TemporaryFile() as output:
        try:
            child = ChildCommand.start(
                [*SHELL, command],
                directory=context.root,
                environ={**command_environment(context.environ, context.root), SERVICE_VARIABLE: name},
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=output if target is None else target,
                stderr=output,
                session=True,
            )
        except OSError as error:
            return f"it cannot be started: {error.strerror}"
        killed = _watch(
            child, context.seconds, lambda: target is not None and _size(target) > max_bytes, output
        )
        return _failure(child.wait(), output) if killed is None else killed


def _watch(
    child: ChildCommand, seconds: float, is_too_large: Callable[[], bool], output: IO[bytes]
) -> str | None:
    """Wait for the command; return why it was killed, or None."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            has_exited = child.follow(_ignore, deadline=time.monotonic() + POLL_SECONDS)
            _truncate_output(output)
            if is_too_large():
                child.end_group()
                return "its output exceeds the size limit"
            if has_exited:
                return None
            if time.monotonic() > deadline:
                child.end_group()
                return f"it took longer than {seconds:g} seconds"
    except BaseException:
        # Ctrl-C does not reach another session.
        child.end_group()
        raise


def _ignore(_source: int, _data: bytes) -> None:
    """Ignore output: the command writes it to files."""


def _truncate_output(output: IO[bytes]) -> None:
    if os.fstat(output.fileno()).st_blocks * BLOCK > MAX_OUTPUT:
        # The command continues at its offset; everything before becomes a hole.
        os.ftruncate(output.fileno(), 0)


def _failure(status: int, output: IO[bytes]) -> str | None:
    from git_envhist.secrets.masking import mask_secrets  # loaded late: few users have services

    if status == 0:
        return None
    status_text = f"it exited with status {status}" if status > 0 else f"it was killed by signal {-status}"
    size = _size(output)
    tail = read_exactly(output.fileno(), TAIL, max(0, size - TAIL)).replace(b"\0", b"").strip().splitlines()
    words = mask_secrets(failure_line(tail)).decode("utf-8", "replace")[:MAX_WORD]
    return f"{status_text}: {words}" if words else status_text


def failure_line(lines: Sequence[bytes]) -> bytes:
    """Return the line of a program's last output that describes the failure; hints usually follow it."""
    texts = [line.strip() for line in lines if line.strip()]
    found = [line for line in texts if FAILURE.search(line)]
    return (found or texts[::-1] or [b""])[0]


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


# Dumps before they are stored.


class Dump(NamedTuple):
    """The dump of one service in a temporary file."""

    name: str
    file: IO[bytes]
    contents: DumpContents
    """Its tables, rows or keys."""


class Dumps(NamedTuple):
    """The dumps of all services, and (service, reason) of those that failed."""

    taken: tuple[Dump, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    def warnings(self) -> list[str]:
        return [f"the state of service '{name}' is not stored: {why}" for name, why in self.failed]


NONE = Dumps()


# Services are dumped before a capture, with time and size limits, without holding a lock.

KEPT_FREE = 10
"""Fraction of the disk that dumps never use: 1/10."""
DUMP_TIMEOUT = 60.0
"""Timeout of one dump; a capture waits for all dumps before it starts."""
EMPTY = "its dump is empty"


@contextmanager
def dump_services(
    services: Iterable[Service], context: ServiceCommandContext, settings: Settings, state: str
) -> Iterator[Dumps]:
    """Dump the services; the files exist while the context is open."""
    from tempfile import TemporaryFile  # loaded late: few users have services

    from git_envhist.probes.dumps import describe  # loaded late: few users have services

    asked = [service for service in services if service.dump is not None]
    # A capture started by a dump command must not dump again.
    if not asked or context.environ.get(SERVICE_VARIABLE):
        yield NONE
        return
    with ExitStack() as stack:
        taken, failed = [], []
        for service in asked:
            file = stack.enter_context(TemporaryFile(dir=state_directory(state)))
            why = _dump(service, context, settings, state, file)
            if why is None:
                taken.append(Dump(service.name, file, describe(service.name, file)))
            else:
                failed.append((service.name, why))
        yield Dumps(tuple(taken), tuple(failed))


def _dump(
    service: Service, context: ServiceCommandContext, settings: Settings, state: str, file: IO[bytes]
) -> str | None:
    assert service.dump is not None
    available = free_bytes(state, KEPT_FREE)
    max_bytes = settings.budget if available is None else min(settings.budget, available)
    why = run_into(context, service.name, service.dump, file, max_bytes)
    if why is None and not os.fstat(file.fileno()).st_size:
        return EMPTY
    return why


# Storage of a dump below `services/<name>`: chunks, each compressed and sealed.
# Chunk boundaries depend on the content and on the key, so a slightly changed dump shares most chunks with
# the one before, while the lengths of sealed chunks confirm no guess. Nothing of a dump is stored unsealed.

KIND = b"service"
COPY_BLOCK = 1 << 20
NO_KEY = "there is no key to seal it"
FindKey = Callable[[str], SealingKey | None]


def store_dumps(
    sink: ObjectSink, dumps: Dumps, key: SealingKey | None, warnings: list[str]
) -> dict[bytes, TreeEntry]:
    """Store the dumps; return their entries below the reserved name."""
    from git_envhist.snapshots.sealed_chunks import (
        store_sealed_chunks,  # loaded late: few users have services
    )

    warnings += dumps.warnings()
    found: dict[bytes, TreeEntry] = {}
    for dump in dumps.taken:
        name = os.fsencode(dump.name)
        if key is None:
            warnings.append(f"the state of service '{dump.name}' is not stored: {NO_KEY}")
            continue
        tree = store_sealed_chunks(sink, _blocks(dump.file), key, name, KIND)
        found[SERVICES + b"/" + name] = (b"", DIRECTORY, tree)
    return found


def stored_services(reader: CatFile, tree: str) -> dict[str, bytes]:
    """Return the services with a stored state, and the tree of each."""
    answer = reader.read(f"{tree}:{(RESERVED + b'/' + SERVICES).decode()}")
    if answer is None or answer.kind != "tree":
        return {}
    listed = decode_tree(answer.data, len(tree) // 2)
    return {os.fsdecode(name): oid for name, mode, oid in listed if mode == DIRECTORY}


def read_state(reader: CatFile, find_key: FindKey, name: str, tree: bytes) -> Iterator[bytes]:
    """Yield the state of a service in chunks. Raise `SealingError` if the key is missing."""
    from git_envhist.snapshots.sealed_chunks import (
        read_sealed_chunks,  # loaded late: few users have services
    )

    name_bytes = os.fsencode(name)

    def open_sealed(sealed: bytes) -> bytes:
        return unseal(find_key, name_bytes, KIND, sealed)

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
