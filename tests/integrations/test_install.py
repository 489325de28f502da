"""Installing git hooks next to existing ones, and removing them so that every byte is restored."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from git_envhist.integrations.git_hooks import CONFIGURED_SINCE, git_version
from tests.integrations.hooks import intents, standing, wait_for_runs, write_hook
from tests.support.repository import Repo, make_repo

EVENTS = ("post-commit", "post-merge", "post-checkout", "post-rewrite", "pre-push")


def test_uninstall_restores_every_byte_and_removes_new_files(repo: Repo) -> None:
    shutil.rmtree(repo.path / ".git/hooks", ignore_errors=True)
    before = standing(repo.path)
    repo.run("envlog", "install", check=True)
    assert {path.name for path in (repo.path / ".git/hooks").iterdir()} == set(EVENTS)
    repo.run("envlog", "uninstall", check=True)
    assert standing(repo.path) == before


def test_uninstall_restores_modes_and_links(repo: Repo) -> None:
    write_hook(repo, "post-commit", "#!/bin/sh\necho mine", 0o750)
    write_hook(repo, "post-merge", "#!/usr/bin/env python3\nprint('mine')\n")
    write_hook(repo, "post-rewrite", "#!/bin/sh\nexit 3\n", 0o644)
    write_hook(repo, "of-mine.sh", "#!/bin/sh\nexit 0\n")
    (repo.path / ".git/hooks/post-checkout").symlink_to("of-mine.sh")
    before = standing(repo.path)
    repo.run("envlog", "install", check=True)
    repo.run("envlog", "install", check=True)
    assert standing(repo.path) != before
    repo.run("envlog", "uninstall", check=True)
    assert standing(repo.path) == before


def test_install_is_idempotent(repo: Repo) -> None:
    repo.run("envlog", "install", check=True)
    once = standing(repo.path / ".git/hooks")
    again = repo.run("envlog", "install", check=True)
    assert "nothing to do" in again.out
    assert standing(repo.path / ".git/hooks") == once


def test_dry_run_prints_every_byte_and_writes_none(repo: Repo) -> None:
    write_hook(repo, "post-commit", "#!/bin/sh\necho mine\n")
    before = standing(repo.path)
    shown = repo.run("envlog", "install", "--dry-run", check=True).out
    output = json.loads(repo.run("envlog", "install", "--dry-run", "--json", check=True).out)
    assert standing(repo.path) == before
    repo.run("envlog", "install", check=True)
    (git,) = output["integrations"]
    for change in git["changes"]:
        written = Path(change["path"])
        assert written.read_text() == change["content"]
        assert f"{written.stat().st_mode & 0o7777:04o}" == change["mode"]
        mine = "echo mine"
        lines = [line for line in written.read_text().splitlines() if line != mine]
        assert all(f"+{line}" in shown or f" {line}" in shown for line in lines)


PYTHON_HOOK = """\
#!{python}
import os, sys
with open(os.environ["GIT_DIR"] + "/python", "w") as file:
    file.write(repr((sys.argv[1:], sys.stdin.read())))
