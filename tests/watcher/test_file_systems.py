"""File systems that change without an event are not watched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.watcher import file_systems
from git_envhist.watcher.file_systems import why_unwatchable
from tests.support.repository import Repo
from tests.watcher.helpers import full_look, look, open_history, running


def test_zfs_cannot_be_watched() -> None:
    # `zfs rollback` changes a mounted dataset without an event.
    assert b"zfs" not in file_systems.LOCAL


@pytest.mark.parametrize("number", [0, 1])
def test_exported_file_systems_cannot_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tables = tmp_path / "exports", tmp_path / "etab"
    monkeypatch.setattr(file_systems, "EXPORTS", tables)
    tables[number].write_text("# Version 1.1\n")
    assert why_unwatchable({b"": os.fsencode(tmp_path)}) == ""
    tables[number].write_text("# Version 1.1\n/srv *(rw)\n")
    assert why_unwatchable({b"": os.fsencode(tmp_path)}) == file_systems.EXPORTED


def test_watcher_ends_when_a_file_system_is_exported(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exports = tmp_path / "exports"
    monkeypatch.setattr(file_systems, "EXPORTS", (exports,))
    repo.write("file", "1")
    with running(str(repo.path)) as watcher:
        open_history(str(repo.path)).capture("x")
        exports.write_text("/srv *(rw)\n")
        assert look(str(repo.path)) == full_look(str(repo.path))
        assert watcher.status() == {}
