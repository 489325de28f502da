"""The daily upkeep of git-envhist's own repositories: of a directory without git, and of the checkpoint classes of
`compat/`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.compat.chimera.env.local import LocalEnvironment
from git_envhist.compat.praisonai.service import CheckpointService
from git_envhist.git.repository import Repository
from git_envhist.handlers.daily_upkeep import run_upkeep
from git_envhist.maintenance.start_daily_gc import DAY, STAMP, start_if_due
from git_envhist.model import Trigger
from git_envhist.rewrite.mark_for_drop import is_marked
from tests.support.repository import Repo

TIMEOUT = 60


@pytest.fixture(autouse=True)
def configured(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure three snapshots and git's own gc for the user; captures need no worker processes."""
    for name in ("gc.auto", "maintenance.auto"):
        repo.git("config", "--global", "--unset", name)
    for name, value in (("keepLast", "3"), ("keepDaily", "0"), ("keepWeekly", "0")):
        repo.git("config", "--global", f"envhist.{name}", value)
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")


@pytest.fixture
def plain(tmp_path: Path) -> EnvHistory:
    """Open the history of a directory without git."""
    directory = tmp_path / "plain"
    directory.mkdir()
    return EnvHistory.init(directory)


def take(history: EnvHistory, count: int) -> None:
    for number in range(count):
        Path(history.repository.root, "file").write_text(str(number))
        history.capture(f"number {number}", trigger=Trigger.WATCH)


def make_due(git_dir: str) -> None:
    os.utime(os.path.join(git_dir, "envhist", STAMP), (time.time() - DAY - 60,) * 2)


def wait_until(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT
    while not is_done() and time.monotonic() < until:
        time.sleep(0.05)
    assert is_done()


def upkeep(repository: Repository, kind: str) -> int:
    return run_upkeep((kind, repository.root, repository.git_dir, repository.common_dir))


def packed(repository: Repository) -> int:
    return sum(one.stat().st_size for one in Path(repository.pack_dir).glob("*.pack"))


@pytest.mark.full
def test_capture_starts_the_upkeep_of_a_directory_without_git(plain: EnvHistory) -> None:
    take(plain, 6)
    make_due(plain.repository.common_dir)
    Path(plain.repository.root, "file").write_text("last")
    plain.capture("last", trigger=Trigger.WATCH)
    wait_until(lambda: [one.intent for one in plain.log()] == ["last", "number 5", "number 4"])


def test_upkeep_starts_in_a_store_that_disables_git_gc(
    plain: EnvHistory, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(plain, 1)
    begun: list[Repository] = []
    monkeypatch.setattr("git_envhist.maintenance.start_daily_gc._start", begun.append)
    make_due(plain.repository.common_dir)
    for name in ("gc.auto", "maintenance.auto"):
        repo.git("config", "--global", name, "0")
        assert not start_if_due(plain.repository)
        repo.git("config", "--global", "--unset", name)
    assert start_if_due(plain.repository)
    assert [one.common_dir for one in begun] == [plain.repository.common_dir]


@pytest.mark.full
def test_upkeep_prunes_a_directory_that_became_a_git_repository_later(plain: EnvHistory, repo: Repo) -> None:
    take(plain, 5)
    repo.git("init", "-q", plain.repository.root)
    users = EnvHistory.open(plain.repository.root)
    take(users, 5)
    assert upkeep(plain.repository, "plain") == 0
    assert len(plain.log()) == 3
    assert len(users.log()) == 5


@pytest.mark.full
def test_save_starts_the_upkeep_of_its_store_and_never_of_the_users_repository(
    repo: Repo, tmp_path: Path
) -> None:
    users = EnvHistory.open(repo.path)
    take(users, 6)
    service = CheckpointService(str(repo.path), str(tmp_path / "storage"), max_checkpoints=3)

    async def save(*messages: str) -> list[str]:
        assert await service.initialize()
        for message in messages:
            repo.write("app.py", message)
            assert (await service.save(message)).success
        return [one.message for one in await service.list()]

    assert asyncio.run(save("1", "2", "3", "4", "5")) == ["5", "4", "3"]
    make_due(service.git_dir)
    assert asyncio.run(save("6")) == ["6", "5", "4"]
    store = service._keeper._store.history()
    # The first two and the initial one are marked, so they are kept.
    wait_until(lambda: len(store.dropper.trash()) >= 3)
    assert [one.intent for one in store.log() if not is_marked(one)] == ["6", "5", "4"]
    assert len(users.log()) == 6
    assert repo.git("for-each-ref", "refs/envhist/trash") == ""


@pytest.mark.full
def test_upkeep_frees_dropped_checkpoints_and_keeps_listed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = LocalEnvironment(str(workspace), retain=5)
    numbers = []
    for _ in range(8):
        (workspace / "file").write_bytes(os.urandom(100_000))
        numbers.append(env.checkpoint())
    store = env._checkpoints._open()
    # Five are listed, which is more than the user's policy keeps.
    assert upkeep(store.repository, "library") == 0
    assert len(env._checkpoints.all()) == 5
    assert len(store.log()) == 5
    assert packed(store.repository) > 800_000
    later = datetime.now(UTC) + timedelta(days=60)
    monkeypatch.setenv("GIT_COMMITTER_DATE", later.isoformat())
    monkeypatch.setattr("git_envhist.retention.prune.DAYS_AT_WORK", 1)
    monkeypatch.setattr("git_envhist.retention.prune.Pruner._expiry_day", lambda *_: later.date())
    assert upkeep(store.repository, "library") == 0
    assert store.repository.list_refs("refs/envhist/trash") == {}
    store.gc(prune="now")
    assert packed(store.repository) < 600_000
    env.restore(numbers[3])
    assert store.fsck().is_whole
