"""Hostile snapshots by name: trees and manifests that no capture writes, and some that one could."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.objects.objects_by_hand import put_object
from tests.restore.test_hostile import GIT_DISGUISES, HEADS, LINES, OUTWARDS, Forge, shard
from tests.support.repository import Repo

Make = Callable[["Smith"], str]
"""Return the id of a hostile tree."""
Row = tuple[str, bytes, str]
IGNORED = (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
"""The sixteen characters that HFS+ ignores when it compares names."""
TERMINAL = (
    b"a\x1b[2Jb",
    b"a\rb",
    "a\u202eb".encode(),
    b"a\x9b2Jb",
    b"\x07",
    b"a\nb",
    "a\u2028b".encode(),
    b"\xff\x1b]0;x\x07",
)
TARGETS = (
    *(b"/etc/passwd", b"/", b"//x", b"..", b"../..", b"../canary/bird", b"d/../../canary", b"./.././../x"),
    *(b".git", b".git/hooks", b".GIT/config", b"sub/.git/hooks/post-checkout", b"git~1/config", b".git./x"),
    *(
        b".g\xe2\x80\x8cit/config",
        b"self",
        b"x/" * 2048,
        b"y" * 5000,
        b"",
        b"a\0b",
        b"../\x1b[2J",
        b"/\x1b]0;x\x07",
    ),
)
WORDS = {
    "a size below zero": b"f f 0644 1 r=-1:0",
    "a number beyond 64 bits": b"f f 0644 1 l=10000000000000000000000",
    "an unknown critical word": b"f f 0644 1 as=better",
    "a time with a fraction": b"f f 0644 1.5",
    "a time with a plus": b"f f 0644 +1",
    "a time in other digits": "f f 0644 \u0661".encode(),
    "a time without end": b"f f 0644 " + b"9" * 5000,
    "a mode with a sign": b"f f -644 1",
    "a mode of the wrong base": b"f f 0899 1",
    "two kinds": b"f fl 0644 1",
    "a name of 70,000 bytes": b"n" * 70_000 + b" f 0644 1",
    "a line of 20 MiB": b"f f 0644 1 zz=" + b"x" * (20 << 20),
    "a link group of a directory": b"d d 0000 0 l=1",
    "deep JSON": b"f f 0644 1 " + b"[" * 100_000,
    "a carriage return at the end": b"f f 0644 1\r",
    "words out of order": b"f f 0644 1 g=0 u=0",
}


class Smith(Forge):
    """Writes objects that git itself would refuse."""

    def __init__(self, repo: Repo) -> None:
        super().__init__(repo)
        self.git_dir = repo.path / ".git"

    def tree(self, entries: list[Row]) -> str:
        data = b"".join(
            b"%b %b\0%b" % (mode.encode(), name, bytes.fromhex(oid)) for mode, name, oid in entries
        )
        return put_object(self.git_dir, b"tree", data).hex()

    def blob(self, data: bytes) -> str:
        return put_object(self.git_dir, b"blob", data).hex()

    def one(self, line: bytes, mode: str = "100644", data: bytes = b"x", name: bytes = b"f") -> str:
        """Write a snapshot with one entry and its manifest line."""
        return self.snapshot([(mode, name, self.blob(data))], {b"": shard(b"", line)})


def hostile() -> Iterator[tuple[str, Make]]:
    """Yield each hostile snapshot as a name and a function that writes it."""
    yield from _names_in_trees()
    yield from _names_in_manifests()
    for what, line in {**LINES, **WORDS}.items():
        yield f"line: {what}", lambda smith, line=line: smith.one(line)
    for what, head in HEADS.items():
        yield (
            f"head: {what}",
            lambda smith, head=head: smith.snapshot([], {b"": head + b". d 0755 1 u=0 g=0\n"}),
        )
    for target in TARGETS:
        yield (
            f"link to {target[:40]!r}",
            lambda smith, target=target: smith.one(b"self l 0777 1", "120000", target, b"self"),
        )
    for kind in (b"b 0666 1 r=8:0", b"c 0666 1 r=1:1", b"s 0777 1", b"p 0666 1", b"w 0755 1", b"c 0666 1"):
        yield (
            f"a thing: {kind!r}",
            lambda smith, kind=kind: smith.snapshot([], {b"": shard(b"", b"f " + kind)}),
        )
    for mode in (0o4755, 0o2755, 0o1777, 0o7777, 0o666, 0o000):
        yield (
            f"mode {mode:04o}",
            lambda smith, mode=mode: smith.one(
                b"f f %04o 1 u=0 g=0" % mode, "100755" if mode & 0o100 else "100644"
            ),
        )
    for name in (b"security.capability", b"trusted.x", b"system.posix_acl_access", b"security.selinux"):
        line = b"f f 0644 1 x=%b:AQAAAg==" % name
        yield f"attribute {name!r}", lambda smith, line=line: smith.one(line)
    for name in TERMINAL:
        yield (
            f"a name for the terminal: {name!r}",
            lambda smith, name=name: smith.snapshot(
                [], {b"": shard(b"", _quoted(name) + b" c 0666 1 r=1:1")}
            ),
        )
        yield (
            f"a link for the terminal: {name!r}",
            lambda smith, name=name: smith.one(b"f l 0777 1", "120000", b"/" + name),
        )
    yield from _OTHERS.items()


def _quoted(name: bytes) -> bytes:
    return re.sub(rb"[\x00-\x20%\x7f]", lambda found: b"%%%02x" % found[0][0], name)


def _names_in_trees() -> Iterator[tuple[str, Make]]:
    for code in IGNORED:
        yield (
            f"tree: U+{code:04X} in .git",
            lambda smith, code=code: smith.snapshot(
                [("100644", b".g" + chr(code).encode() + b"it", smith.blob(b"x"))],
                {b"": shard(b"", b"f f 0644 1")},
            ),
        )
    for name in (*GIT_DISGUISES, *OUTWARDS, b".git\r", b"n" * 5000):
        yield (
            f"tree, leaf: {name[:30]!r}",
            lambda smith, name=name: smith.snapshot(
                [("100644", name, smith.blob(b"x"))], {b"": shard(b"", b"f f 0644 1")}
            ),
        )
        yield (
            f"tree, directory: {name[:30]!r}",
            lambda smith, name=name: smith.snapshot(
                [("40000", name, smith.tree([("100644", b"f", smith.blob(b"x"))]))],
                {b"": shard(b"", b"d d 0000 0")},
            ),
        )
        yield (
            f"tree, deep: {name[:30]!r}",
            lambda smith, name=name: smith.snapshot(
                [
                    (
                        "40000",
                        b"d",
                        smith.tree([("40000", name, smith.tree([("100644", b"f", smith.blob(b"x"))]))]),
                    )
                ],
                {b"": shard(b"", b"d d 0000 0"), b"d": shard(b"d")},
            ),
        )


def _names_in_manifests() -> Iterator[tuple[str, Make]]:
    for name in (*OUTWARDS, b".git", b"n" * 5000):
        for kind in (b"f 0644 1", b"d 0000 0", b"l 0777 1", b"p 0600 1"):
            line = _quoted(name) + b" " + kind
            yield (
                f"manifest: {name[:30]!r} {kind!r}",
                lambda smith, line=line: smith.snapshot([], {b"": shard(b"", line)}),
            )
            yield (
                f"manifest, deep: {name[:30]!r} {kind!r}",
                lambda smith, line=line: smith.snapshot(
                    [], {b"": shard(b"", b"d d 0000 0"), b"d": shard(b"d", line)}
                ),
            )


def _link_and_directory(smith: Smith) -> str:
    inner = smith.tree([("100644", b"passwd", smith.blob(b"x"))])
    shards = {b"": shard(b"", b"evil l 0777 1"), b"evil": shard(b"evil", b"passwd f 0644 1")}
    return smith.snapshot([("120000", b"evil", smith.blob(b"/etc")), ("40000", b"evil", inner)], shards)


def _pair(first: bytes, second: bytes) -> Make:
    """A link and a directory with names that a case-insensitive file system treats as equal."""

    def make(smith: Smith) -> str:
        inner = smith.tree([("100644", b"bird", smith.blob(b"dead"))])
        rows = [("120000", first, smith.blob(b"../canary")), ("40000", second, inner)]
        names = sorted([first + b" l 0777 1", second + b" d 0000 0"])
        shards = {b"": shard(b"", *names), second: shard(second, b"bird f 0644 1")}
        rows.sort(key=lambda row: row[1] + (b"/" if row[0] == "40000" else b""))
        reserved = smith.tree([("40000", b"manifest", smith.shards(shards))])
        rows.insert(0, ("40000", b".envhist", reserved))
        return smith.tree(rows)

    return make


def _link_leads(leader: bytes, data: bytes) -> Make:
    """A hard link whose first name is a symbolic link, in either order of names."""

    def make(smith: Smith) -> str:
        other = b"z" if leader < b"m" else b"a"
        lines = sorted([leader + b" l 0777 1 l=5", other + b" f 0644 1 l=5"])
        rows = sorted(
            [("120000", leader, smith.blob(data)), ("100644", other, smith.blob(b"x"))], key=lambda r: r[1]
        )
        return smith.snapshot(rows, {b"": shard(b"", *lines)})

    return make


def _lengths(says: int, *pieces: bytes, runs: int = 1) -> Make:
    def make(smith: Smith) -> str:
        run = smith.tree([("100644", b"%04x" % at, smith.blob(piece)) for at, piece in enumerate(pieces)])
        tree = smith.tree([("40000", b"%06x" % at, run) for at in range(runs)])
        pointer = b"envhist-pieces 1\nsize %d\ntree %b\n" % (says, tree.encode())
        return smith.one(b"f f 0644 1 as=pieces", data=pointer)

    return make


def _undescribed_depth(smith: Smith) -> str:
    tree = smith.tree([("100644", b"f", smith.blob(b"x"))])
    for _ in range(5000):
        tree = smith.tree([("40000", b"d", tree)])
    return smith.snapshot([("40000", b"d", tree)], {b"": shard(b"", b"d d 0000 0")})


def _described_depth(smith: Smith) -> str:
    shards = {b"": shard(b"", b"d d 0000 0")}
    tree = smith.tree([])
    for depth in range(1100, 0, -1):
        stored = b"/".join([b"d"] * depth)
        shards[stored] = shard(stored, *([b"d d 0000 0"] if depth < 1100 else []))
        if depth < 1100:
            tree = smith.tree([("40000", b"d", tree)])
    return smith.snapshot([("40000", b"d", tree)], shards)


def _doubling(smith: Smith) -> str:
    tree = smith.tree([("100644", b"f", smith.blob(b"x"))])
    for _ in range(60):
        tree = smith.tree([("40000", b"d", tree), ("40000", b"e", tree)])
    return smith.snapshot([("40000", b"d", tree)], {b"": shard(b"", b"d d 0000 0")})


def _many_large(smith: Smith) -> str:
    """Nine hundred names of one blob of 10 MiB, which inflate to 9 GiB."""
    oid = smith.blob(bytes(10 << 20))
    names = [b"%03d" % number for number in range(900)]
    rows = [("100644", name, oid) for name in names]
    return smith.snapshot(rows, {b"": shard(b"", *(name + b" f 0644 1" for name in names))})


def _broken(data: bytes) -> Make:
    """A blob stored under the id of another."""

    def make(smith: Smith) -> str:
        oid = smith.blob(b"what it was")
        place = Path(smith.git_dir, "objects", oid[:2], oid[2:])
        place.write_bytes(data)
        return smith.snapshot([("100644", b"f", oid)], {b"": shard(b"", b"f f 0644 1")})

    return make


def _exchanged(smith: Smith) -> str:
    one, other = smith.blob(b"the one"), smith.blob(b"the two")
    objects = smith.git_dir / "objects"
    (objects / one[:2] / one[2:]).write_bytes((objects / other[:2] / other[2:]).read_bytes())
    return smith.snapshot([("100644", b"f", one)], {b"": shard(b"", b"f f 0644 1")})


def _nested(config: bytes, *more: tuple[bytes, bytes]) -> Make:
    """A nested repository whose files git obeys."""

    def make(smith: Smith) -> str:
        files = sorted([(b"HEAD", b"ref: refs/heads/m\n"), (b"config", config), *more])
        stored = b".envhist/dotgit/x"
        shards = {
            b"": shard(b"", b"x d 0000 0"),
            b"x": shard(b"x", b".git d 0000 0"),
            stored: shard(stored, *(name + b" f 0644 1" for name, _ in files)),
        }
        rows = [("100644", name, smith.blob(data)) for name, data in files]
        dotgit = smith.tree([("40000", b"x", smith.tree(rows))])
        reserved = smith.tree([("40000", b"dotgit", dotgit), ("40000", b"manifest", smith.shards(shards))])
        return smith.tree([("40000", b".envhist", reserved)])

    return make


def _reserved(name: bytes, data: bytes) -> Make:
    def make(smith: Smith) -> str:
        shards = smith.shards({b"": shard(b"", b"f f 0644 1")})
        rows = sorted(
            [("40000", b"manifest", shards), ("100644", name, smith.blob(data))], key=lambda row: row[1]
        )
        reserved = smith.tree(rows)
        return smith.tree([("40000", b".envhist", reserved), ("100644", b"f", smith.blob(b"x"))])

    return make


_OTHERS: dict[str, Make] = {
    "a link and a directory of one name": _link_and_directory,
    "a link and a directory, other letters": _pair(b"Evil", b"evil"),
    "a directory and a link, other letters": _pair(b"evil", b"Evil"),
    "a link and a directory, composed otherwise": _pair("\u00e9vil".encode(), "e\u0301vil".encode()),
    "a hard link led by a link": _link_leads(b"a", b"/etc/passwd"),
    "a link led by a hard link": _link_leads(b"z", b"../canary/bird"),
    "a name twice in a tree": lambda smith: smith.snapshot(
        [("100644", b"f", smith.blob(b"1")), ("100644", b"f", smith.blob(b"2"))], {b"": shard(b"", b"f f 0644 1")}
    ),
    "a name twice in a manifest": lambda smith: smith.snapshot(
        [("100644", b"f", smith.blob(b"1"))], {b"": shard(b"", b"f f 0644 1", b"f f 0644 1")}
    ),
    "names out of order in a manifest": lambda smith: smith.snapshot(
        [], {b"": shard(b"", b"b p 0644 1", b"a p 0644 1")}
    ),
    "a tree out of order": lambda smith: smith.snapshot(
        [("40000", b"d", smith.tree([("100644", b"b", smith.blob(b"1")), ("100644", b"a", smith.blob(b"1"))]))],
        {b"": shard(b"", b"d d 0000 0"), b"d": shard(b"d", b"a f 0644 1", b"b f 0644 1")},
    ),
    "another repository's commit in a tree": lambda smith: smith.one(b"f f 0644 1", "160000"),
    "a tree where a file is said to be": lambda smith: smith.snapshot(
        [("100644", b"f", smith.tree([]))], {b"": shard(b"", b"f f 0644 1")}
    ),
    "a file where a tree is said to be": lambda smith: smith.snapshot(
        [("40000", b"f", smith.blob(b"x"))], {b"": shard(b"", b"f d 0000 0"), b"f": shard(b"f")}
    ),
    "no manifest": lambda smith: smith.tree([("100644", b"f", smith.blob(b"x"))]),
    "nothing at all": lambda smith: smith.tree([]),
    "bytes that are not there": lambda smith: smith.snapshot(
        [("100644", b"f", "1" * 40)], {b"": shard(b"", b"f f 0644 1")}
    ),
    "a link whose target is not there": lambda smith: smith.snapshot(
        [("120000", b"f", "2" * 40)], {b"": shard(b"", b"f l 0777 1")}
    ),
    "a tree that is not there": lambda smith: smith.snapshot(
        [("40000", b"d", "3" * 40)], {b"": shard(b"", b"d d 0000 0"), b"d": shard(b"d")}
    ),
    "a manifest that is not there": lambda smith: smith.tree([("40000", b".envhist", "4" * 40)]),
    "the null id": lambda smith: smith.snapshot([("100644", b"f", "0" * 40)], {b"": shard(b"", b"f f 0644 1")}),
    "bytes of another object": _exchanged,
    "no bytes in an object": _broken(b""),
    "garbage in an object": _broken(b"\x78\x01garbage"),
    "trees nested without end": _undescribed_depth,
    "directories nested too deep": _described_depth,
    "trees that double at each step": _doubling,
    "a blob that inflates to 100 MiB": lambda smith: smith.one(b"f f 0644 1", data=bytes(100 << 20)),
    "a manifest of 80 MiB": lambda smith: smith.snapshot([], {b"": bytes(80 << 20)}),
    "one blob under nine hundred names": _many_large,
    "pieces that say 10 GB": _lengths(10_000_000_000, b"x"),
    "pieces that say 2 to the 63": _lengths(2**63 - 1, b"x"),
    "pieces that say more": _lengths(2**63, b"x"),
    "pieces that say less": _lengths(1, b"xx"),
    "pieces that say nothing": _lengths(0, *[b""] * 60, runs=3000),
    "a piece larger than pieces are": _lengths(4 << 20, bytes(4 << 20)),
    "pieces over and over": _lengths(9 << 30, bytes(256 << 10), runs=36_864),
    "a pointer that is none": lambda smith: smith.one(b"f f 0644 1 as=pieces", data=b"envhist-pieces 1\nsize x\n"),
    "a pointer of 1 MiB": lambda smith: smith.one(b"f f 0644 1 as=pieces", data=b"x" * (1 << 20)),
    "a pointer to a blob": lambda smith: smith.one(
        b"f f 0644 1 as=pieces", data=b"envhist-pieces 1\nsize 1\ntree %b\n" % smith.blob(b"x").encode()
    ),
    "a link in pieces": lambda smith: smith.one(b"f l 0777 1 as=pieces", "120000"),
    "a sealed link": lambda smith: smith.one(b"f l 0777 1 as=sealed", "120000"),
    "sealed with nothing": lambda smith: smith.one(b"f f 0644 1 as=sealed"),
    "a nested repository that runs a program": _nested(b"[core]\n\tfsmonitor = touch ../canary/x\n"),
    "a nested repository that includes": _nested(b"[include]\n\tpath = ../../../canary/bird\n"),
    "a nested repository that cannot be read": _nested(b"[core\n\0\xff"),
    "a nested repository of continued lines": _nested(b"[core]\n\tbare = \\\n\ttrue\n[alias]\n\tst = !x\n"),
    "a nested repository elsewhere": _nested(b"", (b"commondir", b"/etc\n"), (b"config.worktree", b"[core]\n")),
    "missing things without number": _reserved(b"missing", b"x" * 1000),
    "rules that go out of bounds": _reserved(b"rules", b"\x1b[2J\n" * 1000),
}  # fmt: skip
