"""Hooks together with real hook managers (pre-commit, husky, lefthook): both hooks run after either is installed.

If a manager's new installation replaces our hooks, `status` reports it and the next `install` adds them again. With a
git that runs hooks from its configuration, the managers do not replace our hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_envhist.integrations.git_hooks import CONFIGURED_SINCE, git_version
from tests.integrations.hooks import intents, is_idle, standing, wait_for
from tests.real.tools import call, fetch, find, tools
from tests.support.repository import Repo, make_repo

MINE = 'echo mine >>"$(git rev-parse --git-dir)/mine"'
PRE_COMMIT = """\
repos:
- repo: local
  hooks:
  - id: mine
    name: mine
    entry: sh -c '{mine}'
    language: system
    always_run: true
    stages: [post-commit]
"""
LEFTHOOK = """\
post-commit:
  jobs:
  - run: {mine}
"""


@dataclass
class Managed:
    """A repository whose hooks another program manages."""

    repo: Repo
    manage: Callable[[], None]
    """Let the other program install its hooks."""
    number: int = 0

    def commit(self) -> tuple[bool, bool]:
        """Commit; return whether the manager's hook ran, and whether ours did."""
        self.number += 1
        before = self.theirs()
        subject = f"number {self.number}"
        self.repo.git("commit", "-q", "--allow-empty", "-m", subject)
        ours = self.is_active()
        if ours:
            wait_for(lambda: subject in intents(self.repo) and is_idle(self.repo), subject)
        return self.theirs() > before, ours

    def theirs(self) -> int:
        ran = self.repo.path / ".git/mine"
        return ran.read_text().count("mine\n") if ran.exists() else 0

    def is_active(self) -> bool:
        return "✓ post-commit" in self.repo.run("envlog", "status", check=True).out


pytestmark = pytest.mark.full  # the programs are installed from package indexes


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tools(tmp_path_factory.mktemp("caches"))


def begin(place: Path, manage: Callable[[Repo], None]) -> Managed:
    repo = make_repo(place)
    return Managed(repo, lambda: manage(repo))


def install_after_the_manager(managed: Managed) -> None:
    """Install the manager's hooks, ours, the manager's again and ours again; then uninstall ours."""
    repo = managed.repo
    managed.manage()
    assert managed.commit() == (True, False)
    before = standing(repo.path / ".git/hooks")
    repo.run("envlog", "install", check=True)
    assert managed.commit() == (True, True)
    assert repo.run("envlog", "status", check=True).err == ""
    managed.manage()
    if not managed.is_active():
        assert git_version() < CONFIGURED_SINCE
        assert "git envlog install" in repo.run("envlog", "status", check=True).err
        repo.run("envlog", "install", check=True)
    assert managed.commit() == (True, True)
    repo.run("envlog", "uninstall", check=True)
    assert managed.commit() == (True, False)
    left = standing(repo.path / ".git/hooks")
    assert {name: left.get(name) for name in before} == before


def install_before_the_manager(managed: Managed) -> None:
    """Install our hooks first, then the manager's; then uninstall ours."""
    repo = managed.repo
    repo.run("envlog", "install", check=True)
    managed.manage()
    if not managed.is_active():
        assert "git envlog install" in repo.run("envlog", "status", check=True).err
        repo.run("envlog", "install", check=True)
    assert managed.commit() == (True, True)
    repo.run("envlog", "uninstall", check=True)
    assert managed.commit() == (True, False)
    assert not [
        name
        for name, (_, content, _) in standing(repo.path / ".git/hooks").items()
        if b"git-envhist" in content or "envhist" in name
    ]


def test_pre_commit(tmp_path: Path, variables: dict[str, str]) -> None:
    packages = tmp_path / "packages"
    fetch(tmp_path, variables, sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", packages,
          "pre-commit")  # fmt: skip
    own = {"PYTHONPATH": str(packages), "PRE_COMMIT_HOME": str(tmp_path / "cache")}

    def manage(repo: Repo) -> None:
        repo.write(".pre-commit-config.yaml", PRE_COMMIT.format(mine=MINE))
        repo.env.update(own)
        repo.execute(sys.executable, "-m", "pre_commit", "install", "-t", "post-commit")

    install_after_the_manager(begin(tmp_path / "theirs", manage))
    install_before_the_manager(begin(tmp_path / "ours", manage))


def test_husky(tmp_path: Path, variables: dict[str, str]) -> None:
    npm = find("npm")

    def manage(repo: Repo) -> None:
        if not (repo.path / "node_modules").exists():
            repo.write("package.json", '{"name": "x", "version": "1.0.0", "private": true}\n')
            repo.write(".gitignore", "/node_modules\n")
            fetch(repo.path, variables, npm, "install", "--silent", "--save-dev", "husky@9")
            repo.write(".husky/post-commit", MINE + "\n", 0o755)
        call(repo.path, {**variables, **repo.env}, find("node"), "node_modules/husky/bin.js")

    install_after_the_manager(begin(tmp_path / "theirs", manage))


def test_lefthook(tmp_path: Path, variables: dict[str, str]) -> None:
    npm = find("npm")
    words = (npm, "install", "--silent", "--prefix", tmp_path / "tool", "--ignore-scripts", "lefthook")
    fetch(tmp_path, variables, *words)
    program = tmp_path / "tool/node_modules/.bin/lefthook"

    def manage(repo: Repo) -> None:
        repo.write("lefthook.yml", LEFTHOOK.format(mine=MINE))
        repo.env["PATH"] = f"{program.parent}:{repo.env['PATH']}"
        repo.env["LEFTHOOK_OUTPUT"] = "false"
        repo.execute(str(program), "install", "-f")

    install_after_the_manager(begin(tmp_path / "theirs", manage))
    install_before_the_manager(begin(tmp_path / "ours", manage))
