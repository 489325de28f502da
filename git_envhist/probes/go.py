"""List Go modules: downloaded into a module cache, vendored, or built into a program.

A module name contains slashes, so it follows two of them: `go/pkg/mod//golang.org/x/text`. Modules of a
program are listed below it: `bin/gopls` has a version, `bin/gopls//golang.org/x/text` another.

Build information of a program (Go 1.13 and later): a marker in a header of 32 bytes with pointer size and
flags. Up to Go 1.17 two pointers follow, each to a pair (address, length) of a text; from Go 1.18 on the two
texts follow the header, each with its length first. The second text is a list of lines between two 16-byte
marks:

    path\texample.com/tool
    mod\texample.com/tool\tv1.2.0\th1:…
    dep\tgolang.org/x/text\tv0.3.0\th1:…
    =>\texample.com/fork\tv0.3.1\th1:…
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import key_of, text_of

MARK = b"\xff Go buildinf:"
HEADER = 32
INLINE, BIG_ENDIAN = 2, 1
MAX_LENGTH = 1 << 18
GO = re.compile(r"(?:go|devel )[0-9A-Za-z][0-9A-Za-z .:+_-]{0,100}\Z")
ELF, LOADED = b"\x7fELF", 1
WORD = re.compile(r"[^\s]{1,200}\Z")


class GoBuild(NamedTuple):
    """Build information of a program."""

    go: str
    version: str
    """Version of the main module; empty if it has none."""
    modules: tuple[tuple[str, str], ...]


class Segment(NamedTuple):
    """A part of a file that is loaded at an address."""

    address: int
    offset: int
    size: int


def read_build(data: bytes) -> GoBuild | None:
    """Return the build information in `data`; None if there is none. For Go 1.18 and later, bytes after the
    marker are enough."""
    at = data.find(MARK)
    while at >= 0:
        texts = _texts(data, at)
        if texts is not None and GO.match(texts[0]):
            return _build(*texts)
        at = data.find(MARK, at + 1)
    return None


def _build(go: str, module_text: str) -> GoBuild:
    lines = [line.split("\t") for line in module_text.split("\n")]
    own = next((line[2] for line in lines if line[0] == "mod" and len(line) > 2 and WORD.match(line[2])), "")
    return GoBuild(go.split(" ", maxsplit=1)[0], own, tuple(_modules(lines)))


def _modules(lines: list[list[str]]) -> Iterator[tuple[str, str]]:
    for line, after in pairwise([*lines, [""]]):
        if line[0] == "dep" and len(line) > 2:
            # A replaced module has the version of its replacement.
            version_text = after[2] if after[0] == "=>" and len(after) > 2 and after[2] else line[2]
            yield line[1], version_text


def _texts(data: bytes, at: int) -> tuple[str, str] | None:
    """Return the two texts of the header at `at`."""
    header = data[at : at + HEADER]
    if len(header) < HEADER:
        return None
    pointer, flags = header[14], header[15]
    found = (
        _inline_texts(data, at + HEADER)
        if flags & INLINE
        else _texts_by_pointer(data, header, pointer, flags)
    )
    if found is None:
        return None
    go, module_text = found
    framed = len(module_text) >= 33 and module_text[-17:-16] == b"\n"
    return go.decode("utf-8", "replace"), module_text[16:-16].decode("utf-8", "replace") if framed else ""


def _inline_texts(data: bytes, at: int) -> tuple[bytes, bytes] | None:
    texts = []
    for _ in range(2):
        size, at = _varint(data, at)
        if size > MAX_LENGTH or at + size > len(data):
            return None
        texts.append(data[at : at + size])
        at += size
    return texts[0], texts[1]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        byte = data[at] if at < len(data) else 0
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return number, at


def _texts_by_pointer(data: bytes, header: bytes, pointer: int, flags: int) -> tuple[bytes, bytes] | None:
    if pointer not in (4, 8):
        return None
    pair = struct.Struct((">" if flags & BIG_ENDIAN else "<") + ("II" if pointer == 4 else "QQ"))
    segments = _segments(data)
    texts = []
    for address in pair.unpack_from(header, 16):
        place = _file_offset(segments, address, pair.size)
        if place is None or place + pair.size > len(data):
            return None
        start, size = pair.unpack_from(data, place)
        place = _file_offset(segments, start, size) if size <= MAX_LENGTH else None
        texts.append(b"" if place is None else data[place : place + size])
    return texts[0], texts[1]


def _file_offset(segments: list[Segment], address: int, size: int) -> int | None:
    """Return the file offset of a loaded address."""
    for one in segments:
        if one.address <= address and address + size <= one.address + one.size:
            return one.offset + address - one.address
    return None


def _segments(data: bytes) -> list[Segment]:
    """Return the loaded segments of an ELF file; empty for other formats."""
    if data[:4] != ELF or len(data) < 64 or data[4] not in (1, 2) or data[5] not in (1, 2):
        return []
    order, wide = "<" if data[5] == 1 else ">", data[4] == 2
    start, size, count = (
        *struct.unpack_from(order + ("Q" if wide else "I"), data, 32 if wide else 28),
        *struct.unpack_from(order + "HH", data, 54 if wide else 42),
    )
    entry = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    if size != entry.size or start + size * count > len(data):
        return []
    found = (entry.unpack_from(data, start + size * number) for number in range(count))
    # Kind, (flags,) offset, address: the 32-bit format has the flags further back.
    parts = ((one[0], one[2 - (not wide)], one[3 - (not wide)], one[5 - (not wide)]) for one in found)
    return [Segment(address, offset, length) for kind, offset, address, length in parts if kind == LOADED]


# Modules in directories.

PROBE = "go"
DOWNLOADED = re.compile(rb"(?:^|/)cache/download/([^@]+)/@v\Z")
UNPACKED = re.compile(rb"((?:^|.*/)pkg/mod)/(?!cache/)([^@]+)@(v[0-9][^/@]*)\Z", re.DOTALL)
MODULES = b"modules.txt"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~/-]{0,200}\Z")
VERSION = re.compile(r"v\d[0-9A-Za-z.+-]{0,100}\Z")
CAPITAL = re.compile(r"!([a-z])")
"""Capital letters are stored as `!` and the small letter, for file systems that ignore case."""
VENDORED = re.compile(r"^# (\S+)(?: (\S+))?(?: => (\S+)(?: (\S+))?)?$")
EXPLICIT = re.compile(r"^## (?:.*; ?)?explicit\b")


def wants(directory: bytes) -> bool:
    return not directory.startswith(b"node_modules/") and b"/node_modules/" not in directory


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the modules of one directory."""
    name = directory.rpartition(b"/")[2]
    if name == b"@v":
        yield from _downloaded(directory, files)
    elif b"@" in name and b"go.mod" in files:
        yield from _unpacked(directory)
    elif name == b"vendor" and MODULES in files:
        yield from _vendored(directory, files[MODULES].data or b"")
    elif name == b"bin":
        yield from _programs(directory, files)


