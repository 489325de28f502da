"""What a program built by Go says of itself: the version of Go, its own module, and the modules built into it.

A linker since Go 1.13 leaves a mark and behind it, in 32 bytes: the size of a pointer, flags, and up to Go 1.17 two
pointers, each to a pair (address, length) of a text. From Go 1.18 on both texts follow right behind these 32 bytes,
each with its length in front. The second text is a list of lines between two marks of 16 bytes:

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
from git_envhist.probes.keys import key_of, text_of

MARK = b"\xff Go buildinf:"
HEADER = 32
INLINE, BIG_ENDIAN = 2, 1
MAX_LENGTH = 1 << 18
GO = re.compile(r"(?:go|devel )[0-9A-Za-z][0-9A-Za-z .:+_-]{0,100}\Z")
ELF, LOADED = b"\x7fELF", 1
WORD = re.compile(r"[^\s]{1,200}\Z")


class GoBuild(NamedTuple):
    """What one program was built from."""

    go: str
    version: str
    """That of its own module; empty where it has none."""
    modules: tuple[tuple[str, str], ...]


class Segment(NamedTuple):
    """A part of a file that is loaded at an address."""

    address: int
    offset: int
    size: int


def read_build(data: bytes) -> GoBuild | None:
    """What a program says, None where it is none of Go's; since Go 1.18 the bytes from the mark on are enough."""
    at = data.find(MARK)
    while at >= 0:
        texts = _texts(data, at)
        if texts is not None and GO.match(texts[0]):
            return _build(*texts)
        at = data.find(MARK, at + 1)
    return None


def _build(go: str, about: str) -> GoBuild:
    lines = [line.split("\t") for line in about.split("\n")]
    own = next((line[2] for line in lines if line[0] == "mod" and len(line) > 2 and WORD.match(line[2])), "")
    return GoBuild(go.split(" ", maxsplit=1)[0], own, tuple(_modules(lines)))


def _modules(lines: list[list[str]]) -> Iterator[tuple[str, str]]:
    for line, after in pairwise([*lines, [""]]):
        if line[0] == "dep" and len(line) > 2:
            # A module that was replaced by another has that one's version.
            told = after[2] if after[0] == "=>" and len(after) > 2 and after[2] else line[2]
            yield line[1], told


def _texts(data: bytes, at: int) -> tuple[str, str] | None:
    """The two texts that a mark announces."""
    header = data[at : at + HEADER]
    if len(header) < HEADER:
        return None
    pointer, flags = header[14], header[15]
    found = _inline(data, at + HEADER) if flags & INLINE else _pointed(data, header, pointer, flags)
    if found is None:
        return None
    go, about = found
    framed = len(about) >= 33 and about[-17:-16] == b"\n"
    return go.decode("utf-8", "replace"), about[16:-16].decode("utf-8", "replace") if framed else ""


def _inline(data: bytes, at: int) -> tuple[bytes, bytes] | None:
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


def _pointed(data: bytes, header: bytes, pointer: int, flags: int) -> tuple[bytes, bytes] | None:
    if pointer not in (4, 8):
        return None
    pair = struct.Struct((">" if flags & BIG_ENDIAN else "<") + ("II" if pointer == 4 else "QQ"))
    segments = _segments(data)
    texts = []
    for address in pair.unpack_from(header, 16):
        place = _at(segments, address, pair.size)
        if place is None or place + pair.size > len(data):
            return None
        start, size = pair.unpack_from(data, place)
        place = _at(segments, start, size) if size <= MAX_LENGTH else None
        texts.append(b"" if place is None else data[place : place + size])
    return texts[0], texts[1]


def _at(segments: list[Segment], address: int, size: int) -> int | None:
    """Where in the file stands what is loaded at an address."""
    for one in segments:
        if one.address <= address and address + size <= one.address + one.size:
            return one.offset + address - one.address
    return None


def _segments(data: bytes) -> list[Segment]:
    """What an ELF file says is loaded where; of other formats nothing is known."""
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
    # kind, (flags,) offset, address: the narrow format has the flags further behind.
    parts = ((one[0], one[2 - (not wide)], one[3 - (not wide)], one[5 - (not wide)]) for one in found)
    return [Segment(address, offset, length) for kind, offset, address, length in parts if kind == LOADED]


# Go's modules, where they are: downloaded into a module cache, vendored, built into a program.
#
# A module's name has slashes, so it stands behind two: `go/pkg/mod//golang.org/x/text`. What a program was built from
# is told below the program: `bin/gopls` has a version, `bin/gopls//golang.org/x/text` another one.

PROBE = "go"
DOWNLOADED = re.compile(rb"(?:^|/)cache/download/([^@]+)/@v\Z")
UNPACKED = re.compile(rb"((?:^|.*/)pkg/mod)/(?!cache/)([^@]+)@(v[0-9][^/@]*)\Z", re.DOTALL)
MODULES = b"modules.txt"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~/-]{0,200}\Z")
VERSION = re.compile(r"v\d[0-9A-Za-z.+-]{0,100}\Z")
CAPITAL = re.compile(r"!([a-z])")
"""A capital letter is written as `!` and the small one: some file systems hold them for the same."""
VENDORED = re.compile(r"^# (\S+)(?: (\S+))?(?: => (\S+)(?: (\S+))?)?$")
EXPLICIT = re.compile(r"^## (?:.*; ?)?explicit\b")


def wants(directory: bytes) -> bool:
    return not directory.startswith(b"node_modules/") and b"/node_modules/" not in directory


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """The modules of one directory, whichever kind of directory it is."""
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
    """`# <module> <version>`, with `=> <another>` where it was replaced; `## explicit` where a go.mod names it."""
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
            told = f"{build.version} {build.go}".strip()
            yield Fact(PROBE, text_of(program), told, EnvPath(directory))
            for module, version in build.modules:
                yield from _module(directory, program, module, version, True)


def _module(directory: bytes, place: bytes, name: str, version: str, auto: bool = False) -> Iterator[Fact]:
    if NAME.match(name) and VERSION.match(version):
        yield Fact(PROBE, key_of(place, name), version, EnvPath(directory), auto=auto)


def _unescape(raw: bytes) -> str:
    return CAPITAL.sub(lambda found: found[1].upper(), raw.decode("utf-8", "replace"))
