"""Completion in real shells: subcommands, options, values, snapshots with their intents, names, remotes, aliases."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from git_envhist.cli.subcommands import SUBCOMMANDS
from tests.completions.shells import ask_fish, press_tab, share
from tests.support.needs import PREFIX, needs
from tests.support.repository import Repo, make_repo

BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")
SHELLS = [
    pytest.param(
        shell,
        marks=pytest.mark.skipif(
            shutil.which(shell) is None or (shell == "bash" and not BASH_COMPLETION.exists()),
            reason=PREFIX + ("bash-completion" if shell == "bash" else shell),
        ),
    )
    for shell in ("bash", "zsh")
]
needs_fish = needs("fish")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repo, Path, list[str]]:
    """Return a repository with two snapshots, the data directory of the shells, and the short ids, oldest first."""
    repo = make_repo(tmp_path_factory.mktemp("completions") / "repo")
    repo.git("config", "alias.el", "envlog")
    repo.git("config", "alias.snap", "envlog capture")
    repo.git("remote", "add", "upstream", "https://example.org/x.git")
    made = []
    for text, words in (("before auth refactor", ()), ("two: * and `x`", ("--name", "upgraded"))):
        repo.write("app.py", text)
        done = repo.run("envlog", "capture", "--porcelain", text, *words, check=True)
        made.append(done.out.strip()[:7])
    return repo, share(tmp_path_factory.mktemp("shells") / "share"), made


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("git envlog capt", "git envlog capture "),
        ("git-envlog capt", "git-envlog capture "),
        ("git el capt", "git el capture "),
        ("git snap --stric", "git snap --strict "),
        ("git envlog --verdict=p", "git envlog --verdict=pass "),
        ("git-envrestore --onl", "git-envrestore --only="),
        ("git envdiff --only=pack", "git envdiff --only=packages "),
        ("git envlog install --agent claude", "git envlog install --agent claude-code "),
        ("git envlog push ups", "git envlog push upstream "),
        ("git envlog task sta", "git envlog task start "),
    ],
)
def test_static_words_are_completed_without_python(
    place: tuple[Repo, Path, list[str]], tmp_path: Path, shell: str, typed: str, line: str
) -> None:
    repo, shared, _ = place
    called = tmp_path / "called"
    for program in ("git-envhist", "git-envlog", "git-envdiff", "git-envrestore", "python3"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho "$0 $*" >> {called}\n')
        (tmp_path / program).chmod(0o755)
    env = {**repo.env, "PATH": f"{tmp_path}:{repo.env['PATH']}"}
    # For an alias with options, zsh lists the candidates first.
    tabs = 2 if (shell, typed[:8]) == ("zsh", "git snap") else 1
    assert press_tab(shell, typed, repo.path, env, shared, tabs)[0].rstrip() == line.rstrip()
    assert not (called.read_text() if called.exists() else "")


@pytest.mark.parametrize("shell", SHELLS)
def test_snapshots_are_completed_with_their_intents(place: tuple[Repo, Path, list[str]], shell: str) -> None:
    repo, shared, ids = place
    for typed in ("git envlog show ", "git-envrestore ", "git el show ", "git envdiff upgraded.."):
        # bash needs a second TAB to list the candidates; in zsh, a second TAB would choose the first one.
        _, shown = press_tab(shell, typed, repo.path, repo.env, shared, tabs=2 if shell == "bash" else 1)
        for word in (*ids, "upgraded", "before auth refactor", "two: * and `x`"):
            assert word in shown, typed


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("typed", ["git envlog show ", "git envlog ", "git envdiff upgraded.."])
def test_single_snapshot_is_completed(place: tuple[Repo, Path, list[str]], shell: str, typed: str) -> None:
    repo, shared, ids = place
    # Type the shortest part of the id that matches no other candidate: an id may begin like `effect`.
    others = (ids[1], *SUBCOMMANDS)
    begun = next(ids[0][:n] for n in range(2, 8) if not any(one.startswith(ids[0][:n]) for one in others))
    assert press_tab(shell, typed + begun, repo.path, repo.env, shared)[0].rstrip() == typed + ids[0]


@pytest.mark.parametrize("shell", SHELLS)
def test_name_to_delete_is_completed(place: tuple[Repo, Path, list[str]], shell: str) -> None:
    repo, shared, _ = place
    line, _ = press_tab(shell, "git envlog name -d upg", repo.path, repo.env, shared)
    assert line.rstrip() == "git envlog name -d upgraded"


@needs_fish
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("git envlog capt", "capture\ttake a snapshot of the environment"),
        ("git-envlog capt", "capture\ttake a snapshot of the environment"),
        ("git el capt", "capture\ttake a snapshot of the environment"),
        ("git snap --stric", "--strict\trefuse if a path cannot be captured"),
        ("git envlog --verdict=p", "--verdict=pass"),
        ("git envlog push ups", "upstream"),
        ("git envlog task sta", "start"),
        ("git envlog name -d upg", "upgraded\t"),
        ("git -C . envlog show upg", "upgraded\t"),
        ("git-envrestore upg", "upgraded\t"),
        ("git envdiff upg", "upgraded\t"),
    ],
)
def test_fish_offers(place: tuple[Repo, Path, list[str]], typed: str, offered: str) -> None:
    repo, shared, _ = place
    found = ask_fish(typed, repo.path, repo.env, shared)
    assert [line for line in found if line.startswith(offered)], found


@needs_fish
def test_fish_completes_snapshots_with_their_intents(place: tuple[Repo, Path, list[str]]) -> None:
    repo, shared, ids = place
    told = dict(line.split("\t") for line in ask_fish("git envlog show ", repo.path, repo.env, shared))
    assert list(told) == ["upgraded", ids[1], ids[0]]
    assert told[ids[0]].endswith("before auth refactor")


def test_completion_prints_nothing_without_candidates(tmp_path: Path, repo: Repo) -> None:
    for words, where in ((("revisions",), tmp_path), (("no-such",), repo.path), ((), repo.path)):
        done = repo.run("envhist", "complete", *words, cwd=os.fspath(where))
        assert (done.out, done.err, done.status) == ("", "", 0)
