"""Captures during a merge, rebase, bisect etc. are complete and do not disturb the operation."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.end_to_end.captures import assert_holds, capture
from tests.hygiene.user_data import belongings
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

State = Callable[[Repo], object]


def two_sides(repo: Repo) -> None:
    """Change the same line on `main` and on `side`."""
    repo.git("checkout", "-q", "-b", "side")
    repo.write("app.py", b"print('side')\n")
    repo.commit("side")
    repo.git("checkout", "-q", "main")
    repo.write("app.py", b"print('main')\n")
    repo.commit("main")


def merge(repo: Repo) -> None:
    two_sides(repo)
    assert repo.run_git("merge", "side", check=False).status == 1


def rebase(repo: Repo) -> None:
    two_sides(repo)
    assert repo.run_git("rebase", "side", check=False).status == 1


def cherry_pick(repo: Repo) -> None:
    two_sides(repo)
    assert repo.run_git("cherry-pick", "side", check=False).status == 1


def revert(repo: Repo) -> None:
    two_sides(repo)
    repo.write("app.py", b"print('more')\n")
    repo.commit("more")
    assert repo.run_git("revert", "--no-edit", "HEAD~1", check=False).status == 1


def mailed(repo: Repo) -> None:
    two_sides(repo)
    patch = repo.run_git("format-patch", "--stdout", "main..side").stdout
    assert repo.run_git("am", "-3", "-q", input=patch, check=False).status != 0


def bisect(repo: Repo) -> None:
    for number in range(4):
        repo.write("app.py", f"print({number})\n")
        repo.commit(f"{number}")
    repo.git("bisect", "start", "HEAD", "HEAD~3")


def detached(repo: Repo) -> None:
    two_sides(repo)
    repo.git("checkout", "-q", "--detach", "side")


def unborn(repo: Repo) -> None:
    repo.git("checkout", "-q", "--orphan", "feature/x")


def intent_to_add(repo: Repo) -> None:
    repo.write("later", b"1\n")
    repo.git("add", "--intent-to-add", "later")


# The command that ends each state.
STATES: dict[State, tuple[str, ...]] = {
    merge: ("merge", "--abort"),
    rebase: ("rebase", "--abort"),
    cherry_pick: ("cherry-pick", "--abort"),
    revert: ("revert", "--abort"),
    mailed: ("am", "--abort"),
    bisect: ("bisect", "reset"),
    detached: ("checkout", "-q", "main"),
    unborn: ("checkout", "-q", "-f", "main"),
    intent_to_add: ("reset", "-q"),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_capture_during_a_git_operation_is_complete_and_does_not_disturb_it(repo: Repo, state: State) -> None:
    state(repo)
    before = belongings(repo)
    snapshot = capture(repo, "in the middle")
    assert belongings(repo) == before
    assert_holds(repo, snapshot)
    card = json.loads(repo.run("envlog", "show", "--json", check=True).out)
    on = repo.git("symbolic-ref", "-q", "HEAD", check=False) or None
    at = repo.git("rev-parse", "-q", "--verify", "HEAD", check=False) or None
    assert (card["branch"], card["head"]) == (on, at)
    assert repo.run("envdiff", "--exit-code").status == 0
    repo.git(*STATES[state])
    assert git_fsck(repo.path) == ""
