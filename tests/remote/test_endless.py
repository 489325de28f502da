"""Endless trees: a few hundred bytes that expand to more paths than any environment has.

Each tree contains the previous one twice, so a listing would never end. Fetch and import refuse them. If plain git
fetched them, each command reports an error or skips them. A large environment is not refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.diff import tree_diff as diff
from git_envhist.diff.compare_series import commits_changing_paths
from git_envhist.diff.compare_snapshots import compare
from git_envhist.git.cat_file import CatFile
from git_envhist.git.repository import Repository
from git_envhist.snapshots import oversized_trees
from git_envhist.snapshots.oversized_trees import TreeSizer
from tests.remote.conftest import make_remote, refs, timeline
from tests.remote.test_export_and_import import packed, write_tar
from tests.remote.test_fetch import refs_of_fetched
from tests.secrets.test_unsigned_snapshots import forged, message_of
from tests.support.objects import write_blob, write_commit, write_tree
from tests.support.repository import Repo, make_repo

GOOD, EVIL = "refs/envhist/heads/lab/good-000001", "refs/envhist/heads/lab/evil-000002"
STEPS = 60


FOUND = "trees with more paths than any environment has"


def doubling(repo: Repo, mode: str = "40000", steps: int = STEPS) -> str:
    """Write trees of which each names the one before twice, and return the last."""
    found = write_tree(repo, [("100644", "f", write_blob(repo, b"x"))])
    for _ in range(steps):
        found = write_tree(repo, [(mode, "d", found), (mode, "e", found)])
    return found


def under(repo: Repo, place: str, inner: str) -> str:
    for name in reversed(place.split("/") if place else []):
        inner = write_tree(repo, [("40000", name, inner)])
    return inner


def moment(repo: Repo, top: str, *parents: str) -> str:
    """Write the commit of a snapshot without a signature."""
    return write_commit(repo, top, "x\n\nEnv-Format: 1\nEnv-Timeline: a/b\n", parents)


def deep(repo: Repo) -> str:
    """Write trees with few paths, each path longer than the whole pack, and return the top."""
    found = write_tree(repo, [])
    for _ in range(oversized_trees.MAX_DEPTH + 10):
        found = write_tree(repo, [("40000", "d", found)])
    return found


PLACES = [
    "",
    "some/where",
    ".envhist/roots/etc",
    ".envhist/dotgit/x",
    ".envhist/manifest/ab",
    ".envhist/pieces/ab",
]


@pytest.fixture
def held(repo: Repo, bare: Repo) -> dict[str, str]:
    """Fetch one good timeline and return the refs of the fetched repository."""
    bare.git("update-ref", GOOD, moment(bare, write_tree(bare, [])))
    repo.run("envlog", "fetch", check=True)
    kept = refs_of_fetched(repo)
    assert len(kept) == 1
    return kept


def refused(repo: Repo, bare: Repo, held: dict[str, str], told: str) -> None:
    """Check that a fetch fails, stores nothing, and succeeds once the bad refs are deleted."""
    before, packs = refs(repo), held_packs(repo)
    done = repo.run("envlog", "fetch")
    assert (done.status, done.out) == (128, "")
    assert done.err.startswith("error: the data that 'origin' (")
    assert told in done.err
    assert (refs(repo), refs_of_fetched(repo), held_packs(repo)) == (before, held, packs)
    for ref in refs(bare, "refs"):
        if ref != GOOD:
            bare.git("update-ref", "-d", ref)
    assert "up to date" in repo.run("envlog", "fetch", check=True).out


def held_packs(repo: Repo) -> list[str]:
    return sorted(path.name for path in (repo.path / ".git/envhist/fetched.git/objects/pack").iterdir())


@pytest.mark.parametrize("place", PLACES)
def test_fetch_refuses_endless_trees(repo: Repo, bare: Repo, held: dict[str, str], place: str) -> None:
    bare.git("update-ref", EVIL, moment(bare, under(bare, place, doubling(bare))))
    refused(repo, bare, held, FOUND)


@pytest.mark.parametrize("mode", ["40755", "44444", "240000", "1000240000"])
def test_fetch_refuses_endless_trees_with_odd_modes_of_directories(
    repo: Repo, bare: Repo, held: dict[str, str], mode: str
) -> None:
    """git reads any mode with the bits of a directory as a directory."""
    bare.git("update-ref", EVIL, moment(bare, doubling(bare, mode)))
    refused(repo, bare, held, FOUND)


def test_fetch_refuses_endless_trees_that_are_named_as_pieces_too(
    repo: Repo, bare: Repo, held: dict[str, str]
) -> None:
    """A tree that is small enough as a list of pieces is refused as an ordinary directory."""
    found = doubling(bare, steps=22)
    inside = write_tree(bare, [("40000", "pieces", found), ("40000", "x", found)])
    bare.git("update-ref", EVIL, moment(bare, write_tree(bare, [("40000", ".envhist", inside)])))
    refused(repo, bare, held, FOUND)


def test_fetch_refuses_trees_that_are_too_deep(repo: Repo, bare: Repo, held: dict[str, str]) -> None:
    bare.git("update-ref", EVIL, moment(bare, deep(bare)))
    refused(repo, bare, held, FOUND)


def test_fetch_refuses_endless_trees_of_an_older_snapshot(
    repo: Repo, bare: Repo, held: dict[str, str]
) -> None:
    evil = moment(bare, doubling(bare))
    bare.git("update-ref", EVIL, moment(bare, write_tree(bare, []), evil))
    refused(repo, bare, held, FOUND)


def test_fetch_refuses_endless_trees_of_notes(repo: Repo, bare: Repo, held: dict[str, str]) -> None:
    notes = GOOD.replace("refs/envhist/heads", "refs/notes/envhist")
    bare.git("update-ref", notes, write_commit(bare, doubling(bare), "notes\n"))
    refused(repo, bare, held, FOUND)


@pytest.mark.parametrize("place", PLACES)
def test_import_refuses_endless_trees(repo: Repo, bare: Repo, tmp_path: Path, place: str) -> None:
    bundle = packed(bare, EVIL, moment(bare, under(bare, place, doubling(bare))))
    file = str(tmp_path / "evil.envhist.tar.zst")
    write_tar(file, ("envhist-export", b"envhist-export 1\n"), ("history.bundle", bundle))
    done = repo.run("envlog", "import", file)
    assert (done.status, done.out) == (128, "")
    assert FOUND in done.err
    assert refs_of_fetched(repo) == {}


def test_imported_snapshots_survive_an_interrupted_and_a_refused_fetch(
    repo: Repo, bare: Repo, tmp_path: Path
) -> None:
    """The objects of an interrupted fetch are unchecked; those of imports before and after it are not."""
    bare.git("update-ref", GOOD, moment(bare, write_tree(bare, [])))

    def imported(name: str) -> None:
        file = str(tmp_path / f"{name}.envhist.tar.zst")
        repo.write(name)
        repo.run("envlog", "capture", name, check=True)
        repo.run("envlog", "export", file, check=True)
        repo.run("envlog", "import", file, check=True)

    imported("before")
    calls = tmp_path / "calls"
    calls.write_text("")
    breaks = repo.write("../breaks", f'echo >>{calls}; [ $(wc -l <{calls}) -lt 2 ] && git-upload-pack "$@"\n')
    repo.git("config", "remote.origin.uploadpack", f"sh {breaks}")
    assert repo.run("envlog", "fetch").status == 128
    repo.git("config", "--unset", "remote.origin.uploadpack")
    imported("since")
    bare.git("update-ref", EVIL, moment(bare, doubling(bare)))
    assert FOUND in repo.run("envlog", "fetch").err
    for name in ("before", "since"):
        assert name in repo.run("envlog", f"{name}/{timeline(repo)}", check=True).out
    fetched = str(repo.path / ".git/envhist/fetched.git")
    # The good timeline was fetched; its trees come from a promisor, so git reports them as dangling.
    assert repo.git("--git-dir", fetched, "fsck", "--connectivity-only", "--no-dangling") == ""
    bare.git("update-ref", "-d", EVIL)
    repo.run("envlog", "fetch", check=True)
    assert not list((repo.path / ".git/envhist/fetched.git").glob("fetching-*"))


COMMANDS: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "show": lambda line, _: ("envlog", "show", line),
    "show of a path": lambda line, _: ("envlog", "show", line, "--", "d/d/f"),
    "log": lambda line, _: ("envlog", line),
    "log --stat": lambda line, _: ("envlog", "--stat", line),
    "log --name-status": lambda line, _: ("envlog", "--name-status", line),
    "log -p": lambda line, _: ("envlog", "-p", line),
    "log of a path": lambda line, _: ("envlog", line, "--", "nowhere"),
    "log -S": lambda line, _: ("envlog", "-S", "flask", line),
    "log --find": lambda line, _: ("envlog", "--find", "flask", line),
    "diff": lambda line, _: ("envdiff", f"{line}..now"),
    "diff -p": lambda line, _: ("envdiff", "-p", f"{line}..now"),
    "diff --stat": lambda line, _: ("envdiff", "--stat", f"{line}..now"),
    "diff -M": lambda line, _: ("envdiff", "-M", f"{line}..now"),
    "diff of a path": lambda line, _: ("envdiff", f"{line}..now", "--", "nowhere"),
    "restore": lambda line, _: ("envrestore", line),
    "restore --dry-run": lambda line, _: ("envrestore", "-n", line),
    "restore --allow-unsigned": lambda line, _: ("envrestore", "--allow-unsigned", line),
    "restore --allow-unsigned --dry-run": lambda line, _: ("envrestore", "--allow-unsigned", "-n", line),
    "fork --allow-unsigned": lambda line, place: ("envlog", "fork", "--allow-unsigned", place, line),
    "restore of a path": lambda line, _: ("envrestore", line, "--", "nowhere"),
    "restore --to": lambda line, place: ("envrestore", "--to", place, line),
    "fork": lambda line, place: ("envlog", "fork", place, line),
    "fork --relocate": lambda line, place: ("envlog", "fork", "--relocate", place, line),
    "verify": lambda line, _: ("envlog", "verify", line, "--", "true"),
    "export": lambda line, place: ("envlog", "export", place, line),
    "the page": lambda line, place: ("envlog", "--html", place, line),
    "fsck": lambda _line, _place: ("envlog", "fsck"),
    "du": lambda _line, _place: ("envlog", "du"),
    "gc": lambda _line, _place: ("envlog", "gc"),
    "push": lambda line, _: ("envlog", "push", "--yes", "origin", line),
}


@pytest.fixture(scope="module", params=["40000", "40755"])
def infected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Repo, str]:
    """Make a repository with a snapshot, and with a timeline of endless trees that plain git fetched.

    Every command either only reads it or refuses, so all tests of a mode share it.
    """
    place = tmp_path_factory.mktemp("infected")
    repo, bare = make_repo(place / "repo"), make_remote(place / "remote.git")
    repo.git("remote", "add", "origin", str(bare.path))
    ours = repo.run("envlog", "capture", "--porcelain", "ours", check=True).out.strip()
    line = EVIL.removeprefix("refs/envhist/heads/")
    text = forged(message_of(repo, ours)).replace(timeline(repo).encode(), line.encode())
    bare.git("update-ref", EVIL, write_commit(bare, doubling(bare, request.param), text))
    repo.git("fetch", "-q", "origin", f"{EVIL}:{EVIL}")
    assert "ours" in repo.run("envlog", "--oneline", line, check=True).out
    return repo, line


@pytest.mark.parametrize("command", COMMANDS)
def test_command_ends_on_endless_trees_that_plain_git_fetched(
    infected: tuple[Repo, str], tmp_path: Path, command: str
) -> None:
    repo, line = infected
    done = repo.run(*COMMANDS[command](line, str(tmp_path / "there")))
    assert done.status in (0, 1, 3, 5, 125, 128)
    assert "unexpected" not in done.err
    assert (repo.path / "README").exists() == ("README" in repo.git("ls-files"))


def test_compare_succeeds_on_large_trees_that_end(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison over the usual memory limit checks the trees for endlessness and continues."""
    for number in range(30):
        repo.write(f"d/{number % 3}/{number}", str(number))
    before = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    monkeypatch.setattr(diff, "MAX_MEMORY", 1 << 20)
    git = Repository.open(str(repo.path)).git
    assert len(compare(git, None, before)) >= 30


