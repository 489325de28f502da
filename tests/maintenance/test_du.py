"""Sizes printed by `git envlog du` match the freed space; judged by git, object by object."""

from __future__ import annotations

import json
import subprocess

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot
from tests.cli.test_json import validate
from tests.maintenance.test_collect import size_of, take_snapshot
from tests.objects.packing import noise
from tests.support.repository import Repo


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def taken_by(repo: Repo) -> dict[str, int]:
    """Return the size of each object in git-envhist's packs, as printed by git."""
    output = repo.git(
        "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objectsize:disk)"
    )
    return {line.split()[0]: int(line.split()[1]) for line in output.splitlines()}


def reached(repo: Repo, *words: str) -> set[str]:
    return {line.split()[0] for line in repo.git("rev-list", "--objects", *words).splitlines()}


def three(repo: Repo, history: EnvHistory) -> list[Snapshot]:
    moments = []
    repo.write("src/kept.py", "kept\n" * 40)
    for number in range(3):
        repo.write(f"node_modules/m{number % 2}/index.js", noise(40_000, number))
        repo.write("app.db", noise(9_000, 10 + number))
        moments.append(take_snapshot(history, f"moment {number}"))
    return moments


def test_size_of_a_snapshot_equals_the_space_freed_by_its_drop(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    sizes = taken_by(repo)
    trees = [f"{one.commit}^{{tree}}" for one in moments]
    middle = reached(repo, trees[1]) - reached(repo, trees[0]) - reached(repo, trees[2])

    rows = {row.name: row for row in history.du().by_snapshot}

    assert rows[moments[1].id].frees == sum(sizes[oid] for oid in middle) + sizes[moments[1].commit]
    assert rows[moments[1].id].frees > 9_000
    # Its large files are also in the neighbouring snapshots.
    assert rows[moments[1].id].frees < 40_000 < rows[moments[2].id].frees


def test_directory_frees_the_size_of_its_objects(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    repo.write("src/twin.js", repo.read("node_modules/m1/index.js"))
    moments.append(take_snapshot(history, "one of them stands elsewhere, too"))
    sizes = taken_by(repo)
    everything = {oid for one in moments for oid in reached(repo, f"{one.commit}^{{tree}}")}
    modules = {oid for one in moments for oid in reached(repo, f"{one.commit}:node_modules")}
    twin = repo.git("rev-parse", f"{moments[-1].commit}:src/twin.js")

    space = history.du()
    found = {row.name: row for row in space.by_directory}
    below = [row for name, row in found.items() if name.startswith("node_modules")]

    only = sum(sizes[oid] for oid in modules if oid != twin)
    assert sum(row.holds for row in below) >= sum(sizes[oid] for oid in modules)
    assert only <= sum(row.frees for row in below) < only + 3_000
    assert only <= (history.du(paths=[b"node_modules"]).together or 0) < only + 3_000
    assert sum(row.frees for row in space.by_class) <= sum(sizes[oid] for oid in everything) + 3_000
    classes = {row.name: row.holds for row in space.by_class}
    assert classes["packages"] >= 3 * 40_000
    assert 3 * 9_000 <= classes["databases"] < 4 * 9_000
    assert "files" in classes


def test_snapshots_free_more_together_than_alone(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    alone = {row.name: row.frees for row in history.du().by_snapshot}
    chosen = [moments[1].id, moments[2].id]

    together = history.du(*chosen).together

    assert together is not None
    assert together > sum(alone[one] for one in chosen)
    before = sum(taken_by(repo).values())
    history.drop(*chosen)
    in_trash = history.du()
    assert abs(in_trash.trash_frees - together) < 2_000
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").split():
        repo.git("update-ref", "-d", ref)
    history.gc("now")
    assert before - sum(taken_by(repo).values()) > 0.9 * together


def test_objects_that_the_user_reaches_are_not_freed(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(50_000))
    one = take_snapshot(history, "before it is committed")
    assert history.du(one.id).together > 50_000
    repo.git("add", "large")
    repo.git("commit", "-q", "-m", "large")
    output = history.du(one.id).together
    assert output is not None
    assert output < 10_000


def test_chunks_of_a_big_file_count_for_its_directory(repo: Repo, history: EnvHistory) -> None:
    repo.write("data/big.bin", noise(9 << 20))
    repo.write("other/small", b"x")
    take_snapshot(history, "big")
    rows = {row.name: row for row in history.du().by_directory}
    assert rows["data"].frees > 9 << 20
    assert rows["other"].frees < 2_000
    assert (history.du(paths=[b"data/big.bin"]).together or 0) > 9 << 20


def test_du_prints_text_and_json(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    output = repo.run("git-envlog", "du", "-n", "2", check=True).out
    assert "3 snapshots" in output
    assert "node_modules" in output
    assert "and 1 more" in output
    assert "uses" in output
    asked = repo.run("git-envlog", "du", moments[0].id[:8], check=True).out
    assert asked.startswith(f"dropping {moments[0].id[:8]} would free ")
    assert repo.run("git-envlog", "du", "--", "app.db", check=True).out.startswith(
        "the history without app.db"
    )
    data = json.loads(repo.run("git-envlog", "du", "--json", check=True).out)
    validate("space", data)
    assert len(data["by_moment"]) == data["moments"] == 3
    assert data["together"] is None
    size = sum(
        path.stat().st_size
        for path in (repo.path / ".git/objects/pack").iterdir()
        if path.suffix in (".pack", ".idx")
    )
    assert data["bytes"] == size


def test_empty_history_uses_no_space(repo: Repo) -> None:
    assert "0 B in 0 packs" in repo.run("git-envlog", "du", check=True).out
    subprocess.run(["git", "status"], cwd=repo.path, check=True, capture_output=True)


def test_base_of_deltas_is_freed_in_part(repo: Repo, history: EnvHistory) -> None:
    for number in range(4):
        repo.write("large", noise(60_000, 9) + noise(3_000, number))
        take_snapshot(history, f"{number}")
    history.gc("now")
    said = history.du("@").together
    before = size_of(repo)

    history.drop("@")
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/trash").split():
        repo.git("update-ref", "-d", ref)
    history.gc("now")

    assert said is not None
    assert abs(said - (before - size_of(repo))) < 1_500
    assert said < 20_000
