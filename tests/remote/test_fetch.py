"""Fetch of other users' timelines: they are listed, compared and restored like our own, and no local ref changes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.platform import SYSTEM
from git_envhist.remote.errors import RemoteFailed
from git_envhist.remote.fetch import MAX_BATCH, next_batch_size
from git_envhist.snapshots.fetched_store import FetchedStore
from tests.cli.test_json import validate
from tests.end_to_end.captures import capture, everything_of_git
from tests.remote.conftest import make_remote, refs, timeline
from tests.support.oracle import git_fsck, listing, tree_differences
from tests.support.repository import Repo, make_repo, replace_tree

BIG = 400_000
BREAKS = """\
import os, subprocess, sys
child = subprocess.Popen(["git-upload-pack", *sys.argv[1:]], stdout=subprocess.PIPE)
left = 1500
while left and (chunk := os.read(child.stdout.fileno(), left)):
    left -= os.write(1, chunk)
child.kill()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with `repo`, two snapshots pushed to its remote, a note that is not, and a colleague's clone."""
    place = tmp_path_factory.mktemp("shared")
    repo, bare = make_repo(place / "repo"), make_remote(place / "srv" / "remote.git")
    repo.git("remote", "add", "origin", str(bare.path))
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    repo.git("clone", "-q", str(bare.path), str(place / "theirs"))
    repo.write(".env", "A=1\nB=2\n")
    repo.write("data.bin", os.urandom(BIG))
    repo.write("deep/caf\u00e9/.gitattributes", "* text\n")
    repo.write(b"a\r?b\x0bc\nd/e", "an odd name")
    (repo.path / "empty").mkdir()
    (repo.path / "link").symlink_to("data.bin")
    capture(repo, "one", "--name", "start")
    repo.write("b", "2")
    repo.write(".env", "A=2\nB=2\n")
    capture(repo, "two")
    repo.run("envlog", "push", "--yes", check=True)
    repo.run("envlog", "note", "-m", "it went well", check=True)
    return place


@pytest.fixture
def shared(model: Path, tmp_path: Path, repo: Repo, bare: Repo, colleague: Repo) -> str:
    """Fill `repo`, its remote and the colleague's clone with two pushed snapshots.

    Return the name of their timeline at the colleague's.
    """
    for place in (repo.path, bare.path, colleague.path):
        assert place.is_relative_to(tmp_path)
        replace_tree(model / place.relative_to(tmp_path), place)
        config = place / "config" if place == bare.path else place / ".git" / "config"
        config.write_text(config.read_text().replace(str(model), str(tmp_path)))
    # Consent is given per address, and the copy's address is new. This also pushes the note.
    repo.run("envlog", "push", "--yes", check=True)
    return f"origin/{timeline(repo)}"


def size_of(colleague: Repo) -> int:
    place = colleague.path / ".git" / "envhist" / "fetched.git"
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def take_in_key(repo: Repo, colleague: Repo) -> None:
    key = repo.run("envlog", "key", "export", check=True).out
    colleague.run("envlog", "key", "import", "-", input=key, check=True)


@pytest.mark.parametrize("transport", ["path", "file", "ssh", "http"])
def test_fetch_works_over_every_transport_with_contents_on_demand(
    repo: Repo,
    bare: Repo,
    colleague: Repo,
    shared: str,
    address: Callable[[str], str],
    transport: str,
    tmp_path: Path,
) -> None:
    url = address(transport)
    colleague.env.update(os.environ)
    colleague.env["XDG_CONFIG_HOME"] = str(tmp_path / "their-home" / "config")
    colleague.git("remote", "set-url", "origin", url)
    colleague.run("envlog", "fetch", check=True)
    listed = colleague.run("envlog", "--format=%s %(name)", shared, check=True).out.splitlines()
    assert listed == ["two ", "one start"]
    assert "it went well" in colleague.run("envlog", "show", shared, check=True).out
    take_in_key(repo, colleague)
    colleague.run("envrestore", "--to", str(tmp_path / "out"), shared, check=True)
    assert tree_differences(repo.path, tmp_path / "out") == ()


