"""Captures in damaged repositories: at most a warning is printed, and the snapshot is complete."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from git_envhist.snapshots.staging import Staging
from tests.end_to_end.captures import assert_holds, capture, history, tip
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, Result, make_repo


def capture_anyway(repo: Repo, *words: str) -> Result:
    """Capture; it must succeed and contain everything that find lists."""
    done = repo.run("envlog", "capture", "--porcelain", *words)
    assert done.status == 0, done.err
    assert "Traceback" not in done.err
    assert_holds(repo, done.out.strip())
    return done


def notes_ref(repo: Repo) -> str:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/notes/envhist")


def test_capture_succeeds_with_a_head_at_a_missing_commit(repo: Repo) -> None:
    repo.write(".git/refs/heads/main", b"1" * 40 + b"\n")
    assert "warning: " in capture_anyway(repo, "-m", "given").err
    assert_holds(repo, capture(repo))


def test_capture_succeeds_on_an_unborn_branch_with_a_slash(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "young", commit=False)
    repo.git("symbolic-ref", "HEAD", "refs/heads/feature/x")
    repo.write("file", b"1")
    repo.git("add", "file")
    assert capture_anyway(repo).err == ""


def test_captures_succeed_on_branches_with_conflicting_names(repo: Repo) -> None:
    capture_anyway(repo)
    for branch in ("feature", "feature-x/deep"):
        repo.git("checkout", "-q", "-b", branch)
        capture_anyway(repo)
    repo.git("branch", "-q", "-D", "main")
    repo.git("checkout", "-q", "--orphan", "main/under")
    capture_anyway(repo)
    assert len(history(repo)) == 4


@pytest.mark.parametrize(
    "content", [b"garbage\n", b"1" * 40 + b"\n", b""], ids=["garbage", "missing", "empty"]
)
def test_capture_succeeds_with_a_broken_notes_ref(repo: Repo, content: bytes) -> None:
    capture(repo, "first")
    repo.write(f".git/{notes_ref(repo)}", content)
    done = capture_anyway(repo, "-m", "second")
    assert "the note could not be written, the snapshot is whole" in done.err
    assert [repo.git("log", "-1", "--format=%s", commit) for commit in history(repo)] == ["second", "first"]
    listed = repo.run("envlog", "--format=%s")
    assert listed.status == 0
    assert listed.out.splitlines() == ["second", "first"]


def test_damaged_snapshot_of_a_killed_capture_is_kept(repo: Repo) -> None:
    capture(repo, "first")
    packs = repo.path / ".git/objects/pack"
    names = sorted(path.stem for path in packs.glob("*.keep"))
    left = Staging.create(str(repo.path / ".git/envhist"), str(packs))
    journal = f"commit {tip(repo)}\n" + "".join(f"pack {name}\n" for name in names)
    Path(left.path, "journal").write_text(journal)
    left.abandon()
    for name in names:
        (packs / f"{name}.idx").unlink()
        (packs / f"{name}.idx").write_bytes(b"")

    repo.write("more", b"1")
    capture_anyway(repo, "-m", "second")
    repo.run("envlog", "fsck", "--repair", check=True)

    assert repo.run("envlog", "--format=%s").out.splitlines() == ["second", "first"]


def test_capture_succeeds_with_a_notes_ref_at_a_blob(repo: Repo) -> None:
    capture(repo, "first")
    blob = repo.git("hash-object", "-w", "app.py")
    repo.write(f".git/{notes_ref(repo)}", blob.encode() + b"\n")
    assert "the note could not be written" in capture_anyway(repo, "-m", "second").err
    assert repo.run("envlog", "--format=%s").out.splitlines() == ["second", "first"]


def test_capture_succeeds_with_a_damaged_user_pack(repo: Repo) -> None:
    for number in range(20):
        repo.write(f"file{number}", str(number).encode() * 500)
    repo.commit()
    repo.git("repack", "-q", "-a", "-d")
    (pack,) = (repo.path / ".git/objects/pack").glob("*.pack")
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[:40] + b"\0" * 200)
    capture_anyway(repo, "-m", "given")
    repo.write("file3", b"changed")
    capture_anyway(repo, "-m", "given")


def test_capture_succeeds_with_missing_user_objects(repo: Repo) -> None:
    repo.write("file", b"1")
    repo.commit()
    for path in (repo.path / ".git/objects").glob("??/*"):
        path.unlink()
    assert "warning: " in capture_anyway(repo, "-m", "given").err


def test_capture_succeeds_with_other_broken_refs(repo: Repo) -> None:
    repo.write(".git/refs/heads/broken", b"garbage\n")
    repo.write(".git/refs/envhist/heads/somebody/else-abcdef", b"1" * 40 + b"\n")
    capture_anyway(repo, "-m", "first")
    repo.write("more", b"1")
    capture_anyway(repo, "-m", "second")
    assert repo.run("envlog", "--format=%s").out.splitlines() == ["second", "first"]


def test_capture_succeeds_with_invalid_settings(repo: Repo) -> None:
    for key in ("budget", "maxSize", "bigFile", "chunkSize", "keepLast", "enabled"):
        repo.git("config", f"envhist.{key}", "nonsense")
    assert "nonsense" in capture_anyway(repo).err


def test_capture_succeeds_after_the_user_deleted_our_refs(repo: Repo) -> None:
    first = capture(repo, "first")
    repo.write("more", b"1")
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/envhist", "refs/notes").split():
        repo.git("update-ref", "-d", ref)
    capture_anyway(repo, "-m", "second")
    assert len(history(repo)) == 1
    # The .keep files of our packs preserve the objects of deleted refs until git-envhist removes them.
    repo.git("gc", "-q", "--prune=now")
    assert repo.git("cat-file", "-t", first) == "commit"
    repo.git("update-ref", "-d", notes_ref(repo))
    capture_anyway(repo, "-m", "third")
    assert len(history(repo)) == 2
    assert git_fsck(repo.path) == ""


def test_amending_a_commit_keeps_its_snapshot_and_note(repo: Repo) -> None:
    repo.write("file", b"1")
    repo.commit("to be amended")
    snapshot = capture(repo, "why it was taken")
    repo.git("commit", "-q", "--amend", "-m", "amended")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    assert_holds(repo, snapshot)
    assert "why it was taken" in repo.git("notes", f"--ref={notes_ref(repo)}", "show", snapshot)


def test_dubious_ownership_is_reported_with_the_words_of_git(repo: Repo) -> None:
    told = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    of_git = repo.execute("git", "status", env=told, check=False)
    done = repo.run("envlog", "capture", env=told)
    assert of_git.status == done.status == 128
    assert "dubious ownership" in done.err
    assert f"git config --global --add safe.directory {repo.path}" in done.err
    words = [line.strip() for line in of_git.err.removeprefix("fatal: ").splitlines() if line.strip()]
    assert done.err.splitlines() == [f"error: {words[0]}", *(f"hint: {word}" for word in words[1:])]
    assert repo.git("config", "--get-all", "safe.directory", check=False) == ""
    assert tip(repo) is None


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (None, "is not on the PATH"),
        (0o644, "on the PATH cannot be run: permission denied"),
        (0o755, "on the PATH cannot be run: exec format error"),
    ],
)
def test_git_that_cannot_be_run_is_an_error(repo: Repo, tmp_path: Path, mode: int | None, why: str) -> None:
    capture(repo)
    only = tmp_path / "only"
    only.mkdir()
    if mode is not None:
        (only / "git").write_bytes(b"no program")
        (only / "git").chmod(mode)
    for program in ("envlog", "envdiff", "envrestore"):
        ours = shutil.which(f"git-{program}", path=repo.env["PATH"])
        assert ours is not None
        done = repo.execute(ours, check=False, env={**repo.env, "PATH": str(only)})
        assert done.status == 128
        assert f"git {why}" in done.err
        assert "hint: " in done.err
