"""Dropped snapshots are gone from the timeline, and everything else is kept: ids, notes, names, verdicts, tasks."""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot, TaskStatus
from git_envhist.objects.deflate import crc32
from git_envhist.rewrite.timeline import TimelineRewriter
from git_envhist.worktree.stat_cache import StatCache
from tests.cli.test_json import validate
from tests.support.depth import FULL
from tests.support.gits import git_with_reftable
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo, new_template, replace_tree


def open_history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def take(repo: Repo, number: int = 4) -> list[Snapshot]:
    """Replace a fresh repository by one with `number` snapshots, and return them, oldest first."""
    replace_tree(_template(number), repo.path)
    return open_history(repo).log()[::-1]


@functools.cache
def _template(number: int) -> Path:
    repo = make_repo(new_template() / "repo")
    capture_steps(repo, number)
    return repo.path


def capture_steps(repo: Repo, number: int) -> list[Snapshot]:
    """Capture `number` snapshots, each of which adds a file, and return them, oldest first."""
    for one in range(number):
        repo.write(f"file {one}", f"content of {one}")
        repo.run("envlog", "capture", f"step {one}", "--name", f"n{one}", check=True)
    return open_history(repo).log()[::-1]


def ids(repo: Repo) -> list[str]:
    return [one.id for one in reversed(open_history(repo).log())]


def answer(repo: Repo, *words: str) -> Any:
    output = json.loads(repo.run("envlog", *words, "--json", check=True).out)
    shape = {"drop": "dropped", "undrop": "trash"}.get(words[0] if words else "")
    if shape:
        validate(shape, output)
    return output


@pytest.mark.parametrize("gone", [[0], [3], [1, 2], [0, 3]])
def test_dropped_snapshot_is_gone_and_others_are_unchanged(repo: Repo, gone: list[int]) -> None:
    before = take(repo)
    repo.run("envlog", "drop", *(before[number].id for number in gone), check=True)
    after = open_history(repo).log()[::-1]
    kept = [one for number, one in enumerate(before) if number not in gone]
    assert [(one.id, one.tree, one.at, one.intent, one.names, one.content) for one in after] == [
        (one.id, one.tree, one.at, one.intent, one.names, one.content) for one in kept
    ]
    assert all(open_history(repo).judge(one).trusted for one in after)
    # The hashes that users wrote down and those that plain git shows now are both found.
    for one in after:
        assert repo.run("envlog", "show", one.id, "--json", check=True).status == 0
        assert json.loads(repo.run("envlog", "show", one.commit, "--json", check=True).out)["id"] == one.id
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_hash_between_two_rewrites_is_resolved(repo: Repo) -> None:
    before = take(repo)
    ref = f"refs/envhist/heads/{open_history(repo).timeline}"
    written_down = []
    for number in (0, 1):
        repo.run("envlog", "drop", before[number].id, check=True)
        written_down += [repo.git("rev-parse", ref), repo.git("rev-parse", "--short=8", ref)]
    repo.run("envlog", "drop", before[2].id, check=True)
    repo.run("envlog", "gc", "--prune=now", check=True)
    repo.git("init", "-q", "--bare", "../server")
    repo.git("remote", "add", "origin", "../server")
    repo.run("envlog", "push", "--yes", check=True)
    repo.git("clone", "-q", "../server", "../other", check=False)
    other = Repo(repo.path.parent / "other", repo.env)
    other.run("envlog", "fetch", check=True)

    for known in written_down:
        for place in (repo, other):
            assert (
                json.loads(place.run("envlog", "show", known, "--json", check=True).out)["id"] == before[3].id
            )
    assert open_history(repo).judge(open_history(repo).log()[0]).trusted
    assert repo.run("envlog", "show", written_down[0][:6]).status == 4


def test_summary_is_rewritten_for_a_new_predecessor(repo: Repo) -> None:
    before = take(repo, 3)
    assert [one.story for one in before] == ["2 files in all", "+1 file", "+1 file"]
    repo.run("envlog", "drop", before[1].id, check=True)
    assert [one.story for one in open_history(repo).log()] == ["+2 files", "2 files in all"]
    repo.run("envlog", "drop", before[0].id, check=True)
    (last,) = open_history(repo).log()
    assert (last.story, last.parent, last.changed.added) == ("4 files in all", None, 4)


