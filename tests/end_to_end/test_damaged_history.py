"""A capture succeeds on a damaged timeline; excluded paths are not in the staged tree either."""

from __future__ import annotations

from pathlib import Path

from git_envhist.api import EnvHistory
from tests.support.repository import Repo


def our_packs(repo: Repo) -> list[Path]:
    return list((repo.path / ".git/objects/pack").glob("pack-*"))


def test_timeline_with_lost_objects_starts_again_with_a_warning(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    lost = history.capture("lost").snapshot
    assert lost is not None
    for path in our_packs(repo):
        path.unlink()

    captured = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("kept")

    assert captured.snapshot is not None
    assert captured.snapshot.parent is None
    assert any(lost.id in warning for warning in captured.warnings)
    assert repo.git("fsck", "--strict", "--no-dangling", captured.snapshot.id) == ""
    assert [
        one.intent for one in EnvHistory.open(str(repo.path), workers="here", one_command=True).log()
    ] == ["kept"]


def test_snapshot_after_one_with_a_lost_tree_is_complete(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for number in range(2):
        repo.write(f"d/{number}", b"%d" % number)
        history.capture(f"capture {number}")
    # Delete the packs and write the commits back, so that only the trees are lost.
    heads = repo.git("rev-list", "--glob=refs/envhist/*").split()
    commits = [repo.run_git("cat-file", "commit", one).stdout for one in heads]
    for pack in repo.path.glob(".git/objects/pack/*.pack"):
        for suffix in (".idx", ".pack", ".keep"):
            pack.with_suffix(suffix).unlink()
    for commit in commits:
        repo.git("hash-object", "-t", "commit", "-w", "--stdin", input=commit)
    repo.write("d/2", b"2")

    captured = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("after")

    assert captured.snapshot is not None
    assert any("cannot determine what changed" in warning for warning in captured.warnings)
    for number in range(3):
        assert repo.git("show", f"{captured.snapshot.id}:d/{number}") == str(number)


def test_excluded_paths_are_not_in_the_staged_tree_either(repo: Repo) -> None:
    repo.write(".envhistignore", b"cache/\n")
    repo.git("config", "envhist.fingerprint", "*.bin")
    repo.write("cache/one", b"staged and left out")
    repo.write("two.bin", b"staged and fingerprinted")
    repo.write("three", b"staged and kept")
    repo.git("add", "-f", "cache/one", "two.bin", "three")
    for name in ("cache/one", "two.bin", "three"):
        repo.write(name, b"changed since")

    snapshot = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("staged").snapshot

    assert snapshot is not None
    held = repo.git("ls-tree", "-r", "--format=%(objectname)", snapshot.id).split()
    contents = [repo.git("cat-file", "blob", oid) for oid in held]
    assert "staged and kept" in contents
    assert "staged and left out" not in contents
    assert "staged and fingerprinted" not in contents


def test_root_with_a_slash_in_its_name_causes_a_warning(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "envhist.root.a/b.x", str(tmp_path))

    captured = EnvHistory.open(str(repo.path), workers="here", one_command=True).capture("x")

    assert any("envhist.root.a/b.x" in warning for warning in captured.warnings)
