"""Hostile snapshots through the program: each is refused in one line, or its result is harmless."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.model import RestoreResult
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.options import RestoreOptions
from tests.restore.hostile import Make, Smith, hostile
from tests.restore.unsigned import Stranger, harmful, make_stranger

CASES = dict(hostile())
# Each case takes a capture, a restore and an undo, so only some of every kind are restored in place.
IN_PLACE = [name for number, name in enumerate(CASES) if number % 10 == 4]
AS_PROGRAM = [
    name for number, name in enumerate(CASES) if number % 20 == 0 or (number % 12 == 5 and "link" in name)
]
AS_PROGRAM += [name for name in CASES if "terminal" in name]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """Return one repository for all tests: refused snapshots leave nothing, and restored ones are undone."""
    return make_stranger(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def state_before(stranger: Stranger) -> object:
    return stranger.state()


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable syncs, which only matter for power failures."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(DiskCalls, "sync", lambda self, descriptor: None)


def make(stranger: Stranger, name: str) -> str:
    made: Make = CASES[name]
    return stranger.plant(made(Smith(stranger.repo)))


def refusal(restore: Callable[[], RestoreResult]) -> str | None:
    """Return the reason of a refusal, or None."""
    try:
        restore()
    except EnvhistError as error:
        return error.message
    return None


def is_a_reason(why: str | None) -> bool:
    return why is None or (why != "" and "\n" not in why)


def test_number_of_hostile_snapshots_is_sufficient() -> None:
    assert len(CASES) >= 150
    assert len(AS_PROGRAM) >= 24


@pytest.mark.parametrize("name", CASES)
def test_hostile_snapshot_written_elsewhere_is_refused_or_harmless(
    stranger: Stranger, tmp_path: Path, name: str
) -> None:
    commit, before = make(stranger, name), stranger.stamps()
    history = EnvHistory.open(str(stranger.repo.path), workers="here", one_command=True)
    why = refusal(lambda: history.restorer.write_to(history.resolve(commit), str(tmp_path / "there")))
    assert is_a_reason(why)
    if why is not None:
        assert not (tmp_path / "there").exists() or os.listdir(tmp_path / "there") == []
    assert harmful(tmp_path / "there") == []
    assert stranger.stamps() == before


@pytest.mark.parametrize("name", IN_PLACE)
def test_hostile_snapshot_restored_in_place_is_refused_or_harmless(
    stranger: Stranger, state_before: object, name: str
) -> None:
    commit = make(stranger, name)
    history = EnvHistory.open(str(stranger.repo.path), workers="here", one_command=True)
    before = history.capture("what is here").snapshot
    assert before is not None
    why = refusal(lambda: history.restorer.to(history.resolve(commit), RestoreOptions(allow_unsigned=True)))
    assert is_a_reason(why)
    assert harmful(stranger.repo.path) == []
    if why is None:
        history.restore(before)
    assert stranger.state() == state_before


@pytest.mark.parametrize("name", AS_PROGRAM)
def test_program_reports_a_hostile_snapshot_in_one_line(
    stranger: Stranger, tmp_path: Path, name: str
) -> None:
    commit, before = make(stranger, name), stranger.stamps()
    done = stranger.repo.run("envrestore", "--to", str(tmp_path / "there"), commit)
    assert done.status in (0, 3, 5, 128), done.err
    assert done.status in (0, 5) or done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert all(line.isprintable() for line in (done.out + done.err).split("\n")), done.err
    assert harmful(tmp_path / "there") == []
    assert stranger.stamps() == before