sys.exit(9)
"""
SHELL_HOOK = """\
#!/bin/sh -eu
printf "%s|" "$0" "$@" >"$GIT_DIR/shell"
cat >>"$GIT_DIR/shell"
wait
echo "${!:-}" >>"$GIT_DIR/shell"
exit 7
"""


def call_hook(repo: Repo, event: str, *words: str) -> int:
    """Call a hook as git does, from a process that ends afterwards; return its exit status."""
    hook = str(repo.path / ".git/hooks" / event)
    git = {"GIT_DIR": str(repo.path / ".git")}
    call = ("sh", "-c", '"$@"; exit $?', "git", hook, *words)
    return repo.execute(*call, input=b"old new\n", check=False, env=git).status


def test_earlier_hooks_keep_their_input_arguments_and_status(repo: Repo) -> None:
    write_hook(repo, "post-rewrite", SHELL_HOOK)
    write_hook(repo, "post-checkout", PYTHON_HOOK.format(python=sys.executable))
    repo.run("envlog", "install", check=True)
    assert call_hook(repo, "post-rewrite", "rebase", "a b") == 7
    seen = (repo.path / ".git/shell").read_text()
    assert seen == f"{repo.path}/.git/hooks/post-rewrite|rebase|a b|old new\n\n"
    assert call_hook(repo, "post-checkout", "1", "2 3") == 9
    assert (repo.path / ".git/python").read_text() == repr((["1", "2 3"], "old new\n"))
    wait_for_runs(repo, 1)


def test_disabled_hook_is_not_enabled_by_install(repo: Repo) -> None:
    write_hook(repo, "post-commit", "#!/bin/sh\ntouch ran\n", 0o644)
    repo.run("envlog", "install", check=True)
    repo.commit("by itself")
    wait_for_runs(repo, 1)
    assert intents(repo) == ["by itself"]
    assert not (repo.path / "ran").exists()


def test_hooks_are_installed_in_core_hookspath(repo: Repo) -> None:
    repo.write(".gitignore", "/.tool/\n")
    repo.git("config", "core.hooksPath", ".tool/hooks")
    repo.run("envlog", "install", check=True)
    assert (repo.path / ".tool/hooks/post-commit").exists()
    repo.commit("by itself")
    wait_for_runs(repo, 1)
    repo.run("envlog", "uninstall", check=True)
    assert not (repo.path / ".tool").exists()


def test_tracked_or_shared_hooks_are_changed_only_with_force(repo: Repo, tmp_path: Path) -> None:
    for where, word in ((".githooks", "part of its code"), (str(tmp_path / "shared"), "shared with others")):
        repo.git("config", "core.hooksPath", where)
        refused = repo.run("envlog", "install")
        assert refused.status == 3
        assert word in refused.err
        assert "--force" in refused.err
        repo.run("envlog", "install", "--force", check=True)
        repo.run("envlog", "uninstall", check=True)
    assert not (tmp_path / "shared").exists()


def test_uninstall_removes_only_our_lines_from_edited_hooks(repo: Repo) -> None:
    hook = write_hook(repo, "post-commit", "#!/bin/sh\necho mine\n")
    repo.run("envlog", "install", check=True)
    hook.write_text(hook.read_text() + "echo more of mine\n")
    repo.run("envlog", "uninstall", check=True)
    assert hook.read_text() == "#!/bin/sh\necho mine\necho more of mine\n"


def test_hooks_of_a_removed_program_do_nothing(repo: Repo, tmp_path: Path) -> None:
    """The hooks were installed by a virtual environment that was moved later."""
    environment, gone = tmp_path / "venv", tmp_path / "moved"
    (environment / "bin").mkdir(parents=True)
    here = Path(shutil.which("git-envhist") or "").parent
    for name in ("git-envlog", "git-envhist"):
        shutil.copy2(here / name, environment / "bin" / name)
    first = {"PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    script = (environment / "bin/git-envlog").read_text()
    (environment / "bin/git-envlog").write_text(re.sub(r"sys.argv\[0\] = .*\n", "", script))
    repo.run("envlog", "install", check=True, env=first)
    assert str(environment) in (repo.path / ".git/hooks/post-commit").read_text()
    environment.rename(gone)
    without = [
        one for one in os.environ["PATH"].split(os.pathsep) if not os.path.exists(f"{one}/git-envhist")
    ]
    repo.write("file", "x")
    repo.git("add", "-A")
    done = repo.execute("git", "commit", "-q", "-m", "alone", env={"PATH": os.pathsep.join(without)})
    assert (done.status, done.stdout, done.stderr) == (0, b"", b"")
    output = repo.run("envlog", "status", check=True)
    assert "no longer exists" in output.err


def test_install_outside_of_a_repository_is_an_error(tmp_path: Path) -> None:
    place = make_repo(tmp_path / "r")
    shutil.rmtree(place.path / ".git")
    refused = place.run("envlog", "install")
    assert refused.status == 128
    assert refused.err.startswith("error: not a git repository")


def test_unknown_agent_is_a_usage_error(repo: Repo) -> None:
    refused = repo.run("envlog", "install", "--agent", "nobody")
    assert refused.status == 129
    assert "'nobody'" in refused.err


@pytest.mark.parametrize("word", ["install", "uninstall", "status"])
def test_install_takes_no_paths(repo: Repo, word: str) -> None:
    assert repo.run("envlog", word, "--", "file").status == 129


def test_older_git_gets_global_hooks_in_new_repositories(tmp_path: Path, hermetic: Path) -> None:
    config = hermetic / "gitconfig"
    before = config.read_bytes()
    place = make_repo(tmp_path / "older")
    output = place.run("envlog", "install", "--global", check=True)
    if git_version() >= CONFIGURED_SINCE:
        assert "envhist-post-commit" in config.read_text()
    else:
        assert "new repositories get the hooks" in output.err
        place.execute("git", "init", "-q", str(tmp_path / "newer"))
        assert sorted(os.listdir(tmp_path / "newer/.git/hooks")) == sorted(EVENTS)
        assert not (place.path / ".git/hooks").exists()
    place.run("envlog", "uninstall", "--global", check=True)
    assert config.read_bytes() == before
    # The list of trusted repositories and approved commands belongs to the user, so uninstall keeps it.
    assert {path.name for path in (hermetic / "data/git-envhist").iterdir()} <= {"trusted", "trusted.lock"}


def test_global_install_uses_the_user_hooks_directory(tmp_path: Path, hermetic: Path) -> None:
    own = hermetic / "my hooks"
    own.mkdir()
    place = make_repo(tmp_path / "one")
    place.git("config", "--global", "core.hooksPath", str(own))
    if git_version() >= CONFIGURED_SINCE:
        pytest.skip("this git has its hooks in the configuration")
    place.run("envlog", "install", "--global", check=True)
    place.commit("by itself")
    wait_for_runs(place, 1)
    assert intents(place) == ["by itself"]
    assert b" hook --named post-commit " in (own / "post-commit").read_bytes()
    place.run("envlog", "uninstall", "--global", check=True)
    assert os.listdir(own) == []


def test_install_prints_an_alias_that_leaves_snapshots_out_unless_there_is_one(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    printed = repo.run("envlog", "install", check=True).err
    [command] = [line.strip() for line in printed.splitlines() if "alias.la" in line]
    repo.execute("sh", "-c", command.replace("--global ", ""))
    assert [line.split(" ", 2)[-1] for line in repo.git("la").splitlines()] == ["first commit"]
    assert "alias" not in repo.run("envlog", "install", check=True).err


def call_global_hook(repo: Repo, event: str, *words: str) -> None:
    """Call a globally installed hook and wait until it ends."""
    repo.execute("git-envhist", "hook", "--named", event, "999999999", *words)


def test_global_hooks_capture_only_trusted_repositories(repo: Repo) -> None:
    repo.write("file", "x")
    # The git directory of an unpacked archive can contain forged records of an installation.
    (repo.path / ".git/envhist").mkdir(exist_ok=True)
    (repo.path / ".git/envhist/installed").write_text("git\n")
    call_global_hook(repo, "post-commit")
    assert repo.git("for-each-ref", "refs/envhist") == ""
    repo.env["CLAUDECODE"] = "1"
    repo.run("envlog", "capture", "by an agent", check=True)
    del repo.env["CLAUDECODE"]
    repo.write("file", "y")
    call_global_hook(repo, "post-commit")
    assert intents(repo) == ["by an agent"]
    repo.run("envlog", "capture", "by a person", check=True)
    repo.write("file", "z")
    call_global_hook(repo, "post-commit")
    assert len(intents(repo)) == 3


@pytest.mark.full
def test_global_hooks_push_nothing_from_untrusted_repositories(repo: Repo, tmp_path: Path) -> None:
    """The git directory of an archive can configure a remote and contain consent to push there."""
    remote = make_repo(tmp_path / "remote", bare=True)
    repo.env["CLAUDECODE"] = "1"
    repo.write("file", "x")
    repo.run("envlog", "capture", "by an agent", check=True)
    repo.git("remote", "add", "origin", str(remote.path))
    repo.run("envlog", "push", "--yes", check=True)
    repo.git("config", "envhist.autoPush", "true")
    repo.write("file", "y")
    repo.run("envlog", "capture", "second", check=True)
    before = remote.git("for-each-ref", "refs/envhist")
    call_global_hook(repo, "pre-push", "origin", str(remote.path))
    assert remote.git("for-each-ref", "refs/envhist") == before


def test_status_reports_global_hooks_that_do_not_capture_this_repository(
    tmp_path: Path, hermetic: Path
) -> None:
    if git_version() >= CONFIGURED_SINCE:
        pytest.skip("this git has its hooks in the configuration")
    named, other = make_repo(tmp_path / "named"), make_repo(tmp_path / "other")
    named.git("config", "--global", "core.hooksPath", str(hermetic / "my hooks"))
    named.run("envlog", "install", "--global", check=True)
    assert "no person enabled" not in named.run("envlog", "status").out
    assert "no person enabled" in other.run("envlog", "status").out
