"""The manifest: every value survives a round trip, and hostile input is damage."""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.model import Entry, EntryKind, EnvPath, StoredAs
from git_envhist.snapshots.layout import dotgit_directory, root_directory, shard_path, stored_below
from git_envhist.snapshots.manifest import (
    NewerManifestFormat,
    ShardLimits,
    format_extras,
    format_line,
    join_shard,
    read_shard,
    write_shard,
)
from git_envhist.snapshots.quoting import quote, unquote

names = st.one_of(
    st.sampled_from(
        (b"a b", b"a!b", b"a%20b", b"%", b"a\nb", b".git", b"...", b"-", b"a=b:c", b"\x7f", b"\xff\xfe")
    ),
    st.binary(min_size=1, max_size=12),
).filter(lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name)
ids = st.integers(0, 2**32 - 1)
words = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", max_size=6).map(lambda text: "q" + text)
values = st.binary(max_size=12).map(lambda value: value.decode("utf-8", "surrogateescape"))
attributes = st.dictionaries(
    st.binary(min_size=1, max_size=12).filter(lambda name: b"\0" not in name),
    st.binary(max_size=30),
    max_size=3,
)


@st.composite
def entries(draw: st.DrawFn, directory: EnvPath) -> Entry:
    kind = draw(st.sampled_from(EntryKind))
    device = kind in (EntryKind.CHARACTER_DEVICE, EntryKind.BLOCK_DEVICE)
    with_bytes = kind in (EntryKind.FILE, EntryKind.LINK)
    hashed = draw(st.booleans())
    return Entry(
        path=EnvPath((directory + b"/" if directory else b"") + draw(names)),
        kind=kind,
        mode=draw(st.integers(0, 0o7777)),
        mtime_ns=draw(st.integers(-(2**63) * 10**9, 2**63 * 10**9)),
        stored=draw(st.sampled_from(StoredAs)) if with_bytes else StoredAs.PLAIN,
        uid=draw(st.none() | ids.filter(lambda uid: uid != 1000)),
        gid=draw(st.none() | ids.filter(lambda gid: gid != 1000)),
        xattrs=tuple(sorted(draw(attributes).items())),
        link_group=None if kind is EntryKind.DIRECTORY else draw(st.none() | st.integers(0, 2**64 - 1)),
        device=draw(st.integers(0, 2**64 - 1)) if device else None,
        notes=((("h", "00ff"),) if hashed else ())
        + tuple(draw(st.lists(st.tuples(words, values), max_size=2))),
    )


@st.composite
def shards(draw: st.DrawFn) -> tuple[bytes, Entry, list[Entry]]:
    root = draw(st.sampled_from((b"", dotgit_directory(EnvPath(b"a/b")), root_directory(b"nginx"))))
    path = EnvPath(b"/".join(draw(st.lists(names, max_size=3))))
    own = Entry(path, EntryKind.DIRECTORY, 0o755, draw(st.integers(-1, 10**19)), uid=1000, gid=1000)
    held = draw(st.lists(entries(path), max_size=6, unique_by=lambda entry: entry.path))
    return stored_below(root, path), own, held


@given(shards())
def test_shard_survives_a_round_trip(shard: tuple[bytes, Entry, list[Entry]]) -> None:
    directory, own, held = shard
    data = write_shard(directory, own, held)
    read = read_shard(data, directory=directory)
    assert read.directory == directory
    assert read.own == own
    assert list(read.entries) == sorted(held, key=lambda entry: entry.path)
    assert write_shard(read.directory, read.own, reversed(read.entries)) == data


def test_shard_has_the_documented_format() -> None:
    own = Entry(EnvPath(b"src"), EntryKind.DIRECTORY, 0o2755, 5, uid=1000, gid=50)
    held = [
        Entry(EnvPath(b"src/run me"), EntryKind.FILE, 0o755, -7, uid=0, gid=50, link_group=255),
        Entry(EnvPath(b"src/a!"), EntryKind.CHARACTER_DEVICE, 0, 0, device=0x501),
        Entry(
            EnvPath(b"src/run!"),
            EntryKind.FILE,
            0o4600,
            0,
            stored=StoredAs.FINGERPRINT,
            xattrs=((b"user.z:1", b""), (b"user.a b", b"hello")),
            notes=(("via", "back up"), ("h", "aa")),
        ),
    ]
    assert write_shard(b"src", own, held) == (
        b"envhist-manifest 1 src\n"
        b". d 2755 5 u=1000 g=50\n"
        b"a! c 0000 0 r=5:1\n"
        b"run%20me f 0755 -7 u=0 l=ff\n"
        b"run! f 4600 0 as=fingerprint h=aa x=user.a%20b:aGVsbG8= x=user.z:1: via=back%20up\n"
    )


