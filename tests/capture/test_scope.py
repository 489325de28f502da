"""Extent of an environment: roots, exclusions, nested and linked repositories, and changes of these rules."""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.model import MissingReason
from tests.capture.helpers import (
    HOWS,
    everything_stored,
    forget_cache,
    fresh_repo,
    settle,
    snapshot,
    take,
    tree_of,
)
from tests.end_to_end.captures import assert_holds
from tests.support.depth import examples
from tests.support.oracle import git_fsck, listing
from tests.support.privileges import permissions_bind
from tests.support.repository import Repo
from tests.support.snapshot import read_back


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    place = tmp_path / "etc"
    (place / "conf.d").mkdir(parents=True)
    (place / "site.conf").write_text("listen 80\n")
    (place / "conf.d/inner").write_text("inner\n")
    return place


@pytest.mark.parametrize("how", HOWS)
def test_root_configured_after_the_first_capture_is_captured(repo: Repo, etc: Path, how: str) -> None:
    settle(repo)
    repo.git("config", "envhist.root.nginx", str(etc))
    taken = snapshot(repo, how)
    assert read_back(repo, taken.commit).roots["nginx"] == listing(etc, top=True)


@pytest.mark.parametrize("how", HOWS)
def test_root_is_not_captured_after_its_configuration_is_removed(repo: Repo, etc: Path, how: str) -> None:
    repo.git("config", "envhist.root.nginx", str(etc))
    settle(repo)
    repo.git("config", "--unset", "envhist.root.nginx")
    assert read_back(repo, snapshot(repo, how).commit).roots == {}
    assert_holds(repo, snapshot(repo).commit)


def test_missing_root_is_warned_about_and_captured_again_when_it_returns(repo: Repo, etc: Path) -> None:
    repo.git("config", "envhist.root.nginx", str(etc))
    settle(repo)
    etc.rename(etc.with_name("away"))
    away = take(repo)
    assert any("nginx" in warning for warning in away.warnings)
    etc.with_name("away").rename(etc)
    assert read_back(repo, snapshot(repo).commit).roots["nginx"] == listing(etc, top=True)


def test_unreadable_root_is_reported_and_scanned_again(repo: Repo, etc: Path) -> None:
    repo.git("config", "envhist.root.nginx", str(etc))
    settle(repo)
    etc.chmod(0)
    with permissions_bind():
        closed = take(repo)
    assert [(one.path, one.why) for one in closed.missing] == [(b"nginx://", MissingReason.UNREADABLE)]
    etc.chmod(0o755)
    assert read_back(repo, snapshot(repo).commit).roots["nginx"] == listing(etc, top=True)


@pytest.mark.parametrize("how", HOWS)
def test_path_excluded_later_is_neither_read_nor_listed_as_missing(repo: Repo, how: str) -> None:
    repo.write("build/closed", b"x", 0)
    repo.write("build/deep/er", b"x")
    repo.write("build/shut/inside", b"x")
    settle(repo)
    (repo.path / "build/shut").chmod(0)
    repo.write("build/deep/er", b"these bytes are nobody's business")
    repo.write(".envhistignore", b"build/\n")
    with permissions_bind():
        taken = take(repo, how)
    assert taken.missing == ()
    assert taken.snapshot is not None
    assert set(read_back(repo, taken.snapshot.commit).listing) == {b"", b"app.py", b".envhistignore"}
    assert b"nobody's business" not in everything_stored(repo)
    (repo.path / ".envhistignore").unlink()
    (repo.path / "build/shut").chmod(0o755)
    # An ordinary user could not read it now either.
    (repo.path / "build/closed").chmod(0o600)
    assert_holds(repo, snapshot(repo).commit)


def test_invalid_pattern_gives_a_warning(repo: Repo) -> None:
    repo.write(".envhistignore", b"!\n*.log\n")
    repo.git("config", "envhist.exclude", "!")
    repo.write("x.log")
    taken = take(repo)
    assert taken.snapshot is not None
    assert sum("pattern" in warning for warning in taken.warnings) == 2
    assert b"x.log" not in read_back(repo, taken.snapshot.commit).listing


