"""Snapshots that no capture writes are refused with a reason before the first write, and nothing outside changes."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from git_envhist.diff.snapshot_walker import differing_directories
from git_envhist.errors import Damaged
from git_envhist.git.process import Git
from git_envhist.model import EnvPath
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.restore.plan_steps import make_plan
from tests.restore.engine import Engine
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo
from tests.support.snapshots import directory, file, link, write_snapshot
from tests.support.strategies import ODD_NAMES

GIT_DISGUISES = (
    *(
        b".git",
        b".GIT",
        b".giT",
        b"git~1",
        b"GIT~1",
        b".git.",
        b".git ",
        b".git. .",
        b".git::$INDEX_ALLOCATION",
    ),
    *(
        ".g\u200cit".encode(),
        ".gi\u2064t".encode(),
        b".git\\config",
        b"x\\.git",
        b".gitmodules",
        b".gitattributes",
    ),
)
OUTWARDS = (b"..", b".", b"", b"a/b", b"../../x", b"/etc", b"a\0b", b"a//b", b"./a", b"a/..")
LINES = {
    "a time out of range": b"f f 0644 %d" % (2**63 * 10**9 + 1),
    "a time that is no number": b"f f 0644 NaN",
    "a mode beyond twelve bits": b"f f 10644 1",
    "an owner beyond 32 bits": b"f f 0644 1 u=4294967296",
    "a negative owner": b"f f 0644 1 u=-1",
    "an unknown kind": b"f x 0644 1",
    "a directory with links": b"f d 0000 0 l=1",
    "a size that is none": b"f f 0644 1 as=enormous",
    "no words": b"f",
    "a word twice": b"f f 0644 1 u=1 u=2",
    "an attribute that is no base64": b"f f 0644 1 x=user.a:%%%",
    "a device that is a file": b"f f 0644 1 r=1:1",
    "a name spelled otherwise": b"%66 f 0644 1",
}
HEADS = {
    "another version": b"envhist-manifest 2 .\n",
    "another directory": b"envhist-manifest 1 elsewhere\n",
    "a way out": b"envhist-manifest 1 ../out\n",
    "the reserved place": b"envhist-manifest 1 .envhist/manifest\n",
    "nothing": b"\n",
}


class Forge:
    """Write snapshots that no capture writes."""

    def __init__(self, repo: Repo) -> None:
        self.repo = repo

    def tree(self, entries: list[tuple[str, bytes, str]]) -> str:
        """Write a tree object of any (mode, name, id), valid or not."""
        data = b"".join(
            b"%b %b\0%b" % (mode.encode(), name, bytes.fromhex(oid)) for mode, name, oid in entries
        )
        words = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
        return self.repo.run_git(*words, input=data).out.strip()

    def blob(self, data: bytes) -> str:
        return self.repo.git("hash-object", "-w", "--stdin", input=data)

    def shards(self, shards: dict[bytes, bytes]) -> str:
        """Write the manifest of stored directories and their shards."""
        outer: dict[str, list[tuple[str, bytes, str]]] = {}
        for stored, text in sorted(shards.items()):
            digest = hashlib.sha256(stored).hexdigest()
            outer.setdefault(digest[:2], []).append(("100644", digest[2:40].encode(), self.blob(text)))
        rows = [("40000", name.encode(), self.tree(sorted(inner))) for name, inner in sorted(outer.items())]
        return self.tree(rows)

    def snapshot(self, top: list[tuple[str, bytes, str]], shards: dict[bytes, bytes]) -> str:
        reserved = self.tree([("40000", b"manifest", self.shards(shards))])
        return self.tree(sorted([*top, ("40000", b".envhist", reserved)], key=lambda row: row[1]))


def shard(stored: bytes, *lines: bytes) -> bytes:
    head = b"envhist-manifest 1 %b\n. d 0755 1 u=0 g=0\n" % (stored or b".")
    return head + b"".join(line + b"\n" for line in lines)


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    """Return one forge for all tests: refused snapshots leave only objects."""
    return Forge(make_repo(tmp_path_factory.mktemp("forge") / "repo"))


def refusal(repo: Repo, tree: str, before: str | None = None) -> Damaged:
    """Return the error that refuses a snapshot; check that no file was written and the canary is unchanged."""
    canary = repo.path.parent / "canary"
    canary.mkdir(exist_ok=True)
    (canary / "bird").write_bytes(b"alive")
    seen = listing(repo.path, top=True), listing(canary, top=True)
    contents = ObjectReader(
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    try:
        with pytest.raises(Damaged) as caught:
            make_plan(
                differing_directories(
                    contents, bytes.fromhex(before) if before else None, bytes.fromhex(tree)
                )
            )
    finally:
        contents.close()
    assert (listing(repo.path, top=True), listing(canary, top=True)) == seen
    assert caught.value.message
    assert caught.value.message.isprintable()
    return caught.value


@pytest.mark.parametrize("name", [*GIT_DISGUISES, *OUTWARDS], ids=repr)
@pytest.mark.parametrize("place", ["leaf", "directory", "deep"])
def test_tree_with_a_name_that_leads_outside_is_refused(forge: Forge, name: bytes, place: str) -> None:
    blob = forge.blob(b"x")
    if place == "leaf":
        tree = forge.snapshot([("100644", name, blob)], {b"": shard(b"", b"f f 0644 1")})
    elif place == "directory":
        inner = forge.tree([("100644", b"f", blob)])
        tree = forge.snapshot([("40000", name, inner)], {b"": shard(b"", b"d d 0000 0")})
    else:
        inner = forge.tree([("40000", name, forge.tree([("100644", b"f", blob)]))])
        tree = forge.snapshot([("40000", b"d", inner)], {b"": shard(b"", b"d d 0000 0"), b"d": shard(b"d")})
    refusal(forge.repo, tree)


@pytest.mark.parametrize("name", OUTWARDS, ids=repr)
@pytest.mark.parametrize("kind", [b"f 0644 1", b"d 0000 0", b"l 0777 1", b"p 0600 1"], ids=repr)
def test_manifest_with_a_name_that_leads_outside_is_refused(forge: Forge, name: bytes, kind: bytes) -> None:
    quoted = re.sub(rb"[\x00-\x20%\x7f]", lambda found: b"%%%02x" % found[0][0], name)
    refusal(forge.repo, forge.snapshot([], {b"": shard(b"", quoted + b" " + kind)}))


@pytest.mark.parametrize("kind", [b"f 0644 1", b"d 0000 0", b"l 0777 1"], ids=repr)
def test_snapshot_containing_the_repository_itself_is_refused(forge: Forge, kind: bytes) -> None:
    refusal(forge.repo, forge.snapshot([], {b"": shard(b"", b".git " + kind)}))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_manifest_line_that_no_capture_writes_is_refused(forge: Forge, line: bytes) -> None:
    refusal(forge.repo, forge.snapshot([("100644", b"f", forge.blob(b"x"))], {b"": shard(b"", line)}))


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_shard_with_another_header_is_refused(forge: Forge, head: bytes) -> None:
    refusal(forge.repo, forge.snapshot([], {b"": head + b". d 0755 1 u=0 g=0\n"}))


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("120000", b"n f 0644 1"),
        ("100644", b"n l 0777 1"),
        ("40000", b"n f 0644 1"),
        ("40000", b"n l 0777 1"),
        ("100644", b"n d 0000 0"),
        ("120000", b"n d 0000 0"),
        ("100644", b"n p 0600 1"),
        ("100755", b"n f 0644 1"),
        ("100644", b"n f 0755 1"),
        ("160000", b"n d 0000 0"),
        ("160000", b"n f 0644 1"),
    ],
)
def test_tree_that_disagrees_with_its_manifest_is_refused(forge: Forge, mode: str, line: bytes) -> None:
    oid = forge.tree([("100644", b"f", forge.blob(b"x"))]) if mode == "40000" else forge.blob(b"x")
    shards = {b"": shard(b"", line), b"n": shard(b"n", b"f f 0644 1")}
    refusal(forge.repo, forge.snapshot([(mode, b"n", oid)], shards))


def test_link_and_directory_of_one_name_are_refused(forge: Forge) -> None:
    blob = forge.blob(b"/etc")
    inner = forge.tree([("100644", b"passwd", forge.blob(b"x"))])
    shards = {b"": shard(b"", b"evil l 0777 1"), b"evil": shard(b"evil", b"passwd f 0644 1")}
    refusal(forge.repo, forge.snapshot([("120000", b"evil", blob), ("40000", b"evil", inner)], shards))
    refusal(forge.repo, forge.snapshot([("120000", b"evil", blob)], shards))


def test_duplicate_name_is_refused(forge: Forge) -> None:
    one, two = forge.blob(b"1"), forge.blob(b"2")
    line = b"n f 0644 1"
    refusal(
        forge.repo, forge.snapshot([("100644", b"n", one), ("100644", b"n", two)], {b"": shard(b"", line)})
    )
    refusal(forge.repo, forge.snapshot([("100644", b"n", one)], {b"": shard(b"", line, line)}))


def test_entry_in_only_one_of_tree_and_manifest_is_refused(forge: Forge) -> None:
    blob = forge.blob(b"x")
    inner = forge.tree([("100644", b"f", blob)])
    top = shard(b"", b"d d 0000 0")
    for tree in (
        forge.snapshot([("100644", b"f", blob)], {b"": shard(b"")}),
        forge.snapshot([("40000", b"d", inner)], {b"": shard(b"")}),
        forge.snapshot([("40000", b"d", inner)], {b"": top}),
        forge.snapshot([], {b"": top}),
        forge.snapshot([], {b"": shard(b""), b"d": shard(b"d")}),
        forge.snapshot([], {b"": shard(b"", b"d f 0644 1"), b"d/e": shard(b"d/e")}),
        forge.snapshot([("100644", b"f", blob)], {}),
    ):
        refusal(forge.repo, tree)


def test_link_of_one_snapshot_is_not_followed_by_the_next(forge: Forge, repo: Repo, tmp_path: Path) -> None:
    """The first snapshot has a link; the second one names a path below it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    target = forge.blob(os.fsencode(outside))
    first = forge.snapshot([("120000", b"evil", target)], {b"": shard(b"", b"evil l 0777 1")})
    inner = forge.tree([("100644", b"passwd", forge.blob(b"x"))])
    second = forge.snapshot(
        [("120000", b"evil", target), ("40000", b"other", inner)],
        {b"": shard(b"", b"evil l 0777 1"), b"evil": shard(b"evil", b"passwd f 0644 1")},
    )
    refusal(repo, second, before=first)
    assert os.listdir(outside) == []


