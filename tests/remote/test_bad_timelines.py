"""Fetch from a remote with one bad timeline: all others are fetched, and the error names the bad one."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_json import validate
from tests.remote.test_endless import doubling, moment
from tests.remote.test_fetch import refs_of_fetched
from tests.support.objects import write_blob, write_tree
from tests.support.repository import Repo

GOOD = [f"refs/envhist/heads/lab/good-{number:06d}" for number in range(5)]
EVIL = "refs/envhist/heads/lab/evil-000001"
MESSAGE = "x\n\nEnv-Format: 1\nEnv-Timeline: a/b\n"


def malformed(bare: Repo) -> str:
    """Write a commit that git's own fsck refuses."""
    text = f"tree {write_tree(bare, [])}\nauthor nobody\ncommitter nobody\n\n{MESSAGE}"
    return bare.git("hash-object", "-t", "commit", "--literally", "-w", "--stdin", input=text)


def endless(bare: Repo) -> str:
    """Write a commit whose trees expand to an impossible number of paths."""
    return moment(bare, doubling(bare))


def huge(bare: Repo) -> str:
    """Write a commit with a message of 100 MB."""
    text = MESSAGE + "x" * (100 << 20)
    return bare.git("commit-tree", "-F", "-", write_tree(bare, []), input=text)


@pytest.fixture
def remote(bare: Repo) -> Repo:
    for key in ("receive.fsckObjects", "transfer.fsckObjects"):
        bare.git("config", key, "false")
    for number, ref in enumerate(GOOD):
        blob = write_blob(bare, str(number).encode())
        bare.git("update-ref", ref, moment(bare, write_tree(bare, [("100644", "f", blob)])))
    return bare


@pytest.mark.parametrize("bad", [malformed, endless, huge], ids=lambda bad: bad.__name__)
def test_fetch_gets_the_good_timelines_and_names_the_bad_one(repo: Repo, remote: Repo, bad: object) -> None:
    assert callable(bad)
    remote.git("update-ref", EVIL, bad(remote))
    done = repo.run("envlog", "fetch", "--json")
    assert done.status == 5, done.err
    assert "warning: 'origin/lab/evil-000001' was not fetched: " in done.err
    answer = json.loads(done.out)
    validate("fetched", answer)
    assert [one["timeline"] for one in answer["bad"]] == ["origin/lab/evil-000001"]
    assert {one["status"] for one in answer["timelines"]} == {"new"}
    heads = refs_of_fetched(repo)
    assert sorted(heads) == [ref.replace("/heads/", "/remotes/origin/") for ref in GOOD]
    # The bad timeline left no objects behind, and the next fetch reports it again.
    again = repo.run("envlog", "fetch")
    assert again.status in (5, 128)
    assert "evil-000001" in again.err
    remote.git("update-ref", "-d", EVIL)
    assert repo.run("envlog", "fetch").status == 0
    assert repo.run("envlog", "--all", "--oneline").status == 0


def test_bad_timeline_keeps_its_earlier_fetched_state(repo: Repo, remote: Repo) -> None:
    remote.git("update-ref", EVIL, remote.git("rev-parse", GOOD[0]))
    repo.run("envlog", "fetch", check=True)
    before = refs_of_fetched(repo)
    remote.git("update-ref", EVIL, malformed(remote))
    remote.git("update-ref", GOOD[0], moment(remote, write_tree(remote, [])))
    remote.git("update-ref", "-d", GOOD[1])
    assert repo.run("envlog", "fetch").status == 5
    after = refs_of_fetched(repo)
    evil = EVIL.replace("/heads/", "/remotes/origin/")
    assert after[evil] == before[evil]
    assert GOOD[1].replace("/heads/", "/remotes/origin/") not in after
    assert after[GOOD[0].replace("/heads/", "/remotes/origin/")] == remote.git("rev-parse", GOOD[0])


def test_fetch_fails_when_no_timeline_could_be_taken(repo: Repo, bare: Repo) -> None:
    bare.git("config", "transfer.fsckObjects", "false")
    bare.git("update-ref", EVIL, malformed(bare))
    done = repo.run("envlog", "fetch")
    assert done.status == 128
    assert refs_of_fetched(repo) == {}
