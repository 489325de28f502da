"""What a push would send: every object that the other side has not, with its size and a path that it stands at.

Asked of git in two commands. Contents are read one after the other and only for whoever looks into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from git_envhist.errors import Damaged, GitFailed
from git_envhist.store.git import Git
from git_envhist.store.layout import MANIFEST, PIECES, RESERVED
from git_envhist.store.names import true_path
from git_envhist.store.objects import CatFile
from git_envhist.store.quoting import show
from git_envhist.values import dataclass

FORMAT = "--batch-check=%(objecttype) %(objectsize) %(objectsize:disk)"
SHARDS = RESERVED + b"/" + MANIFEST + b"/"
IN_PIECES = RESERVED + b"/" + PIECES + b"/"
POINTER = b"envhist-pieces 1\nsize "
LONGEST_POINTER = 256


@dataclass(frozen=True, slots=True)
class OutgoingObject:
    """One object that is to leave."""

    oid: str
    kind: str
    size: int
    stored: int
    """So many bytes it takes in a pack here."""
    place: bytes
    """Where it stands in a tree; nothing for a commit and for what notes hold."""

    @property
    def path(self) -> bytes:
        """Where it stands in the environment, as far as that is a path of it."""
        if self.place.startswith(RESERVED + b"/"):
            return self.place
        try:
            return true_path(self.place)
        except Damaged:
            return self.place


def objects_to_send(
    git: Git,
    heads: Sequence[str],
    notes: Sequence[str],
    there: Iterable[str],
    grafts: Mapping[bytes, bytes],
) -> list[OutgoingObject]:
    """The objects that lead from tips to those that the other side has; hashes unknown here do not count."""
    known = known_objects(git, there)
    # What notes hold stands in no environment.
    rows = _listed(git, heads, known, grafts)
    rows += [(oid, b"") for oid, _ in _listed(git, notes, [*known, *heads], grafts)]
    names = b"".join(oid + b"\n" for oid, _ in rows)
    told = git.run("cat-file", FORMAT, stdin=names).splitlines() if rows else []
    if len(told) != len(rows):
        raise GitFailed("git does not say how large objects are")
    found = []
    for (oid, place), line in zip(rows, told, strict=True):
        kind, size, stored = line.split()
        found.append(OutgoingObject(oid.decode("ascii"), kind.decode("ascii"), int(size), int(stored), place))
    return found


def _listed(
    git: Git, wanted: Sequence[str], known: Iterable[str], grafts: Mapping[bytes, bytes]
) -> list[tuple[bytes, bytes]]:
    if not wanted:
        return []
    asked = "".join([*(f"{oid}\n" for oid in wanted), *(f"^{oid}\n" for oid in known)])
    words = ("rev-list", "--objects", "--stdin")
    # A name may hold a carriage return: what git ends lines with, and nothing else, ends one.
    listed = git.run(*words, stdin=asked.encode("ascii"), environment=grafts).split(b"\n")[:-1]
    return [(oid, place) for oid, _, place in (line.partition(b" ") for line in listed)]


def known_objects(git: Git, oids: Iterable[str]) -> list[str]:
    """Those of some hashes that are here."""
    wanted = sorted(set(oids))
    if not wanted:
        return []
    told = git.run(
        "cat-file", "--batch-check=%(objectname)", stdin="".join(f"{o}\n" for o in wanted).encode()
    )
    lines = told.decode("ascii", "replace").splitlines()
    return [oid for oid, line in zip(wanted, lines, strict=False) if line == oid]


def contents(git: Git, leaving: Sequence[OutgoingObject]) -> Iterator[tuple[OutgoingObject, bytes]]:
    """The bytes of each of them."""
    with CatFile(git) as reader:
        answers = reader.read_many([one.oid for one in leaving])
        for one, answer in zip(leaving, answers, strict=True):
            if answer is None:
                raise Damaged(
                    f"an object is missing: {one.oid}", hint="'git envlog fsck' says what else is missing"
                )
            yield one, answer.data


def files_of_pieces(git: Git, leaving: Iterable[OutgoingObject]) -> dict[bytes, tuple[bytes, int]]:
    """The path and the size of each big file, by the place at which the tree of its pieces hangs."""
    small = [
        one
        for one in leaving
        if one.kind == "blob" and one.size <= LONGEST_POINTER and not one.place.startswith(RESERVED + b"/")
    ]
    found = {}
    for one, data in contents(git, small):
        if data.startswith(POINTER):
            size, _, rest = data[len(POINTER) :].partition(b"\n")
            tree = rest.removeprefix(b"tree ").strip()
            if size.isdigit() and len(tree) in (40, 64):
                found[IN_PIECES + tree[:2] + b"/" + tree[2:]] = (one.path, int(size))
    return found


def piece_of(one: OutgoingObject) -> bytes | None:
    """The place of the tree of pieces that a blob belongs to; None where it is none."""
    if not one.place.startswith(IN_PIECES):
        return None
    return b"/".join(one.place.split(b"/")[:4])


def shown_place(one: OutgoingObject, data: bytes = b"") -> bytes:
    """How a place is told to people: of a shard the directory whose names and attributes it holds."""
    if one.place.startswith(SHARDS):
        directory = data.partition(b"\n")[0].rpartition(b" ")[2]
        return b"names and attributes in '" + show(directory).encode("utf-8", "replace") + b"'"
    return one.path or b"a commit or a note"
