"""`git envlog status` lists active hooks, their last runs and their errors."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.integrations.git_hooks import hooks_state, write_outcome, write_pending
from git_envhist.model.integrations import HookRun
from tests.cli.test_json import validate
from tests.integrations.hooks import git_dir, is_idle, log_of, standing, wait_for, wait_for_runs
from tests.support.repository import Repo


def status(repo: Repo, *words: str) -> dict[str, object]:
    told = json.loads(repo.run("envlog", "status", "--json", *words, check=True).out)
    validate("status", told)
    assert isinstance(told, dict)
    return told


def test_status_reports_missing_hooks_and_changes_nothing(repo: Repo) -> None:
    before = standing(repo.path)
    assert "no hooks are installed" in repo.run("envlog", "status", check=True).out
    assert status(repo)["here"] == {}
    assert standing(repo.path) == before


def test_status_lists_active_hooks_and_last_runs(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    repo.commit("by itself")
    wait_for_runs(repo, 1)
    told = status(repo)
    assert isinstance(told["here"], dict)
    assert [part["active"] for part in told["here"]["git"]] == [True] * 5
    assert isinstance(told["runs"], list)
    assert [(run["event"], run["result"]) for run in told["runs"]] == [("post-commit", "captured")]
    assert (told["waiting"], told["warnings"]) == (None, [])
    shown = repo.run("envlog", "status", check=True)
    assert "post-commit" in shown.out
    assert str(told["runs"][0]["id"])[:7] in shown.out
    assert shown.err == ""


def test_a_report_has_versions_and_settings_and_no_secret(repo: Repo) -> None:
    token = "ghp_" + "a1B2" * 9
    repo.git("config", "envhist.verify", f"curl -H 'Authorization: {token}'")
    shown = repo.run("envlog", "status", "--report", check=True).out
    assert "git-envhist: " in shown
    assert "envhist.verify=curl" in shown
    assert token not in shown
    assert "settings" in status(repo, "--report")


def test_status_warns_about_replaced_hooks(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    for event in ("post-commit", "post-merge", "post-checkout", "post-rewrite", "pre-push"):
        (repo.path / ".git/hooks" / event).write_text("#!/bin/sh\nexit 0\n")
        told = repo.run("envlog", "status", check=True)
        assert "git envlog install" in told.err
    assert status(repo)["here"] == {}


def test_status_warns_about_hooks_in_an_unused_directory(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    repo.git("config", "core.hooksPath", "elsewhere")
    told = repo.run("envlog", "status", check=True)
    assert "git looks for hooks in" in told.err
    assert "✓" not in told.out


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not restrict root")
def test_status_reports_a_failed_capture_and_the_commit_is_kept(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    repo.commit("first by itself")
    wait_for_runs(repo, 1)
    packs = git_dir(repo) / "objects/pack"
    mode = stat.S_IMODE(packs.stat().st_mode)
    state = git_dir(repo) / "envhist/staging"
    state.chmod(0o500)
    packs.chmod(0o500)
    try:
        repo.write("file", "x" * 100)
        repo.commit("stands")
        wait_for_runs(repo, 2)
    finally:
        packs.chmod(mode)
        state.chmod(0o700)
    assert repo.git("log", "-1", "--format=%s") == "stands"
    assert json.loads(log_of(repo)[-1])["result"] == "failed"
    assert "failed" in repo.run("envlog", "status", check=True).err


def test_status_warns_about_a_hook_that_was_never_called(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    record = Path(repo.path, ".git/envhist/installed")
    held = json.loads(record.read_text())
    for row in held["files"].values():
        row["at"] -= 1000
    record.write_text(json.dumps(held))
    repo.git("-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "unseen")
    assert "no hook was called" in repo.run("envlog", "status", check=True).err


def test_hook_log_is_bounded_and_ignores_invalid_lines(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    repo.commit("by itself")
    wait_for_runs(repo, 1)
    log = git_dir(repo) / "envhist/hooks/log"
    log.write_bytes(log.read_bytes() * 200 + b"\xff rubbish\n[]\n{}\n")
    repo.commit("and again")
    wait_for(lambda: len(log_of(repo)) == 50 and is_idle(repo), "a bounded log")
    lines = log_of(repo)
    assert len(lines) == 50
    assert json.loads(lines[-1])["result"] == "captured"


def test_report_works_without_git(repo: Repo, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    repo.run("envlog", "init", cwd=plain, check=True)
    shown = repo.run("envlog", "status", "--report", cwd=plain)
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.splitlines()[0] == (
        "no hooks are installed here; install them: git envlog install --global --agent <name>, or git envlog watch"
    )
    assert "git-envhist: " in shown.out
    told = json.loads(repo.run("envlog", "status", "--json", cwd=plain, check=True).out)
    assert (told["here"], told["warnings"]) == ({}, [])


def test_log_notes_a_pending_capture_of_a_hook(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", check=True)
    assert repo.run("envlog", check=True).err == ""
    place = hooks_state(EnvHistory.open(str(repo.path), one_command=True).repository.state)
    write_pending(place, "post-merge")
    told = "note: a capture is running (post-merge); it is not in this list yet\n"
    assert repo.run("envlog", "-1", check=True).err == told
    assert repo.run("envlog", "--json", check=True).err == ""
    waits = "a rebase, merge or cherry-pick has stopped: captured when it continues"
    write_outcome(place, HookRun("post-merge", time.time(), "waiting", message=waits))
    assert repo.run("envlog", check=True).err == f"note: {waits}\n"
    mark = Path(place, "pending")
    mark.write_text(json.dumps(["post-merge", time.time() - 600]))
    assert repo.run("envlog", check=True).err == ""


def test_status_lists_results_of_agent_hooks(repo: Repo) -> None:
    repo.run("envlog", "install", "--agent", "claude", check=True)
    place = Path(EnvHistory.open(str(repo.path), one_command=True).repository.state, "agents")
    place.mkdir(parents=True, exist_ok=True)
    for at, (kind, told) in enumerate(
        (("prompt", "captured"), ("before", "nothing changed"), ("end", "failed: no room"))
    ):
        (place / f"last-claude-code-{kind}").write_text(f"{told} (2026-11-18 10:27:0{at})\n")
        os.utime(place / f"last-claude-code-{kind}", (1_795_000_000 + at,) * 2)
    found = status(repo)
    assert isinstance(found["runs"], list)
    assert [(one["event"], one["result"], one["message"]) for one in found["runs"]] == [
        ("claude-code end", "failed", "no room"),
        ("claude-code before", "unchanged", None),
        ("claude-code prompt", "captured", None),
    ]
    shown = repo.run("envlog", "status", check=True).out.splitlines()
    runs = shown[shown.index("the last runs") + 1 :]
    assert [" ".join(line.split()).partition("claude-code ")[2] for line in runs] == [
        "end failed: no room",
        "before unchanged",
        "prompt captured",
    ]
    # All rows have the same column widths.
    assert len({line.index("/") for line in shown if line.startswith("  ✓")}) == 1