@pytest.mark.parametrize("order", list(itertools.permutations([0, 2, 3, 4]))[1::8])
def test_undropped_snapshot_has_its_former_position(repo: Repo, order: tuple[int, ...]) -> None:
    before = take(repo, 5)
    history = open_history(repo)
    # All in one second, so that the times give no order.
    history.drop(before[2])
    history.drop(before[3], before[0])
    history.drop(before[4])
    assert ids(repo) == [before[1].id]
    for number in order:
        history.undrop(before[number].id[:10])
    after = open_history(repo).log()[::-1]
    assert [one.id for one in after] == [one.id for one in before]
    assert [one.names for one in after] == [one.names for one in before]
    assert [(one.story, one.changed) for one in after] == [(one.story, one.changed) for one in before]
    assert repo.git("for-each-ref", "refs/envhist/trash/") == ""
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_capture_works_after_everything_was_dropped(repo: Repo) -> None:
    before = take(repo, 2)
    repo.run("envlog", "drop", "@~1..@", "@~1", check=True)
    assert ids(repo) == []
    assert "nothing was captured" in repo.run("envlog", "show", "@").err
    later = {"GIT_COMMITTER_DATE": "2040-01-01T00:00:00+00:00"}
    repo.run("envlog", "capture", "new", check=True, env=later)
    repo.run("envlog", "undrop", "--all", check=True)
    assert ids(repo)[:2] == [one.id for one in before]
    assert len(ids(repo)) == 3


def test_drop_of_an_empty_range_prints_that_nothing_was_dropped(repo: Repo) -> None:
    take(repo)
    assert repo.run("envlog", "drop", "@..@~2", check=True).out == (
        "nothing to drop: the range contains no snapshots\n"
    )
    assert len(ids(repo)) == 4


def test_drop_and_undrop_print_results_and_hints(repo: Repo) -> None:
    before = take(repo, 3)
    assert repo.run("envlog", "undrop", check=True).out == "no snapshots are dropped\n"
    would = answer(repo, "drop", "-n", "n1")
    assert (would["dry_run"], [one["id"] for one in would["dropped"]]) == (True, [before[1].id])
    assert len(ids(repo)) == 3
    told = answer(repo, "drop", "n1")
    assert (told["dry_run"], [one["id"] for one in told["dropped"]]) == (False, [before[1].id])
    (listed,) = answer(repo, "undrop")["trash"]
    assert (listed["id"], listed["until"]) == (before[1].id, told["until"])
    # A dropped id is reported as dropped.
    for word in (before[1].id, before[1].id[:7]):
        missed = repo.run("envlog", "show", word)
        assert missed.status == 4
        assert f"it was dropped; bring it back: git envlog undrop {before[1].id[:12]}" in missed.err
    assert repo.run("envlog", "undrop", "n7").status == 4
    assert "would restore" in repo.run("envlog", "undrop", "--dry-run", "n1", check=True).out
    for word in ("n1", ":/step 1"):
        assert "restored" in repo.run("envlog", "undrop", word, check=True).out
        repo.run("envlog", "drop", before[1].id, check=True)
    assert repo.run("envlog", "drop").status == 129
    assert repo.run("envlog", "undrop", "n1", "--all").status == 129


def test_verdict_is_carried_to_equal_content_after_a_rewrite(repo: Repo) -> None:
    take(repo, 2)
    repo.run("envlog", "verify", "--", "true", check=True)
    good = open_history(repo).resolve("good")
    repo.run("envlog", "drop", "@~1", check=True)
    again = open_history(repo).resolve("good")
    assert again.id == good.id
    assert again.commit != good.commit
    # The environment is recognized by its content, with any commit.
    assert open_history(repo).capture("once more").snapshot is not None
    latest = open_history(repo).log(1)[0].verdict
    assert latest is not None
    assert latest.carried_from == good.id


def test_tasks_and_effects_stay_on_the_timeline(repo: Repo) -> None:
    history = open_history(repo)
    take(repo, 2)
    history.tasks.add("write it")
    repo.write("more", "1")
    history.tasks.set(1, TaskStatus.IN_PROGRESS)
    begun = history.tasks.all()[0].started_id
    history.effects.note("deployed")
    repo.write("more", "2")
    repo.run("envlog", "capture", check=True)
    before = ids(repo)
    assert begun == before[2]
    repo.run("envlog", "drop", before[2], check=True)
    (task,) = open_history(repo).tasks.all()
    assert (task.text, task.status, task.started_id) == ("write it", TaskStatus.IN_PROGRESS, before[1])
    (effect,) = open_history(repo).effects.all()
    assert (effect.text, effect.snapshot_id) == ("deployed", before[1])
    assert before[1][:7] in repo.run("envlog", "resume", check=True).out


