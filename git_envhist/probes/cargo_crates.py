"""List Rust crates: built in a `target`, vendored, downloaded by Cargo, or installed as programs.

The crates in a `target` are read from the compiler's dependency files, `deps/<crate>-<hash>.d`: the path of
the sources ends with name and version. Crates of the project itself have no version there and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import key_of
from git_envhist.toml_text import read_toml

PROBE = "cargo"
BUILT = re.compile(rb"(?:^|/)target(?:/[^/]+){1,2}/deps\Z")
DOWNLOADED = re.compile(rb"(?:^|/)registry/cache/[^/]+\Z")
UNPACKED = re.compile(rb"(?:^|/)registry/src/[^/]+/|(?:^|/)git/checkouts/")
VERSION_WORD = rb"\d+\.\d+\.\d+[0-9A-Za-z.+-]{0,60}"
SOURCE = re.compile(rb"/registry/(?:src/[^/\s]+/)?([A-Za-z][A-Za-z0-9_-]{0,80})-(" + VERSION_WORD + rb")/")
CHECKOUT = re.compile(rb"/git/checkouts/([A-Za-z][A-Za-z0-9_.-]{0,80})-[0-9a-f]{16}/([0-9a-f]{7,40})/")
CRATE = re.compile(rb"([A-Za-z][A-Za-z0-9_-]{0,80})-(" + VERSION_WORD + rb")\.crate\Z")
PROGRAM = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,80}) (\d[0-9A-Za-z.+-]{0,80}) \(")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,80}\Z")
VERSION = re.compile(r"\d[0-9A-Za-z.+-]{0,80}\Z")
HEAD_SIZE = 1 << 16
"""The first line of such a file names the sources of the crate."""
INSTALLED, VENDORED = b".crates.toml", b".cargo-checksum.json"


def wants(directory: bytes) -> bool:
    # Unpacked crates are listed as downloaded ones; each contains files of these names.
    return UNPACKED.search(directory) is None


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the crates of one directory."""
    if BUILT.search(directory) is not None:
        yield from _built(directory, files)
    if DOWNLOADED.search(directory) is not None:
        yield from _downloaded(directory, files)
    if VENDORED in files and b"Cargo.toml" in files:
        yield from _vendored(directory, files[b"Cargo.toml"].data or b"")
    if INSTALLED in files:
        yield from _installed(directory, files[INSTALLED].data or b"")


def _built(directory: bytes, files: Files) -> Iterator[Fact]:
    place = directory[: directory.rindex(b"target") + len(b"target")]
    for name, file in files.items():
        if name.endswith(b".d"):
            notes = (file.data or b"")[:HEAD_SIZE]
            found = SOURCE.search(notes) or CHECKOUT.search(notes)
            if found is not None:
                yield _fact(directory, place, found[1], found[2])


def _downloaded(directory: bytes, files: Files) -> Iterator[Fact]:
    place = directory[: directory.rindex(b"/cache/")]
    for found in filter(None, map(CRATE.match, files)):
        yield _fact(directory, place, found[1], found[2])


def _vendored(directory: bytes, manifest: bytes) -> Iterator[Fact]:
    package = _toml(manifest).get("package")
    name, version = (
        (package.get("name"), package.get("version")) if isinstance(package, dict) else (None, None)
    )
    if isinstance(name, str) and isinstance(version, str) and NAME.match(name) and VERSION.match(version):
        yield Fact(PROBE, key_of(directory.rpartition(b"/")[0], name), version, EnvPath(directory))


def _installed(directory: bytes, data: bytes) -> Iterator[Fact]:
    programs = _toml(data).get("v1")
    for found in filter(None, map(PROGRAM.match, programs if isinstance(programs, dict) else ())):
        yield Fact(PROBE, key_of(directory, found[1]), found[2], EnvPath(directory))


def _fact(directory: bytes, place: bytes, name: bytes, version: bytes) -> Fact:
    return Fact(PROBE, key_of(place, name.decode("ascii")), version.decode("ascii"), EnvPath(directory))


def _toml(data: bytes) -> dict[str, Any]:
    try:
        return read_toml(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
