"""Read rpm's SQLite database: one row per package, containing a header in the format of rpm files.

A header has the number of entries and of data bytes, the entries (tag, type, offset, count), and the data;
all numbers are big-endian. Older databases (Berkeley DB, ndb) are not read.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing

from git_envhist.model import Fact

LISTS = ("var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite")
NAME, VERSION, RELEASE, EPOCH, ARCHITECTURE = 1000, 1001, 1002, 1003, 1022
INT32, STRING, I18N = 4, 6, 9
MAX_ENTRIES = 10_000
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~^-]{0,200}\Z")
KEYS = "gpg-pubkey"
"""Signing keys are stored like packages under this name."""
LOG = "-wal"
FORMAT_VERSIONS, WITHOUT_LOG = slice(18, 20), b"\1\1"
MAX_SIZE = 512 << 20

Package = tuple[str, str, str]
"""Name, version with epoch and release, architecture."""


def installed(root: str) -> Iterator[Fact]:
    """Yield the installed packages."""
    for path in LISTS:
        if os.path.exists(os.path.join(root, path)):
            yield from parse_headers(_headers_of_machine(os.path.join(root, path)))
            return


def parse_database(data: bytes) -> list[Fact]:
    """Return the packages of a database; empty if it is none."""
    return list(parse_headers(_headers(data)))


def parse_headers(headers: Iterable[bytes]) -> Iterator[Fact]:
    """Yield a fact per package; those of a minority architecture are named as in dnf: `glibc.i686`."""
    packages = [package for package in map(parse_header, headers) if package is not None]
    most = Counter(architecture for *_, architecture in packages if architecture != "noarch").most_common(1)
    native = {"noarch", "", *(architecture for architecture, _ in most)}
    for name, version, architecture in packages:
        key = name if architecture in native else f"{name}.{architecture}"
        yield Fact("system", key, version, by="rpm")


def parse_header(header: bytes) -> Package | None:
    """Return the package of a header."""
    fields = _fields(header)
    name, version, release = (fields.get(tag, "") for tag in (NAME, VERSION, RELEASE))
    if name == KEYS or not all(map(WORD.match, (name, version, release))):
        return None
    epoch = fields.get(EPOCH, "0")
    whole = f"{version}-{release}" if epoch == "0" else f"{epoch}:{version}-{release}"
    architecture = fields.get(ARCHITECTURE, "")
    return name, whole, architecture if WORD.match(architecture) else ""


def _fields(header: bytes) -> dict[int, str]:
    if len(header) < 8:
        return {}
    (count,) = struct.unpack_from(">I", header)
    data = 8 + 16 * count
    if count > MAX_ENTRIES or data > len(header):
        return {}
    fields: dict[int, str] = {}
    for tag, kind, offset, _ in struct.iter_unpack(">IIiI", header[8:data]):
        if tag in (NAME, VERSION, RELEASE, EPOCH, ARCHITECTURE) and 0 <= offset < len(header) - data:
            fields.setdefault(tag, _value(header, kind, data + offset))
    return fields


def _value(header: bytes, kind: int, at: int) -> str:
    if kind in (STRING, I18N):
        return header[at : at + 300].partition(b"\0")[0].decode("utf-8", "replace")
    return str(struct.unpack_from(">I", header, at)[0]) if kind == INT32 and at + 4 <= len(header) else ""


def _headers_of_machine(path: str) -> list[bytes]:
    """Return the headers without creating files: opening a database with a log would write next to it."""
    log = path + LOG
    if not os.path.exists(log) or os.path.getsize(log) == 0:
        with open(path, "rb") as file:
            return _headers(file.read(MAX_SIZE))
    with tempfile.TemporaryDirectory() as place:
        copy = os.path.join(place, "copy")
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy + LOG)
        with closing(sqlite3.connect(copy)) as database:
            return _rows(database)


def _headers(data: bytes) -> list[bytes]:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            # A database in memory cannot have a log; these two bytes of the header say so.
            database.deserialize(data[: FORMAT_VERSIONS.start] + WITHOUT_LOG + data[FORMAT_VERSIONS.stop :])
        except (sqlite3.Error, OverflowError, MemoryError):
            return []
        return _rows(database)


def _rows(database: sqlite3.Connection) -> list[bytes]:
    try:
        rows = database.execute("SELECT blob FROM Packages").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return []
    return [row[0] for row in rows if isinstance(row[0], bytes)]
