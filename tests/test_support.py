"""The helpers of the tests work as the tests assume."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SHARED_FIXTURES
from tests.support import summary
from tests.support.needs import require
from tests.support.oracle import (
    find_differences,
    git_fsck,
    kernel_listing,
    listing,
    rsync_differences,
    sha256,
)
from tests.support.privileges import as_ordinary_user, permissions_bind
from tests.support.repository import Repo, make_repo
from tests.support.strategies import edits, trees
from tests.support.trees import (
    Chmod,
    Directory,
    Edit,
    Fifo,
    File,
    Forge,
    HardLink,
    Link,
    Put,
    Remove,
    Socket,
    Touch,
    Tree,
    apply,
    build,
)
from tests.support.users import DIRECTORIES, is_search, runs_as_both_users

EXAMPLE: Tree = {
    b"": Directory(0o750, 1_000_000_000_000_000_001),
    b"a/file": File(b"hello\n", 0o4711, -1_749_999_999, (("user.a", b"1"),)),
    b"a/again": HardLink(b"a/file"),
    b"a/new\nline\xff": File(b"\0", mtime_ns=5),
    b"a": Directory(0o1777, 7),
    b"empty": Directory(0o700, 123),
    b"link": Link(b"nowhere", 99),
    b"pipe": Fifo(0o600, 42),
    b"socket": Socket(3),
}


def test_described_tree_is_built_as_find_lists_it(tmp_path: Path) -> None:
    build(EXAMPLE, tmp_path / "t")
    seen = listing(tmp_path / "t", top=True)
    assert set(seen) == set(EXAMPLE)
    assert (seen[b""].mode, seen[b""].mtime_ns) == (0o750, 1_000_000_000_000_000_001)
    file = seen[b"a/file"]
    assert (file.kind, file.mode, file.mtime_ns, file.size) == ("f", 0o4711, -1_749_999_999, 6)
    assert file.sha256 == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert (file.linked, seen[b"a/again"].linked) == ((b"a/again",), (b"a/file",))
    assert (seen[b"link"].target, seen[b"link"].mtime_ns) == (b"nowhere", 99)
    assert [seen[path].kind for path in (b"pipe", b"socket", b"empty")] == ["p", "s", "d"]
    assert (seen[b"a"].mode, seen[b"a"].mtime_ns, seen[b"pipe"].mtime_ns) == (0o1777, 7, 42)


@pytest.fixture(params=["rsync", "find"])
def differences(request: pytest.FixtureRequest) -> Callable[[Path, Path], tuple[str, ...]]:
    """Each installed judge of trees."""
    if request.param == "rsync":
        require("rsync")
        return rsync_differences
    return find_differences


def test_tree_judge_finds_a_changed_byte_and_nothing_in_equal_trees(
    differences: Callable[[Path, Path], tuple[str, ...]], tmp_path: Path
) -> None:
    build(EXAMPLE, tmp_path / "one")
    build(EXAMPLE, tmp_path / "two")
    assert differences(tmp_path / "one", tmp_path / "two") == ()
    # Not the setuid file: an ordinary user's write clears that bit.
    apply([Forge(b"a/new\nline\xff")], tmp_path / "two")
    (line,) = differences(tmp_path / "one", tmp_path / "two")
    assert line.startswith((">fc", "sha256 "))
    assert "a/new" in line


@pytest.mark.parametrize(
    "change",
    [
        Remove(b"empty"),
        Put(b"more", File()),
        Chmod(b"a/new\nline\xff", 0o600),
        Touch(b"a", 8 * 10**9),
        Touch(b".", 8 * 10**9),
        Touch(b"pipe", 8 * 10**9),
        Put(b"link", Link(b"elsewhere", 99)),
        Put(b"socket", Fifo(mtime_ns=3)),
        Put(b"a/again", File(b"hello\n", 0o4711, -1_749_999_999, (("user.a", b"1"),))),
    ],
)
def test_tree_judge_finds_each_kind_of_difference(
    differences: Callable[[Path, Path], tuple[str, ...]], tmp_path: Path, change: Edit
) -> None:
    build(EXAMPLE, tmp_path / "one")
    build(EXAMPLE, tmp_path / "two")
    apply([change], tmp_path / "two")
    assert differences(tmp_path / "one", tmp_path / "two") != ()


def test_tree_judge_finds_an_extended_attribute(
    differences: Callable[[Path, Path], tuple[str, ...]], tmp_path: Path
) -> None:
    build(EXAMPLE, tmp_path / "one")
    build(EXAMPLE, tmp_path / "two")
    try:
        os.setxattr(tmp_path / "two/a/file", "user.a", b"2")
    except OSError:
        pytest.skip("this file system keeps no extended attributes")
    assert differences(tmp_path / "one", tmp_path / "two") != ()


def test_a_forged_file_keeps_its_size_and_its_time(tmp_path: Path) -> None:
    build({b"f": File(b"abc", mtime_ns=1_000)}, tmp_path)
    before = listing(tmp_path)[b"f"]
    apply([Forge(b"f")], tmp_path)
    after = listing(tmp_path)[b"f"]
    assert (after.size, after.mtime_ns) == (before.size, before.mtime_ns)
    assert after.sha256 != before.sha256


@settings(max_examples=30)
@given(st.data())
def test_arbitrary_trees_and_edits_are_built(data: st.DataObject) -> None:
    tree = data.draw(trees())
    with tempfile.TemporaryDirectory() as root:
        build(tree, root)
        assert kernel_listing(root) == listing(root, top=True)
        assert set(listing(root)) == {path for path in tree if path}
        apply(data.draw(edits(tree)), root)
        for path, entry in listing(root).items():
            if entry.kind == "f" and os.access(os.path.join(os.fsencode(root), path), os.R_OK):
                assert entry.sha256 == sha256(os.path.join(os.fsencode(root), path))


def test_tests_are_isolated_from_the_machine(repo: Repo, hermetic: Path) -> None:
    assert repo.git("config", "user.email") == "test@example.com"
    assert repo.git("log", "--format=%s") == "first commit"
    assert Path.home() == hermetic
    inherited = {name for name in os.environ if name.startswith("GIT_")}
    assert inherited == {
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_GLOBAL",
        "GIT_CEILING_DIRECTORIES",
        "GIT_ENVHIST_MACHINE_ROOT",
    }
    assert git_fsck(repo.path) == ""


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_repository_has_the_requested_object_format(tmp_path: Path, object_format: str) -> None:
    repo = make_repo(tmp_path / "r", object_format=object_format)
    assert repo.git("rev-parse", "--show-object-format") == object_format
    assert len(repo.git("rev-parse", "HEAD")) == {"sha1": 40, "sha256": 64}[object_format]


def test_permission_bits_apply_to_root_too(repo: Repo) -> None:
    repo.write("closed", b"x", mode=0)
    assert repo.execute(*as_ordinary_user(), "cat", "closed", check=False).status != 0
    with permissions_bind(), pytest.raises(PermissionError):
        repo.read("closed")
    repo.path.joinpath("closed").chmod(0o600)
    assert repo.read("closed") == b"x"


def test_programs_do_not_inherit_the_directory_of_the_session() -> None:
    assert "PYTEST_DEBUG_TEMPROOT" not in os.environ


def test_files_that_change_modes_run_as_both_users() -> None:
    tests = Path(__file__).parent
    assert runs_as_both_users(tests / "restore/test_round_trip.py")
    assert not runs_as_both_users(tests / "worktree/test_path_patterns.py")
    # Its helper calls chown.
    assert runs_as_both_users(tests / "crash/test_errors.py")
    assert is_search(tests / "diff/test_series_of_captures.py")


def test_skipped_tests_are_listed_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "skipped"
    monkeypatch.setenv(summary.SKIPPED, str(place))
    monkeypatch.setenv(summary.SKIPPED_BEFORE, str(place))
    location = ("test_a.py", 1, "test_b")
    report = pytest.TestReport("test_a.py::test_b[x y]", location, {}, "skipped", None, "setup")
    summary.write_skipped(SimpleNamespace(stats={"skipped": [report]}))
    assert summary.skipped_before() == {"test_a.py::test_b[x y]"}
    monkeypatch.delenv(summary.SKIPPED_BEFORE)
    assert summary.skipped_before() == frozenset()


def test_named_directories_and_files_of_tests_exist() -> None:
    top = Path(__file__).parents[1]
    assert [name for name in DIRECTORIES if not (top / "tests" / name).is_dir()] == []
    assert [name for name in SHARED_FIXTURES if not (top / name).exists()] == []
    as_ordinary_user = ",".join(name for name in DIRECTORIES if name != "crash")
    assert f"tests/{{{as_ordinary_user}}}" in (top / ".ci/run").read_text(encoding="utf-8")
