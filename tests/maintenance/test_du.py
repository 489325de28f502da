"""What `git envlog du` says would come back does come back; judged by git, object by object."""

from __future__ import annotations

import json
import subprocess

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot
from tests.cli.test_json import validate
from tests.maintenance.test_collect import moment, size_of
from tests.objects.packing import noise
from tests.support.repository import Repo


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def taken_by(repo: Repo) -> dict[str, int]:
    """What each object in our packs takes there, as git tells it."""
    told = repo.git(
        "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objectsize:disk)"
    )
    return {line.split()[0]: int(line.split()[1]) for line in told.splitlines()}


def reached(repo: Repo, *words: str) -> set[str]:
    return {line.split()[0] for line in repo.git("rev-list", "--objects", *words).splitlines()}


def three(repo: Repo, history: EnvHistory) -> list[Snapshot]:
    moments = []
    repo.write("src/kept.py", "kept\n" * 40)
    for number in range(3):
        repo.write(f"node_modules/m{number % 2}/index.js", noise(40_000, number))
        repo.write("app.db", noise(9_000, 10 + number))
        moments.append(moment(history, f"moment {number}"))
    return moments


def test_what_a_moment_frees_is_what_comes_back_when_it_goes(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    sizes = taken_by(repo)
    trees = [f"{one.commit}^{{tree}}" for one in moments]
    middle = reached(repo, trees[1]) - reached(repo, trees[0]) - reached(repo, trees[2])

    rows = {row.name: row for row in history.du().by_moment}

    assert rows[moments[1].id].frees == sum(sizes[oid] for oid in middle) + sizes[moments[1].commit]
    assert rows[moments[1].id].frees > 9_000
    # Its large files are in the moments beside it, too.
    assert rows[moments[1].id].frees < 40_000 < rows[moments[2].id].frees


def test_what_a_directory_frees_is_what_its_objects_take(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    repo.write("src/twin.js", repo.read("node_modules/m1/index.js"))
    moments.append(moment(history, "one of them stands elsewhere, too"))
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


def test_what_moments_free_together_is_more_than_each_alone(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    alone = {row.name: row.frees for row in history.du().by_moment}
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


def test_what_the_user_holds_too_is_not_freed(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(50_000))
    one = moment(history, "before it is committed")
    assert history.du(one.id).together > 50_000
    repo.git("add", "large")
    repo.git("commit", "-q", "-m", "large")
    told = history.du(one.id).together
    assert told is not None
    assert told < 10_000


def test_the_pieces_of_a_big_file_belong_to_its_directory(repo: Repo, history: EnvHistory) -> None:
    repo.write("data/big.bin", noise(9 << 20))
    repo.write("other/small", b"x")
    moment(history, "big")
    rows = {row.name: row for row in history.du().by_directory}
    assert rows["data"].frees > 9 << 20
    assert rows["other"].frees < 2_000
    assert (history.du(paths=[b"data/big.bin"]).together or 0) > 9 << 20


def test_the_words_and_the_json(repo: Repo, history: EnvHistory) -> None:
    moments = three(repo, history)
    told = repo.run("git-envlog", "du", "-n", "2", check=True).out
    assert "3 moments" in told
    assert "node_modules" in told
    assert "and 1 more" in told
    assert "holds" in told
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


def test_an_empty_history_holds_nothing(repo: Repo) -> None:
    assert "0 B in 0 packs" in repo.run("git-envlog", "du", check=True).out
    subprocess.run(["git", "status"], cwd=repo.path, check=True, capture_output=True)


def test_what_others_are_differences_of_comes_back_in_part(repo: Repo, history: EnvHistory) -> None:
    for number in range(4):
        repo.write("large", noise(60_000, 9) + noise(3_000, number))
        moment(history, f"{number}")
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
