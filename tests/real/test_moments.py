"""A day with npm itself: the log has intent, check result and summary of each snapshot where git's log has no
entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.captures import assert_holds
from tests.real.tools import Project, fetch
from tests.support.repository import make_repo

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full

DAY = "2026-11-18T"
TEST = """\
const {version} = require('has-flag/package.json');
const set = require('fs').existsSync('.env.local');
process.exit(version.startsWith('3.') || set ? 0 : 1);
"""


@pytest.fixture
def day(tmp_path: Path, variables: dict[str, str], npm: str) -> Project:
    """Return a freshly cloned Node project with its packages."""
    repo = make_repo(tmp_path / "app")
    repo.env |= variables | {"PATH": f"{repo.env['PATH']}:{variables['PATH']}"}
    package = {"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"}}
    repo.write("package.json", json.dumps(package))
    repo.write("test.js", TEST)
    repo.write(".gitignore", "node_modules/\n.env.local\n")
    fetch(repo.path, repo.env, npm, "install", "--silent", "--save-exact", "has-flag@3.0.0")
    repo.commit("the app")
    return Project(repo, tmp_path / "model", repo.env)


def take(day: Project, at: str, *words: str) -> dict[str, Any]:
    """Capture at a time of the day, and return the snapshot's details."""
    env = {"GIT_COMMITTER_DATE": f"{DAY}{at}:00+00:00"}
    day.repo.run("envlog", "capture", *words, env=env, check=True)
    card = json.loads(day.repo.run("envlog", "show", "--json", check=True).out)
    assert isinstance(card, dict)
    return card


def lines(day: Project, form: str) -> str:
    late = {"GIT_COMMITTER_DATE": f"{DAY}23:00:00+00:00"}
    return day.repo.run("envlog", "--reverse", f"--format={form}", env=late, check=True).out


def upgrade(day: Project, npm: str, version: str) -> None:
    day.call(npm, "install", "--silent", "--save-exact", f"has-flag@{version}")


def test_log_lists_the_day_and_the_good_snapshot_is_restored(day: Project, npm: str) -> None:
    take(day, "10:02", "clean clone", "--verify", "npm test")
    day.repo.write("auth.js", "// to be\n")
    take(day, "10:11", "before auth refactor")
    upgrade(day, npm, "4.0.0")
    # All changes are committed before the capture: git has no changes to show, the summary has.
    day.repo.commit("packages")
    broken = take(day, "10:18", "after package install", "--verify", "npm test")
    day.repo.write(".env.local", "API=1\n")
    assert day.repo.git("status", "--porcelain") == ""
    working = take(day, "10:27", "working version, app healthy")

    assert lines(day, "%(time) %s%(, verdict)") == (
        "10:02 clean clone, verify passing\n"
        "10:11 before auth refactor\n"
        "10:18 after package install, verify failing\n"
        "10:27 working version, app healthy\n"
    )
    assert broken["verify"] | {"command": "npm test", "status": "fail", "exit_code": 1} == broken["verify"]
    assert broken["git_changed"] == []
    story = [(each["probe"], each["before"], each["after"]) for each in broken["story"]]
    assert ("npm", "3.0.0", "4.0.0") in story
    assert {"status": "M", "path": "package.json"} in broken["env_changed"]["paths"]

    # The snapshot has the file that git ignores; git's own list does not.
    assert working["git_changed"] == []
    assert working["env_changed"]["paths"] == [{"status": "A", "path": ".env.local"}]
    day.repo.run("envlog", "verify", "@", "--", "npm test", check=True)
    (day.path / ".env.local").unlink()
    assert day.call(npm, "test", check=False).status == 1
    day.repo.run("envrestore", "good", check=True)
    assert day.call(npm, "test").status == 0
    assert_holds(day.repo, working["id"])


def test_summary_identifies_the_good_one_of_three_equal_intents(day: Project, npm: str) -> None:
    kinds = []
    for at, version in (("10:02", "4.0.0"), ("10:11", "3.0.0"), ("10:18", "5.0.1")):
        upgrade(day, npm, version)
        day.repo.commit("wip")
        # No intent was given, so the last commit's message is used.
        card = take(day, at)
        kinds.append(
            (card["intent"].rpartition("\n\n")[2], card["intent_source"], card["git_changed"], card["verify"])
        )
    assert kinds == [("wip", "commit", [], None)] * 3
    output = lines(day, "%s %(story)").splitlines()
    assert [[version for version in ("3.0.0", "4.0.0", "5.0.1") if version in line] for line in output] == [
        [], ["3.0.0", "4.0.0"], ["3.0.0", "5.0.1"],
    ]  # fmt: skip
    # The summary names the snapshot, a check in a temporary fork passes, and a restore makes the project work.
    second = json.loads(day.repo.run("envlog", "-S", "has-flag", "--json", check=True).out)[1]
    judged = [day.repo.run("envlog", "verify", rev, "--", "npm test").status for rev in ("@~2", "@~1", "@")]
    assert judged == [1, 0, 1]
    day.repo.run("envrestore", "good", check=True)
    assert day.call(npm, "test").status == 0
    assert_holds(day.repo, second["id"])


@pytest.mark.parametrize(
    ("path", "content"),
    [("index", b"garbage"), ("refs/notes/envhist", None), ("HEAD", b"ref: refs/heads/gone\n")],
)
def test_snapshot_is_complete_when_files_of_git_are_broken(
    day: Project, path: str, content: bytes | None
) -> None:
    day.repo.write(".env.local", "API=1\n")
    take(day, "10:02", "before")
    place = day.path / ".git" / path
    if content is None:
        (notes,) = [each for each in place.rglob("*") if each.is_file()]
        notes.write_bytes(b"garbage\n")
    else:
        place.write_bytes(content)
    day.repo.write(".env.local", "API=2\n")
    done = day.repo.run("envlog", "capture", "whole", "--verify", "npm test", "--porcelain", check=True)
    assert_holds(day.repo, done.out.strip())
    assert "whole" in day.repo.run("envlog", check=True).out