def test_top_is_written_as_a_dot_with_an_empty_stored_path() -> None:
    own = Entry(EnvPath(b""), EntryKind.DIRECTORY, 0o755, 0, uid=0, gid=0)
    data = write_shard(b"", own, [])
    assert data == b"envhist-manifest 1 .\n. d 0755 0 u=0 g=0\n"
    assert read_shard(data, directory=b"").own.path == b""


def test_shard_path_is_the_hash_of_the_stored_directory() -> None:
    digest = hashlib.sha256(b"%2egitattributes/x").hexdigest()[:40]
    assert shard_path(b"%2egitattributes/x") == (digest[:2], digest[2:])


def test_format_line_and_join_shard_agree_with_write_shard() -> None:
    own = Entry(EnvPath(b""), EntryKind.DIRECTORY, 0o755, 1, uid=0, gid=0)
    held = [
        Entry(EnvPath(b"a b"), EntryKind.FILE, 0o644, 2, uid=7),
        Entry(EnvPath(b"c"), EntryKind.LINK, 0o777, 3),
    ]
    lines = [
        format_line(b"a b", b"f", 0o644, 2, format_extras(uid=7)),
        format_line(b"c", b"l", 0o777, 3, b""),
    ]
    own_line = format_line(b".", b"d", 0o755, 1, format_extras(uid=0, gid=0))
    assert join_shard(b"", own_line, lines) == write_shard(b"", own, held)


def test_directory_without_an_owner_is_not_written() -> None:
    with pytest.raises(ValueError, match="owner"):
        write_shard(b"", Entry(EnvPath(b""), EntryKind.DIRECTORY, 0o755, 1), [])


@given(st.binary(max_size=30))
def test_each_word_has_one_spelling(value: bytes) -> None:
    word = quote(value)
    assert unquote(word) == value
    assert not set(word) & {*range(0x21), 0x7F}
    # Any word that parses is spelled in the only allowed manner.
    with contextlib.suppress(Damaged):
        assert quote(unquote(value)) == value


HEAD = b"envhist-manifest 1 src\n"
OWN = b". d 0755 5 u=0 g=0\n"
START = HEAD + OWN