def test_hard_links_of_a_link_and_a_file_are_refused(repo: Repo) -> None:
    tree = write_snapshot(
        repo.path, {b"a": file(b"x", words=b"l=5"), b"b": replace(link(b"/etc/passwd"), words=b"l=5")}
    )
    refusal(repo, tree)


@pytest.mark.parametrize("place", ["x%2fy", "%2e%2e", "", "..%2f..", "a%2f.git%2fb", ".git"])
def test_nested_repository_at_an_impossible_place_is_refused(forge: Forge, place: str) -> None:
    name = place.encode() or b"%2e"
    stored = b".envhist/dotgit/" + name
    shards = {b"": shard(b"", b"x d 0000 0"), b"x": shard(b"x"), stored: shard(stored, b"config f 0644 1")}
    dotgit = forge.tree([("40000", name, forge.tree([("100644", b"config", forge.blob(b"evil"))]))])
    reserved = forge.tree([("40000", b"dotgit", dotgit), ("40000", b"manifest", forge.shards(shards))])
    refusal(forge.repo, forge.tree([("40000", b".envhist", reserved)]))


def test_endlessly_nested_trees_are_refused(forge: Forge) -> None:
    tree = forge.tree([("100644", b"f", forge.blob(b"x"))])
    for _ in range(40):
        tree = forge.tree([("40000", b"d", tree), ("40000", b"e", tree)])
    refusal(forge.repo, forge.snapshot([("40000", b"d", tree)], {b"": shard(b"", b"d d 0000 0")}))


