"""Pruning by a policy, by command and daily."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from git_envhist.api import EnvHistory
from git_envhist.maintenance.start_daily_gc import STAMP
from git_envhist.model.retention import RetentionPolicy
from git_envhist.retention.prune import DAYS_AT_WORK, Pruner
from tests.cli.test_json import validate
from tests.support.repository import Repo, make_repo, new_template, replace_tree

START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def day(number: float) -> dict[str, str]:
    return {"GIT_COMMITTER_DATE": (START + timedelta(days=number)).isoformat()}


def take(repo: Repo, days: int, *, size: int = 10, first: int = 0) -> list[str]:
    """Capture a snapshot per day and return their ids, oldest first."""
    git_dir = repo.path / ".git"
    if (size, first) == (10, 0) and git_dir.is_dir() and not (git_dir / "envhist").exists():
        template, taken = _template(days)
        configuration = (repo.path / ".git/config").read_bytes()
        replace_tree(template, repo.path)
        (repo.path / ".git/config").write_bytes(configuration)
        return list(taken)
    return _capture_days(repo, range(first, first + days), size)


@functools.cache
def _template(days: int) -> tuple[Path, list[str]]:
    repo = make_repo(new_template() / "repo")
    return repo.path, _capture_days(repo, range(days), 10)


def _capture_days(repo: Repo, days: Sequence[int], size: int) -> list[str]:
    taken = []
    for number in days:
        repo.write("file", os.urandom(size))
        done = repo.run("envlog", "capture", f"day {number}", "--porcelain", check=True, env=day(number))
        taken.append(done.out.strip())
    return taken


def ids(repo: Repo) -> list[str]:
    return [one.id for one in reversed(EnvHistory.open(str(repo.path), one_command=True).log())]


def prune(repo: Repo, when: float, *words: str) -> Any:
    told = json.loads(repo.run("envlog", "prune", "--json", *words, check=True, env=day(when)).out)
    validate("pruned", told)
    return told


def by_itself(repo: Repo, when: float) -> None:
    repo.run("envlog", "gc", "--auto", check=True, env=day(when))


def test_dry_run_prints_the_same_decisions_with_reasons(repo: Repo) -> None:
    taken = take(repo, 6)
    repo.run("envlog", "name", "release", taken[1], check=True)
    before = repo.git("for-each-ref")
    would = prune(repo, 6, "--dry-run", "--keep-last", "1", "--keep-daily", "2", "--keep-weekly=1")
    assert repo.git("for-each-ref") == before
    assert [(one["id"], one["reasons"]) for one in would["timelines"][0]["snapshots"]] == [
        (
            taken[5],
            ["the newest", "among the 1 newest", "kept for the day 2026-01-10", "kept for the week 2026-W02"],
        ),
        (taken[4], ["kept for the day 2026-01-09"]),
        (taken[3], ["no rule keeps it"]),
        (taken[2], ["no rule keeps it"]),
        (taken[1], ["named 'release'"]),
        (taken[0], ["no rule keeps it"]),
    ]
    done = prune(repo, 6, "--keep-last", "1", "--keep-daily", "2", "--keep-weekly=1")
    assert done == {**would, "dry_run": False}
    assert ids(repo) == [taken[1], taken[4], taken[5]]
    text = repo.run("envlog", "prune", "--dry-run", "--keep-hourly=9", check=True, env=day(6)).out
    assert f"keep  {taken[1][:7]}" in text
    text = repo.run("envlog", "prune", "--keep-hourly=9", check=True, env=day(6)).out
    assert "dropped 0 snapshots, kept 3" in text


def test_configured_policy_applies_without_options(repo: Repo) -> None:
    taken = take(repo, 5)
    assert prune(repo, 5)["dropped"] == 0
    for key, number in (("keepLast", 1), ("keepHourly", 0), ("keepDaily", 2), ("keepWeekly", 0)):
        repo.git("config", f"envhist.{key}", str(number))
    assert prune(repo, 5)["dropped"] == 3
    assert ids(repo) == taken[3:]
    assert repo.run("envlog", "prune", "--keep-last=-1").status == 129


def test_all_timelines_are_pruned_on_request(repo: Repo) -> None:
    take(repo, 3)
    repo.git("worktree", "add", "-q", "../other")
    other = Repo(repo.path.parent / "other", repo.env)
    take(other, 3)
    assert prune(repo, 3, "--keep-last=1")["dropped"] == 2
    told = prune(repo, 3, "--keep-last=1", "--all")
    assert (len(told["timelines"]), told["dropped"]) == (2, 2)
    assert "would drop 0 snapshots, keep 2" in repo.run("envlog", "prune", "-n", "--all", check=True).out


def test_trash_expires_after_thirty_days_and_frees_its_space(repo: Repo) -> None:
    taken = take(repo, 3, size=300_000)
    blobs = [repo.git("rev-parse", f"{one}:file") for one in taken]
    prune(repo, 3, "--keep-last=1")
    repo.run("envlog", "gc", "--prune=now", check=True)
    for one in taken:
        assert repo.git("for-each-ref", "refs/envhist/trash") != "", one
    assert [repo.run_git("cat-file", "-e", blob, check=False).status for blob in blobs] == [0, 0, 0]
    assert prune(repo, 33)["expired"] == 0
    assert prune(repo, 34, "--dry-run")["expired"] == 2
    assert prune(repo, 34)["expired"] == 2
    repo.run("envlog", "gc", "--prune=now", check=True)
    assert [repo.run_git("cat-file", "-e", blob, check=False).status for blob in blobs] == [1, 1, 0]
    assert ids(repo) == taken[2:]
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    # No note or cache refers to the dropped snapshots.
    notes = repo.git(
        "ls-tree", "-r", "--name-only", repo.git("for-each-ref", "--format=%(refname)", "refs/notes")
    )
    assert len(notes.splitlines()) == 1


def test_trash_of_one_week_shares_a_ref(repo: Repo) -> None:
    taken = take(repo, 6)
    repo.run("envlog", "name", "second", taken[2], check=True)
    for number in (1, 2, 4, 3):
        repo.run("envlog", "drop", taken[number], check=True, env=day(number + 0.5))
    apart = repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/envhist/trash").splitlines()
    assert len(apart) == 4
    prune(repo, 20, "--keep-last=9")
    (ref,) = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").splitlines()
    assert ref.split("/")[3] == "2026-01-09"
    # The state after a kill between the refs.
    for line in apart[:2]:
        repo.git("update-ref", *line.split())
    told = json.loads(repo.run("envlog", "undrop", "--json", check=True).out)["trash"]
    assert sorted(one["id"] for one in told) == sorted(taken[1:5])
    repo.run("envlog", "undrop", "--all", check=True)
    assert ids(repo) == taken
    assert EnvHistory.open(str(repo.path), one_command=True).resolve("second").id == taken[2]
    assert repo.git("for-each-ref", "refs/envhist/trash") == ""
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_daily_drops_share_a_ref_from_the_first(repo: Repo) -> None:
    for name in ("keepDaily", "keepWeekly"):
        repo.git("config", f"envhist.{name}", "0")
    repo.git("config", "envhist.keepLast", "1")
    taken = take(repo, 1)
    for number in range(1, 10):
        taken += take(repo, 1, first=number)
        by_itself(repo, number)
        refs = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").splitlines()
        weeks = {datetime.fromisoformat(ref.split("/")[3]).isocalendar()[1] for ref in refs}
        assert len(refs) == len(weeks)
    assert len(refs) == 2
    repo.run("envlog", "undrop", "--all", check=True)
    assert ids(repo) == taken


def test_daily_run_prunes_by_the_configured_policy(repo: Repo) -> None:
    repo.git("config", "envhist.keepLast", "2")
    repo.git("config", "envhist.keepDaily", "0")
    repo.git("config", "envhist.keepWeekly", "0")
    taken = take(repo, 4)
    assert ids(repo) == taken
    by_itself(repo, 4)
    assert ids(repo) == taken[2:]
    # The clock alone is not trusted: it may have jumped.
    by_itself(repo, 40)
    assert repo.git("for-each-ref", "refs/envhist/trash") != ""
    take(repo, DAYS_AT_WORK - 1, first=41)
    by_itself(repo, 46)
    assert taken[1] in repo.git("for-each-ref", "refs/envhist/trash")
    take(repo, 1, first=47)
    by_itself(repo, 47)
    assert taken[1] not in repo.git("for-each-ref", "refs/envhist/trash")


def test_capture_starts_the_daily_run_without_waiting(repo: Repo) -> None:
    for name in ("gc.auto", "maintenance.auto"):
        repo.git("config", "--global", "--unset", name)
    for key in ("keepDaily", "keepWeekly"):
        repo.git("config", f"envhist.{key}", "0")
    repo.git("config", "envhist.keepLast", "2")
    taken = take(repo, 3)
    stamp = repo.path / ".git/envhist" / STAMP
    os.utime(stamp, (time.time() - 90_000,) * 2)
    repo.write("file", "last")
    # A capture with any given time is dropped into today's trash.
    env = {**repo.env, "GIT_COMMITTER_DATE": "2040-01-01T00:00:00+00:00"}
    last = repo.run("envlog", "capture", "--porcelain", "last", check=True, env=env).out.strip()
    until = time.monotonic() + 60
    while ids(repo) != [taken[2], last] and time.monotonic() < until:
        time.sleep(0.05)
    assert ids(repo) == [taken[2], last]
    dates = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").split()
    assert {ref.split("/")[3] for ref in dates} <= {
        f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%d}" for hours in (0, 1)
    }


def test_size_limit_drops_the_oldest_and_purges_the_trash(repo: Repo) -> None:
    taken = take(repo, 6, size=200_000)
    repo.run("envlog", "name", "release", taken[0], check=True)
    # Six of 200 kB, of which four fit.
    repo.git("config", "envhist.maxSize", "900k")
    by_itself(repo, 6)
    assert ids(repo) == [taken[0], *taken[3:]]
    assert repo.git("for-each-ref", "refs/envhist/trash") != ""
    by_itself(repo, 7)
    assert repo.git("for-each-ref", "refs/envhist/trash") == ""
    repo.run("envlog", "gc", "--prune=now", check=True)
    by_itself(repo, 8)
    assert ids(repo) == [taken[0], *taken[3:]]
    packs = (repo.path / ".git/objects/pack").glob("*.pack")
    assert sum(path.stat().st_size for path in packs) < 900 << 10


def test_size_limit_purges_this_weeks_trash_except_todays(repo: Repo) -> None:
    for key, number in (("keepLast", 2), ("keepDaily", 0), ("keepWeekly", 0)):
        repo.git("config", f"envhist.{key}", str(number))
    taken: list[str] = []
    for number in range(4):
        taken += take(repo, 1, size=200_000, first=number)
        by_itself(repo, number)
    assert ids(repo) == taken[2:]
    repo.git("config", "envhist.maxSize", "900k")
    taken += take(repo, 1, size=200_000, first=4)
    by_itself(repo, 4)
    assert ids(repo) == taken[3:]
    told = json.loads(repo.run("envlog", "undrop", "--json", check=True).out)["trash"]
    assert [one["id"] for one in told] == [taken[2]]


def test_snapshot_named_during_a_prune_is_kept(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = take(repo, 3)
    history = EnvHistory.open(
        str(repo.path), environ={**os.environ, **day(3)}, workers="here", one_command=True
    )
    decide = Pruner._decide
    calls = []

    def decide_and_name(self: Pruner, policy: RetentionPolicy, timeline: str) -> Any:
        found = decide(self, policy, timeline)
        if not calls:
            calls.append(timeline)
            repo.run("envlog", "name", "just-now", taken[0], check=True)
        return found

    monkeypatch.setattr(Pruner, "_decide", decide_and_name)
    history.prune(keep_last=1)
    assert ids(repo) == [taken[0], taken[2]]


def test_attachment_is_purged_with_its_snapshot(repo: Repo) -> None:
    first, second = take(repo, 2)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for one in (first, second):
        history.attach(one, attached=[("said.txt", b"of " + one.encode())])
    repo.run("envlog", "drop", first, check=True, env=day(2))
    history.refresh()
    assert history.attachments(second) == (("said.txt", b"of " + second.encode()),)
    history.undrop(first)
    assert history.attachments(first) == (("said.txt", b"of " + first.encode()),)
    repo.run("envlog", "drop", first, check=True, env=day(2))
    history.refresh()
    prune(repo, 40)
    notes = repo.git("for-each-ref", "--format=%(refname)", "refs/notes")
    stand = repo.git("ls-tree", "-r", "--name-only", notes)
    assert (first in stand, second in stand) == (False, True)
    assert history.attachments(second) == (("said.txt", b"of " + second.encode()),)