PARTS = st.sampled_from(
    [
        "*",
        "**",
        "a",
        "b",
        "a b",
        "dir",
        "x.log",
        "*.log",
        "?",
        "[ab]",
        "[!a]",
        "\\*",
        "é",
        "à",
        "\x0c",
        "\u2028",
    ]
)
LINES = st.one_of(
    st.tuples(
        st.sampled_from(["", "!", "/", "#", "\\!"]),
        st.lists(PARTS, min_size=1, max_size=3).map("/".join),
        st.sampled_from(["", "/", " ", "\\ ", "\r", "/**"]),
    ).map("".join),
    st.sampled_from(["", "#", "/", "dir/*", "!dir/a", "*", "!*/", "**/a", "a/**/b"]),
)
TREE = (
    "a",
    "b",
    "x.log",
    "a b",
    "é",
    "*",
    "#a",
    "dir/a",
    "dir/b",
    "dir/x.log",
    "dir/dir/a",
    "dir/a b/b",
    "!a",
)


@settings(max_examples=examples(10, 40))
@given(st.lists(LINES, max_size=5))
@example(["*/\x0c"])
@example(["a\t", "b \t  "])
@example(["dir/a\\ b\\  ", "*b  "])
@example(["\x0b"])
def test_patterns_match_as_in_git(lines: list[str]) -> None:
    with fresh_repo() as repo:
        for path in TREE:
            repo.write(path, b"1")
        repo.write(".envhistignore", "\n".join(lines))
        repo.git("rm", "-q", "--cached", "app.py")
        (repo.path / "app.py").unlink()
        words = ["ls-files", "-z", "--others", "--exclude-from=.envhistignore"]
        wanted = set(repo.run_git(*words).stdout.split(b"\0")[:-1])
        found = read_back(repo, snapshot(repo).commit).listing
        assert {path for path, entry in found.items() if entry.kind == "f"} == wanted


def test_repository_inside_a_git_directory_is_captured(repo: Repo) -> None:
    repo.git("init", "-q", "lib")
    repo.git("init", "-q", "lib/.git/inner")
    repo.write("lib/.git/inner/code", b"1")
    repo.write("lib/.git/odd/.git", b"gitdir: elsewhere\n")
    repo.write("lib/.gitmodules", b"x")
    taken = snapshot(repo)
    assert_holds(repo, taken.commit)
    assert git_fsck(repo.path) == ""
    repo.write("lib/.git/inner/.git/more", b"2")
    assert_holds(repo, snapshot(repo).commit)


def test_many_nested_repositories_are_stored_separately(repo: Repo) -> None:
    for place in ("a", "a/b", "a%2fb", ".envhist/x", "a b", "dir.git/.GIT2", "2" * 40):
        repo.git("init", "-q", place)
        repo.write(f"{place}/own", place)
    assert_holds(repo, snapshot(repo).commit)
    assert git_fsck(repo.path) == ""


def test_deep_nested_repository_is_stored_under_the_hash_of_its_path(repo: Repo) -> None:
    place = "long/" * 60 + "end"
    repo.git("init", "-q", place)
    digest = hashlib.sha256(place.encode()).hexdigest()[:40]
    commit = snapshot(repo).commit
    assert repo.git("show", f"{commit}:.envhist/dotgit/{digest}/HEAD") == "ref: refs/heads/main"


def test_other_working_tree_is_listed_and_not_entered(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "inner/linked")
    taken = snapshot(repo)
    found = read_back(repo, taken.commit).listing
    assert found[b"inner/linked"].kind == "w"
    assert not [path for path in found if path.startswith(b"inner/linked/")]
    linked = Repo(repo.path / "inner/linked", repo.env)
    linked.write("own", b"1")
    assert_holds(linked, snapshot(linked).commit)
    assert git_fsck(repo.path) == ""


def test_repository_may_be_outside_the_working_tree(repo: Repo, tmp_path: Path) -> None:
    repo.git("init", "-q", "--separate-git-dir", str(tmp_path / "apart.git"))
    taken = snapshot(repo)
    assert set(read_back(repo, taken.commit).listing) == {b"", b"app.py"}
    inside = tmp_path / "inside"
    (inside / "hidden").mkdir(parents=True)
    other = Repo(inside, repo.env)
    other.git("init", "-q", "--separate-git-dir", str(inside / "hidden/repo"))
    other.write("file", b"1")
    assert set(read_back(other, snapshot(other).commit).listing) == {b"", b"file", b"hidden"}


