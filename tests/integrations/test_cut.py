"""Installations killed at any step: a later uninstall still restores every byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.crash.faults import needs_strace, traced
from tests.integrations.hooks import Standing, standing, write_hook
from tests.support.depth import FULL
from tests.support.repository import Repo

EVERY = 1 if FULL else 3
"""The command is killed at every nth rename."""
SETTINGS = '{"model": "x",\n\t"hooks" : { "Stop": [ ] } }'
WORDS = (("envlog", "install", "--agent", "claude-code"), ("envlog", "install"))


@pytest.fixture
def before(repo: Repo) -> Standing:
    """Write hooks of several kinds and unusual settings, all of which an installation changes; return the tree."""
    write_hook(repo, "post-commit", "#!/bin/sh\necho mine", 0o750)
    write_hook(repo, "post-merge", "#!/usr/bin/env python3\nprint('mine')\n")
    repo.write(".claude/settings.local.json", SETTINGS)
    repo.write("app.py", "print(1)\n")
    return standing(repo.path)


@needs_strace
def test_uninstall_restores_every_byte_after_an_install_killed_at_any_rename(
    repo: Repo, before: Standing
) -> None:
    for words in WORDS:
        number, whole = 1 - EVERY, False
        while not whole:
            number += EVERY
            whole = repo.run(*words, prefix=traced("rename", "signal=KILL", f"{number}")).status == 0
            if number % 2:
                # The same command completes an interrupted installation.
                repo.run(*words, check=True)
                assert "nothing to do" in repo.run(*words, check=True).out
            taken = repo.run("envlog", "uninstall", check=True)
            assert _without_empty(standing(repo.path)) == _without_empty(before), (words, number, taken)
        assert number > 4


@needs_strace
def test_uninstall_restores_every_byte_after_an_uninstall_killed_at_any_rename(
    repo: Repo, before: Standing
) -> None:
    number, whole = 1 - EVERY, False
    while not whole:
        number += EVERY
        for words in WORDS:
            repo.run(*words, check=True)
        whole = (
            repo.run("envlog", "uninstall", prefix=traced("rename", "signal=KILL", f"{number}")).status == 0
        )
        repo.run("envlog", "uninstall", check=True)
        assert _without_empty(standing(repo.path)) == _without_empty(before), number
    assert number > 2


@needs_strace
def test_record_is_synced_before_any_file_is_changed(repo: Repo, before: Standing) -> None:
    log = repo.path.parent / "calls"
    traces = ("strace", "-f", "-qq", "-y", "-o", str(log), "-e", "trace=fsync,rename")
    repo.run("envlog", "install", prefix=traces, check=True)
    calls = [_told(line) for line in log.read_text().splitlines()]
    # The list of approved commands need not be synced: the next command that a person runs writes it again.
    told = [call for call in calls if call and call != "rename trusted"]
    assert told[:3] == ["fsync installed.new", "rename installed", "fsync envhist"]
    assert "rename post-commit" in told[3:]
    assert told[-3:] == told[:3]


def test_record_of_an_older_version_is_read(repo: Repo, before: Standing) -> None:
    repo.run("envlog", "install", check=True)
    record = repo.path / ".git/envhist/installed"
    assert set(json.loads(record.read_text())) == {"files", "made"}
    repo.run("envlog", "uninstall", check=True)
    assert standing(repo.path) == before


def _told(line: str) -> str:
    """Return the system call and the name of its file."""
    found = re.search(r'(fsync)\(\d+<(.*?)>\)|(rename)\(".*?", "(.*?)"\)', line)
    return f"{found[1] or found[3]} {Path(found[2] or found[4]).name}" if found else ""


def _without_empty(found: Standing) -> Standing:
    # A killed command may leave our empty directory and its lock.
    ours = (".git/envhist",)
    return {path: what for path, what in found.items() if not path.startswith(ours)}
