"""Recovery from an interrupted restore uses the options of that restore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.lazy import replace
from git_envhist.restore.journal import Phase, set_phase, write_journal
from git_envhist.restore.restore_runner import RecoveryGoal, read_recovery, write_recovery
from tests.restore.engine import Engine
from tests.support.repository import Repo


@pytest.mark.parametrize("links", [False, True])
def test_recovery_allows_outside_links_only_if_the_restore_did(repo: Repo, links: bool) -> None:
    (repo.path / "out").symlink_to("/etc")
    first = repo.run("envlog", "capture", "--porcelain", "one", check=True).out.strip()
    (repo.path / "out").unlink()
    for keys in (repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        for key in keys.iterdir():
            key.unlink()
    engine = Engine(repo.path)
    before, target = engine.capture(), engine.history.resolve(first)
    journal, _ = engine.prepare(engine.plan(before, target))
    notes = RecoveryGoal("target", target.id, before.id, links).notes
    write_journal(engine.private, replace(journal, notes=notes))
    # The restore was being aborted when it was interrupted; now it is continued.
    set_phase(engine.private, Phase.UNDONE)
    done = repo.run("envrestore", "--continue")
    assert done.status == (0 if links else 5), done.err
    assert os.path.lexists(repo.path / "out") is links


@pytest.mark.parametrize("links", [False, True])
def test_recovery_goal_is_unchanged_after_writing_and_reading(tmp_path: Path, links: bool) -> None:
    way = RecoveryGoal("safety", "a" * 40, "b" * 40, links)
    write_recovery(str(tmp_path / "private"), way)
    assert read_recovery(str(tmp_path / "private")) == way
