"""What services gave of their state, on its way into a snapshot."""

from __future__ import annotations

from typing import IO, NamedTuple

from git_envhist.facts.dumps import Told


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