def _downloaded(directory: bytes, files: Files) -> Iterator[Fact]:
    found = DOWNLOADED.search(directory)
    for file in files if found is not None else ():
        if found is not None and file.endswith(b".zip"):
            place = directory[: found.start()]
            yield from _module(directory, place, _unescape(found[1]), _unescape(file.removesuffix(b".zip")))


def _unpacked(directory: bytes) -> Iterator[Fact]:
    found = UNPACKED.match(directory)
    if found is not None:
        yield from _module(directory, found[1], _unescape(found[2]), _unescape(found[3]))


def _vendored(directory: bytes, modules: bytes) -> Iterator[Fact]:
    """Yield modules of vendor/modules.txt: `# <module> <version>`, `=> <replacement>`; `## explicit` if
    go.mod requires it."""
    lines = modules.decode("utf-8", "replace").splitlines()
    for line, after in pairwise([*lines, ""]):
        found = VENDORED.match(line)
        if found is not None and found[2] and found[2] != "=>":
            version = found[4] or found[2]
            auto = EXPLICIT.match(after) is None
            yield from _module(directory, directory, found[1], version, auto)


def _programs(directory: bytes, files: Files) -> Iterator[Fact]:
    for name, file in files.items():
        build = read_build(file.data) if file.data else None
        if build is not None:
            program = directory + b"/" + name
            version_text = f"{build.version} {build.go}".strip()
            yield Fact(PROBE, text_of(program), version_text, EnvPath(directory))
            for module, version in build.modules:
                yield from _module(directory, program, module, version, True)


def _module(directory: bytes, place: bytes, name: str, version: str, auto: bool = False) -> Iterator[Fact]:
    if NAME.match(name) and VERSION.match(version):
        yield Fact(PROBE, key_of(place, name), version, EnvPath(directory), auto=auto)


def _unescape(raw: bytes) -> str:
    return CAPITAL.sub(lambda found: found[1].upper(), raw.decode("utf-8", "replace"))