def test_capture_after_drop_reads_no_unchanged_file(repo: Repo) -> None:
    take(repo, 3)
    cache = StatCache(str(repo.path / ".git/envhist/cache"), crc32)
    repo.run("envlog", "drop", "@~1", check=True)
    head = cache.read_head()
    assert head is not None
    assert head.base == open_history(repo).log(1)[0].commit
    done = answer(repo, "capture", "--if-changed")
    assert (done["id"], done["new_files"]) == (None, 0)
    # A cache that relied on the dropped snapshot relies on the trash.
    repo.run("envlog", "drop", "@", check=True)
    repo.write("file 0", "another")
    assert answer(repo, "capture")["new_files"] == 1
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_concurrent_capture_is_on_the_rewritten_timeline(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    before = take(repo, 3)
    state = TimelineRewriter.state
    calls = []

    def state_and_capture(self: TimelineRewriter, timeline: str) -> Any:
        found = state(self, timeline)
        if not calls:
            calls.append(timeline)
            repo.write("late", "late")
            repo.run("envlog", "capture", "late", check=True)
            repo.run("envlog", "name", "late-name", before[2].id, check=True)
        return found

    monkeypatch.setattr(TimelineRewriter, "state", state_and_capture)
    open_history(repo).drop(before[1])
    after = open_history(repo).log()
    assert [one.intent for one in after] == ["late", "step 2", "step 0"]
    assert "late-name" in after[1].names
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_note_on_a_replaced_commit_is_found(repo: Repo) -> None:
    take(repo, 3)
    slow = open_history(repo)
    snapshot = slow.resolve("@")
    repo.run("envlog", "drop", "@~1", check=True)
    slow.note("said late", snapshot)
    repo.run("envlog", "drop", "@~1", check=True)
    slow.note("said later still", snapshot)
    (last,) = open_history(repo).log()
    assert [one.text for one in last.remarks] == ["said late", "said later still"]


def test_note_of_another_working_tree_is_found_by_id(repo: Repo) -> None:
    take(repo, 3)
    target = open_history(repo).resolve("@")
    repo.git("worktree", "add", "-q", "../other")
    other = Repo(repo.path.parent / "other", repo.env)
    other.run("envlog", "note", target.id, "-m", "seen from beside", check=True)
    repo.run("envlog", "drop", "@~1", check=True)
    other.run("envlog", "note", target.id, "-m", "and again", check=True)
    assert [one.text for one in open_history(repo).log(1)[0].remarks] == ["seen from beside", "and again"]


def test_fork_survives_the_drop_of_its_source(repo: Repo) -> None:
    before = take(repo, 3)
    repo.run("envlog", "fork", "../fork", before[1].id, check=True)
    repo.run("envlog", "drop", before[1].id, check=True)
    fork = Repo(repo.path.parent / "fork", repo.env)
    (shown,) = answer(fork)
    assert shown["forked_from"] == before[1].id if "forked_from" in shown else True
    fork.write("more", "1")
    fork.run("envlog", "capture", check=True)
    repo.run("envrestore", answer(fork)[0]["timeline"], check=True)
    assert repo.read("more") == b"1"


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
@pytest.mark.parametrize("refs", ["files", "reftable"])
def test_rewrite_works_for_every_hash_and_ref_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashes: str, refs: str
) -> None:
    words = [f"--object-format={hashes}"]
    if refs == "reftable":
        git_with_reftable().put_first(monkeypatch)
        words.append("--ref-format=reftable")
    repo = Repo(tmp_path / "repo", dict(os.environ))
    repo.path.mkdir()
    repo.git("init", "-q", "--template=", *words)
    before = capture_steps(repo, 4)
    was = listing(repo.path)
    repo.write("file 3", "another")
    repo.run("envrestore", before[1].id, check=True)
    repo.run("envlog", "undo", check=True)
    assert repo.read("file 3") == b"another"
    repo.run("envrestore", before[3].id, check=True)
    assert listing(repo.path) == was
    repo.run("envlog", "drop", before[1].id, before[2].id, check=True)
    repo.run("envlog", "undrop", before[1].id[:9], check=True)
    assert before[1].id in ids(repo)
    assert before[2].id not in ids(repo)
    repo.run("envlog", "prune", "--keep-last", "1", check=True)
    repo.run("envlog", "purge", "file 0", check=True)
    repo.run("envlog", "gc", "--prune=now", "--empty-trash", check=True)
    repo.run("envlog", "fsck", check=True)
    repo.run("envrestore", "--to", str(tmp_path / "there"), before[3].id, check=True)
    assert listing(tmp_path / "there") == {path: one for path, one in was.items() if path != b"file 0"}
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_undo_reports_that_the_state_before_was_dropped(repo: Repo) -> None:
    for number in range(4):
        repo.write("file", f"state {number}")
        repo.run("envlog", "capture", f"state {number}", check=True)
    second, third = ids(repo)[1:3]
    repo.run("envlog", "drop", third, check=True)
    done = repo.run("envlog", "undo", check=True)
    assert f"the state before was dropped: {third[:7]} 'state 2'; this is {second[:7]} instead" in done.err
    assert repo.read("file") == b"state 1"
    repo.run("envlog", "redo", check=True)
    repo.run("envlog", "undrop", third, check=True)
    assert "dropped" not in repo.run("envlog", "undo", check=True).err
    assert repo.read("file") == b"state 2"


