"""A fork is the whole environment of a snapshot in a new directory, with a new timeline."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import Damaged
from tests.cli.test_json import validate
from tests.restore.unsigned import harmful, make_stranger
from tests.support.oracle import git_fsck, listing, tree_differences
from tests.support.repository import Repo, make_repo
from tests.support.snapshots import directory, file, link, write_snapshot


@pytest.fixture
def rich(repo: Repo) -> Repo:
    """Return an environment with every kind of entry, captured as `start`."""
    repo.write(".gitignore", ".env\nbuild/\nnode_modules/\n")
    repo.commit("what is ignored")
    repo.write(".env", "API_KEY=abc\n", mode=0o600)
    repo.write("build/out", bytes(300_000))
    repo.write(b"caf\xe9 \n odd", b"1")
    (repo.path / "empty").mkdir()
    repo.write("node_modules/tool/run.js", "x", mode=0o755)
    (repo.path / "node_modules/.bin").mkdir()
    (repo.path / "node_modules/.bin/tool").symlink_to("../tool/run.js")
    os.link(repo.path / "build/out", repo.path / "build/twin")
    os.mkfifo(repo.path / "pipe")
    repo.write("app.py", "print('changed')\n")
    os.utime(repo.path / "app.py", ns=(10**18, 10**18 + 7))
    repo.run("envlog", "capture", "start", "--name", "start-here", check=True)
    return repo


def beside(repo: Repo, name: str) -> Repo:
    return Repo(repo.path.parent / name, repo.env)


def fork(repo: Repo, name: str, *words: str) -> Repo:
    repo.run("envlog", "fork", f"../{name}", *words, check=True)
    return beside(repo, name)


def timeline(repo: Repo) -> str:
    return str(json.loads(repo.run("envlog", "--json", "-1", check=True).out)[0]["timeline"])


def refs(repo: Repo) -> str:
    return repo.git("for-each-ref")


def test_fork_contains_the_whole_environment_and_git_status_is_right(rich: Repo) -> None:
    before = refs(rich), listing(rich.path)
    made = fork(rich, "made")
    assert tree_differences(rich.path, made.path) == ()
    assert made.git("rev-parse", "HEAD") == rich.git("rev-parse", "HEAD")
    assert made.git("symbolic-ref", "-q", "HEAD", check=False) == ""
    assert made.git("status", "--porcelain") == rich.git("status", "--porcelain")
    assert made.git("diff") == rich.git("diff")
    assert before[1] == listing(rich.path)
    assert set(before[0].splitlines()) < set(refs(rich).splitlines())
    assert git_fsck(rich.path) == ""


def test_fork_is_made_of_the_named_snapshot(rich: Repo) -> None:
    rich.write("build/out", b"later")
    rich.write("later", b"1")
    rich.run("envlog", "capture", "later", check=True)
    made = fork(rich, "made", "start-here")
    assert not (made.path / "later").exists()
    assert made.read("build/out") == bytes(300_000)


def test_timeline_of_a_fork_begins_with_it_and_names_its_origin(rich: Repo) -> None:
    source = json.loads(rich.run("envlog", "--json", check=True).out)[0]
    made = fork(rich, "made")
    (first,) = json.loads(made.run("envlog", "--json", check=True).out)
    assert first["timeline"] != source["timeline"]
    message = made.git("log", "-1", "--format=%P|%B", first["id"])
    assert message.startswith("|")
    assert f"Env-Forked-From: {source['id']}" in message
    assert first["head"] == source["head"]
    assert f"from {source['id']}" in made.run("envlog", "show", check=True).out


def test_fork_writes_nothing_in_a_dry_run_and_refuses_another_plan_than_the_printed_one(rich: Repo) -> None:
    before = refs(rich), listing(rich.path.parent)
    planned = json.loads(rich.run("envlog", "fork", "-n", "--json", "../made", check=True).out)
    validate("fork_plan", planned)
    assert planned["root"] == str(rich.path.parent / "made")
    assert f"plan: {planned['plan_id']}" in rich.run("envlog", "fork", "-n", "../made", check=True).out
    assert (refs(rich), listing(rich.path.parent)) == before
    rich.write("new")
    rich.run("envlog", "capture", "another moment", check=True)
    done = rich.run("envlog", "fork", f"--plan={planned['plan_id']}", "../made")
    assert (done.status, "is stale" in done.err) == (3, True)
    assert not (rich.path.parent / "made").exists()
    rich.run("envlog", "fork", f"--plan={planned['plan_id']}", "../made", planned["source"], check=True)
    assert (rich.path.parent / "made/build/out").exists()


def test_forks_of_one_snapshot_are_equal_and_independent(rich: Repo) -> None:
    one, two = fork(rich, "one"), fork(rich, "two")
    assert tree_differences(one.path, two.path) == ()
    assert rich.run("envdiff", "--exit-code", timeline(one), timeline(two)).status == 0
    before = listing(rich.path), listing(two.path)
    for path in ("build/out", ".env", "app.py"):
        with open(one.path / path, "r+b") as file:
            file.write(b"ruined")
    (one.path / "node_modules/tool/run.js").unlink()
    assert (listing(rich.path), listing(two.path)) == before


def test_one_of_two_forks_is_restored_into_the_original(rich: Repo) -> None:
    one, two = fork(rich, "one"), fork(rich, "two")
    one.write("result", b"one")
    one.run("envlog", "capture", "tried one way", check=True)
    two.write("result", b"two")
    two.write(".env", "API_KEY=other\n", mode=0o600)
    two.run("envlog", "capture", "tried another way", check=True)
    output = rich.run("envdiff", "--name-status", timeline(one), timeline(two), check=True).out
    assert output.splitlines() == ["M\t.env", "M\tresult"]
    rich.run("envrestore", timeline(two), check=True)
    assert rich.read("result") == b"two"
    assert rich.read(".env") == b"API_KEY=other\n"
    assert tree_differences(two.path, rich.path) == ()
    rich.run("envrestore", "--undo", check=True)
    assert not (rich.path / "result").exists()


def test_branch_is_created_on_request(rich: Repo) -> None:
    made = fork(rich, "made", "-b", "attempt")
    assert made.git("symbolic-ref", "HEAD") == "refs/heads/attempt"
    made.git("commit", "-qam", "a change")
    assert rich.git("rev-parse", "attempt~1") == rich.git("rev-parse", "HEAD")
    done = rich.run("envlog", "fork", "-b", "attempt", "../again")
    assert (done.status, "attempt" in done.err) == (3, True)
    assert rich.run("envlog", "fork", "-b", "no good", "../again").status == 129
    assert not (rich.path.parent / "again").exists()


def test_fork_is_an_orphan_when_the_code_commit_is_gone(rich: Repo) -> None:
    rich.git("commit", "-q", "--amend", "-m", "another")
    rich.git("reflog", "expire", "--expire=all", "--all")
    rich.git("gc", "-q", "--prune=now")
    done = rich.run("envlog", "fork", "../made", check=True)
    assert "does not exist any more" in done.out
    made = beside(rich, "made")
    assert tree_differences(rich.path, made.path) == ()
    assert made.git("symbolic-ref", "HEAD") == "refs/heads/made"
    assert made.run_git("rev-parse", "--verify", "-q", "HEAD", check=False).status != 0
    made.git("add", "-A")
    made.git("commit", "-qm", "begins anew")


def test_environment_without_commits_is_forked(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", commit=False)
    repo.write("file", b"1")
    repo.run("envlog", "capture", "x", check=True)
    made = fork(repo, "made")
    assert made.read("file") == b"1"
    assert made.git("status", "--porcelain") == "?? file"


def test_fork_runs_no_hook_and_no_filter(rich: Repo) -> None:
    ran = rich.path.parent / "ran"
    hooks = rich.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch '{ran}'\n")
        (hooks / hook).chmod(0o755)
    rich.git("config", "filter.f.smudge", f"touch '{ran}'; cat")
    rich.git("config", "filter.f.clean", "cat")
    rich.write(".gitattributes", "*.py filter=f\n")
    rich.run("envlog", "capture", "with a filter", check=True)
    ran.unlink(missing_ok=True)
    fork(rich, "made")
    assert not ran.exists()


def test_configured_timeline_is_not_shared_by_forks(rich: Repo) -> None:
    rich.git("config", "envhist.timeline", "host/shared")
    rich.run("envlog", "capture", "x", check=True)
    made = fork(rich, "made")
    assert timeline(rich) == "host/shared"
    assert timeline(made) != "host/shared"


@pytest.mark.parametrize("where", ["inside", ".git/inside", "../taken", "../taken/file"])
def test_fork_is_refused_except_into_an_empty_directory_outside(rich: Repo, where: str) -> None:
    taken = rich.path.parent / "taken"
    taken.mkdir()
    (taken / "file").write_text("x")
    before = refs(rich), listing(rich.path.parent, without=())
    done = rich.run("envlog", "fork", where)
    assert done.status in (3, 128)
    assert done.err.startswith("error: ")
    assert (refs(rich), set(listing(rich.path.parent, without=()))) == (before[0], set(before[1]))


def test_fork_fills_an_empty_directory_and_creates_missing_ones(rich: Repo) -> None:
    (rich.path.parent / "there").mkdir()
    fork(rich, "there")
    made = fork(rich, "a/b/c")
    assert made.read(".env") == b"API_KEY=abc\n"


def test_unsigned_snapshot_is_forked_only_with_option(tmp_path: Path) -> None:
    stranger = make_stranger(tmp_path)
    tree = {
        b"": directory(owner=(os.geteuid(), os.getegid())),
        b"plain": file(b"1", 0o644),
        b"setuid": file(b"1", 0o4755),
        b"out": link(os.fsencode(stranger.canary)),
    }
    claim = stranger.plant(write_snapshot(stranger.repo.path, tree))
    done = stranger.repo.run("envlog", "fork", "../made", claim)
    assert (done.status, "is unsigned" in done.err) == (3, True)
    assert not (tmp_path / "made").exists()
    done = stranger.repo.run("envlog", "fork", "--allow-unsigned", "../made", claim)
    assert (done.status, (tmp_path / "made/plain").read_bytes()) == (5, b"1")
    assert harmful(tmp_path / "made") == []


@pytest.mark.parametrize("there", [False, True])
def test_failed_fork_leaves_nothing(rich: Repo, there: bool) -> None:
    place = rich.path.parent / "deep" / "made"
    if there:
        place.mkdir(parents=True)
    history = EnvHistory.open(str(rich.path), workers="here", one_command=True)
    snapshot = history.resolve("@")
    before = refs(rich)
    # The packs disappear in the middle: git can create its worktree, but no file of the snapshot can be read.
    packs = rich.path / ".git/objects/pack"
    packs.rename(packs.with_name("away"))
    packs.mkdir()
    with pytest.raises(Damaged):
        history.fork(snapshot, str(place), branch="attempt")
    packs.rmdir()
    packs.with_name("away").rename(packs)
    assert refs(rich) == before
    assert rich.git("worktree", "list").count("\n") == 0
    assert place.exists() is there
    assert place.parent.exists() is there
    fork(rich, "deep/made", "-b", "attempt")


def test_fork_that_fails_at_its_first_snapshot_leaves_nothing(
    rich: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    from git_envhist import fork as forking

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(forking, "find_outside_references", fail)
    before = refs(rich)
    (rich.path / "closed").mkdir(mode=0o555)
    rich.write("closed2/file").parent.chmod(0o555)
    rich.run("envlog", "capture", "with what is closed", check=True)
    before = refs(rich)
    with pytest.raises(KeyboardInterrupt):
        EnvHistory.open(str(rich.path), workers="here", one_command=True).fork(
            "@", str(rich.path.parent / "made")
        )
    assert refs(rich) == before
    assert not (rich.path.parent / "made").exists()
    assert rich.git("worktree", "list").count("\n") == 0


def test_plain_directory_is_forked_into_another(tmp_path: Path) -> None:
    plain = Repo(tmp_path / "plain", dict(os.environ))
    plain.write("notes", b"1")
    plain.write(".env", "KEY=abc\n")
    plain.run("envlog", "init", check=True)
    plain.run("envlog", "capture", "start", check=True)
    one, two = fork(plain, "one"), fork(plain, "two")
    assert tree_differences(plain.path, one.path) == tree_differences(one.path, two.path) == ()
    two.write("notes", b"2")
    two.run("envlog", "capture", "better", check=True)
    assert len({timeline(each) for each in (plain, one, two)}) == 3
    output = plain.run("envdiff", "--name-status", timeline(one), timeline(two), check=True).out
    assert output == "M\tnotes\n"
    plain.run("envrestore", timeline(two), check=True)
    assert plain.read("notes") == b"2"
    # Found again after it was moved, as any registered directory.
    (tmp_path / "two").rename(tmp_path / "moved")
    assert timeline(Repo(tmp_path / "moved", plain.env)) != timeline(plain)
    assert plain.run("envlog", "fork", "-b", "x", "../three").status == 129


def test_fork_of_the_api_is_another_history(rich: Repo) -> None:
    history = EnvHistory.open(str(rich.path), workers="here", one_command=True)
    made = history.fork("start-here", str(rich.path.parent / "made"))
    assert made.forked is not None
    assert made.forked.exact
    assert made.forked.snapshot.forked_from == made.forked.source.id
    assert [each.id for each in made.log()] == [made.forked.snapshot.id]
    (rich.path.parent / "made" / "new").write_bytes(b"1")
    assert made.capture("more").snapshot is not None
    assert len(made.log()) == 2
    assert len(history.log()) == 1


def test_json_of_a_fork_matches_the_schema(rich: Repo) -> None:
    rich.write("bin/tool", f"#!{rich.path}/bin/python\n", mode=0o755)
    rich.run("envlog", "capture", "x", check=True)
    output = json.loads(rich.run("envlog", "fork", "--json", "../made", check=True).out)
    validate("forked", output)
    assert [(one["path"], one["what"]) for one in output["pointing"]] == [("bin/tool", "text")]
    again = json.loads(rich.run("envlog", "fork", "--json", "--relocate", "../again", check=True).out)
    validate("forked", again)
    assert [one["path"] for one in again["relocated"]] == ["bin/tool"]
