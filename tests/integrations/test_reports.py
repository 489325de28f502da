"""Reports of a running watch, of remaining hooks and of sent data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from git_envhist.integrations.watch import is_watched, watch_lock_path
from git_envhist.remote.upload import RemoteState, read_remote_state, write_remote_state
from tests.support.repository import Repo


def test_watch_is_detected_only_while_it_holds_its_lock(tmp_path: Path) -> None:
    assert not is_watched(str(tmp_path))
    assert not os.listdir(tmp_path)
    lock = watch_lock_path(str(tmp_path))
    holder = subprocess.Popen(
        ["python3", "-c", f"import fcntl; f = open({lock!r}, 'w'); fcntl.flock(f, 2); print(1, flush=1); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    assert is_watched(str(tmp_path))
    holder.communicate(b"\n")
    assert not is_watched(str(tmp_path))


def test_status_reports_a_running_watch(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    assert json.loads(repo.run("envlog", "status", "--json", check=True).out)["watching"] is False
    lock = watch_lock_path(str(repo.path / ".git/envhist"))
    words = ["flock", lock, sys.executable, "-c", "print(1, flush=True); input()"]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    assert repo.run("envlog", "status", check=True).out.startswith("git envlog watch is running here\n")
    holder.communicate(b"\n")


def test_run_checks_only_the_snapshot_after_the_command(repo: Repo) -> None:
    repo.git("config", "envhist.verify", "echo check >> ../checks")
    repo.git("config", "envhist.verifyOn", "run manual")
    repo.run("envlog", "run", "true", check=True)
    assert (repo.path.parent / "checks").read_text() == "check\n"
    repo.run("envlog", "capture", "--verify", "", "unchecked", check=True)
    assert (repo.path.parent / "checks").read_text() == "check\n"


def test_purge_prints_a_command_for_a_remote_given_by_address(repo: Repo, tmp_path: Path) -> None:
    there = Repo(tmp_path / "a remote", repo.env)
    repo.execute("git", "init", "-q", "--bare", str(there.path))
    repo.write("gone.txt", "gone\n")
    repo.run("envlog", "capture", "one", check=True)
    repo.run("envlog", "push", "--yes", str(there.path), check=True)
    printed = repo.run("envlog", "purge", "gone.txt", check=True).err
    [command] = re.findall(r"git (envlog push .*) erases it there", printed)
    assert repo.execute("sh", "-c", f"git-{command} --yes").status == 0
    tip = there.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads")
    assert "gone.txt" not in there.git("ls-tree", "-r", "--name-only", tip)


def test_address_of_a_remote_is_remembered(tmp_path: Path) -> None:
    memory = RemoteState(address="https://user@host/a b.git")
    write_remote_state(str(tmp_path), "0" * 16, memory)
    assert read_remote_state(str(tmp_path), "0" * 16) == memory


def test_uninstall_global_names_repositories_with_hooks(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True, env={"CI": ""})
    repo.run("envlog", "install", check=True)
    repo.run("envlog", "install", "--global", check=True)
    printed = repo.run("envlog", "uninstall", "--global", check=True).err
    assert f"note: hooks are still installed in '{repo.path}': git -C {repo.path} envlog uninstall" in printed
    repo.run("envlog", "uninstall", check=True)
    assert "hooks remain" not in repo.run("envlog", "uninstall", "--global", check=True).err