def test_undo_reports_a_dropped_state_when_nothing_else_is_left(repo: Repo) -> None:
    take(repo, 2)
    first = ids(repo)[0]
    repo.run("envlog", "drop", first, check=True)
    done = repo.run("envlog", "undo")
    assert done.status == 4
    assert done.err.splitlines() == [
        f"error: the state before was dropped: {first[:7]} 'step 0'",
        f"hint: to get it back: git envlog undrop {first[:7]}",
    ]


def test_concurrent_captures_and_drops_lose_no_snapshot_and_no_name(repo: Repo) -> None:
    numbers = range(1, 7 if FULL else 4)
    script = """
for n in $2; do
    echo "$1 $n" > "file-$1"; git envlog capture "$1 $n" --porcelain >> "../taken-$1" || exit 1
    git envlog drop @~1 >/dev/null 2>>../complaints
    git envlog name "name-$1-$n" @ >/dev/null 2>>../complaints
done
"""
    take(repo, 2)
    words = [["sh", "-c", script, "sh", one, " ".join(map(str, numbers))] for one in ("a", "b")]
    running = [subprocess.Popen(one, cwd=repo.path, env=repo.env) for one in words]
    assert [one.wait() for one in running] == [0, 0]
    taken = {line for one in "ab" for line in (repo.path.parent / f"taken-{one}").read_text().split()}
    history = open_history(repo)
    left = {one.id for one in history.log()}
    trash = {one.snapshot.id for one in history.dropper.trash()}
    assert taken <= left | trash
    assert not left & trash
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    names = {name for one in history.log() for name in one.names}
    names |= {name for one in history.dropper.trash() for name in one.snapshot.names}
    assert {f"name-{one}-{number}" for one in "ab" for number in numbers} <= names


def test_name_is_dropped_and_restored_with_its_snapshot(repo: Repo) -> None:
    first, second, third = take(repo, 3)
    for one in (first, second):
        repo.run("envlog", "name", "working", one.id, check=True)
    assert "working" in repo.run("envlog", "drop", "working", check=True).out
    gone = repo.run("envrestore", "-n", "working")
    assert (gone.status, gone.out) == (4, "")
    assert "working" not in repo.run("envlog", check=True).out
    # A name that was moved is not restored with the snapshot; others are.
    assert [one.names for one in open_history(repo).log()] == [("n2",), ("n0",)]
    repo.run("envlog", "undrop", "working", check=True)
    assert open_history(repo).resolve("working").id == second.id
    assert open_history(repo).resolve("n0").id == first.id
    repo.run("envlog", "name", "working", third.id, check=True)
    repo.run("envlog", "drop", third.id, check=True)
    repo.run("envlog", "undrop", third.id, check=True)
    assert open_history(repo).resolve("working").id == third.id
