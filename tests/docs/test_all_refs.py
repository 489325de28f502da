"""Run every command of docs/internals/all-refs.md, and check that it lists or transfers snapshots as described
there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from tests.rules.source import CHECKOUT
from tests.support.repository import Repo, make_repo

PAGE = CHECKOUT / "docs" / "internals" / "all-refs.md"
PICTURES = CHECKOUT / "docs" / "pictures"
TEXT = PAGE.read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(.+?)` \| (listed|left out|stays|goes along) \|$", re.MULTILINE)
ROWS = ROW.findall(TEXT)
LISTINGS = [row for row in ROWS if row[1] in ("listed", "left out")]
TRAVELS = [row for row in ROWS if row[1] in ("stays", "goes along")]
LARGEST = 180_000


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository with two branches, a tag, and a snapshot on each branch, the second named."""
    repo = make_repo(tmp_path_factory.mktemp("all-refs") / "here")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.capture("one moment")
    repo.git("tag", "v1")
    repo.git("checkout", "-q", "-b", "topic")
    repo.write("app.py", "print('more')\n")
    repo.commit("code of the topic")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.capture("another moment", name="kept-in-mind")
    repo.git("checkout", "-q", "main")
    return repo


def marks(repo: Repo) -> set[str]:
    """Return the texts that show a snapshot in an output: its intent, its id, its ref, and those of its notes."""
    ids = repo.git("log", "--format=%H", "--glob=refs/envhist/*", "--glob=refs/notes/envhist/*").split()
    assert len(ids) >= 4
    return {"one moment", "another moment", "refs/envhist/", *(name[:7] for name in ids)}


def shows_snapshots(repo: Repo, command: str) -> bool:
    shown = repo.execute("sh", "-c", command).out
    return any(mark in shown for mark in marks(repo))


def shows_code(repo: Repo, command: str) -> bool:
    return "code of the topic" in repo.execute("sh", "-c", command).out


def block_with(word: str) -> str:
    """Return the one fenced block of the page that contains a word."""
    found = [
        text for text in re.findall(r"^```\w*\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL) if word in text
    ]
    assert len(found) == 1
    return str(found[0])


def test_the_page_has_both_tables() -> None:
    assert {state for _, state in LISTINGS} == {"listed", "left out"}
    assert {state for _, state in TRAVELS} == {"stays", "goes along"}


@pytest.mark.parametrize(("command", "state"), LISTINGS)
def test_command_lists_snapshots_as_described(captured: Repo, command: str, state: str) -> None:
    assert shows_snapshots(captured, command) == (state == "listed")


def test_commands_without_snapshots_still_list_every_branch(captured: Repo) -> None:
    left_out = [command for command, state in LISTINGS if state == "left out" and "--exclude" in command]
    assert left_out
    assert all(shows_code(captured, command) for command in left_out)


def test_labels_of_git_log_do_not_mark_snapshots(captured: Repo) -> None:
    assert "refs/envhist" not in captured.git("log", "--all", "--decorate", "--oneline")
    assert "refs/envhist" not in captured.git("log", "--all", "--decorate=full", "--oneline")


def test_alias_excludes_snapshots(captured: Repo) -> None:
    block = block_with("alias.la").replace("--global ", "")
    assert not shows_snapshots(captured, block)
    assert shows_code(captured, block)
    captured.git("config", "--unset", "alias.la")


def test_hidden_refs_are_excluded_only_with_an_option(captured: Repo) -> None:
    hidden = "git -c transfer.hideRefs=refs/envhist -c transfer.hideRefs=refs/notes/envhist log"
    assert shows_snapshots(captured, f"{hidden} --all")
    if "exclude-hidden" not in captured.execute("sh", "-c", "git rev-list -h 2>&1", check=False).out:
        pytest.skip("this git has no --exclude-hidden")
    assert not shows_snapshots(captured, f"{hidden} --exclude-hidden=uploadpack --all")


def test_command_for_gitk_names_the_branches_and_tags(captured: Repo) -> None:
    words = shlex.split(block_with("--argscmd"))
    assert words[0] == "gitk"
    refs = captured.execute("sh", "-c", words[1].removeprefix("--argscmd=")).out.split()
    assert refs == ["refs/heads/main", "refs/heads/topic", "refs/tags/v1"]


def test_command_for_lazygit_excludes_snapshots(captured: Repo) -> None:
    command = next(line for line in block_with("allBranchesLogCmds").splitlines() if "- git log" in line)
    assert not shows_snapshots(captured, command.strip().removeprefix("- "))
    assert shows_code(captured, command.strip().removeprefix("- "))


def test_options_for_tig_exclude_snapshots(captured: Repo) -> None:
    # tig passes the options to git log without a shell.
    options = block_with("main-options").partition("=")[2].split()
    shown = captured.git("log", "--format=%h %s", *options)
    assert "code of the topic" in shown
    assert not any(mark in shown for mark in marks(captured))


@pytest.mark.parametrize(("command", "state"), TRAVELS)
def test_history_is_transferred_as_described(
    captured: Repo, tmp_path: Path, command: str, state: str
) -> None:
    captured.git("init", "-q", "--bare", str(tmp_path / "there.git"))
    captured.execute("sh", "-c", command.replace("../there", str(tmp_path / "there")))
    places = [tmp_path / name for name in ("there.bundle", "there", "there.git")]
    arrived = next(place for place in places if place.exists())
    refs = captured.git("ls-remote", str(arrived))
    assert ["refs/envhist/" in refs, "refs/notes/envhist/" in refs] == [state == "goes along"] * 2


def test_clone_by_path_copies_objects_and_no_ref(captured: Repo, tmp_path: Path) -> None:
    captured.git("clone", "-q", str(captured.path), str(tmp_path / "clone"))
    tip = captured.git("for-each-ref", "--format=%(objectname)", "refs/envhist")
    clone = ("-C", str(tmp_path / "clone"))
    assert captured.git(*clone, "cat-file", "-t", tip) == "commit"
    assert captured.git(*clone, "for-each-ref", "refs/envhist", "refs/notes") == ""


def test_multi_pack_index_leaves_packs_unchanged(captured: Repo) -> None:
    packs = captured.path / ".git" / "objects" / "pack"
    before = {path.name: path.stat().st_mtime_ns for path in packs.iterdir()}
    captured.execute("sh", "-c", block_with("multi-pack-index"))
    after = {path.name: path.stat().st_mtime_ns for path in packs.iterdir()}
    assert set(after) - set(before) == {"multi-pack-index"}
    assert {name: after[name] for name in before} == before
    EnvHistory.open(str(captured.path), workers="here", one_command=True).capture("a moment below the index")
    captured.git("fsck", "--strict")


def test_pictures_exist_and_are_small() -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\((?:docs|\.\.)/(pictures/[\w-]+\.\w+)\)", TEXT + readme))
    kept = {f"pictures/{path.name}" for path in PICTURES.iterdir() if path.suffix in (".png", ".svg")}
    assert shown == kept
    assert all((PICTURES.parent / name).stat().st_size < LARGEST for name in shown)
