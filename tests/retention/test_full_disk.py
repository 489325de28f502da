"""Rewriting and repairing on a full file system; `tests.crash.retention_full` does more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crash.retention_full import mounted, ready, without_it, without_room
from tests.support.repository import make_repo


@pytest.mark.parametrize("verb", ["thin", "purge", "repair"])
def test_full_disk_loses_nothing_and_commands_work_with_space_again(tmp_path: Path, verb: str) -> None:
    template = make_repo(tmp_path / "template")
    ready(template, verb)
    small = tmp_path / "small"
    try:
        with mounted(small):
            assert without_room(template, verb, 0, without_it(template, verb), small) == []
    except subprocess.CalledProcessError:
        pytest.skip("a file system cannot be mounted here")
