"""A damaged or lost file with the timeline's name: the history continues under its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_envhist import EnvHistory
from tests.support.repository import Repo


@pytest.fixture(autouse=True)
def workers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture in this process: no test here depends on worker processes."""
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")


def file_of(repo: Repo) -> Path:
    return repo.path / ".git/envhist/timeline"


def damage(path: Path, how: str) -> None:
    path.chmod(0o600)
    if how == "deleted":
        path.unlink()
    elif how == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({"empty": b"", "bytes": b"\xff\0\n", "traversal": b"../../x\n"}[how])


@pytest.mark.parametrize("how", ["empty", "bytes", "traversal", "directory", "deleted"])
def test_timeline_name_is_recovered_when_its_file_is_damaged(repo: Repo, how: str) -> None:
    first = EnvHistory.open(repo.path).capture("one")
    assert first.snapshot is not None
    name = first.snapshot.timeline
    damage(file_of(repo), how)
    reading = EnvHistory.open(repo.path)
    assert [one.intent for one in reading.log()] == ["one"]
    assert reading.timeline == name
    assert any(name in warning for warning in reading.warnings)
    repo.write("app.py", b"2")
    second = EnvHistory.open(repo.path).capture("two")
    assert second.snapshot is not None
    assert second.snapshot.timeline == name
    assert any(f"'{name}'" in warning for warning in second.warnings)
    assert file_of(repo).read_text() == f"{name}\n"
    if how not in ("deleted", "directory"):
        assert file_of(repo).with_name("timeline.damaged").read_bytes() != f"{name}\n".encode()
    after = EnvHistory.open(repo.path)
    assert [one.intent for one in after.log()] == ["two", "one"]
    assert not after.warnings


def test_newest_unused_timeline_is_continued_when_the_stat_cache_is_lost_too(repo: Repo) -> None:
    taken = EnvHistory.open(repo.path).capture("one")
    assert taken.snapshot is not None
    name = taken.snapshot.timeline
    repo.git("update-ref", "refs/envhist/heads/other/elsewhere-000000", taken.snapshot.commit)
    damage(file_of(repo), "empty")
    (repo.path / ".git/envhist/cache/head").unlink()
    assert EnvHistory.open(repo.path).timeline == name
    file_of(repo).unlink()
    # Without the file and the cache nothing shows that this working tree ever had a timeline.
    assert EnvHistory.open(repo.path).timeline is None


def test_timeline_of_another_working_tree_is_never_recovered(repo: Repo, tmp_path: Path) -> None:
    repo.commit()
    taken = EnvHistory.open(repo.path).capture("one")
    assert taken.snapshot is not None
    other = tmp_path / "elsewhere" / repo.path.name
    repo.git("worktree", "add", "-q", "--detach", str(other))
    (state,) = (repo.path / ".git/worktrees").glob("*")
    (state / "envhist").mkdir()
    (state / "envhist/timeline").write_bytes(b"")
    history = EnvHistory.open(other)
    assert history.timeline is None
    assert any("could not be recovered" in warning for warning in history.warnings)
    made = history.capture("its own")
    assert made.snapshot is not None
    assert made.snapshot.timeline != taken.snapshot.timeline


def test_capture_names_the_unused_timeline_when_the_whole_state_was_deleted(repo: Repo) -> None:
    import shutil

    first = EnvHistory.open(repo.path).capture("one")
    assert first.snapshot is not None
    shutil.rmtree(repo.path / ".git/envhist")
    repo.write("app.py", b"2")
    second = EnvHistory.open(repo.path).capture("two")
    (warning,) = [one for one in second.warnings if "no working tree uses" in one]
    assert first.snapshot.timeline in warning
    repo.execute("sh", "-c", warning.rpartition("continue that one: ")[2])
    assert EnvHistory.open(repo.path).timeline == first.snapshot.timeline


def test_first_capture_warns_of_no_timeline_when_the_repository_has_none(repo: Repo) -> None:
    assert not EnvHistory.open(repo.path).capture("one").warnings


def test_fsck_reports_and_repairs_the_file_with_the_timeline_name(repo: Repo) -> None:
    taken = EnvHistory.open(repo.path).capture("one")
    assert taken.snapshot is not None
    damage(file_of(repo), "empty")
    found = EnvHistory.open(repo.path).fsck(quick=True)
    assert [(one.kind, one.subject) for one in found.faults] == [("timeline", "envhist/timeline")]
    assert EnvHistory.open(repo.path).fsck(repair=True).is_whole
    assert file_of(repo).read_text() == f"{taken.snapshot.timeline}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("envrestore", "-n", ":/one"), ("envrestore", ":/one"), ("envdiff",), ("envlog", "show"),
        ("envlog", "status"), ("envlog", "capture", "two"),
    ],
)  # fmt: skip
def test_each_command_warns_once_of_a_recovered_timeline_name(repo: Repo, words: tuple[str, ...]) -> None:
    EnvHistory.open(repo.path).capture("one")
    repo.write("app.py", b"2")
    damage(file_of(repo), "empty")
    done = repo.run(*words, check=True)
    assert done.err.count("the name of this timeline was recovered") == 1
