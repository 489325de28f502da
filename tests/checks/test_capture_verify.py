"""A snapshot is published before its check runs, and the verdict is stored in its notes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Trigger, VerdictStatus
from tests.cli.test_json import validate
from tests.support.needs import require
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo

MACHINE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
TOKEN = "ghp_" + "a1B2" * 9


def shown(repo: Repo, revision: str = "@") -> dict[str, object]:
    value = json.loads(repo.run("envlog", "show", "--json", revision, check=True).out)
    validate("snapshot", value)
    assert isinstance(value, dict)
    return value


def latest(repo: Repo, revision: str = "@") -> dict[str, object]:
    found = shown(repo, revision)["verify"]
    assert isinstance(found, dict)
    return found


def notes_ref(repo: Repo) -> str:
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    return ref.replace("refs/envhist/heads", "refs/notes/envhist")


def test_failed_check_prints_a_warning_and_keeps_the_snapshot(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "x", "--verify", "echo boom; exit 3")
    told, hint = done.err.split("hint: ")
    assert (done.status, told) == (0, "boom\nwarning: the check failed: echo boom; exit 3\n")
    assert hint == "output of the check: git envlog show; what changed in this snapshot: git envdiff @~1..@\n"
    first, *_, last = done.out.splitlines()
    assert first.endswith("] x")
    assert last.startswith(" ✗ echo boom; exit 3 (")
    found = latest(repo)
    told = {
        key: found[key] for key in ("status", "exit_code", "signal", "command", "output_tail", "claimed_by")
    }
    assert told == {
        "status": "fail", "exit_code": 3, "signal": None, "command": "echo boom; exit 3", "output_tail": "boom\n",
        "claimed_by": None,
    }  # fmt: skip
    assert found["tree_before"] == found["tree_after"]
    assert "✗ x" in repo.run("envlog").out
    assert "npm" not in repo.run("envlog").out


def test_snapshot_exists_while_its_check_runs(repo: Repo) -> None:
    check = "git envlog --format=%s && git envlog capture inside --porcelain >/dev/null && git envlog -n1 --format=%s"
    done = repo.run("envlog", "capture", "outside", "--verify", check, check=True)
    assert done.err.splitlines()[:2] == ["outside", "inside"]
    assert latest(repo, ":/outside")["status"] == "pass"


def test_check_runs_at_the_top_without_variables_of_git(repo: Repo) -> None:
    repo.write("below/here", "x")
    check = 'test -f app.py && test "$PWD" = "$(pwd)" && test -z "$GIT_DIR$GIT_INDEX_FILE"'
    env = {"GIT_DIR": str(repo.path / ".git"), "GIT_WORK_TREE": str(repo.path), "GIT_INDEX_FILE": "/nowhere"}
    done = repo.run("envlog", "capture", "--verify", check, "--exit-code", cwd="below", env=env)
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("check", "status"), [("true", 0), ("exit 7", 7), ("no-such-program", 127), ("kill -9 $$", 137)]
)
def test_exit_code_option_returns_the_status_of_the_check(repo: Repo, check: str, status: int) -> None:
    assert repo.run("envlog", "capture", "--verify", check, "--exit-code").status == status


def test_exit_code_option_needs_a_check(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--exit-code")
    assert done.status == 129
    assert "--exit-code needs a check" in done.err


def test_porcelain_and_json_keep_their_form(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--porcelain", "--verify", "echo noise; exit 1")
    assert (done.status, done.out.strip()) == (
        0,
        repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads"),
    )
    done = repo.run("envlog", "capture", "--json", "--verify", "echo noise; exit 1")
    output = json.loads(done.out)
    validate("captured", output)
    assert (output["verify"]["status"], output["snapshot"]["verify"]["output_tail"]) == ("fail", "noise\n")
    assert done.err.startswith("noise\n")


def test_check_that_changed_the_environment_is_reported(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--verify", "touch left-behind", check=True)
    assert "it changed files" in done.out
    found = latest(repo)
    assert found["status"] == "pass"
    assert found["tree_before"] != found["tree_after"]
    assert "the check changed files" in repo.run("envlog", "show").out


def test_configured_check_runs_for_the_named_triggers(repo: Repo) -> None:
    repo.git("config", "envhist.verify", "echo configured")
    repo.run("envlog", "capture", "one", check=True)
    assert latest(repo)["command"] == "echo configured"
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    assert history.capture("by a program").verdict is None
    repo.git("config", "envhist.verifyOn", "commit, api")
    assert "✓" not in repo.run("envlog", "capture", "two", check=True).out
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    caught = history.capture("by a program").verdict
    assert caught is not None
    assert caught.status is VerdictStatus.PASS
    assert history.capture("hook", trigger=Trigger.CHECKOUT).verdict is None
    given = history.capture("given", verify="exit 1", trigger=Trigger.CHECKOUT).verdict
    assert given is not None
    assert given.status is VerdictStatus.FAIL


def test_check_is_ended_at_its_timeout(repo: Repo) -> None:
    repo.git("config", "envhist.verifyTimeout", "1s")
    done = repo.run("envlog", "capture", "--verify", "echo begun; sleep 1000", "--exit-code")
    assert "the check gave no result: echo begun; sleep 1000: stopped at the timeout" in done.err
    found = latest(repo)
    assert (found["status"], found["timed_out"], found["output_tail"]) == ("error", True, "begun\n")


def test_stored_output_is_sealed_and_tokens_are_masked(repo: Repo) -> None:
    repo.run("envlog", "capture", "--verify", f"echo canary-word {TOKEN}; true --token={TOKEN}", check=True)
    note = repo.git(
        "notes",
        "--ref",
        notes_ref(repo),
        "show",
        repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads"),
    )
    assert TOKEN not in note
    assert json.loads(note.splitlines()[-1])["command"].count("***") == 2
    record = json.loads(note.splitlines()[-1])
    assert "canary-word" not in json.dumps({key: value for key, value in record.items() if key != "command"})
    assert latest(repo)["output_tail"] == "canary-word ghp_***\n"
    shutil.rmtree(repo.path / ".git/envhist/keys")
    shutil.rmtree(os.environ["XDG_CONFIG_HOME"])
    assert latest(repo)["output_tail"] == "(sealed with a key that you do not have)"


def test_unwritable_notes_print_a_warning(repo: Repo) -> None:
    repo.run("envlog", "capture", "first", check=True)
    # The check sets the notes ref to a missing commit, so notes can be neither read nor written.
    check = f"echo {'1' * 40} > '{repo.path}/.git/{notes_ref(repo)}'"
    done = repo.run("envlog", "capture", "second", "--verify", check)
    assert done.status == 0
    assert "the verdict could not be stored; the snapshot is not affected" in done.err
    assert repo.run("envlog", "-n1", "--format=%s").out == "second\n"


def test_check_inside_a_check_is_skipped_without_waiting(repo: Repo) -> None:
    repo.git("config", "envhist.verify", "git envlog capture inside")
    done = repo.run("envlog", "capture", "outside", check=True)
    assert "already inside a check" in done.err
    assert latest(repo, ":/outside")["status"] == "pass"
    assert shown(repo, ":/inside")["verify"] is None


def test_checks_of_one_working_tree_run_one_after_the_other(repo: Repo) -> None:
    check = "test ! -e ../busy && touch ../busy && sleep 0.2 && rm ../busy"
    words = ["git-envlog", "capture", "--exit-code", "--verify", check]
    running = [
        subprocess.Popen(words, cwd=repo.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    told = [one.communicate()[1] for one in running]
    assert [one.returncode for one in running] == [0, 0, 0], told


def test_ctrl_c_keeps_the_snapshot_and_ends_the_check(repo: Repo) -> None:
    check = "echo $$ > ../pid; echo begun; sleep 1000"
    words = ["git-envlog", "capture", "stands", "--verify", check]
    with subprocess.Popen(words, cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == b"begun\n"
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate()
    assert running.returncode == 130
    assert b"] stands\n" in out
    assert repo.run("envlog", "--format=%s").out == "stands\n"
    assert shown(repo)["verify"] is None
    with pytest.raises(ProcessLookupError):
        os.kill(int((repo.path.parent / "pid").read_text()), 0)
    # No lock is left.
    repo.run("envlog", "capture", "--verify", "true", "--exit-code", check=True)


def test_ordinary_user_can_check(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--verify", "true", "--exit-code", prefix=as_ordinary_user())
    assert done.status == 0, done.err


def test_log_prints_failures_as_documented(repo: Repo) -> None:
    for at, words, check in (("10:02", "clean clone", "true"), ("10:18", "after package install", "exit 1")):
        repo.write("app.py", f"print('{words}')\n")
        env = {"GIT_COMMITTER_DATE": f"2026-11-18T{at}:00+00:00"}
        repo.run("envlog", "capture", words, "--verify", check, env=env, check=True)
    output = repo.run(
        "envlog",
        "--reverse",
        "--format=%(time) %s%(, verdict)",
        env={"GIT_COMMITTER_DATE": "2026-11-18T12:00:00+00:00"},
    )
    assert output.out == "10:02 clean clone, verify passing\n10:18 after package install, verify failing\n"
    assert repo.run("envlog", "-n1").out.endswith(" · exit 1\n")
    assert repo.run("envlog", "--verdict=pass", "--format=%s").out == "clean clone\n"
    assert (
        repo.run("envlog", "show", "good", "--json", check=True).out
        == repo.run("envlog", "show", ":/clean", "--json").out
    )
    assert (
        repo.run("envlog", "show", "bad", "--json", check=True).out
        == repo.run("envlog", "show", "@", "--json").out
    )


def test_real_npm_test_is_run(repo: Repo, tmp_path: Path) -> None:
    npm = require("npm", MACHINE.get("PATH"))
    package = {"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"}}
    repo.write("package.json", json.dumps(package))
    repo.write("test.js", "process.exit(require('fs').existsSync('.env.local') ? 0 : 1)\n")
    env = {
        **{name: MACHINE[name] for name in ("HOME", "XDG_CACHE_HOME") if name in MACHINE},
        "PATH": f"{os.environ['PATH']}{os.pathsep}{os.path.dirname(npm)}",
        "npm_config_cache": str(tmp_path / "cache"),
        "npm_config_update_notifier": "false",
    }
    repo.git("config", "envhist.verify", "npm test")
    done = repo.run("envlog", "capture", "without", "--exit-code", env={**repo.env, **env})
    assert done.status == 1, done.err
    assert "npm test: exit 1" in repo.run("envlog").out
    repo.write(".env.local", "API=1\n")
    done = repo.run("envlog", "capture", "with", "--exit-code", env={**repo.env, **env})
    assert done.status == 0, done.err
    assert [one["verify"]["status"] for one in json.loads(repo.run("envlog", "--json").out)] == [
        "pass",
        "fail",
    ]


def test_verify_without_a_command_repeats_the_last_check(repo: Repo) -> None:
    repo.run("envlog", "verify", "--", "grep -q old app.py")
    repo.write("app.py", "old\n")
    assert repo.run("envlog", "verify").status == 0
    repo.write("app.py", "new\n")
    assert repo.run("envlog", "verify", "now").status == 1
