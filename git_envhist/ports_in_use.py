"""Find ports that the `.env` files of a directory name and that a server uses, e.g. one in the original of a fork."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from git_envhist.dotenv import read_assignments
from git_envhist.lazy import pattern
from git_envhist.platform import open_file_only
from git_envhist.probes.processes import tcp_listeners

FILES = (".env", ".env.local", ".env.development", ".env.development.local", ".envrc")
NAME = pattern(rb"(?:[A-Z0-9_]+_)?PORT")
VALUE = pattern(rb"[\"']?([1-9][0-9]{1,4})[\"']?")
MAX_SIZE = 1 << 20


def ports_in_use(root: str) -> Iterator[str]:
    """Yield a warning for each variable with the number of a port on which a server listens."""
    named = list(_named_ports(root))
    listening = {listener.port for listener in tcp_listeners()} if named else set()
    for port, name, file in named:
        if port in listening:
            yield f"port {port} is in use ({name} in {file})"


def _named_ports(root: str) -> Iterator[tuple[int, str, str]]:
    for name in FILES:
        with suppress(OSError), open(os.path.join(root, name), "rb", opener=open_file_only) as file:
            for variable, value in read_assignments(file.read(MAX_SIZE)).items():
                number = VALUE.fullmatch(value)
                if number and NAME.fullmatch(variable):
                    yield int(number[1]), variable.decode("ascii"), name
