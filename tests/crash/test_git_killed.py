"""The output of a killed git is ignored; `tests.crash.gitkills` kills all git processes."""

from __future__ import annotations

from pathlib import Path

from tests.crash.gitkills import NOT_MET, make, one
from tests.support.depth import FULL
from tests.support.repository import make_repo

KILLED = {
    # With empty output, no path would seem tracked, and all code could be overwritten.
    "restore and keep the code": "ls-tree -r -z --name-only --full-tree HEAD",
    "restore to an older HEAD": "symbolic-ref --quiet HEAD",
    "capture": "symbolic-ref --quiet HEAD",
}


def test_output_of_a_killed_git_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "template").mkdir()
    template = make(make_repo(tmp_path / "template" / "repo"))
    for command, words in KILLED.items() if FULL else [*KILLED.items()][:1]:
        done, wrong = one(template, command, "half", words)
        assert done.status != NOT_MET, command
        assert not wrong, command
