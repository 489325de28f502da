"""A git that somebody else ends: what it said until then decides nothing. All of them: `tests.crash.gitkills`."""

from __future__ import annotations

from pathlib import Path

from tests.crash.gitkills import NOT_MET, make, one
from tests.support.repository import make_repo

KILLED = {
    # What HEAD tracks: nothing, it would seem, so that all of the code might be overwritten.
    "restore and keep the code": "ls-tree -r -z --name-only --full-tree HEAD",
    "restore to an older HEAD": "symbolic-ref --quiet HEAD",
    "capture": "symbolic-ref --quiet HEAD",
}


def test_what_a_git_said_that_was_killed_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "template").mkdir()
    template = make(make_repo(tmp_path / "template" / "repo"))
    for command, words in KILLED.items():
        done, wrong = one(template, command, "half", words)
        assert done.status != NOT_MET, command
        assert not wrong, command
