"""Signatures of snapshots: all snapshots without a valid one are marked as unsigned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.support.repository import Repo, make_repo


def ref_of(repo: Repo) -> str:
    (ref,) = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").split()
    return ref


def put_on_timeline(repo: Repo, message: str | bytes, tree: str | None = None, name: str = "Mallory") -> str:
    """Put a commit on the timeline with plain git."""
    ref = ref_of(repo)
    env = {"GIT_AUTHOR_NAME": name, "GIT_COMMITTER_NAME": name}
    words = ("git", "commit-tree", tree or f"{ref}^{{tree}}", "-p", ref)
    commit = repo.execute(*words, input=message, env=env).out.strip()
    repo.git("update-ref", ref, commit)
    return commit


def message_of(repo: Repo, commit: str) -> bytes:
    return repo.run_git("cat-file", "commit", commit).stdout.partition(b"\n\n")[2]


def trusted(repo: Repo, revision: str = "@") -> bool:
    output = json.loads(repo.run("envlog", "show", "--json", revision, check=True).out)
    assert isinstance(output["trusted"], bool)
    return output["trusted"]


@pytest.mark.parametrize("intent", ["plain", "", "\nbegins and ends\n\n", "Env-Mac: 00\n\nx", "ünï"])
def test_own_snapshots_are_trusted(repo: Repo, intent: str) -> None:
    capture(repo, "-m", intent)
    repo.write("new", "1")
    capture(repo, "second")
    assert trusted(repo, "@~1")
    for done in (repo.run("envlog"), repo.run("envlog", "show"), repo.run("envlog", "--oneline")):
        assert "claim" not in done.out.lower()
    assert [one["trusted"] for one in json.loads(repo.run("envlog", "--json").out)] == [True, True]


def test_unusual_author_name_and_zone_are_signed(repo: Repo) -> None:
    repo.git("config", "user.name", "  Ünï <x> Cöde. ")
    repo.env["GIT_COMMITTER_DATE"] = "2026-11-18T10:02:00-0330"
    capture(repo, "x")
    assert trusted(repo)


def test_capture_reports_its_snapshot_as_trusted(repo: Repo) -> None:
    assert json.loads(repo.run("envlog", "capture", "--json", check=True).out)["snapshot"]["trusted"] is True


def assert_claimed(repo: Repo, name: str = "Mallory") -> None:
    assert not trusted(repo)
    card = repo.run("envlog", "show", check=True).out
    assert f"Unsigned:  author given as {name} <" in card
    assert "Actor:" not in card
    assert f"unsigned (author given as {name})" in repo.run("envlog", check=True).out.splitlines()[0]
    assert (
        f"unsigned (author given as {name})"
        in repo.run("envlog", "--oneline", check=True).out.splitlines()[0]
    )
    assert (
        f"unsigned (author given as {name})" in repo.run("envlog", "-1", "--format=%(story)", check=True).out
    )


def forged(message: bytes, actor: bytes = b"Mallory <m@example.com>") -> bytes:
    lines = message.split(b"\n")
    return b"\n".join(b"Env-Actor: " + actor if line.startswith(b"Env-Actor: ") else line for line in lines)


def test_forged_message_with_a_copied_mac_is_unsigned(repo: Repo) -> None:
    first = capture(repo, "mine")
    put_on_timeline(repo, forged(message_of(repo, first)))
    assert_claimed(repo)
    assert trusted(repo, first)


def test_other_tree_with_a_signed_message_is_unsigned(repo: Repo) -> None:
    first = capture(repo, "mine")
    author, date = repo.git("log", "-1", "--format=%an%n%ad", "--date=raw", first).splitlines()
    env = {"GIT_AUTHOR_NAME": author, "GIT_AUTHOR_DATE": date}
    words = ("git", "commit-tree", "HEAD^{tree}", "-p", first)
    commit = repo.execute(*words, input=message_of(repo, first), env=env).out.strip()
    repo.git("update-ref", ref_of(repo), commit)
    assert not trusted(repo)
    # The same message with its signed tree, as retention writes it, is still signed.
    words = ("git", "commit-tree", f"{first}^{{tree}}", "-p", first)
    commit = repo.execute(*words, input=message_of(repo, first), env=env).out.strip()
    repo.git("update-ref", ref_of(repo), commit)
    assert trusted(repo)


def test_snapshot_without_mac_is_unsigned(repo: Repo) -> None:
    first = capture(repo, "mine")
    put_on_timeline(repo, forged(message_of(repo, first)).rpartition(b"Env-Mac: ")[0])
    assert_claimed(repo)


@pytest.mark.parametrize("key", [b"000000000000", b"../../../etc/passwd", b"", b"x" * 300])
def test_snapshot_signed_by_a_missing_key_is_unsigned(repo: Repo, key: bytes) -> None:
    first = capture(repo, "mine")
    lines = forged(message_of(repo, first)).split(b"\n")
    changed = [b"Env-Key: " + key if line.startswith(b"Env-Key: ") else line for line in lines]
    put_on_timeline(repo, b"\n".join(changed))
    assert_claimed(repo)


def test_snapshots_of_a_colleague_are_unsigned_until_the_key_is_imported(repo: Repo, tmp_path: Path) -> None:
    colleague = make_repo(tmp_path / "theirs")
    colleague.env["XDG_CONFIG_HOME"] = str(tmp_path / "their-config")
    capture(colleague, "theirs")
    repo.git("fetch", "-q", str(colleague.path), "refs/envhist/heads/*:refs/envhist/heads/*")
    timeline = ref_of(repo).removeprefix("refs/envhist/heads/")
    assert not trusted(repo, timeline)
    exported = colleague.run("envlog", "key", "export", check=True).out
    assert repo.run("envlog", "key", "import", input=exported).status == 0
    assert trusted(repo, timeline)
