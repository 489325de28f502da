"""`git envlog uninstall --history` removes all our files and refs and changes nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import Refused
from git_envhist.integrations import remove_history
from git_envhist.remote.upload import remotes_directory
from tests.integrations.hooks import standing
from tests.support.repository import Repo


def ours_in(repo: Repo) -> list[str]:
    return [name for name in standing(repo.path / ".git") if "envhist" in name]


def test_uninstall_history_removes_all_our_data_and_keeps_the_code(repo: Repo, hermetic: Path) -> None:
    repo.git("gc", "-q")
    before = standing(repo.path)
    repo.write(".env", "SECRET=1\n")
    repo.run("envlog", "capture", "one", "--name", "first", check=True)
    repo.write("big", os.urandom(100_000))
    repo.run("envlog", "capture", "two", check=True)
    copies = hermetic / "config/git-envhist/keys"
    assert [path for path in copies.iterdir() if len(path.name) == 32]
    repo.git("worktree", "add", "-q", "../linked")
    linked = Repo(repo.path.parent / "linked", repo.env)
    linked.run("envlog", "capture", "there", check=True)
    done = repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert "3 snapshots" in done.out
    repo.git("worktree", "remove", "--force", "../linked")
    repo.git("branch", "-D", "linked")
    assert ours_in(repo) == []
    assert not [path for path in copies.iterdir() if len(path.name) == 32]
    (repo.path / ".env").unlink()
    (repo.path / "big").unlink()
    left = {name for name in standing(repo.path) if not name.startswith(".git/logs")}
    assert left - set(before) <= {".git/worktrees"}
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    assert repo.git("for-each-ref", "refs/envhist", "refs/notes") == ""


def test_uninstall_history_needs_consent_and_dry_run_lists_it(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    refused = repo.run("envlog", "uninstall", "--history")
    assert refused.status == 3
    assert "--yes" in refused.err
    before = standing(repo.path)
    listed = repo.run("envlog", "uninstall", "--history", "--dry-run", check=True).out
    assert "remove refs/envhist/heads/" in listed
    assert ".pack" in listed
    assert standing(repo.path) == before
    assert repo.run("envlog", "--format=%s", check=True).out == "one\n"


def test_new_history_starts_after_removal(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    repo.run("envlog", "capture", "anew", check=True)
    assert repo.run("envlog", "--format=%s", check=True).out == "anew\n"
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_keys_of_sent_data_are_kept(repo: Repo, tmp_path: Path, hermetic: Path) -> None:
    repo.execute("git", "init", "-q", "--bare", str(tmp_path / "remote"))
    repo.write(".env", "SECRET=1\n")
    repo.run("envlog", "capture", "one", check=True)
    repo.git("remote", "add", "origin", str(tmp_path / "remote"))
    repo.run("envlog", "push", "--yes", "origin", check=True)
    done = repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert "which is not deleted" in done.err
    assert [path for path in (hermetic / "config/git-envhist/keys").iterdir() if len(path.name) == 32]


def test_key_of_another_repository_is_kept(repo: Repo, tmp_path: Path, hermetic: Path) -> None:
    there = str(tmp_path / "remote")
    copies = hermetic / "config/git-envhist/keys"
    repo.execute("git", "init", "-q", "--bare", there)
    repo.write(".env", "SECRET=1\n")
    repo.run("envlog", "capture", "one", "--name", "first", check=True)
    repo.git("remote", "add", "origin", there)
    repo.git("push", "-q", "origin", "HEAD")
    repo.run("envlog", "push", "--yes", check=True)
    clones = []
    for name in ("second", "third"):
        repo.git("clone", "-q", there, f"../{name}")
        clones.append(Repo(repo.path.parent / name, repo.env))
    second, third = clones
    second.run("envlog", "fetch", check=True)
    [copy] = [path for path in copies.iterdir() if len(path.name) == 32]
    second.run("envlog", "key", "import", str(copy), check=True)
    assert second.run("envlog", "show", "first:.env", check=True).out == "SECRET=1\n"
    done = second.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert "fetched or imported data may be sealed with this key, which is not deleted" in done.err
    assert copy.exists()

    # The key's last copy is kept even if the user deleted the other one.
    copy.unlink()
    repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    third.run("envlog", "fetch", check=True)
    third.run("envlog", "key", "import", str(copy), check=True)
    assert third.run("envlog", "show", "first:.env", check=True).out == "SECRET=1\n"


def test_killed_removal_keeps_the_key_of_sent_data(
    repo: Repo, tmp_path: Path, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.execute("git", "init", "-q", "--bare", str(tmp_path / "remote"))
    repo.write(".env", "SECRET=1\n")
    repo.run("envlog", "capture", "one", check=True)
    repo.git("remote", "add", "origin", str(tmp_path / "remote"))
    repo.run("envlog", "push", "--yes", check=True)
    repository = EnvHistory.open(str(repo.path), one_command=True).repository
    removed = []

    def dying(place: str, **_: object) -> None:
        # Remove the record of the push, then stop as in a power cut.
        removed.append(place)
        if place.endswith("/keys"):
            really(place)
        elif place == repository.common_state:
            really(remotes_directory(place))
            raise KeyboardInterrupt

    really = shutil.rmtree
    monkeypatch.setattr(remove_history.shutil, "rmtree", dying)
    with pytest.raises(KeyboardInterrupt):
        remove_history.remove_history(repository, remove_history.read_inventory(repository, repo.env))
    monkeypatch.undo()
    assert removed
    repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert [path for path in (hermetic / "config/git-envhist/keys").iterdir() if len(path.name) == 32]
    assert not os.path.lexists(repository.common_state)


def test_objects_that_git_needs_are_moved_to_a_git_pack(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "../linked")
    linked = Repo(repo.path.parent / "linked", repo.env)
    for name in ("committed", "staged", "stashed", "theirs"):
        repo.write(name, f"{name}, and in no object of git's\n")
    repo.run("envlog", "capture", "all of them", check=True)
    repo.git("add", "committed")
    repo.git("commit", "-q", "-m", "its content is stored already")
    repo.git("add", "stashed")
    repo.git("stash", "-q")
    repo.git("add", "staged")
    linked.write("theirs", repo.read("theirs"))
    linked.git("add", "theirs")
    for name in ("committed", "staged", "theirs"):
        repo.write(name, "something else by now\n")

    repo.run("envlog", "uninstall", "--history", "--yes", check=True)

    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    assert ours_in(repo) == []
    assert not list((repo.path / ".git/objects/pack").glob("*.keep"))
    for where, name in ((repo, "HEAD:committed"), (repo, ":staged"), (linked, ":theirs")):
        assert where.git("cat-file", "-p", name).startswith(name.rpartition(":")[2])
    repo.git("stash", "pop", "-q")
    assert repo.read("stashed").startswith(b"stashed")
    repo.git("gc", "-q", "--prune=now")
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_removal_refuses_when_the_history_changed_during_the_question(repo: Repo) -> None:
    """A snapshot taken in another working tree meanwhile may use the packs listed for removal."""
    repo.git("worktree", "add", "-q", "../linked")
    linked = Repo(repo.path.parent / "linked", repo.env)
    repo.write("same", "in both\n")
    repo.run("envlog", "capture", "one", check=True)
    repository = EnvHistory.open(str(repo.path), one_command=True).repository
    found = remove_history.read_inventory(repository, repo.env)
    linked.write("same", "in both\n")
    linked.run("envlog", "capture", "meanwhile", check=True)
    with pytest.raises(Refused, match="changed meanwhile"):
        remove_history.remove_history(repository, found)
    assert repo.git("fsck", "--no-dangling") == ""
    assert linked.run("envlog", "show", "@:same", check=True).out == "in both\n"


def test_history_without_git_is_removed_completely(repo: Repo, tmp_path: Path, hermetic: Path) -> None:
    plain = Repo(tmp_path / "notes", repo.env)
    plain.path.mkdir()
    plain.write("a.txt", "a\n")
    plain.write(".env", "SECRET=1\n")
    plain.run("envlog", "init", check=True)
    plain.run("envlog", "capture", "one", check=True)
    listed = plain.run("envlog", "uninstall", "--history", "--dry-run", check=True).out
    [place] = [line.removeprefix("remove ") for line in listed.splitlines() if line.endswith(".git")]
    assert plain.run("envlog", "uninstall", "--history").status == 3
    assert plain.run("envlog", "--format=%s", check=True).out == "one\n"

    done = plain.run("envlog", "uninstall", "--history", "--yes", check=True)

    assert "deleted: 1 snapshot" in done.out
    assert not os.path.lexists(place)
    assert sorted(os.listdir(plain.path)) == [".env", "a.txt"]
    data = Path(place).parent.parent
    assert list(data.rglob("*notes*")) == []
    again = plain.run("envlog")
    assert (again.status, "git envlog init" in again.err) == (128, True)
    plain.run("envlog", "init", check=True)
    plain.run("envlog", "capture", "anew", check=True)
    assert plain.run("envlog", "--format=%s", check=True).out == "anew\n"


def test_removal_refuses_when_needed_objects_cannot_be_listed(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    head = repo.path / ".git/refs/heads/broken"
    head.write_text("0123456789" * 4 + "\n")
    done = repo.run("envlog", "uninstall", "--history", "--yes")
    assert (done.status, "nothing was removed" in done.err) == (128, True)
    head.unlink()
    assert repo.run("envlog", "--format=%s", check=True).out == "one\n"
    repo.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert ours_in(repo) == []


def test_states_of_forks_of_a_plain_directory_are_removed(tmp_path: Path) -> None:
    plain = Repo(tmp_path / "plain", dict(os.environ))
    plain.write("notes", b"1")
    plain.run("envlog", "init", check=True)
    plain.run("envlog", "capture", "start", check=True)
    plain.run("envlog", "fork", "../fork", check=True)
    history = EnvHistory.open(str(plain.path), one_command=True)
    common = Path(history.repository.common_state)
    (fork,) = (common.parent / "envhist-forks").iterdir()
    found = list(remove_history.existing_state_directories(history.repository))
    assert found == [str(fork / "envhist"), str(common)]
