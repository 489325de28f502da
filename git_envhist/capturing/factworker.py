"""Runs the leaves of probes, in a process of its own: what they do there can be ended at any time.

Its methods are generators of frames, as those of every worker of a capture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, cast

from git_envhist.capture.lines import receive, serve
from git_envhist.capture.pool import Frame, Job
from git_envhist.capture.seal import keyed_hash
from git_envhist.facts import PROBES, machine_leaf, place_leaf, tree_leaf
from git_envhist.facts.keys import key_of
from git_envhist.facts.probe import EnvironmentProbe, File, FileProbe, MachineProbe, ProbeTarget
from git_envhist.model import UNREAD, EnvPath, Fact
from git_envhist.store.facts import fact_line
from git_envhist.store.keys import Key

FINGERPRINT_BYTES = 8
FAILED = "the probe failed"
"""What it raised may hold bytes of the files."""
MOST_FACTS = 200_000
"""Of one directory, or of the machine."""


class ProbeWorker:
    """Asks leaves, as it is told."""

    def __init__(self, job: Job) -> None:
        self._place = ProbeTarget(*cast(tuple[str, str, str], job["place"]))
        secret = cast(bytes | None, job["key"])
        self._key = Key.of(secret) if secret is not None else None

    def call(self, method: str, arguments: tuple[Any, ...]) -> Iterator[Frame]:
        frames: Iterator[Frame] = getattr(self, "do_" + method)(*arguments)
        return frames

    def close(self) -> None:
        """There is nothing to let go of."""

    def do_machine(self, name: str) -> Iterator[Frame]:
        """("lines", those of a probe of the machine), or ("failed", b"", why)."""
        probe = PROBES[name]
        assert isinstance(probe, MachineProbe)
        try:
            yield ("lines", _lines(machine_leaf(probe).facts_of(self._place.root)))
        except Exception as wrong:
            yield ("failed", b"", _why(wrong))

    def do_place(self, name: str) -> Iterator[Frame]:
        """The same of a probe of what belongs to the environment beside its files."""
        probe = PROBES[name]
        assert isinstance(probe, EnvironmentProbe)
        try:
            yield ("lines", _lines(place_leaf(probe).facts_of(self._place, self._keyed)))
        except Exception as wrong:
            yield ("failed", b"", _why(wrong))

    def do_tree(self, name: str, directories: list[tuple[bytes, list[tuple[Any, ...]]]]) -> Iterator[Frame]:
        """("lines", those of some directories), and ("failed", directory, why) for each that could not be read."""
        probe = PROBES[name]
        assert isinstance(probe, FileProbe)
        leaf = tree_leaf(probe)
        for directory, files in directories:
            given = {name: File(*told) for name, *told in files}
            try:
                yield ("lines", _lines(leaf.facts_of(directory, given, self._keyed)))
            except Exception as wrong:
                # So that what was told of it before is not taken for gone.
                place = Fact(name, key_of(directory, UNREAD), FAILED, EnvPath(directory))
                yield ("lines", [fact_line(place)])
                yield ("failed", directory, _why(wrong))

    def _keyed(self, context: bytes, secret: bytes) -> str | None:
        if self._key is None:
            return None
        return keyed_hash(self._key, secret, context)[:FINGERPRINT_BYTES].hex()


def _lines(facts: Any) -> list[bytes]:
    lines = []
    for fact in facts:
        lines.append(fact_line(fact))
        if len(lines) > MOST_FACTS:
            raise ValueError(f"more than {MOST_FACTS:,} facts")
    return lines


def _why(wrong: Exception) -> str:
    return f"{type(wrong).__name__}: {wrong}"[:200]


def main(arguments: list[str]) -> None:
    """Serve a host program that must not be forked: descriptors come as arguments, the job as the first frame."""
    asking, answering = map(int, arguments[:2])
    try:
        job = dict(cast(tuple[tuple[str, Any], ...], receive(asking)))
    except EOFError:
        return  # whoever asked was stopped before it could say what for
    serve(lambda: ProbeWorker(job), asking, answering)


if __name__ == "__main__":
    main(sys.argv[1:])