def line(
    name: bytes = b"a", kind: bytes = b"f", mode: bytes = b"0644", time: bytes = b"0", more: bytes = b""
) -> bytes:
    return START + b" ".join((name, kind, mode, time)) + more + b"\n"


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "a newline": b"\n",
    "no final newline": START[:-1],
    "a header alone": HEAD,
    "another kind of file": b"#!/bin/sh\n" + OWN,
    "another header": b"envhist-manifests 1 src\n" + OWN,
    "no version": b"envhist-manifest src\n" + OWN,
    "version 0": b"envhist-manifest 0 src\n" + OWN,
    "version 01": b"envhist-manifest 01 src\n" + OWN,
    "version -1": b"envhist-manifest -1 src\n" + OWN,
    "a huge version": b"envhist-manifest " + b"9" * 5000 + b" src\n" + OWN,
    "no directory": b"envhist-manifest 1 \n" + OWN,
    "two directories": b"envhist-manifest 1 a b\n" + OWN,
    "two spaces in the header": b"envhist-manifest 1  a\n" + OWN,
    "CRLF": START.replace(b"\n", b"\r\n"),
    "an absolute directory": b"envhist-manifest 1 /etc\n" + OWN,
    "a directory that ends in a slash": b"envhist-manifest 1 a/\n" + OWN,
    "a directory with an empty component": b"envhist-manifest 1 a//b\n" + OWN,
    "a directory that leads up": b"envhist-manifest 1 ..\n" + OWN,
    "a directory that leads up later": b"envhist-manifest 1 a/../b\n" + OWN,
    "a directory with a dot": b"envhist-manifest 1 ./a\n" + OWN,
    "a directory that leads up in its stored spelling": b"envhist-manifest 1 a/%252e%252e\n" + OWN,
    "a stored slash": b"envhist-manifest 1 a%252fb\n" + OWN,
    "a quoted slash": b"envhist-manifest 1 a%2fb\n" + OWN,
    "a NUL in the directory": b"envhist-manifest 1 a%00b\n" + OWN,
    "a stored NUL in the directory": b"envhist-manifest 1 a%2500b\n" + OWN,
    "a plain .git": b"envhist-manifest 1 a/.git\n" + OWN,
    "a plain .gitattributes": b"envhist-manifest 1 .gitattributes\n" + OWN,
    "a needless escape in the directory": b"envhist-manifest 1 %2561\n" + OWN,
    "a link's spelling of a directory": b"envhist-manifest 1 %252egitignore\n" + OWN,
    "the reserved entry": b"envhist-manifest 1 .envhist\n" + OWN,
    "the reserved entry in capitals": b"envhist-manifest 1 .ENVHIST/a\n" + OWN,
    "the manifest's own directory": b"envhist-manifest 1 .envhist/manifest/00\n" + OWN,
    "facts": b"envhist-manifest 1 .envhist/facts/pip\n" + OWN,
    "all nested repositories": b"envhist-manifest 1 .envhist/dotgit\n" + OWN,
    "an empty root": b"envhist-manifest 1 .envhist/roots/\n" + OWN,
    "a root that leads up": b"envhist-manifest 1 .envhist/roots/..\n" + OWN,
    "a directory in a root that leads up": b"envhist-manifest 1 .envhist/roots/a/..\n" + OWN,
    "a plain .git in a root": b"envhist-manifest 1 .envhist/dotgit/a/.git\n" + OWN,
    "too deep": b"envhist-manifest 1 " + b"a/" * 2048 + b"a\n" + OWN,
    "no own line": HEAD + b"a f 0644 0\n",
    "an own line that is a file": HEAD + b". f 0755 5 u=0 g=0\n",
    "an own line without an owner": HEAD + b". d 0755 5 g=0\n",
    "an own line without a group": HEAD + b". d 0755 5 u=0\n",
    "an own line with a link group": HEAD + b". d 0755 5 u=0 g=0 l=1\n",
    "two own lines": START + OWN,
    "a name that leads up": line(b".."),
    "a quoted name that leads up": line(b"%2e%2e"),
    "a name with a slash": line(b"a/b"),
    "an absolute name": line(b"/etc/passwd"),
    "a name with a quoted slash": line(b"a%2fb"),
    "a name with a NUL": line(b"a%00b"),
    "a name with a raw NUL": line(b"a\0b"),
    "a name with a tab": line(b"a\tb"),
    "no name": line(b""),
    "a needless quote": line(b"%41"),
    "a quote in capitals": line(b"a%0A"),
    "half a quote": line(b"a%2"),
    "a lonely percent": line(b"100%"),
    "a quote of nothing": line(b"%zz"),
    "an unquoted delete": line(b"a\x7f"),
    "names out of order": line(b"b") + b"a f 0644 0\n",
    "quoted names out of order": line(b"a!") + b"a%20 f 0644 0\n",
    "one name twice": line(b"a") + b"a f 0644 0\n",
    "one name as two kinds": line(b"a") + b"a d 0755 0\n",
    "an unknown kind": line(kind=b"z"),
    "a kind in capitals": line(kind=b"F"),
    "a kind of two letters": line(kind=b"fd"),
    "no kind": START + b"a 0644 0\n",
    "a mode of three digits": line(mode=b"644"),
    "a mode of five digits": line(mode=b"10644"),
    "a mode that is not octal": line(mode=b"0689"),
    "a negative mode": line(mode=b"-644"),
    "a mode with a prefix": line(mode=b"0o64"),
    "no time": START + b"a f 0644\n",
    "a time with a fraction": line(time=b"1.5"),
    "a time with a plus": line(time=b"+1"),
    "a time with a zero in front": line(time=b"01"),
    "a negative zero": line(time=b"-0"),
    "a time with an underscore": line(time=b"1_0"),
    "a hexadecimal time": line(time=b"0x1"),
    "a time out of range": line(time=b"9223372036854775808000000001"),
    "a time long ago that no clock showed": line(time=b"-9223372036854775808000000001"),
    "a time of 5000 digits": line(time=b"9" * 5000),
    "a time in other digits": line(time="٣".encode()),
    "a space at the end": line(more=b" "),
    "two spaces": line(more=b"  u=1"),
    "a word without a value": line(more=b" u"),
    "a word without a name": line(more=b" =1"),
    "a word in capitals": line(more=b" U=1"),
    "a negative owner": line(more=b" u=-1"),
    "an owner beyond 32 bits": line(more=b" u=4294967296"),
    "an owner with a zero in front": line(more=b" u=00"),
    "no owner": line(more=b" u="),
    "an owner by name": line(more=b" u=root"),
    "a group beyond 32 bits": line(more=b" g=99999999999999999999"),
    "two owners": line(more=b" u=1 u=2"),
    "words out of order": line(more=b" g=1 u=1"),
    "an unknown word before a known one": line(more=b" via=backup l=1"),
    "a link group beyond 64 bits": line(more=b" l=10000000000000000"),
    "a link group in capitals": line(more=b" l=FF"),
    "a link group with a zero in front": line(more=b" l=01"),
    "a negative link group": line(more=b" l=-1"),
    "a hard link to a directory": line(kind=b"d", more=b" l=1"),
    "a device of a file": line(more=b" r=1:3"),
    "half a device": line(kind=b"c", more=b" r=1"),
    "a device beyond 32 bits": line(kind=b"c", more=b" r=1:4294967296"),
    "a device of three numbers": line(kind=b"b", more=b" r=1:2:3"),
    "an unknown way of storing": line(more=b" as=zip"),
    "plain, which goes without saying": line(more=b" as=plain"),
    "a sealed directory": line(kind=b"d", more=b" as=sealed"),
    "a hash that is none": line(more=b" h=xyz"),
    "a hash in capitals": line(more=b" h=FF"),
    "an empty hash": line(more=b" h="),
    "an endless hash": line(more=b" h=" + b"0" * 129),
    "an attribute without a value": line(more=b" x=user.a"),
    "an attribute without a name": line(more=b" x=:YQ=="),
    "bad base64": line(more=b" x=user.a:!!"),
    "base64 without its padding": line(more=b" x=user.a:YQ"),
    "base64 with bits to spare": line(more=b" x=user.a:YR=="),
    "base64 with a tail": line(more=b" x=user.a:YQ==YQ=="),
    "base64 of the other alphabet": line(more=b" x=user.a:_-8="),
    "base64 beyond ASCII": line(more=b" x=user.a:\xff\xff\xff\xff"),
    "an attribute twice": line(more=b" x=user.a:YQ== x=user.a:YQ=="),
    "attributes out of order": line(more=b" x=user.b:YQ== x=user.a:YQ=="),
    "an attribute with a NUL in its name": line(more=b" x=a%00:YQ=="),
    "an attribute with an endless name": line(more=b" x=" + b"a" * 256 + b":YQ=="),
    "a needless quote in a note": line(more=b" via=%41"),
    "a word with an endless name": line(more=b" " + b"a" * 65 + b"=1"),
    "an empty line": START + b"\n",
    "an empty line between": line() + b"\nb f 0644 0\n",
    "junk behind": line() + b"\xff\xfe\n",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_shard_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_shard(data)


