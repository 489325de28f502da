"""Run git-envhist's programs without a new interpreter: fork them from a process that has loaded them."""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.mutation.calls import running_test, trace_process

CHECKOUT = Path(__file__).resolve().parents[2]
MAX_REQUEST = 1 << 20
EXIT_FAILED = 70
"""EX_SOFTWARE: the program could not be started, or raised what it should have reported."""
MODULES = ("capture", "checks", "cli", "diff", "fork", "git", "handlers", "history", "integrations", "maintenance",
           "objects", "probes", "recent_changes", "remote", "restore", "retention", "rewrite", "service_dumps",
           "snapshots", "tracking", "worktree", "api")  # fmt: skip
"""Modules and packages of git-envhist that are loaded before the first request; the others are loaded when used."""
LIBRARIES = ("click", "pathspec", "rich.console", "rich.text", "zstandard", "asyncio", "selectors", "traceback",
             "cryptography.hazmat.primitives.ciphers.aead", "dulwich.object_store", "dulwich.pack")  # fmt: skip
DECISIVE = ("GIT_ENVHIST_TRACE", "GIT_ENVHIST_WITHOUT", "PYTHON", "LC_", "LANG", "LD_")
"""Variables (by prefix) that Python or git-envhist's modules read while they are loaded."""
LIMITS = (
    resource.RLIMIT_AS,
    resource.RLIMIT_DATA,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_STACK,
)


@dataclass
class Running:
    """A program that the server has started."""

    _reply: socket.socket

    def wait(self) -> int:
        """Return the exit status, negative for a signal, when the program has ended."""
        with self._reply:
            said = self._reply.recv(256)
        if not said:
            raise ChildProcessError("the program server ended")
        return int(said)


class ProgramServer:
    """The client side: start the server process and send requests to it. Safe to use from several threads."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # The server detaches at once, so that a test which looks at its own children does not see it.
            subprocess.run(
                [sys.executable, "-P", "-c", START.format(str(CHECKOUT)), str(theirs.fileno())],
                cwd=CHECKOUT,
                env=dict(os.environ if environment is None else environment),
                pass_fds=[theirs.fileno()],
                check=True,
            )

    def __enter__(self) -> ProgramServer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server when all requested programs have been started; these continue."""
        self._socket.close()

    def start(
        self,
        words: Sequence[str | bytes],
        cwd: str | os.PathLike[str],
        environment: Mapping[str, str],
        descriptors: tuple[int, int, int],
    ) -> Running:
        """Start a program by the name of its script."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        umask = os.umask(0o022)
        os.umask(umask)
        request = {
            "words": [os.fsdecode(word) for word in words],
            "cwd": os.fspath(cwd),
            "environment": dict(environment),
            "umask": umask,
            "recording": running_test(),
        }
        with theirs:
            passed = array.array("i", (*descriptors, theirs.fileno()))
            self._socket.sendmsg(
                [json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
            )
        return Running(ours)

    def run(
        self,
        words: Sequence[str | bytes],
        cwd: str | os.PathLike[str],
        environment: Mapping[str, str],
        input: bytes = b"",
    ) -> tuple[int, bytes, bytes]:
        """Run a program to its end; return its status and its output, including that of its children."""
        pipes = [os.pipe() for _ in range(3)]
        (for_input, to_input), (from_out, for_out), (from_err, for_err) = pipes
        try:
            running = self.start(words, cwd, environment, (for_input, for_out, for_err))
        finally:
            for descriptor in (for_input, for_out, for_err):
                os.close(descriptor)
        written = _communicate(to_input, input, (from_out, from_err))
        return running.wait(), *written


def _communicate(to_input: int, input: bytes, outputs: tuple[int, int]) -> tuple[bytes, bytes]:
    """Feed one pipe and read two until both are closed; closes all three."""
    gathered: dict[int, list[bytes]] = {descriptor: [] for descriptor in outputs}
    rest = memoryview(input)
    with selectors.DefaultSelector() as selector:
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
        if rest:
            os.set_blocking(to_input, False)
            selector.register(to_input, selectors.EVENT_WRITE)
        else:
            os.close(to_input)
        while selector.get_map():
            for key, _ in selector.select():
                if key.fd == to_input:
                    with suppress(BlockingIOError):
                        try:
                            rest = rest[os.write(to_input, rest) :]
                        except BrokenPipeError:
                            rest = rest[:0]
                    if not rest:
                        selector.unregister(to_input)
                        os.close(to_input)
                elif read := os.read(key.fd, 1 << 16):
                    gathered[key.fd].append(read)
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    out, err = (b"".join(gathered[descriptor]) for descriptor in outputs)
    return out, err


def conditions(environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Return everything that a program inherits at its start and that the server cannot change for one request."""
    variables = {name: value for name, value in environment.items() if name.startswith(DECISIVE)}
    limits = [resource.getrlimit(limit) for limit in LIMITS]
    ignored = [
        signal.getsignal(number) is signal.SIG_IGN
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ]
    return (variables, limits, ignored, os.geteuid(), os.getegid())


# The server's side.

START = "import sys; sys.path.insert(0, {0!r}); from tests.support.program_server import serve; serve(int(sys.argv[1]))"


def serve(descriptor: int) -> None:
    """Answer requests in a child until the other end is closed."""
    if os.fork():
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _load_modules()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as asked, selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    _report_end(key.data)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    continue
                request, descriptors, _, _ = socket.recv_fds(asked, MAX_REQUEST, 4)
                if not request:
                    return
                child = os.fork()
                if not child:
                    _become_program(json.loads(request), descriptors)
                for inherited in descriptors[:3]:
                    os.close(inherited)
                selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, descriptors[3]))


def _report_end(ended: tuple[int, int]) -> None:
    child, reply = ended
    _, status = os.waitpid(child, 0)
    with suppress(OSError), socket.socket(fileno=reply) as answer:
        answer.send(str(os.waitstatus_to_exitcode(status)).encode())


def _load_modules() -> None:
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    for name in MODULES:
        module = importlib.import_module(f"git_envhist.{name}")
        for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}."):
            importlib.import_module(found.name)
    importlib.import_module("git_envhist.cli.main")


def _become_program(request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    from git_envhist.cli import main

    try:
        _prepare_process(request, descriptors)
        if request["recording"]:
            trace_process(*request["recording"])
        getattr(main, sys.argv[0].removeprefix("git-"))()
    except BaseException:
        traceback.print_exc()
    os._exit(EXIT_FAILED)


def _prepare_process(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    # Descriptors 0 to 2 are open here, so no descriptor that was passed has one of these numbers.
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 1 << 16)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    # A stream is line-buffered if its new descriptor is a terminal.
    for name, mode, number in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        stream = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        fresh = open(number, mode, buffering, encoding=stream.encoding, errors=stream.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, fresh)
    sys.argv[:] = request["words"]
