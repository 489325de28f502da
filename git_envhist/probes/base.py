"""The interface of probes: registry entries and probe modules.

A file probe gets the matching files of one directory at a time; its facts depend on these files only, so it
runs again only if one of them changed. A machine probe first returns a stamp, which is cheap to compute and
changes whenever its facts may change; so does an environment probe. Probe modules run in a child process with
a timeout; an exception costs a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from git_envhist.model import Fact


class FileProbe(NamedTuple):
    """A probe of files in the environment."""

    module: str
    kind: str
    version: int
    """Increased whenever the module returns other facts for the same bytes."""
    reads: tuple[bytes, ...] = ()
    """Patterns of files to read: `package.json`, `*.egg-info`, `.env*`; with the name of the parent
    directory: `vendor/modules.txt`, `conda-meta/*.json`."""
    sees: tuple[bytes, ...] = ()
    """Patterns of files that only need to exist; their content is not read."""
    mark: bytes = b""
    """Marker in executables: matching ones are read whole, or if large only after the marker."""
    undotted: int = 0
    """Also read files without an extension if their size is a multiple of this."""
    in_parts: bool = False
    """True if the module has `parts_of`, which selects byte ranges of files too large to be read whole."""
    directories: tuple[bytes, ...] = ()
    """Names of directories that the package manager fills: changes in them are shown as packages, not as files."""
    libraries: tuple[bytes, ...] = ()
    """Those of `directories` that contain the packages themselves: files below them are not the project's own."""
    downloads: tuple[str, ...] = ()
    """Patterns of directories with downloaded or built files: contents below them are not searched for secrets."""
    manifests: tuple[bytes, ...] = ()
    """Names of files at the top of a project that uses the package manager."""
    lists: tuple[tuple[bytes, str], ...] = ()
    """(name of a file that requests or locks packages, function of the module that reads it)."""
    locks: tuple[bytes, ...] = ()
    """Names of files that the package manager writes and people do not edit, e.g. lock files."""
    records: tuple[bytes, ...] = ()
    """Names of files in which the package manager records an installation: they differ between any two machines."""
    interpreters: tuple[str, ...] = ()
    """Names of programs that run code of the project, without a version."""
    engines: tuple[str, ...] = ()
    """Names of tools whose version a `package.json` can require."""
    version_files: tuple[tuple[bytes, str], ...] = ()
    """(name of a file that contains one version, the tool that it is for)."""
    runtime: str = ""
    """Regular expression: packages of the machine that run what the probe lists."""


class MachineProbe(NamedTuple):
    """A probe of the machine."""

    module: str
    kind: str
    version: int


class EnvironmentProbe(NamedTuple):
    """A probe of things that belong to an environment but are not files in it: services, git hooks."""

    module: str
    kind: str
    version: int


class DumpProbe(NamedTuple):
    """A probe of service dumps."""

    module: str
    kind: str
    version: int


class CaptureProbe(NamedTuple):
    """A probe of paths that a capture could not read consistently."""

    module: str
    kind: str
    version: int


class ProbeTarget(NamedTuple):
    """Directories of an environment."""

    root: str
    """Root of the machine's file system."""
    top: str
    """Top directory of the environment."""
    hooks: str
    """Directory in which git looks for hooks."""


Parts = tuple[tuple[int, bytes], ...]
"""(offset, bytes at that offset)."""


class ProbedFile(NamedTuple):
    """A captured file."""

    data: bytes | None
    """Its bytes (unsealed); None if not wanted or too large."""
    size: int
    sealed: bool
    oid: bytes
    """Blob id: files with equal ids have equal content."""
    parts: Parts = ()
    """Byte ranges selected by `parts_of`."""


Files = Mapping[bytes, ProbedFile]
Keyed = Callable[[bytes, bytes], str | None]
"""(context, secret) -> a fingerprint that is equal only for equal secrets in a context; None without a key."""


class FileProbeModule(Protocol):
    """A module that reads files."""

    def wants(self, directory: bytes) -> bool:
        """Return whether files in this directory are of interest; called before any is read."""

    def facts_of(self, directory: bytes, files: Files, keyed: Keyed) -> Iterable[Fact]:
        """Return the facts from the files of one directory."""


class RandomAccessFile(Protocol):
    """A captured file with random access; a read at its end returns fewer bytes."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...


class LargeFileProbeModule(Protocol):
    """A module that also reads large files."""

    def parts_of(self, files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
        """Return the byte ranges wanted of the files of a directory. It runs in the capturing process."""


class MachineProbeModule(Protocol):
    """A module that queries the machine; `root` is the root of its file system."""

    def stamp(self, root: str) -> str:
        """Return a value that changes whenever the facts may change; empty if only the facts themselves show
        it."""

    def facts_of(self, root: str) -> Iterable[Fact]:
        """Return the facts of the machine."""


class CaptureProbeModule(Protocol):
    """A module that evaluates problems of a capture; it runs in every capture, in the capturing process."""

    def facts_of(self, signs: Iterable[tuple[bytes, str]]) -> Iterable[Fact]:
        """Return the facts from (path, reason why it could not be read consistently)."""


class EnvironmentProbeModule(Protocol):
    """A module that examines things belonging to an environment."""

    def stamp(self, target: ProbeTarget) -> str | None:
        """Return a stamp as for a machine probe; None if nothing can be known on this system."""

    def facts_of(self, target: ProbeTarget, keyed: Keyed) -> Iterable[Fact]:
        """Return the facts."""
