"""Comparisons of two snapshots, judged by git, by described trees, and by hand."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.diff import tree_diff as diff
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.summary import count_changes
from git_envhist.errors import Damaged, EnvhistError, UsageError
from git_envhist.git.pathspecs import anchored, directory_prefix
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.model import Change, ChangeCount, ChangeKind, EntryKind, StoredAs
from git_envhist.snapshots.layout import shard_path
from git_envhist.snapshots.oversized_trees import TreeTooLarge
from tests.support.depth import examples
from tests.support.repository import Repo
from tests.support.snapshots import (
    Described,
    Tree,
    directory,
    fifo,
    file,
    link,
    with_parents,
    write_snapshot,
)


@pytest.fixture
def git(repo: Repo) -> Git:
    return Repository.open(str(repo.path)).git


class Pair:
    """Two described trees, written to a repository and compared."""

    def __init__(self, repo: Repo, git: Git) -> None:
        self.repo = repo
        self.git = git
        self.before = self.after = ""

    def write(self, before: Tree, after: Tree) -> Pair:
        self.before = write_snapshot(self.repo.path, before)
        self.after = write_snapshot(self.repo.path, after)
        return self

    def changes(self, *pathspecs: bytes, renames: int | None = None) -> tuple[Change, ...]:
        return compare(self.git, self.before, self.after, pathspecs=pathspecs, renames=renames)

    def letters(self, *pathspecs: bytes, renames: int | None = None) -> list[tuple[str, bytes]]:
        return [(change.kind.value, change.path) for change in self.changes(*pathspecs, renames=renames)]


@pytest.fixture
def pair(repo: Repo, git: Git) -> Pair:
    return Pair(repo, git)


def test_equal_snapshots_differ_in_nothing(pair: Pair) -> None:
    tree = {b"a/b": file(b"x"), b"empty": directory()}
    assert pair.write(tree, tree).changes() == ()


def test_added_removed_and_modified_files_have_both_sides(pair: Pair) -> None:
    pair.write({b"gone": file(b"1"), b"same": file(b"s"), b"app.py": file(b"old", 0o640)},
               {b"new": file(b"2"), b"same": file(b"s"), b"app.py": file(b"new", 0o640)})  # fmt: skip
    changes = {change.path: change for change in pair.changes()}
    assert [(path, change.kind.value) for path, change in changes.items()] == [
        (b"app.py", "M"), (b"gone", "D"), (b"new", "A")
    ]  # fmt: skip
    before, after = changes[b"app.py"].before, changes[b"app.py"].after
    assert before is not None
    assert after is not None
    assert (before.mode, before.kind) == (0o640, EntryKind.FILE)
    assert before.oid is not None
    assert after.oid is not None
    assert pair.git.run("cat-file", "blob", before.oid.hex()) == b"old"
    assert pair.git.run("cat-file", "blob", after.oid.hex()) == b"new"


def test_touched_file_is_not_a_change(pair: Pair) -> None:
    pair.write({b"a": file(b"x", mtime_ns=1)}, {b"a": file(b"x", mtime_ns=2)})
    assert pair.changes() == ()


def test_modes_that_git_cannot_see_are_changes(pair: Pair) -> None:
    pair.write({b"d/key": file(b"k", 0o644)}, {b"d/key": file(b"k", 0o600)})
    (change,) = pair.changes()
    assert change.before is not None
    assert change.after is not None
    assert (change.before.mode, change.after.mode, change.attributes) == (0o644, 0o600, ("mode",))
    assert change.before.oid == change.after.oid is not None


@pytest.mark.parametrize(
    ("other", "attribute"),
    [
        ({"owner": (0, 1000)}, "owner"),
        ({"owner": (1000, 7)}, "owner"),
        ({"xattrs": ((b"user.note", b"hi"),)}, "xattr"),
        ({"words": b"h=ab", "stored": StoredAs.FINGERPRINT, "content": None}, "content"),
    ],
)
def test_owner_attributes_and_fingerprints_are_changes(
    pair: Pair, other: Mapping[str, object], attribute: str
) -> None:
    plain = file(b"x")
    if attribute == "content":
        plain = Described(content=None, stored=StoredAs.FINGERPRINT, words=b"h=cd")
    pair.write({b"a": plain}, {b"a": replace(plain, **other)})  # type: ignore[arg-type]
    (change,) = pair.changes()
    assert (change.kind, change.attributes) == (ChangeKind.MODIFIED, (attribute,))


def test_files_without_owner_inherit_the_directorys_owner(pair: Pair) -> None:
    ours, theirs = (1000, 1000), (0, 0)
    pair.write(
        {b"d": directory(owner=ours), b"d/a": file(owner=ours), b"d/b": file(owner=theirs)},
        {b"d": directory(owner=theirs), b"d/a": file(owner=theirs), b"d/b": file(owner=theirs)},
    )
    assert [(change.path, change.attributes) for change in pair.changes()] == [
        (b"d", ("owner",)), (b"d/a", ("owner",))
    ]  # fmt: skip


def test_only_empty_directories_are_added_and_removed(pair: Pair) -> None:
    pair.write(
        {b"was/empty": directory(), b"full/file": file(), b"filled": directory(), b"turned": directory()},
        {b"now/empty": directory(), b"other/file": file(), b"filled/x": file(), b"turned": file()},
    )
    assert pair.letters() == [
        ("A", b"filled/x"), ("D", b"full/file"), ("A", b"now/empty"), ("A", b"other/file"),
        ("T", b"turned"), ("D", b"was/empty"),
    ]  # fmt: skip


def test_file_replaced_by_a_full_directory_is_removed(pair: Pair) -> None:
    pair.write({b"a": file(b"x")}, {b"a/b": file(b"y")})
    assert pair.letters() == [("D", b"a"), ("A", b"a/b")]


def test_pipe_link_and_file_at_one_path_are_changes_of_type(pair: Pair) -> None:
    pair.write(
        {b"a": file(b"x"), b"b": link(b"t"), b"c": fifo()},
        {b"a": link(b"x"), b"b": fifo(), b"c": fifo(0o600)},
    )
    assert pair.letters() == [("T", b"a"), ("T", b"b"), ("M", b"c")]


def test_escaped_names_are_reported_unescaped(pair: Pair) -> None:
    pair.write(
        {b".gitignore": link(b"x")}, {b".gitignore": file(b"*"), b"a/.gitattributes": file(), b"%2e": file()}
    )
    assert pair.letters() == [("A", b"%2e"), ("T", b".gitignore"), ("A", b"a/.gitattributes")]


def test_unreadable_file_is_not_removed(pair: Pair) -> None:
    pair.write({b"a": file(b"x")}, {b"a": replace(file(), content=None)})
    (change,) = pair.changes()
    assert change.kind is ChangeKind.MODIFIED
    assert change.after is not None
    assert change.after.oid is None


def test_storage_of_a_file_is_known_when_its_shard_is_unchanged(pair: Pair) -> None:
    sealed = Described(content=b"one", stored=StoredAs.SEALED)
    pair.write({b".env": sealed}, {b".env": replace(sealed, content=b"two")})
    (change,) = pair.changes()
    assert change.after is not None
    assert change.after.stored is StoredAs.SEALED


def test_data_outside_the_environment_has_no_paths(repo: Repo, git: Git) -> None:
    tree = {b"a": file()}
    before = write_snapshot(repo.path, tree, others={b".envhist/facts/pip": b"flask 1"})
    after = write_snapshot(
        repo.path, tree, others={b".envhist/facts/pip": b"flask 2", b".envhist/missing": b"x"}
    )
    assert compare(git, before, after) == ()


def test_nested_repository_is_one_path(repo: Repo, git: Git) -> None:
    work = {b"lib/x/file": file()}
    before = write_snapshot(
        repo.path, work, nested={"lib/x": {b"HEAD": file(b"1"), b"refs/heads/a": file(b"2")}}
    )
    after = write_snapshot(
        repo.path,
        {**work, b"n": directory()},
        nested={"lib/x": {b"HEAD": file(b"3"), b"refs/heads/b": file(b"2")}, "n": {b"HEAD": file()}},
    )
    changes = compare(git, before, after)
    assert [(change.kind.value, change.path) for change in changes] == [
        ("M", b"lib/x/.git"),
        ("A", b"n/.git"),
    ]
    assert count_changes(changes) == ChangeCount(added=1, modified=1)
    assert [change.path for change in compare(git, before, after, pathspecs=[b"n"])] == [b"n/.git"]


def test_mode_change_inside_a_nested_repository_changes_its_entry(repo: Repo, git: Git) -> None:
    before = write_snapshot(repo.path, {}, nested={"x": {b"hooks/a": file(b"1", 0o644)}})
    after = write_snapshot(repo.path, {}, nested={"x": {b"hooks/a": file(b"1", 0o600)}})
    (change,) = compare(git, before, after)
    assert (change.kind, change.path) == (ChangeKind.MODIFIED, b"x/.git")


def test_paths_of_additional_roots_begin_with_the_roots_name(repo: Repo, git: Git) -> None:
    before = write_snapshot(
        repo.path, {}, roots={"nginx": {b"nginx.conf": file(b"1"), b"d/a": file(b"", 0o644)}}
    )
    after = write_snapshot(
        repo.path, {}, roots={"nginx": {b"nginx.conf": file(b"2"), b"d/a": file(b"", 0o600)}}
    )
    changes = compare(git, before, after)
    assert [change.path for change in changes] == [b"nginx://d/a", b"nginx://nginx.conf"]
    limited = compare(git, before, after, pathspecs=[anchored(b"nginx://d", b"sub/", b"/top")])
    assert [change.path for change in limited] == [b"nginx://d/a"]


def test_comparison_with_nothing_adds_everything(repo: Repo, git: Git) -> None:
    after = write_snapshot(repo.path, {b"a/b": file(b"x"), b"e": directory(), b"p": fifo()})
    changes = compare(git, None, after)
    assert [(change.kind.value, change.path) for change in changes] == [
        ("A", b"a/b"),
        ("A", b"e"),
        ("A", b"p"),
    ]


def test_rename_agrees_with_git(pair: Pair) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50))
    pair.write(
        {b"old/name": file(text), b"x": file(b"x")}, {b"new": file(text + b"more\n"), b"x": file(b"y")}
    )
    assert pair.letters() == [("A", b"new"), ("D", b"old/name"), ("M", b"x")]
    assert pair.letters(renames=50) == [("R", b"new"), ("M", b"x")]
    renamed = pair.changes(renames=50)[0]
    assert renamed.similarity is not None
    assert 90 <= renamed.similarity < 100
    assert pair.letters(renames=100) == pair.letters()
    assert pair.letters(b"new", renames=50) == [("A", b"new")]
    assert count_changes(pair.changes(renames=50)) == count_changes(pair.changes())


def test_plain_git_commit_is_compared_without_a_manifest(repo: Repo, git: Git) -> None:
    before = repo.git("rev-parse", "HEAD")
    repo.write("run.sh", "x", mode=0o755)
    after = repo.commit()
    (change,) = compare(git, before, after)
    assert change.after is not None
    assert (change.path, change.after.mode) == (b"run.sh", 0o755)


def test_missing_shard_raises_damaged(pair: Pair) -> None:
    pair.write({b"a": file(b"1")}, {b"a": file(b"2", 0o600)})
    listed = pair.repo.git("ls-tree", "-r", pair.after, "--", ".envhist/manifest")
    shard = listed.splitlines()[0].split()[2]
    (Path(pair.git.git_dir) / "objects" / shard[:2] / shard[2:]).unlink()
    with pytest.raises(Damaged):
        pair.changes()


PATHSPECS = [
    [b"src"], [b"src/"], [b"*.py"], [b":(icase)SRC"], [b":(exclude)src"], [b":(glob)**/a.py"], [b":(glob)*.py"],
    [b":!*.py", b"src"], [b"src/a.py", b"b*"], [b":(literal)b*"], [b"."], [b"nothing"],
]  # fmt: skip


@pytest.mark.parametrize("pathspecs", PATHSPECS, ids=lambda specs: b" ".join(specs).decode())
def test_pathspecs_agree_with_git_diff(pair: Pair, pathspecs: list[bytes]) -> None:
    names = (b"src/a.py", b"src/deep/a.py", b"srcs", b"a.py", b"b*", b"bb", b"SRC/x", b"src-2/c.txt")
    pair.write({}, {name: file(name) for name in names})
    said = pair.git.run("diff-tree", "-r", "-z", "--name-only", pair.before, pair.after, "--",
                        *pathspecs, ":(top,exclude).envhist")  # fmt: skip
    anchors = [anchored(spec, b"", b"/nowhere") for spec in pathspecs]
    assert [path for _, path in pair.letters(*anchors)] == sorted(said.split(b"\0")[:-1])


def test_pathspecs_match_true_names(pair: Pair) -> None:
    pair.write({}, {b"a/.gitattributes": file(), b".gitattributes": file(), b"x%41": file(), b"xA": file()})
    assert pair.letters(b":(literal).gitattributes") == [("A", b".gitattributes")]
    assert [path for _, path in pair.letters(b"*.gitattributes")] == [b".gitattributes", b"a/.gitattributes"]
    assert pair.letters(b"*%2e*") == []
    assert [path for _, path in pair.letters(b"x%41")] == [b"x%41"]


def test_pathspecs_match_paths_that_only_the_manifest_contains(pair: Pair) -> None:
    pair.write(
        {b"d/x": file(b"", 0o644)}, {b"d/x": file(b"", 0o600), b"d/empty": directory(), b"d/pipe": fifo()}
    )
    assert [path for _, path in pair.letters(b"d/empty/")] == [b"d/empty"]
    assert [path for _, path in pair.letters(b"d/p*")] == [b"d/pipe"]
    assert [path for _, path in pair.letters(b":(exclude)d/x")] == [b"d/empty", b"d/pipe"]


def test_pathspecs_are_relative_to_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "sub[1]" / "deep").mkdir(parents=True)
    root = os.fsencode(tmp_path)
    prefix = directory_prefix(root + b"/sub[1]/deep", root)
    assert prefix == b"sub[1]/deep/"
    assert directory_prefix(root, root) == b""
    assert directory_prefix(b"/", root) == b""
    assert anchored(b"x*", prefix, root) == b":(prefix:11)sub[1]/deep/x*"
    assert anchored(b"../y/", prefix, root) == b":(prefix:6)sub[1]/y/"
    assert anchored(b":/z", prefix, root) == b":(prefix:0)z"
    assert anchored(b":(exclude,icase)q", prefix, root) == b":(prefix:11,exclude,icase)sub[1]/deep/q"
    assert anchored(root + b"/abs", prefix, root) == b":(prefix:0)abs"
    for outside in (b"../../../x", b"/elsewhere"):
        with pytest.raises(UsageError):
            anchored(outside, prefix, root)


def test_pathspec_in_a_directory_with_special_characters_is_literal(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.write({}, {b"[ab]/x.py": file(), b"a/x.py": file()})
    (pair.repo.path / "[ab]").mkdir()
    monkeypatch.chdir(pair.repo.path / "[ab]")
    assert pair.letters(anchored(b"*.py", b"[ab]/", b"/top")) == [("A", b"[ab]/x.py")]


# Arbitrary pairs, judged by their descriptions.

NAMES = st.sampled_from(
    [b"a", b"b", b"a.b", b".git", b".gitignore", b"%2e", b"x y", b"\xff", b"new\nline", b"d-"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
OWNERS = st.sampled_from([(1000, 1000), (0, 1000), (0, 0)])
XATTRS = st.sampled_from([(), ((b"user.a", b"1"),), ((b"user.a", b"2"),)])
FILES = st.builds(
    Described, st.just(EntryKind.FILE), st.sampled_from([b"", b"one", b"two"]), st.sampled_from([0o644, 0o600, 0o4755]),
    st.integers(0, 2), OWNERS, XATTRS, st.sampled_from([StoredAs.PLAIN, StoredAs.SEALED]),
)  # fmt: skip
DIRECTORIES = st.builds(
    Described, st.just(EntryKind.DIRECTORY), st.none(), st.sampled_from([0o755, 0o700]),
    st.integers(0, 2), OWNERS, XATTRS,
)  # fmt: skip
THINGS = st.one_of(FILES, FILES, DIRECTORIES, st.just(link(b"t")), st.just(link(b"u")), st.just(fifo()))


@st.composite
def described(draw: st.DrawFn) -> dict[bytes, Described]:
    tree: dict[bytes, Described] = {}
    for path, thing in draw(st.dictionaries(PATHS, THINGS, max_size=8)).items():
        above = path
        while above := os.path.dirname(above):
            if above in tree and tree[above].kind is not EntryKind.DIRECTORY:
                break
        else:
            if thing.kind is EntryKind.DIRECTORY or not any(other.startswith(path + b"/") for other in tree):
                tree[path] = thing
    return with_parents(tree)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[bytes, Described], dict[bytes, Described]]:
    """Draw a tree and another one with much in common."""
    before = draw(described())
    after = dict(draw(described()))
    for path in draw(st.sets(st.sampled_from(sorted(before)))):
        clash = any(other.startswith(path + b"/") for other in after)
        parents = {os.path.dirname(path)}
        if not clash and before[path].kind is not EntryKind.DIRECTORY and all(
            after.get(parent, directory()).kind is EntryKind.DIRECTORY for parent in parents
        ) and parents <= after.keys():  # fmt: skip
            after[path] = before[path]
    return before, after


def naive(before: Tree, after: Tree) -> Iterator[tuple[str, bytes]]:
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None or old.kind is not new.kind:
            old = None if _is_told_by_its_children(path, before) else old
            new = None if _is_told_by_its_children(path, after) else new
        if old is None and new is None:
            continue
        if old is None or new is None:
            yield ("A" if old is None else "D"), path
        elif old.kind is not new.kind:
            yield "T", path
        elif replace(old, mtime_ns=0) != replace(new, mtime_ns=0):
            yield "M", path


def _is_told_by_its_children(path: bytes, tree: Tree) -> bool:
    thing = tree.get(path)
    if thing is None or thing.kind is not EntryKind.DIRECTORY:
        return False
    return not path or any(other.startswith(path + b"/") for other in tree)


@settings(max_examples=examples(25, 100))
@given(pairs())
def test_compare_reports_exactly_the_described_differences_of_two_trees(
    tmp_path_factory: pytest.TempPathFactory, trees: tuple[dict[bytes, Described], dict[bytes, Described]]
) -> None:
    pair = _Scratch.get(tmp_path_factory).write(*trees)
    assert pair.letters() == list(naive(*trees))
    assert count_changes(pair.changes()) == count_naively(*trees)
    brief = compare(pair.git, pair.before, pair.after, brief=True)
    assert [(change.kind, change.path) for change in brief] == [
        (change.kind, change.path) for change in pair.changes()
    ]
    for change in pair.changes():
        for side, tree in zip((change.before, change.after), trees, strict=True):
            if side is not None:
                thing = tree[change.path]
                assert (side.kind, side.mode, side.stored) == (thing.kind, thing.mode, thing.stored)
                assert (side.oid is not None) == (thing.content is not None)


def count_naively(before: Tree, after: Tree) -> ChangeCount:
    letters = [letter for letter, _ in naive(before, after)]
    return ChangeCount(letters.count("A"), letters.count("M") + letters.count("T"), letters.count("D"))


class _Scratch:
    """A repository that all examples of a property share."""

    pair: Pair | None = None

    @classmethod
    def get(cls, factory: pytest.TempPathFactory) -> Pair:
        if cls.pair is None:
            from tests.support.repository import make_repo

            repo = make_repo(factory.mktemp("scratch") / "repo")
            cls.pair = Pair(repo, Repository.open(str(repo.path)).git)
        return cls.pair


@pytest.mark.parametrize("brief", [True, False])
@pytest.mark.parametrize("what", ["some/deep", ".envhist/manifest", "shard"])
def test_unreadable_object_is_reported_by_its_path(
    repo: Repo, git: Git, pair: Pair, what: str, brief: bool
) -> None:
    pair.write({b"some/deep/a": file(b"1", 0o600)}, {b"some/deep/a": file(b"2", 0o640)})
    shard = "/".join(shard_path(b"some/deep"))
    place = f".envhist/manifest/{shard}" if what == "shard" else what
    oid = repo.git("rev-parse", f"{pair.before}:{place}")
    loose = repo.path / ".git/objects" / oid[:2] / oid[2:]
    loose.chmod(0o600)
    loose.write_bytes(loose.read_bytes()[:-5])
    told = "some/deep" if what == "shard" else what
    with pytest.raises(EnvhistError, match=f"the data of '{told}' cannot be read: ") as raised:
        compare(git, pair.before, pair.after, brief=brief)
    assert raised.value.hint


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="this system has no resource limits")
@pytest.mark.parametrize(("bound", "least"), [("MAX_MEMORY", 20 << 20), ("MAX_SECONDS", 1)])
def test_trees_of_unlimited_size_raise_tree_too_large(
    repo: Repo, git: Git, monkeypatch: pytest.MonkeyPatch, bound: str, least: int
) -> None:
    monkeypatch.setattr(diff, bound, least)
    blob = repo.git("hash-object", "-w", "--stdin", input="x")
    tree = repo.git("mktree", input=f"100644 blob {blob}\tf\n")
    for _ in range(60):
        tree = repo.git("mktree", input=f"040000 tree {tree}\td\n040000 tree {tree}\te\n")
    empty = repo.git("mktree", input="")
    with pytest.raises(TreeTooLarge):
        compare(git, empty, tree)
