"""What a probe is: a line in the registry, and a leaf that does the reading.

A probe of files is shown one directory at a time: those of its files whose names are in the probe's line. What it
says of a directory depends on these files alone, so that it is asked again only where one of them changed. A probe of
the machine says first, quickly, by what its answer is to be known again (a *stamp*), and reads only when that is
another one; so does a probe of what belongs to this one environment beside its files.

Leaves run in a process of their own that is ended when their time is up. What they raise costs a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from git_envhist.model import Fact


class FileProbe(NamedTuple):
    """A probe of the environment's own files."""

    leaf: str
    kind: str
    version: int
    """Raised whenever the leaf says something else of the same bytes."""
    reads: tuple[bytes, ...] = ()
    """Names of files whose bytes are wanted: `package.json`, `*.egg-info`, `.env*`; in directories of one name alone:
    `vendor/modules.txt`, `conda-meta/*.json`."""
    sees: tuple[bytes, ...] = ()
    """Names of files that say enough by being there."""
    mark: bytes = b""
    """Of programs among these that hold this mark, all is given, or of larger ones what stands behind it."""
    undotted: int = 0
    """Of files whose names have no ending, the bytes of those are wanted whose size is a multiple of this."""
    in_parts: bool = False
    """Whether the leaf says itself, by `parts_of`, what it wants of files that are too large to be shown as a whole."""


class MachineProbe(NamedTuple):
    """A probe of the machine."""

    leaf: str
    kind: str
    version: int


class EnvironmentProbe(NamedTuple):
    """A probe of what belongs to one environment and is none of its files: what runs from it, hooks of its git."""

    leaf: str
    kind: str
    version: int


class DumpProbe(NamedTuple):
    """A probe of the dumps that the commands of services write."""

    leaf: str
    kind: str
    version: int


class CaptureProbe(NamedTuple):
    """A probe of what a capture comes upon while it reads."""

    leaf: str
    kind: str
    version: int


class ProbeTarget(NamedTuple):
    """Where an environment stands."""

    root: str
    """Where the machine's file system begins."""
    top: str
    """The environment's own top."""
    hooks: str
    """The directory in which git looks for hooks."""


Parts = tuple[tuple[int, bytes], ...]
"""(offset, the bytes from there on)."""


class File(NamedTuple):
    """One file as it was captured."""

    data: bytes | None
    """Its bytes, opened where they are sealed; None where they are not wanted, or too many."""
    size: int
    sealed: bool
    oid: bytes
    """Two files with one id hold the same."""
    parts: Parts = ()
    """Of a file that is too large to be shown, what the leaf wanted."""


Files = Mapping[bytes, File]
Keyed = Callable[[bytes, bytes], str | None]
"""(context, secret) -> what tells equal secrets of a context from different ones, and nothing else; None: no key."""


class FileProbeModule(Protocol):
    """A module that reads files."""

    def wants(self, directory: bytes) -> bool:
        """Whether such files are of interest in this directory; asked before any is read."""

    def facts_of(self, directory: bytes, files: Files, keyed: Keyed) -> Iterable[Fact]:
        """What the files of one directory say."""


class RandomAccessFile(Protocol):
    """A captured file that is read here and there; less than was asked for comes from its end."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...


class LargeFileProbeModule(Protocol):
    """A module that reads large files, too."""

    def parts_of(self, files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
        """What it wants of the files of a directory. Asked where the capture is made: it reads little."""


class MachineProbeModule(Protocol):
    """A module that asks the machine; `root` is where its file system begins."""

    def stamp(self, root: str) -> str:
        """What stays the same as long as the answer does; empty where only the answer itself can tell."""

    def facts_of(self, root: str) -> Iterable[Fact]:
        """What the machine says."""


class CaptureProbeModule(Protocol):
    """A module that is told what a capture came upon; asked each time, where the capture is made."""

    def facts_of(self, signs: Iterable[tuple[bytes, str]]) -> Iterable[Fact]:
        """What (path, why it could not be captured as it should) says."""


class EnvironmentProbeModule(Protocol):
    """A module that looks at what belongs to an environment."""

    def stamp(self, place: ProbeTarget) -> str | None:
        """As that of a machine's leaf; None where nothing is to be known here."""

    def facts_of(self, place: ProbeTarget, keyed: Keyed) -> Iterable[Fact]:
        """What there is."""