def test_extreme_values_are_read() -> None:
    widest = b" u=4294967295 g=0 l=ffffffffffffffff as=pieces h=0 x=a:"
    (entry,) = read_shard(line(mode=b"7777", time=b"-9223372036854775808000000000", more=widest)).entries
    assert (entry.mode, entry.mtime_ns, entry.uid) == (0o7777, -(2**63) * 10**9, 2**32 - 1)
    assert read_shard(line(b"%20")).entries[0].path == b"src/ "
    assert read_shard(line(kind=b"c", more=b" r=4294967295:4294967295")).entries[0].device == 2**64 - 1


def test_words_of_later_versions_are_preserved() -> None:
    data = line(more=b" l=1 birth=17%20x future-word=a=b:c birth=18")
    shard = read_shard(data)
    assert shard.entries[0].notes == (("birth", "17 x"), ("future-word", "a=b:c"), ("birth", "18"))
    assert write_shard(shard.directory, shard.own, shard.entries) == data


def test_later_format_is_reported_as_newer() -> None:
    with pytest.raises(NewerManifestFormat, match="format 2") as caught:
        read_shard(b"envhist-manifest 2 whatever it holds\nand more\n")
    assert caught.value.hint == "upgrade git-envhist to read it"


def test_shard_of_another_directory_is_refused() -> None:
    assert read_shard(START, directory=b"src").directory == b"src"
    with pytest.raises(Damaged, match="that of 'src'"):
        read_shard(START, directory=b"lib")


