"""The snapshot after a restore equals a full capture, although only some files are read."""

from __future__ import annotations

import os
import shutil

from hypothesis import given, settings

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot
from git_envhist.restore.options import RestoreOptions
from tests.restore.test_round_trip import CHANGES
from tests.support.depth import examples
from tests.support.privileges import permissions_bind
from tests.support.repository import Repo, make_repo
from tests.support.trees import Edit, Tree, apply, build


def capture(history: EnvHistory, intent: str = "moment") -> Snapshot:
    taken = history.capture(intent).snapshot
    assert taken is not None
    return taken


def from_scratch(history: EnvHistory) -> Snapshot:
    """Capture everything without caches."""
    shutil.rmtree(os.path.join(history.repository.state, "cache"))
    return capture(history, "from scratch")


def is_recorded_truly(history: EnvHistory, target: Snapshot) -> None:
    done = history.restore(target)
    if done.snapshot is None:
        return
    scratch = from_scratch(history)
    git = history.repository.git
    assert (done.snapshot.content, done.snapshot.missing_count) == (scratch.content, scratch.missing_count)
    output = [git.run("ls-tree", "-r", "-z", one.tree, "--", ".") for one in (done.snapshot, scratch)]
    assert [_without_links(one) for one in output[:1]] == [_without_links(one) for one in output[1:]]


def _without_links(listed: bytes) -> dict[bytes, bytes]:
    lines = [line.partition(b"\t") for line in listed.split(b"\0")[:-1]]
    # Link groups are numbered by inode, and shards contain these numbers.
    return {path: b"" if path.startswith(b".envhist/manifest/") else head for head, _, path in lines}


@given(CHANGES)
@settings(max_examples=examples(3, 8))
def test_capture_after_a_restore_equals_a_full_capture(
    tmp_path_factory, change: tuple[Tree, tuple[Edit, ...]]
) -> None:  # type: ignore[no-untyped-def]
    top = tmp_path_factory.mktemp("since") / "repo"
    make_repo(top, commit=False)
    tree, edits = change
    build(tree, top)
    history = EnvHistory.open(str(top), workers="here", one_command=True)
    first = capture(history)
    apply(edits, top)
    second = capture(history)
    is_recorded_truly(history, first)
    is_recorded_truly(history, second)


def test_created_and_removed_directories_are_captured(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("stays/a", b"1")
    repo.write("goes/deep/er/a", b"1")
    repo.write("turns", b"1")
    first = capture(history)
    repo.write("stays/a", b"2")
    shutil.rmtree(repo.path / "goes")
    os.unlink(repo.path / "turns")
    repo.write("turns/into/one", b"2")
    repo.write("new/deep/er/a", b"2")
    (repo.path / "empty" / "inside").mkdir(parents=True)
    second = capture(history)
    for target in (first, second, first):
        is_recorded_truly(history, target)


def test_changes_in_a_large_directory_are_captured(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for number in range(200):
        repo.write(f"many/{number}", b"1")
    first = capture(history)
    repo.write("many/7", b"2")
    second = capture(history)
    is_recorded_truly(history, first)
    is_recorded_truly(history, second)
    wish = RestoreOptions(saved=lambda safety: repo.write("many/8", b"edited meanwhile"))
    history.restorer.to(history.resolve(first.id), wish)
    after = capture(history)
    assert repo.git("cat-file", "blob", f"{after.commit}:many/8") == "edited meanwhile"
    repo.write("many/7", b"not captured")
    repo.write("many/10", b"not captured")
    is_recorded_truly(history, first)
    os.unlink(repo.path / "many" / "9")
    repo.write("many/new", b"2")
    third = capture(history)
    for target in (first, third):
        is_recorded_truly(history, target)


def test_restored_ignore_rules_are_applied_everywhere(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write(".envhistignore", b"*.log\n")
    repo.write("far/away/a.log", b"1")
    first = capture(history)
    repo.write(".envhistignore", b"")
    capture(history)
    is_recorded_truly(history, first)


def test_unreadable_path_is_missing_from_the_snapshot(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("a/file", b"1")
    repo.write("closed/file", b"1")
    with permissions_bind():
        os.chmod(repo.path / "closed" / "file", 0)
        first = capture(history)
        repo.write("a/file", b"2")
        capture(history)
        done = history.restore(first)
    assert done.snapshot is not None
    assert done.snapshot.missing_count == first.missing_count == 1


def test_concurrent_edit_elsewhere_is_in_the_next_capture(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("here/file", b"1")
    repo.write("there/file", b"1")
    first = capture(history)
    repo.write("here/file", b"2")
    capture(history)
    wish = RestoreOptions(saved=lambda safety: repo.write("there/file", b"edited meanwhile"))
    history.restorer.to(history.resolve(first.id), wish)
    repo.run("envlog", "capture", "-m", "after", check=True)
    assert repo.git("cat-file", "blob", "refs/envhist/heads/" + first.timeline + ":there/file") == (
        "edited meanwhile"
    )
