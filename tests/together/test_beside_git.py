"""Captures during git's own maintenance and everyday commands, and next to files that a killed git left behind.

`python -m tests.together.campaign` takes many more captures.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.git.running_git import gits_at_work
from git_envhist.maintenance.merge_packs import MAX_PACKS
from tests.end_to_end.captures import assert_holds, capture, history
from tests.support.oracle import git_fsck
from tests.support.repository import Repo
from tests.together.campaign import Outcome, run
from tests.together.neighbours import CLEANING, LOOKING, WORKING, Neighbour, beside, upstream

LEFT_BY_GIT = (
    "gc.pid",
    "gc.pid.lock",
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "shallow.lock",
    "objects/maintenance.lock",
    "objects/info/commit-graph.lock",
    "objects/info/commit-graphs/commit-graph-chain.lock",
    "objects/pack/multi-pack-index.lock",
    "objects/pack/tmp_pack_AbCdEf",
    "objects/pack/tmp_idx_AbCdEf",
    "objects/pack/.tmp-4711-pack-0123456789.pack",
    "objects/12/tmp_obj_AbCdEf",
    "refs/heads/main.lock",
    "refs/envhist/heads/tmp_renamed_ref",
)


@pytest.mark.full
def test_captures_and_git_commands_of_one_person_all_succeed(repo: Repo) -> None:
    upstream(repo)
    outcome = Outcome("person")
    words = [*CLEANING[:7], LOOKING[3], *CLEANING[7:], *WORKING[:4], LOOKING[-1]]
    run(repo, [Neighbour(repo, words)], 30, outcome)
    assert outcome.captures == 30
    assert outcome.commands >= len(words)
    assert outcome.wrong == []


def test_files_left_by_a_killed_git_block_no_capture_and_are_not_changed(repo: Repo) -> None:
    capture(repo, "-m", "before")
    left = [repo.path / ".git" / name for name in LEFT_BY_GIT]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half of something")
        os.utime(path, (0, 0))
    for step in range(MAX_PACKS + 2):
        taken = capture_here(repo, step)
    assert_holds(repo, taken)
    assert len(history(repo)) == MAX_PACKS + 3
    assert [path.read_bytes() for path in left] == [b"half of something"] * len(left)
    assert packs(repo) <= MAX_PACKS


def capture_here(repo: Repo, step: int) -> str:
    """Write new content and capture it in this process."""
    repo.write("env/state", f"{step}")
    snapshot = EnvHistory.open(str(repo.path), workers="here").capture(f"step {step}").snapshot
    assert snapshot is not None
    return str(snapshot.id)


def packs(repo: Repo) -> int:
    return len(list((repo.path / ".git/objects/pack").glob("*.keep")))


@pytest.mark.skipif(gits_at_work("/", []) is None, reason="this system does not list processes")
def test_packs_are_not_merged_while_a_git_process_lists_them(repo: Repo) -> None:
    words = ["git", "-C", str(repo.path), "pack-objects", "--quiet", "--all", "--stdout", "--revs"]
    packing = subprocess.Popen(words, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=repo.env)
    try:
        for step in range(MAX_PACKS + 1):
            capture_here(repo, step)
        assert packs(repo) > MAX_PACKS
    finally:
        packing.communicate()
    assert packing.returncode == 0
    capture_here(repo, MAX_PACKS + 1)
    assert packs(repo) <= MAX_PACKS
    assert git_fsck(repo.path) == ""


def test_multi_pack_index_without_the_newest_pack_does_not_cut_the_timeline(repo: Repo) -> None:
    known = [capture_here(repo, step) for step in range(3)][::-1]
    repo.git("multi-pack-index", "write")
    index = repo.path / ".git/objects/pack/multi-pack-index"
    stale = index.read_bytes()
    for step in range(3, MAX_PACKS + 3):
        known.insert(0, capture_here(repo, step))
    # Write the index as a git would that listed the packs before they were merged.
    index.write_bytes(stale)
    known.insert(0, capture_here(repo, MAX_PACKS + 3))
    assert history(repo) == known
    assert git_fsck(repo.path) == ""


@pytest.mark.parametrize("number", [MAX_PACKS + 8])
def test_packs_of_captures_do_not_trigger_git_gc(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("git_envhist.maintenance.merge_packs.merge_packs_after", lambda repository: None)
    for step in range(number):
        capture_here(repo, step)
    assert packs(repo) >= number
    few = ("-c", "gc.auto=100", "-c", f"gc.autoPackLimit={number // 2}", "-c", "gc.autoDetach=false")
    before = _files(repo)
    assert repo.run_git(*few, "gc", "--auto").err == ""
    assert _files(repo) == before


def _files(repo: Repo) -> list[Path]:
    return sorted((repo.path / ".git/objects").rglob("*"))


def test_merge_rebase_and_amend_keep_intents_names_and_notes(repo: Repo) -> None:
    first = capture(repo, "-m", "the intent")
    repo.run("envlog", "name", "kept", first, check=True)
    repo.run("envlog", "note", first, "-m", "a remark", check=True)
    upstream(repo)
    with beside([Neighbour(repo, WORKING)]):
        pass
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    card = repo.run("envlog", "show", "kept", check=True).out
    assert "the intent" in card
    assert "a remark" in card
