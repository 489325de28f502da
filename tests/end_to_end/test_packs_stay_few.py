"""A history of many captures is stored in few packs, and each of its snapshots stays complete."""

from __future__ import annotations

import pytest

from git_envhist.api import EnvHistory
from git_envhist.git.repository import Repository
from git_envhist.maintenance.merge_packs import AFTER_RESTORE, MAX_PACKS, merge_packs
from tests.support.repository import Repo


def test_sixty_captures_leave_few_packs(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for number in range(60):
        repo.write("counter", b"%d\n" % number)
        history.capture(f"capture {number}")

    packs = list((repo.path / ".git/objects/pack").glob("*.pack"))
    assert len(packs) <= MAX_PACKS + 2
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    timeline = f"refs/envhist/heads/{history.timeline}"
    for number, commit in enumerate(reversed(repo.git("rev-list", timeline).split())):
        assert repo.git("show", f"{commit}:counter").strip() == str(number)


def test_merge_with_leftover_staging_after_a_power_failure_loses_nothing(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    monkeypatch.setattr("git_envhist.maintenance.merge_packs.merge_packs_after", lambda repository: None)
    for number in range(MAX_PACKS + 1):
        repo.write("counter", b"%d\n" % number)
        history.capture(f"capture {number}")
    place = Repository.open(str(repo.path))
    with monkeypatch.context() as patch:
        patch.setattr("git_envhist.snapshots.staging.remove_tree", lambda *arguments: None)
        assert merge_packs(place.common_state, place.pack_dir, place.object_format) > 1

    history.capture("after the power cut")

    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_many_restores_leave_few_packs(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    moments = []
    for text in (b"one", b"two"):
        repo.write("app.py", text)
        captured = history.capture(text)
        assert captured.snapshot is not None
        moments.append(captured.snapshot)
    for turn in range(AFTER_RESTORE):
        # Only the safety snapshot contains this, so each restore writes packs.
        repo.write("new", b"%d" % turn)
        history.restore(moments[turn % 2])
    packs = list((repo.path / ".git/objects/pack").glob("*.keep"))
    assert len(packs) <= AFTER_RESTORE + 2
    assert len(history.log()) >= 2 * MAX_PACKS
    repo.git("fsck", "--strict")
