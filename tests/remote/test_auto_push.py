"""Automatic push: `git push` also sends the history, in the background and only to remotes the user confirmed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from git_envhist.handlers import auto_push as riding_along
from git_envhist.integrations.git_hooks import write_outcome
from git_envhist.model.integrations import HookRun
from tests.end_to_end.captures import capture
from tests.integrations.hooks import git_dir, intents, wait_for, write_hook
from tests.remote.conftest import hook, refs
from tests.support.gits import OtherGit, gits
from tests.support.repository import Repo

PLACE = "envhist/hooks/push"


@pytest.fixture
def auto_pushing(repo: Repo, bare: Repo) -> Repo:
    """Return a repository with automatic push to a confirmed remote, and a snapshot to send."""
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", check=True)
    repo.git("config", "envhist.autoPush", "true")
    repo.run("envlog", "install", check=True)
    repo.write("b")
    capture(repo, "two")
    return repo


def outcomes(repo: Repo) -> list[dict[str, object]]:
    try:
        lines = (git_dir(repo) / PLACE / "log").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def settled(repo: Repo, number: int = 1) -> dict[str, object]:
    """Return the outcome of the last of at least `number` automatic pushes, once none is pending."""
    place = git_dir(repo) / PLACE
    wait_for(lambda: len(outcomes(repo)) >= number and not (place / "pending").exists(), "the automatic push")
    return outcomes(repo)[-1]


def test_auto_push_sends_captured_snapshots(auto_pushing: Repo, bare: Repo) -> None:
    done = auto_pushing.run_git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert done.stdout + done.stderr == b""
    assert settled(auto_pushing)["result"] == "pushed"
    assert refs(bare, "refs/envhist", "refs/notes") == refs(auto_pushing, "refs/envhist", "refs/notes")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/other")
    assert settled(auto_pushing, 2)["result"] == "unchanged"
    told = json.loads(auto_pushing.run("envlog", "status", "--json", check=True).out)
    assert {"event": "pre-push", "result": "pushed"}.items() <= told["runs"][-1].items()
    assert told["warnings"] == []


def test_auto_push_waits_for_the_capture_of_the_last_commit(auto_pushing: Repo, bare: Repo) -> None:
    for number in range(3):
        auto_pushing.write("tracked", f"{number}")
        auto_pushing.git("add", "tracked")
        auto_pushing.git("commit", "-qm", f"number {number}")
        auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/main")
        assert settled(auto_pushing, number + 1)["result"] == "pushed"
        assert intents(auto_pushing)[0] == f"number {number}"
        assert refs(bare, "refs/envhist") == refs(auto_pushing, "refs/envhist")


def test_auto_push_does_not_wait_for_a_capture_during_a_rebase(
    auto_pushing: Repo, bare: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = git_dir(auto_pushing) / "envhist/hooks"
    place.mkdir(exist_ok=True)
    (place / "pending").write_text('["post-checkout", 1000.0]')
    write_outcome(str(place), HookRun("post-checkout", 1001.0, "waiting"))
    monkeypatch.setattr(riding_along, "MAX_CAPTURE", 1e9)
    riding_along._wait_for_capture(str(place))


def test_auto_push_sends_nothing_without_consent_and_status_reports_it(
    auto_pushing: Repo, bare: Repo
) -> None:
    auto_pushing.git("remote", "set-url", "origin", f"file://{bare.path}")
    before = refs(bare, "refs/envhist")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert settled(auto_pushing)["result"] == "refused"
    assert refs(bare, "refs/envhist") == before
    assert "git envlog push --yes" in auto_pushing.run("envlog", "status", check=True).err


def test_auto_push_refuses_a_new_database_without_consent_and_status_names_it(
    auto_pushing: Repo, bare: Repo
) -> None:
    auto_pushing.write("customers.db", b"SQLite format 3\0" + bytes(4080))
    auto_pushing.write("prod-dump.sql", "-- PostgreSQL database dump\n")
    capture(auto_pushing, "three")
    before = refs(bare, "refs/envhist")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert settled(auto_pushing)["result"] == "refused"
    assert refs(bare, "refs/envhist") == before
    told = auto_pushing.run("envlog", "status", check=True).err
    assert "customers.db" in told
    assert "prod-dump.sql" in told
    assert "git envlog push --yes" in told
    auto_pushing.run("envlog", "push", "--yes", check=True)
    auto_pushing.write("c", "3")
    capture(auto_pushing, "four")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/other")
    assert settled(auto_pushing, 2)["result"] == "pushed"


def test_auto_push_uses_the_configured_remote(auto_pushing: Repo, bare: Repo, tmp_path: Path) -> None:
    auto_pushing.git("config", "envhist.remote", str(bare.path))
    auto_pushing.git("init", "-q", "--bare", str(tmp_path / "code.git"))
    auto_pushing.git("push", "-q", str(tmp_path / "code.git"), "HEAD:refs/heads/main")
    assert settled(auto_pushing)["result"] == "pushed"
    assert refs(bare, "refs/envhist") == refs(auto_pushing, "refs/envhist")
    assert not auto_pushing.git("--git-dir", str(tmp_path / "code.git"), "for-each-ref", "refs/envhist")


def test_git_push_neither_waits_for_auto_push_nor_fails_with_it(
    auto_pushing: Repo, bare: Repo, tmp_path: Path
) -> None:
    # The server accepts the branch and never answers the push of the history.
    reached = bare.path / "reached"
    os.mkfifo(reached)
    hook(bare, f"read -r a b ref; case $ref in refs/envhist*) echo $$ > {reached}; exec cat {reached};; esac")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/main")
    with reached.open() as told:
        stuck = int(told.readline())
    assert auto_pushing.git("push", "origin", "HEAD:refs/heads/other", check=True) == ""
    os.kill(stuck, signal.SIGKILL)
    result = settled(auto_pushing, 1)
    assert result["result"] == "failed"
    hook(bare, "exit 0")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/third")
    # The first background push may retry because of the new mark; then this one finds nothing to send.
    wait_for(
        lambda: any(one["result"] == "pushed" for one in outcomes(auto_pushing)),
        "a later push to send the history",
    )


def test_git_push_prints_the_usual_error_when_the_remote_does_not_exist(
    auto_pushing: Repo, bare: Repo
) -> None:
    bare.path.rename(bare.path.with_name("gone"))
    done = auto_pushing.run_git("push", "origin", "HEAD:refs/heads/main", check=False)
    assert done.status == 128
    assert b"envhist" not in done.stderr.replace(os.fsencode(bare.path.parent.parent), b"")


def test_auto_push_is_off_by_default(auto_pushing: Repo, bare: Repo) -> None:
    auto_pushing.git("config", "--unset", "envhist.autoPush")
    before = refs(bare, "refs/envhist")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert not (git_dir(auto_pushing) / PLACE).exists(), "no process was started"
    auto_pushing.git("config", "envhist.autoPush", "true")
    auto_pushing.git("config", "envhist.enabled", "false")
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/other")
    assert settled(auto_pushing)["result"] == "off"
    assert refs(bare, "refs/envhist") == before


def test_user_hook_keeps_its_input_arguments_and_exit_status(repo: Repo, bare: Repo) -> None:
    repo.git("config", "envhist.autoPush", "true")
    write_hook(repo, "pre-push", '#!/bin/sh\nread -r line\necho "$1 $line" >seen\nexit 7\n')
    repo.run("envlog", "install", check=True)
    done = repo.run_git("push", "-q", "origin", "HEAD:refs/heads/main", check=False)
    assert done.status == 1, "the user's hook rejects the push"
    assert repo.read("seen").startswith(b"origin HEAD ")
    assert refs(bare) == {}
    assert settled(repo)["result"] in ("off", "refused", "failed")


def test_status_warns_when_auto_push_is_set_without_hooks(repo: Repo) -> None:
    repo.git("config", "envhist.autoPush", "true")
    assert "git's hooks are not installed" in repo.run("envlog", "status", check=True).err


@pytest.mark.parametrize("git", gits()[1:], ids=str)
def test_auto_push_works_with_other_versions_of_git(
    auto_pushing: Repo, bare: Repo, git: OtherGit, monkeypatch: pytest.MonkeyPatch
) -> None:
    git.put_first(monkeypatch)
    auto_pushing.env["PATH"] = os.environ["PATH"]
    auto_pushing.run("envlog", "install", check=True)
    auto_pushing.git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert settled(auto_pushing)["result"] == "pushed"
    assert refs(bare, "refs/envhist", "refs/notes") == refs(auto_pushing, "refs/envhist", "refs/notes")