@contextmanager
def deep(repo: Repo, levels: int) -> Iterator[None]:
    """Make nested directories and remove them afterwards, because Python's own cleaning does not reach that
    deep."""
    here = os.open(repo.path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        yield
    finally:
        repo.execute("rm", "-r", "d")


@pytest.mark.parametrize("how", HOWS)
def test_deep_tree_is_captured_with_few_descriptors(repo: Repo, how: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with deep(repo, 400):
        # Tests before this one may have left histories open in this process.
        used = max(map(int, os.listdir("/dev/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 140, before[1]))
        try:
            taken = take(repo, how)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert taken.missing == ()
        assert taken.snapshot is not None
        assert_holds(repo, taken.snapshot.commit)


def test_too_deep_directory_is_listed_as_missing(repo: Repo) -> None:
    with deep(repo, 1100):
        taken = take(repo)
    assert [one.why for one in taken.missing] == [MissingReason.TOO_DEEP]
    assert taken.snapshot is not None
    assert not taken.snapshot.complete
    assert git_fsck(repo.path) == ""


@pytest.mark.parametrize("how", HOWS)
def test_unreadable_entry_is_listed_and_its_siblings_are_captured(repo: Repo, how: str) -> None:
    if how == "spawn" and os.geteuid() == 0:
        pytest.skip("a program started by root regains all capabilities")
    repo.write("dir/closed", b"x", 0)
    repo.write("dir/open", b"y")
    repo.write("shut/inside", b"z")
    (repo.path / "shut").chmod(0o600)
    with permissions_bind():
        taken = take(repo, how)
    missing = {(one.path, one.why) for one in taken.missing}
    (repo.path / "shut").chmod(0o700)
    assert missing == {(b"dir/closed", MissingReason.UNREADABLE), (b"shut", MissingReason.UNREADABLE)}
    assert taken.snapshot is not None
    assert not taken.snapshot.complete
    found = read_back(repo, taken.snapshot.commit).listing
    assert {b"dir/open", b"shut"} <= set(found)
    (repo.path / "dir/closed").chmod(0o600)
    assert_holds(repo, snapshot(repo, how).commit)


def test_unreadable_directory_is_not_captured_from_its_old_record(repo: Repo) -> None:
    repo.write("shut/inside/deep", b"z")
    settle(repo)
    (repo.path / "shut").chmod(0)
    with permissions_bind():
        taken = take(repo)
    assert taken.snapshot is not None
    found = read_back(repo, taken.snapshot.commit).listing
    assert found[b"shut"].mode == 0
    assert not [path for path in found if path.startswith(b"shut/")]
    (repo.path / "shut").chmod(0o755)
    assert_holds(repo, snapshot(repo).commit)


def test_fingerprint_shows_only_that_a_file_changed(repo: Repo) -> None:
    repo.git("config", "envhist.fingerprint", "*.model")
    for name, content in (
        ("a", b"weights" * 9),
        ("b", b"weights" * 9),
        ("c", b""),
        ("big", b"w" * (3 << 20)),
    ):
        repo.write(f"dir/{name}.model", content)
    first = snapshot(repo)
    found = read_back(repo, first.commit)
    assert found.stored == {b"dir/%b.model" % name: "fingerprint" for name in (b"a", b"b", b"c", b"big")}
    assert found.notes[b"dir/a.model"] == found.notes[b"dir/b.model"] != found.notes[b"dir/c.model"]
    assert b"weightsweights" not in everything_stored(repo)
    assert b"wwwwwwww" not in everything_stored(repo)
    forget_cache(repo)
    assert tree_of(repo) == first.tree
    assert take(repo, if_changed=True).snapshot is None
    repo.write("dir/a.model", b"WEIGHTS" * 9)
    assert take(repo, if_changed=True).snapshot is not None


def test_unreadable_path_is_not_reported_as_removed(repo: Repo) -> None:
    repo.write("kept", b"1")
    repo.write("over/the/budget", os.urandom(300_000))
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.capture("whole")
    repo.write("over/the/budget", os.urandom(300_000))
    repo.git("config", "envhist.budget", "100k")

    taken = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("partial")

    assert [one.path for one in taken.missing] == [b"over/the/budget"]
    assert taken.snapshot is not None
    assert taken.snapshot.changed.removed == 0
    assert history.diff(history.log()[1], history.log()[0]).files == ()
