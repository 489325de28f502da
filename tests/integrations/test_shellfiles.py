"""`install --shell` links man pages and completions, which uv does not install, and replaces no files of others."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_terminal_session import on_terminal
from tests.support.needs import needs
from tests.support.repository import Repo

PROGRAMS = ("git-envlog", "git-envdiff", "git-envrestore")


def places(home: Path) -> list[Path]:
    data, config = home / "data", home / "config"
    return [
        *(data / "man/man1" / f"{program}.1" for program in (*PROGRAMS, "git-envhist")),
        *(data / "bash-completion/completions" / program for program in PROGRAMS),
        *(data / "zsh/site-functions" / f"_{program}" for program in PROGRAMS),
        *(config / "fish/completions" / f"{program}.fish" for program in PROGRAMS),
        config / "fish/conf.d/git-envhist.fish",
    ]


def test_linked_manual_and_completions_are_found(repo: Repo, hermetic: Path) -> None:
    dry = repo.run("envlog", "install", "--shell", "-n", check=True)
    assert dry.out.count("would link") == len(places(hermetic))
    assert not any(place.exists() for place in places(hermetic))
    done = repo.run("envlog", "install", "--shell", check=True)
    assert done.err.startswith("note: add this line to .zshrc")
    assert all(place.is_symlink() and place.is_file() for place in places(hermetic))
    again = repo.run("envlog", "install", "--shell", check=True)
    assert again.out == "manual and completions: nothing to do, already installed\n"


@needs("man")
def test_man_shows_the_linked_page(repo: Repo, hermetic: Path) -> None:
    repo.run("envlog", "install", "--shell", check=True)
    env = {**os.environ, "MANPATH": str(hermetic / "data/man"), "MANPAGER": "cat", "MANWIDTH": "80"}
    for page in ("envdiff", "envlog"):
        done = subprocess.run(["git", "help", page], env=env, cwd=repo.path, capture_output=True, text=True)
        if "unminimize" in done.stdout + done.stderr:
            pytest.skip("man pages are disabled on this machine")
        assert f"git-{page}(1)" in done.stdout, done.stderr


def test_files_of_others_are_not_replaced(repo: Repo, hermetic: Path) -> None:
    theirs = hermetic / "data/man/man1/git-envlog.1"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs\n")
    stale = hermetic / "config/fish/completions/git-envlog.fish"
    stale.parent.mkdir(parents=True)
    stale.symlink_to("/gone/git-envlog.fish")
    done = repo.run("envlog", "install", "--shell", check=True)
    assert f"note: skipped, not created by git-envhist: {theirs}" in done.err
    assert theirs.read_text() == "theirs\n"
    assert stale.is_file()


def test_uninstall_removes_only_our_links(repo: Repo, hermetic: Path) -> None:
    repo.run("envlog", "install", "--shell", check=True)
    other = hermetic / "data/man/man1/other.1"
    other.write_text("x")
    output = json.loads(repo.run("envlog", "uninstall", "--shell", "--json", check=True).out)
    assert {Path(link["path"]) for link in output["links"]} == set(places(hermetic))
    assert not any(os.path.lexists(place) for place in places(hermetic))
    assert other.exists()
    assert "no man pages" in repo.run("envlog", "uninstall", "--shell", check=True).out


def test_shell_option_excludes_other_options(repo: Repo) -> None:
    assert repo.run("envlog", "install", "--shell", "--global").status == 129
    assert repo.run("envlog", "uninstall", "--shell", "--history").status == 129


def test_install_hints_at_missing_manual(repo: Repo) -> None:
    words = ("git-envlog", "install", "-n")
    assert "note: man pages and shell" in on_terminal(repo, *words)[0]
    assert repo.run("envlog", "install", "-n", check=True).err == ""
    repo.run("envlog", "install", "--shell", check=True)
    assert "note: man" not in on_terminal(repo, *words)[0]