def test_fetch_is_lazy_and_gets_contents_on_demand(repo: Repo, colleague: Repo, shared: str) -> None:
    output = json.loads(colleague.run("envlog", "fetch", "--json", check=True).out)
    validate("fetched", output)
    assert output["timelines"] == [{"timeline": shared, "status": "new"}]
    assert output["full"] is False
    assert size_of(colleague) < BIG // 4
    assert (
        colleague.run("envdiff", "--name-status", f"{shared}~1", shared, check=True).out == "M\t.env\nA\tb\n"
    )
    assert colleague.run("envlog", "show", f"{shared}~1", "--", "app.py", check=True).stdout == repo.read(
        "app.py"
    )
    assert "+2" in colleague.run("envdiff", "-p", f"{shared}~1", shared, "--", "b", check=True).out
    assert size_of(colleague) < BIG // 4
    assert colleague.run("envlog", "show", shared, "--", "data.bin", check=True).stdout == repo.read(
        "data.bin"
    )
    assert size_of(colleague) > BIG


def test_full_fetch_needs_no_later_request(repo: Repo, bare: Repo, colleague: Repo, shared: str) -> None:
    colleague.run("envlog", "fetch", "--full", check=True)
    bare.path.rename(bare.path.with_name("gone"))
    assert colleague.run("envlog", "show", shared, "--", "data.bin", check=True).stdout == repo.read(
        "data.bin"
    )


