"""Lines left out of two sides of a directory: only equal ones, and no hard links."""

from __future__ import annotations

import random

import pytest

from git_envhist.diff.snapshot_walker import TrimmedPair, drop_equal_lines
from git_envhist.objects.trees import DIRECTORY, FILE
from git_envhist.snapshots.quoting import quote

OWN = b". d 0755 1 u=0 g=0"
Side = dict[bytes, tuple[bytes, bytes]]
"""Name -> the rest of its line, and its id."""
NAMES = (b"plain", b"two words", b"%41", b".gitattributes", b"git~1", b"zz", b"x%y", b"last")
STORED = {b"%41": b"%2541", b".gitattributes": b"%2egitattributes", b"git~1": b"%67it~1"}


def of(side: Side) -> tuple[bytes, dict[bytes, tuple[int, bytes]]]:
    lines = [b"%b %b" % (quote(name), side[name][0]) for name in sorted(side)]
    tree = {STORED.get(name, name): (FILE, oid) for name, (_, oid) in side.items()}
    return b"\n".join([b"envhist-meta 1 d", OWN, *lines]) + b"\n", tree


def trimmed(old: Side, new: Side) -> TrimmedPair:
    (text, tree), (other_text, other_tree) = of(old), of(new)
    return drop_equal_lines((text, other_text), (tree, other_tree), top=False)


def names_kept(done: TrimmedPair) -> list[set[bytes]]:
    return [{line.partition(b" ")[0] for line in text.split(b"\n")[2:-1]} for text in done.texts]


def something(chance: random.Random) -> Side:
    side = {}
    for name in (*NAMES, *(b"file%02d" % number for number in range(30))):
        link = b" l=%x" % chance.randrange(3) if chance.random() < 0.1 else b""
        side[name] = (b"f 0644 %d%b" % (chance.randrange(1, 3), link), bytes([chance.randrange(1, 3)]) * 20)
    return side


def changed(side: Side, chance: random.Random, *, linked: bool) -> Side:
    found = {}
    for name, (line, oid) in side.items():
        kind = chance.random()
        if kind < 0.05:
            continue  # removed
        if kind < 0.1 and name not in STORED:
            name += b"-renamed"
        elif 0.1 <= kind < 0.15:
            line = line.replace(b" 0644 ", b" 0600 ")
        elif 0.15 <= kind < 0.2:
            oid = b"\3" * 20
        found[name] = (line, oid)
    return (
        found if linked else {name: (line.partition(b" l=")[0], oid) for name, (line, oid) in found.items()}
    )


@pytest.mark.parametrize("seed", range(200))
def test_only_equal_lines_are_left_out(seed: int) -> None:
    chance = random.Random(seed)
    linked = chance.random() < 0.5
    old = something(chance)
    if not linked:
        old = {name: (line.partition(b" l=")[0], oid) for name, (line, oid) in old.items()}
    new = changed(old, chance, linked=linked)
    done = trimmed(old, new)
    for kept, tree, side in zip(names_kept(done), done.trees, (old, new), strict=True):
        differing = {name for name in side if old.get(name) != new.get(name) or b" l=" in side[name][0]}
        assert kept == {quote(name) for name in differing}
        assert set(tree) == {STORED.get(name, name) for name in differing}


def test_file_with_other_bytes_and_an_equal_line_is_kept() -> None:
    old: Side = dict.fromkeys(NAMES, (b"f 0644 1", b"\x01" * 20))
    new: Side = {**old, b".gitattributes": (b"f 0644 1", b"\2" * 20)}
    done = trimmed(old, new)
    assert names_kept(done) == [{b".gitattributes"}, {b".gitattributes"}]
    assert [set(tree) for tree in done.trees] == [{b"%2egitattributes"}] * 2


def test_directory_with_differences_below_is_kept() -> None:
    old: Side = {b"below": (b"d 0755 1", b"\1" * 20), b"beside": (b"f 0644 1", b"\1" * 20)}
    text, tree = of(old)
    before = {**tree, b"below": (DIRECTORY, b"\1" * 20)}
    after = {**tree, b"below": (DIRECTORY, b"\2" * 20)}
    done = drop_equal_lines((text, text), (before, after), top=False)
    assert names_kept(done) == [{b"below"}, {b"below"}]
    assert [set(kept) for kept in done.trees] == [{b"below"}, {b"below"}]


def test_no_line_is_left_out_when_the_directorys_owner_changed() -> None:
    old: Side = {b"a": (b"f 0644 1", b"\1" * 20)}
    text, tree = of(old)
    other = text.replace(b"u=0", b"u=7")
    assert drop_equal_lines((text, other), (tree, tree), top=False) == TrimmedPair(
        (text, other), (tree, tree)
    )
