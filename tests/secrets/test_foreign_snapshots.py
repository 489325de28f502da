"""Who signed a snapshot: ours are told plainly, all others as what somebody claims."""

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
    """A commit that plain git puts on the timeline."""
    ref = ref_of(repo)
    env = {"GIT_AUTHOR_NAME": name, "GIT_COMMITTER_NAME": name}
    words = ("git", "commit-tree", tree or f"{ref}^{{tree}}", "-p", ref)
    commit = repo.execute(*words, input=message, env=env).out.strip()
    repo.git("update-ref", ref, commit)
    return commit


def message_of(repo: Repo, commit: str) -> bytes:
    return repo.run_git("cat-file", "commit", commit).stdout.partition(b"\n\n")[2]


def trusted(repo: Repo, revision: str = "@") -> bool:
    told = json.loads(repo.run("envlog", "show", "--json", revision, check=True).out)
    assert isinstance(told["trusted"], bool)
    return told["trusted"]


@pytest.mark.parametrize("intent", ["plain", "", "\nbegins and ends\n\n", "Env-Mac: 00\n\nx", "ünï"])
def test_own_snapshots_are_trusted(repo: Repo, intent: str) -> None:
    capture(repo, "-m", intent)
    repo.write("new", "1")
    capture(repo, "second")
    assert trusted(repo, "@~1")
    for done in (repo.run("envlog"), repo.run("envlog", "show"), repo.run("envlog", "--oneline")):
        assert "claim" not in done.out.lower()
    assert [one["trusted"] for one in json.loads(repo.run("envlog", "--json").out)] == [True, True]


def test_an_odd_name_and_zone_are_signed_as_they_stand(repo: Repo) -> None:
    repo.git("config", "user.name", "  Ünï <x> Cöde. ")
    repo.env["GIT_COMMITTER_DATE"] = "2026-11-18T10:02:00-0330"
    capture(repo, "x")
    assert trusted(repo)


def test_a_capture_says_that_its_own_is_trusted(repo: Repo) -> None:
    assert json.loads(repo.run("envlog", "capture", "--json", check=True).out)["snapshot"]["trusted"] is True


def assert_claimed(repo: Repo, name: str = "Mallory") -> None:
    assert not trusted(repo)
    card = repo.run("envlog", "show", check=True).out
    assert f"Unsigned:  says {name} <" in card
    assert "Actor:" not in card
    assert f"unsigned (says: {name})" in repo.run("envlog", check=True).out.splitlines()[0]
    assert f"unsigned (says: {name})" in repo.run("envlog", "--oneline", check=True).out.splitlines()[0]
    assert f"unsigned (says: {name})" in repo.run("envlog", "-1", "--format=%(story)", check=True).out


def forged(message: bytes, actor: bytes = b"Mallory <m@example.com>") -> bytes:
    lines = message.split(b"\n")
    return b"\n".join(b"Env-Actor: " + actor if line.startswith(b"Env-Actor: ") else line for line in lines)


def test_a_forged_message_under_a_copied_mac_is_a_claim(repo: Repo) -> None:
    first = capture(repo, "mine")
    put_on_timeline(repo, forged(message_of(repo, first)))
    assert_claimed(repo)
    assert trusted(repo, first)


def test_another_tree_under_a_true_message_is_a_claim(repo: Repo) -> None:
    first = capture(repo, "mine")
    author, date = repo.git("log", "-1", "--format=%an%n%ad", "--date=raw", first).splitlines()
    env = {"GIT_AUTHOR_NAME": author, "GIT_AUTHOR_DATE": date}
    words = ("git", "commit-tree", "HEAD^{tree}", "-p", first)
    commit = repo.execute(*words, input=message_of(repo, first), env=env).out.strip()
    repo.git("update-ref", ref_of(repo), commit)
    assert not trusted(repo)
    # The same with the tree it was signed for is what a rewrite of the chain makes, and stays ours.
    words = ("git", "commit-tree", f"{first}^{{tree}}", "-p", first)
    commit = repo.execute(*words, input=message_of(repo, first), env=env).out.strip()
    repo.git("update-ref", ref_of(repo), commit)
    assert trusted(repo)


def test_without_a_mac_it_is_a_claim(repo: Repo) -> None:
    first = capture(repo, "mine")
    put_on_timeline(repo, forged(message_of(repo, first)).rpartition(b"Env-Mac: ")[0])
    assert_claimed(repo)


@pytest.mark.parametrize("key", [b"000000000000", b"../../../etc/passwd", b"", b"x" * 300])
def test_a_key_that_is_not_here_vouches_for_nothing(repo: Repo, key: bytes) -> None:
    first = capture(repo, "mine")
    lines = forged(message_of(repo, first)).split(b"\n")
    changed = [b"Env-Key: " + key if line.startswith(b"Env-Key: ") else line for line in lines]
    put_on_timeline(repo, b"\n".join(changed))
    assert_claimed(repo)


def test_a_colleagues_snapshots_are_claims_until_the_key_is_taken_in(repo: Repo, tmp_path: Path) -> None:
    colleague = make_repo(tmp_path / "theirs")
    colleague.env["XDG_CONFIG_HOME"] = str(tmp_path / "their-config")
    capture(colleague, "theirs")
    repo.git("fetch", "-q", str(colleague.path), "refs/envhist/heads/*:refs/envhist/heads/*")
    timeline = ref_of(repo).removeprefix("refs/envhist/heads/")
    assert not trusted(repo, timeline)
    exported = colleague.run("envlog", "key", "export", check=True).out
    assert repo.run("envlog", "key", "import", input=exported).status == 0
    assert trusted(repo, timeline)
