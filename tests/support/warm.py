"""Our programs without the start of an interpreter: each is forked from a process that has loaded them.

For tests that run the same command again and again, and ask what it says on terminals of many kinds. Whatever a program
does from its first line to its last is done in a process of its own, with the directory, the environment and the three
descriptors that it is given; what is left out is Python's own start and the imports.
"""

from __future__ import annotations

import json
import os
import pkgutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType

CHECKOUT = Path(__file__).resolve().parents[2]
LONGEST = 1 << 20
LOADED = ("capture", "capturing", "cli", "facts", "history", "restore", "restoring", "store", "triggers")
"""The rooms that nearly every command needs some of; others are loaded by whoever needs them."""


class Warm:
    """The process that programs are forked from; asks it for one after the other."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=CHECKOUT,
                pass_fds=[theirs.fileno()],
            )

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._socket.close()
        self._process.wait()

    def begin(
        self,
        words: Sequence[str],
        cwd: str | os.PathLike[str],
        environment: Mapping[str, str],
        descriptors: tuple[int, int, int],
    ) -> None:
        """Begin a program; `ended` gives its status."""
        wanted = {"words": list(words), "cwd": os.fspath(cwd), "environment": dict(environment)}
        socket.send_fds(self._socket, [json.dumps(wanted).encode()], list(descriptors))

    def ended(self) -> int:
        """The status of the one that was begun, when it has ended."""
        return int(self._socket.recv(16))


def main() -> None:
    """Answer until nobody asks any more."""
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        _load()
        while True:
            wanted, descriptors, _, _ = socket.recv_fds(asked, LONGEST, 3)
            if not wanted:
                return
            child = os.fork()
            if not child:
                asked.close()
                _become(json.loads(wanted), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            _, status = os.waitpid(child, 0)
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())


def _load() -> None:
    for room in LOADED:
        package = import_module(f"git_envhist.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)


def _become(wanted: dict[str, object], descriptors: Sequence[int]) -> None:
    from git_envhist.cli import entry

    words, cwd, environment = wanted["words"], wanted["cwd"], wanted["environment"]
    assert isinstance(words, list)
    assert isinstance(cwd, str)
    assert isinstance(environment, dict)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    getattr(entry, words[0].removeprefix("git-"))()


if __name__ == "__main__":
    main()