def test_large_sparse_file_and_many_equal_directories_are_not_endless(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oversized_trees, "ALLOWED", 1 << 10)
    (repo.path / "zeros").write_bytes(b"")
    with open(repo.path / "zeros", "r+b") as file:
        file.truncate(64 << 20)
    for copy in range(40):
        for number in range(100):
            repo.write(f"{copy}/{number}", str(number))
    moment = repo.run("envlog", "capture", "--porcelain", "many alike", check=True).out.strip()
    top = repo.git("rev-parse", f"{moment}^{{tree}}")
    with CatFile(Repository.open(str(repo.path)).git) as reader:
        assert TreeSizer(reader, len(top) // 2).find_endless([top]) is None
        inside = repo.git("rev-parse", f"{top}:.envhist/pieces")
        rows = repo.git("ls-tree", "-r", inside).splitlines()
        assert len(rows) > 100 > len({row.split()[2] for row in rows})


def test_comparison_of_endless_trees_raises_after_its_time(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer snapshot is ordinary here: only the one before it has endless trees."""
    repo.write("mine", "1")
    first = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    git = EnvHistory.open(str(repo.path), one_command=True).repository.git
    monkeypatch.setattr(diff, "MAX_SECONDS", 1)
    with pytest.raises(oversized_trees.TreeTooLarge):
        commits_changing_paths(git, [(first, moment(repo, doubling(repo)))], [b"nowhere"])
    monkeypatch.setattr(diff, "MAX_MEMORY", 1 << 20)
    assert commits_changing_paths(git, [(first, None)], [b"mine"]) == {first}
