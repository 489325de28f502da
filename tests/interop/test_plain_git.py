"""Plain git reads a timeline: log, diff, show and worktree."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture
from tests.secrets.test_unsigned_snapshots import ref_of, trusted
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, make_repo
from tests.support.trees import File, Link, build

FILES = {
    b"plain": File(b"plain\n"),
    b"crlf.txt": File(b"a\r\nb\r\n"),
    b"utf16": File("ü\n".encode("utf-16")),
    b"binary": File(bytes(range(256)) * 5),
    b"no newline": File(b"x"),
    b"empty": File(b""),
    b"$Id$.c": File(b"$Id$\n"),
    b"a/b/c/deep": File(b"deep\n", 0o755),
    b"link": Link(b"a/b"),
    b".gitattributes": File(b"* text=auto eol=crlf ident filter=evil export-ignore\n"),
    b".gitignore": File(b"ignored\n"),
    b"ignored": File(b"seen all the same\n"),
    b"new\nline": File(b"1"),
    b"\xff\xfe": File(b"2"),
}


@pytest.fixture(params=["sha1", "sha256"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo", object_format=request.param)


@pytest.fixture
def told(kind: Repo) -> tuple[Repo, list[str]]:
    kind.git("config", "filter.evil.smudge", f"touch {kind.path.parent}/ran; cat")
    kind.git("config", "core.autocrlf", "true")
    build(FILES, kind.path)
    kind.write("app.toml", "a = 1\n")
    kind.write("config/one", "1\n")
    ids = [capture(kind, "first")]
    kind.write("config/one", "2\n")
    ids.append(capture(kind, "second"))
    kind.write("app.toml", "a = 2\n")
    ids.append(capture(kind, "third"))
    return kind, ids


def test_git_log_p_shows_the_changes_of_one_file(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    shown = repo.git("log", "-p", "--format=commit %H", ref_of(repo), "--", "app.toml")
    assert [line[7:] for line in shown.splitlines() if line.startswith("commit ")] == [ids[2], ids[0]]
    assert "-a = 1\n+a = 2" in shown


def test_git_diff_shows_the_changes_of_a_directory(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    shown = repo.git("diff", ids[0], ids[2], "--", "config/")
    assert "-1\n+2" in shown
    assert "app.toml" not in shown
    assert repo.git("diff", "--stat", ids[0], ids[0]) == ""


def test_git_worktree_has_the_exact_bytes_and_runs_nothing(
    told: tuple[Repo, list[str]], tmp_path: Path
) -> None:
    repo, ids = told
    repo.git("worktree", "add", "-q", "--detach", "../then", ids[2])
    for path, node in FILES.items():
        there = os.path.join(os.fsencode(tmp_path / "then"), path)
        if isinstance(node, Link):
            assert os.readlink(there) == node.target
        elif path == b".gitattributes":
            assert not os.path.lexists(there), "stored under an escaped name, so that git does not apply it"
        else:
            with open(there, "rb") as file:
                # git applies the user's core.autocrlf when it checks out.
                assert file.read().replace(b"\r\n", b"\n") == node.content.replace(b"\r\n", b"\n"), path
    assert not (tmp_path / "ran").exists()
    repo.git("config", "core.autocrlf", "false")
    repo.git("worktree", "add", "-q", "--detach", "../exact", ids[2])
    for path, node in FILES.items():
        if isinstance(node, File) and path != b".gitattributes":
            with open(os.path.join(os.fsencode(tmp_path / "exact"), path), "rb") as file:
                assert file.read() == node.content, path


def test_our_commands_work_with_both_object_formats(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    listed = json.loads(repo.run("envlog", "--json", check=True).out)
    assert [one["id"] for one in listed] == ids[::-1]
    assert trusted(repo, ids[0][:8])
    assert repo.run("envlog", "show", ids[0], "--", "app.toml", check=True).out == "a = 1\n"
    assert (
        repo.run("envdiff", "--name-status", ids[0], ids[2], check=True).out == "M\tapp.toml\nM\tconfig/one\n"
    )
    repo.write("app.toml", "a = 3\n")
    assert "+a = 3" in repo.run("envdiff", "-p", check=True).out
    assert repo.run("envlog", "-p", "-1", "--", "app.toml", check=True).out.count("diff --git") == 1
    repo.run("envlog", "name", "here", ids[1], check=True)
    repo.run("envlog", "note", ids[1], "-m", "remarkable", check=True)
    assert "remarkable" in repo.run("envlog", "show", "here", check=True).out
    assert git_fsck(repo.path) == ""


def test_snapshot_is_complete_in_both_object_formats(told: tuple[Repo, list[str]]) -> None:
    repo, ids = told
    assert_holds(repo, ids[2])