def test_missing_contents_are_refused_before_anything_is_written(repo: Repo) -> None:
    engine = Engine(repo.path)
    repo.write("f", b"some bytes")
    before = engine.capture()
    tree = write_snapshot(repo.path, {b"f": file(b"others"), b"g": file(b"more")})
    oid = repo.git("rev-parse", f"{tree}:g")
    contents = ObjectReader(
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    plan = make_plan(differing_directories(contents, bytes.fromhex(before.tree), bytes.fromhex(tree)))
    contents.close()
    seen = engine.list_files()

    class Lacking(ObjectReader):
        def read(self, wanted: bytes) -> tuple[bytes, bytes]:
            if wanted.hex() == oid:
                raise Damaged(f"an object is missing: {oid}")
            return super().read(wanted)

    engine.contents = lambda: Lacking(  # type: ignore[method-assign]
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    with pytest.raises(Damaged):
        engine.prepare(plan)
    assert engine.list_files() == seen


def test_odd_name_is_restored(tmp_path: Path, repo: Repo) -> None:
    """Names that only look dangerous are stored and restored."""
    names = {name.replace(b"/", b"_") for name in ODD_NAMES}
    tree = write_snapshot(repo.path, {b"d/" + name: file(name) for name in names} | {b"d/e": directory()})
    contents = ObjectReader(
        Git(str(repo.path / ".git"), str(repo.path)),
        str(repo.path / ".git/objects/pack"),
        "sha1",
        verify=Verify.ID,
    )
    plan = make_plan(differing_directories(contents, None, bytes.fromhex(tree)))
    contents.close()
    below = {entry.path for step in plan.steps for entry in step.below}
    assert below == {EnvPath(b"d/" + name) for name in names} | {b"d/e"}