@pytest.mark.parametrize(
    "budget",
    [
        ShardLimits(size=60),
        ShardLimits(lines=3),
        ShardLimits(line=24),
        ShardLimits(depth=1),
        ShardLimits(path_bytes=30),
    ],
    ids=["size", "lines", "line", "depth", "paths"],
)
def test_shard_beyond_a_limit_is_damage(budget: ShardLimits) -> None:
    data = b"envhist-manifest 1 src/lib\n" + OWN + b"a f 0644 0\n" + b"b f 0644 0\n"
    assert len(read_shard(data).entries) == 2
    with pytest.raises(Damaged):
        read_shard(data, budget=budget)


def test_error_contains_no_control_characters() -> None:
    with pytest.raises(Damaged) as caught:
        read_shard(b"\x1b[2J\x9b31m\xe2\x80\xae\n" + OWN)
    assert caught.value.message.isprintable()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_shard(data + b"\n")


@given(st.data(), shards())
def test_changed_shard_is_damage_or_parses_differently(
    data: st.DataObject, shard: tuple[bytes, Entry, list[Entry]]
) -> None:
    text = write_shard(*shard)
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 3))
    new = data.draw(
        st.binary(max_size=3) | st.sampled_from((b" ", b"\n", b"%", b"%2f", b"/", b"=", b"..", b"0"))
    )
    changed = text[:at] + new + text[at + length :]
    with contextlib.suppress(Damaged):
        read = read_shard(changed)
        assert write_shard(read.directory, read.own, read.entries) == without_needless_owners(
            changed, read.own
        )


def without_needless_owners(text: bytes, own: Entry) -> bytes:
    head, first, rest = text.split(b"\n", 2)
    rest = re.sub(rb"( [0-7]{4} -?[0-9]+) u=%d(?= |\n)" % own.uid, rb"\1", rest)
    rest = re.sub(rb"( [0-7]{4} -?[0-9]+(?: u=\d+)?) g=%d(?= |\n)" % own.gid, rb"\1", rest)
    return b"\n".join((head, first, rest))


def test_redundant_owner_is_dropped() -> None:
    assert read_shard(line(more=b" u=0 g=0")) == read_shard(line())


def steps_of(work: Callable[[], object]) -> int:
    """Count the functions called, ours and the interpreter's: independent of the machine and its load."""
    seen = Counter[str]()
    sys.setprofile(lambda _, event, __: seen.update([event]))
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen["call"] + seen["c_call"]


def test_line_takes_few_function_calls_to_write_and_read() -> None:
    chosen = random.Random(1)
    names = sorted({b"module_%d.cpython-311.pyc" % chosen.randrange(10**9) for _ in range(2_000)})

    def write() -> bytes:
        lines = [format_line(name, b"f", 0o644, 1763461083123456789, b"") for name in names]
        return join_shard(b"src", b". d 0755 5 u=0 g=0\n", lines)

    data = write()
    assert len(read_shard(data).entries) == len(names)
    writing, reading = (steps_of(work) / len(names) for work in (write, lambda: read_shard(data)))
    start = perf_counter()
    write()
    written = perf_counter()
    read_shard(data)
    read = perf_counter()
    each = (second / len(names) * 1e6 for second in (written - start, read - written))
    print("a line: {:.2f} µs to write, {:.2f} to read; {:.2f} calls, {:.2f}".format(*each, writing, reading))
    assert writing < 3
    assert reading < 16


def test_entry_fields_have_the_order_that_plain_entries_relies_on() -> None:
    names = [field.name for field in fields(Entry)]
    assert names[:8] == ["path", "kind", "mode", "mtime_ns", "oid", "stored", "uid", "gid"]