def test_server_without_partial_clone_sends_everything(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        bare.git("config", key, "false")
    colleague.git("remote", "set-url", "origin", f"file://{bare.path}")
    assert json.loads(colleague.run("envlog", "fetch", "--json", check=True).out)["full"] is True
    bare.path.rename(bare.path.with_name("gone"))
    assert colleague.run("envlog", "show", shared, "--", "data.bin", check=True).stdout == repo.read(
        "data.bin"
    )


def test_fetch_does_not_change_the_user_repository(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    before, own = everything_of_git(colleague), refs(colleague)
    objects = colleague.git("count-objects", "-v")
    colleague.run("envlog", "fetch", check=True)
    colleague.run("envlog", "show", shared, "--", "data.bin", check=True)
    assert everything_of_git(colleague) == before
    assert refs(colleague) == own
    assert colleague.git("count-objects", "-v") == objects
    assert "promisor" not in colleague.git("config", "--list")
    repo.commit("more")
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    colleague.git("fetch", "-q", "--prune")
    assert git_fsck(colleague.path) == ""
    assert colleague.run("envlog", shared, check=True).out
    colleague.git("merge", "-q", "--ff-only", "origin/main")
    colleague.commit("theirs")
    colleague.git("push", "-q", "--all")
    assert len(refs(bare, "refs/envhist/heads")) == 1


def test_fetched_snapshot_is_unsigned_without_its_key_and_trusted_with_it(
    repo: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", check=True)
    assert "unsigned (author given as Test User)" in colleague.run("envlog", "--all", check=True).out
    assert colleague.run("envrestore", shared).status == 3
    assert size_of(colleague) < BIG // 4, "a refused restore fetches no contents"
    take_in_key(repo, colleague)
    listed = colleague.run("envlog", "--all", check=True).out
    assert "claimed" not in listed
    # A list of one timeline does not repeat its name on each line.
    assert f"[{shared}]" not in listed
    colleague.run("envlog", "capture", "ours", check=True)
    assert f"[{shared}]" in colleague.run("envlog", "--all", check=True).out
    output = colleague.run("envdiff", f"{shared}~1", shared, check=True).out
    assert "A" in output


def test_fetched_snapshot_is_compared_with_now(colleague: Repo, shared: str) -> None:
    colleague.run("envlog", "fetch", check=True)
    output = colleague.run("envdiff", "--name-only", f"{shared}..now", check=True).out.splitlines()
    assert {"b", "data.bin", ".env"} <= set(output)
    assert "app.py" not in output


def test_fetch_follows_growth_rewrites_and_deletions(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    def fetched() -> str:
        (one,) = json.loads(colleague.run("envlog", "fetch", "--json", check=True).out)["timelines"]
        return str(one["status"])

    assert fetched() == "new"
    assert fetched() == "up-to-date"
    repo.write("c")
    capture(repo, "three")
    repo.run("envlog", "push", check=True)
    assert fetched() == "updated"
    ref = f"refs/envhist/heads/{timeline(repo)}"
    bare.git(
        "update-ref",
        ref,
        bare.git("commit-tree", f"{ref}^{{tree}}", "-m", bare.git("log", "-1", "--format=%B", ref)),
    )
    assert fetched() == "rewritten"
    bare.git("update-ref", "-d", ref)
    assert fetched() == "gone"
    assert colleague.run("envlog", shared).status == 4


def test_fetch_never_changes_our_own_timelines(repo: Repo, bare: Repo, colleague: Repo, shared: str) -> None:
    capture(colleague, "mine")
    ours = refs(colleague)
    tip = refs(bare, "refs/envhist/heads")[f"refs/envhist/heads/{timeline(repo)}"]
    for odd in (timeline(colleague), "x", "a/b/c", "a/b\u202e", "..a/b".replace("..", "%2e"), "a/-b"):
        bare.git("update-ref", f"refs/envhist/heads/{odd}", tip, check=False)
    packed = bare.path / "packed-refs"
    bare.git("pack-refs", "--all")
    with packed.open("ab") as file:
        for odd in (b"a/\x1b[2Jb", b"../../../heads/main", b"--upload-pack=x/b"):
            file.write(tip.encode() + b" refs/envhist/heads/" + odd + b"\n")
    done = colleague.run("envlog", "fetch")
    assert b"\x1b" not in done.stdout + done.stderr
    assert refs(colleague) == ours
    assert {name for name in refs_of_fetched(colleague) if "remotes" in name} <= {
        f"refs/envhist/remotes/{shared}",
        f"refs/envhist/remotes/origin/{timeline(colleague)}",
    }


def refs_of_fetched(colleague: Repo) -> dict[str, str]:
    git_dir = colleague.path / ".git" / "envhist" / "fetched.git"
    lines = colleague.git(
        f"--git-dir={git_dir}", "for-each-ref", "--format=%(refname) %(objectname)"
    ).splitlines()
    return dict(line.split(" ") for line in lines)


def test_fetch_succeeds_after_a_power_cut(repo: Repo, bare: Repo, colleague: Repo, tmp_path: Path) -> None:
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", check=True)
    repo.run("envlog", "export", str(tmp_path / "file"), check=True)
    colleague.run("envlog", "fetch", check=True)
    before = refs_of_fetched(colleague)
    fetched = colleague.path / ".git/envhist/fetched.git"
    (fetched / "HEAD").write_bytes(b"")
    assert colleague.run("envlog", "--all").status == 0
    # git does not sync refs, so after a power cut they may be empty or point to missing objects.
    for place in ("refs/envhist/remotes", "refs/notes/envhist"):
        (fetched / place / f"origin/{timeline(repo)}").write_bytes(b"")
    (fetched / "refs/envhist/remotes/origin/lab").mkdir()
    (fetched / "refs/envhist/remotes/origin/lab/lost-000001").write_text("1" * 40 + "\n")
    (fetched / "packed-refs.lock").write_bytes(b"")
    colleague.run("envlog", "fetch", check=True)
    assert colleague.run("envlog", "--all").status == 0
    assert refs_of_fetched(colleague) == before
    colleague.run("envlog", "import", "--as", "came", str(tmp_path / "file"), check=True)
    (fetched / f"refs/envhist/remotes/came/{timeline(repo)}").write_text("1" * 40 + "\n")
    colleague.run("envlog", "fetch")
    assert f"refs/envhist/remotes/came/{timeline(repo)}" in refs_of_fetched(colleague), (
        "the refs of an import are kept: no fetch can get them again"
    )


def test_dangling_fetched_ref_is_ignored(repo: Repo, bare: Repo, colleague: Repo, shared: str) -> None:
    colleague.run("envlog", "capture", "mine", check=True)
    colleague.run("envlog", "fetch", check=True)
    fetched = colleague.path / ".git/envhist/fetched.git"
    (fetched / "refs/envhist/remotes/origin/lab").mkdir()
    (fetched / "refs/envhist/remotes/origin/lab/gone-000001").write_text("a" * 40 + "\n")
    warning = "warning: 'origin/lab/gone-000001' points to no commit: fetch or import it again\n"
    for words in (("--all",), ("--all", "-5"), ("--all", "--json"), ("show", shared)):
        listed = colleague.run("envlog", *words, check=True)
        assert listed.err in (warning, ""), words
    assert "mine" in colleague.run("envlog", "--all", check=True).out
    assert colleague.run("envlog", "origin/lab/gone-000001").status != 0
    colleague.run("envlog", "fetch", check=True)
    assert colleague.run("envlog", "--all", check=True).err == ""


def test_hostile_objects_are_refused_with_their_pack(repo: Repo, bare: Repo, colleague: Repo) -> None:
    for key in ("receive.fsckObjects", "transfer.fsckObjects"):
        bare.git("config", key, "false")
    blob = bare.git("hash-object", "-w", "--stdin", input="x")
    tree = bare.run_git("hash-object", "-t", "tree", "-w", "--literally", "--stdin",
                        input=b"100644 .git\0" + bytes.fromhex(blob)).out.strip()  # fmt: skip
    bare.git("update-ref", "refs/envhist/heads/evil/host-000000", bare.git("commit-tree", tree, "-m", "x"))
    done = colleague.run("envlog", "fetch")
    assert done.status == 128
    assert "hasDotgit" in done.err or ".git" in done.err
    assert refs_of_fetched(colleague) == {}


def test_interrupted_fetch_keeps_complete_timelines_and_continues(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", check=True)
    for number in range(60):
        repo.write(f"{number}/{os.urandom(20).hex()}")
    capture(repo, "three")
    repo.run("envlog", "push", check=True)
    before = colleague.run("envlog", shared, check=True).out
    # The connection breaks in the middle of the pack.
    slow = colleague.path.parent / "upload-pack"
    slow.write_text(f"#!{sys.executable}\n{BREAKS}")
    slow.chmod(0o755)
    colleague.git("config", "remote.origin.uploadpack", str(slow))
    assert colleague.run("envlog", "fetch").status == 128
    assert colleague.run("envlog", shared, check=True).out == before
    colleague.git("config", "--unset", "remote.origin.uploadpack")
    colleague.run("envlog", "fetch", check=True)
    assert len(colleague.run("envlog", "--oneline", shared, check=True).out.splitlines()) == 3


def test_packs_of_an_interrupted_fetch_are_checked_by_the_next(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", check=True)
    capture(colleague, "mine")
    colleague.run("envlog", "note", shared, "-m", "seen over here", check=True)
    colleague.run("envlog", "push", "--yes", check=True)
    # The server lists its refs and sends the notes, then breaks the connection.
    calls = repo.path.parent / "calls"
    breaks = repo.write("../breaks", f'echo >>{calls}; [ $(wc -l <{calls}) -lt 3 ] && git-upload-pack "$@"\n')
    repo.git("config", "remote.origin.uploadpack", f"sh {breaks}")
    assert repo.run("envlog", "fetch").status == 128
    repo.git("config", "--unset", "remote.origin.uploadpack")
    repo.run("envlog", "fetch", check=True)
    assert "seen over here (said by" in repo.run("envlog", "show", check=True).out
    assert not list((repo.path / ".git/envhist/fetched.git").glob("fetching-*"))


def test_refs_of_an_interrupted_fetch_that_were_deleted_are_dropped(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", check=True)
    kept, there = refs_of_fetched(colleague), refs(bare, "refs/envhist", "refs/notes/envhist")
    repo.run("envlog", "note", "-m", "removed soon", check=True)
    capture(repo, "three")
    repo.run("envlog", "push", check=True)
    calls = repo.path.parent / "calls"
    breaks = repo.write("../breaks", f'echo >>{calls}; [ $(wc -l <{calls}) -lt 3 ] && git-upload-pack "$@"\n')
    colleague.git("config", "remote.origin.uploadpack", f"sh {breaks}")
    assert colleague.run("envlog", "fetch").status == 128
    assert any("arriving" in ref for ref in refs_of_fetched(colleague))
    for ref, oid in there.items():
        bare.git("update-ref", ref, oid)
    colleague.git("config", "--unset", "remote.origin.uploadpack")
    assert "up to date" in colleague.run("envlog", "fetch", check=True).out
    assert refs_of_fetched(colleague) == kept


@pytest.mark.usefixtures("shared")
def test_list_of_checked_packs_is_complete_or_ignored(colleague: Repo) -> None:
    """A truncated list would make checked packs look new, and a refused fetch removes new packs."""
    colleague.run("envlog", "fetch", check=True)
    fetched = FetchedStore.of(EnvHistory.open(str(colleague.path), one_command=True).repository)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(EnvhistError, match="cannot write below"):
            fetched.begin_fetch("origin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert fetched.begin_fetch("origin") is None
    assert fetched.begin_fetch("origin") == fetched.packs() != frozenset()
    fetched.add_checked_packs(["pack-of-an-import"])
    assert fetched.begin_fetch("origin") == {*fetched.packs(), "pack-of-an-import"}
    fetched.end_fetch("origin")
    assert fetched.begin_fetch("origin") is None


@pytest.mark.parametrize(
    ("many", "seconds", "then"), [(2000, 0.1, 8000), (2000, 5, 2000), (2000, 60, 1000), (600, 60, 500)]
)
def test_batch_size_follows_the_duration_of_batches(many: int, seconds: float, then: int) -> None:
    assert next_batch_size(many, seconds) == then
    assert next_batch_size(MAX_BATCH, seconds) <= MAX_BATCH


def test_interrupted_full_fetch_requests_only_missing_objects(
    repo: Repo, bare: Repo, colleague: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("git_envhist.remote.fetch.FIRST_BATCH", 20)
    monkeypatch.setattr("git_envhist.remote.fetch.MAX_BATCH", 20)
    for number in range(100):
        repo.write(f"d/{number}", os.urandom(3000))
    capture(repo, "one")
    repo.run("envlog", "push", "--yes", check=True)
    calls = repo.path.parent / "calls"
    breaks = repo.write("../breaks", f'echo >>{calls}; [ $(wc -l <{calls}) -lt 7 ] && git-upload-pack "$@"\n')
    colleague.git("config", "remote.origin.uploadpack", f"sh {breaks}")
    history = EnvHistory.open(str(colleague.path), one_command=True)
    with pytest.raises(RemoteFailed):
        history.fetch(full=True)
    tip = next(iter(refs_of_fetched(colleague).values()))
    there = len(FetchedStore.of(history.repository).missing([tip]))
    assert 20 <= there < 100, "some batches arrived"
    colleague.git("config", "--unset", "remote.origin.uploadpack")
    assert EnvHistory.open(str(colleague.path), one_command=True).fetch(full=True).full
    assert git_fsck(colleague.path / ".git/envhist/fetched.git") == ""


@pytest.mark.skipif(not SYSTEM.proc, reason="without /proc, a running git is not detected")
def test_leftovers_of_a_killed_git_are_removed_but_not_of_a_running_one(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", check=True)
    place = colleague.path / ".git/envhist/fetched.git"
    left = place / "objects/pack/tmp_pack_x"
    left.write_bytes(b"half")
    words = ["git", "--git-dir", str(place), "cat-file", "--batch"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=colleague.env) as working:
        colleague.run("envlog", "fetch", check=True)
        assert left.exists(), "the file may belong to the running git"
        working.communicate()
    colleague.run("envlog", "fetch", check=True)
    assert not left.exists()
    # After a broken connection the fetch removes its own leftovers at once.
    slow = colleague.write("../upload-pack", f"#!{sys.executable}\n{BREAKS}", 0o755)
    repo.write("more", os.urandom(100_000))
    capture(repo, "more")
    repo.run("envlog", "push", "--yes", check=True)
    colleague.git("config", "remote.origin.uploadpack", str(slow))
    assert colleague.run("envlog", "fetch", "--full").status == 128
    assert not list(place.glob("objects/*/tmp_*"))


def test_unavailable_contents_are_an_error(bare: Repo, colleague: Repo, shared: str, tmp_path: Path) -> None:
    colleague.run("envlog", "fetch", check=True)
    bare.path.rename(bare.path.with_name("gone"))
    done = colleague.run("envlog", "show", shared, "--", "data.bin")
    assert done.status == 128
    assert "'origin'" in done.err
    assert f"contents of '{shared}' are not stored here yet, and only this remote has them" in done.err
    assert colleague.run("envlog", shared).status == 0, "the list needs no remote"
    before = listing(colleague.path, top=True)
    assert colleague.run("envrestore", "--to", str(tmp_path / "then"), shared).status == 128
    assert not (tmp_path / "then").exists()
    assert listing(colleague.path, top=True) == before


def test_address_without_a_remote_name_is_fetched(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", f"file://{bare.path}", check=True)
    (ref,) = [ref for ref in refs_of_fetched(colleague) if "remotes" in ref]
    name = ref.removeprefix("refs/envhist/remotes/")
    assert name.startswith("remote-")
    assert colleague.run("envlog", "show", name, "--", "b", check=True).stdout == b"2"


def test_notes_on_a_fetched_snapshot_are_shown_on_both_sides(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    colleague.run("envlog", "fetch", check=True)
    colleague.run("envlog", "note", shared, "-m", "seen over here", check=True)
    colleague.run("envlog", "name", "theirs", shared, check=True)
    assert "seen over here" in colleague.run("envlog", "show", "theirs", check=True).out
    capture(colleague, "mine")
    colleague.run("envlog", "push", "--yes", check=True)
    repo.run("envlog", "fetch", check=True)
    output = repo.run("envlog", "show", check=True).out
    writer = f"origin/{timeline(colleague)}"
    assert f"seen over here (said by {writer})" in output
    assert "it went well\n" in output
    assert repo.run("envlog", "show", "theirs").status == 4, "names given by other users are not used here"
    colleague.run("envlog", "note", shared, "-m", "and once more", check=True)
    colleague.run("envlog", "push", check=True)
    repo.run("envlog", "fetch", check=True)
    output = repo.run("envlog", "show", check=True).out
    assert output.count("said by") == 2


def test_log_of_all_timelines_with_a_limit_is_its_beginning(
    repo: Repo, bare: Repo, colleague: Repo, shared: str
) -> None:
    for number in range(3):
        repo.write("c", f"{number}")
        capture(repo, f"ours {number}", "--name", "moves")
        colleague.write("c", f"{number}")
        capture(colleague, f"theirs {number}")
    repo.run("envlog", "push", "--yes", check=True)
    colleague.run("envlog", "push", "--yes", check=True)
    for each in (repo, colleague):
        each.run("envlog", "fetch", check=True)
        whole = each.run("envlog", "--all", "--no-fold", check=True).out.splitlines()
        for count in (0, 2, len(whole) - 1):
            some = each.run("envlog", "--all", "--no-fold", f"-{count}", check=True).out.splitlines()
            # Each line names its timeline only if the list shows several.
            assert [_words(line) for line in some] == [_words(line) for line in whole[:count]]


def test_fetch_skips_timelines_that_this_repository_pushed(repo: Repo, bare: Repo) -> None:
    repo.write("big", os.urandom(300_000))
    repo.run("envlog", "capture", "one", check=True)
    repo.run("envlog", "push", "--yes", check=True)
    repo.run("envlog", "capture", "two", check=True)
    repo.run("envlog", "fetch", "--full", check=True)
    assert refs_of_fetched(repo) == {}
    assert size_of(repo) < 100_000
    # If the remote has more snapshots than this repository (e.g. pushed by a copy), they are fetched.
    tip = repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads")
    repo.run("envlog", "push", "--yes", check=True)
    [ref] = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").split()
    repo.git("update-ref", ref, f"{tip}~1")
    repo.run("envlog", "fetch", check=True)
    assert refs_of_fetched(repo)


@pytest.mark.full
def test_own_timeline_of_a_remote_is_a_revision_after_its_push(repo: Repo, bare: Repo) -> None:
    one = capture(repo, "one")
    repo.write("b", "2")
    two = capture(repo, "two")
    name = f"origin/{timeline(repo)}"
    assert repo.run("envlog", "show", name).status == 4, "nothing was pushed yet"
    repo.run("envlog", "push", "--yes", check=True)
    output = repo.run("envlog", "fetch", check=True).out
    assert f"nothing new: {timeline(repo)} was pushed from here" in output
    repo.write("b", "3")
    capture(repo, "three")
    for revision, expected in ((name, two), (f"{name}~1", one)):
        assert json.loads(repo.run("envlog", "show", revision, "--json", check=True).out)["id"] == expected
    assert "three" not in repo.run("envlog", "--oneline", name, check=True).out
    assert "b" in repo.run("envdiff", name, "--name-only", check=True).out.split()
    # A list does not show it as a separate timeline.
    assert len(repo.run("envlog", "--all", "--oneline", "--no-fold", check=True).out.splitlines()) == 3
    repo.run("envlog", "push", "--delete", timeline(repo), check=True)
    assert repo.run("envlog", "show", name).status == 4


def _words(line: str) -> list[str]:
    return [word for word in line.split() if not word.startswith("[")]
