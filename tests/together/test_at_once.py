"""Several captures of one repository at the same time: each succeeds, each is listed, none is lost or mixed up."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.end_to_end.captures import capture
from tests.hygiene.user_data import worktree
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

CAPTURE = ("git-envlog", "capture", "--porcelain", "-m")
ROUNDS = 2
WAITING = "waiting for another capture of this working tree to finish\n"

Ended = tuple[int, str, str]
"""Status, output, error output."""


def at_once(commands: Sequence[tuple[Repo, tuple[str, ...]]]) -> list[Ended]:
    """Start all commands, then wait until all have ended."""
    running = [
        subprocess.Popen(
            words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for repo, words in commands
    ]
    said = [process.communicate() for process in running]
    return [(process.returncode, out.strip(), err) for process, (out, err) in zip(running, said, strict=True)]


def listed(repo: Repo) -> list[str]:
    return repo.run("envlog", "--format=%H", check=True).out.split()


def test_four_captures_of_a_working_tree_wait_for_each_other(repo: Repo) -> None:
    taken: list[str] = []
    for turn in range(ROUNDS):
        repo.write("env/turn", f"{turn}")
        ended = at_once([(repo, (*CAPTURE, f"turn {turn}, {number}")) for number in range(4)])
        assert [status for status, _, _ in ended] == [0] * 4, ended
        assert {line for _, _, err in ended for line in err.splitlines(keepends=True)} <= {WAITING}
        taken += [out for _, out, _ in ended]
    assert sorted(listed(repo)) == sorted(taken)
    assert len(set(taken)) == 4 * ROUNDS
    for number, commit in enumerate(reversed(listed(repo))):
        assert repo.git("show", f"{commit}:env/turn") == f"{number // 4}"
    assert git_fsck(repo.path) == ""


def test_three_working_trees_named_and_noted_at_once_keep_a_timeline_each(repo: Repo) -> None:
    trees = [repo, worktree(repo, "left", "left"), worktree(repo, "right", "right")]
    taken = [[capture(tree, "-m", "first")] for tree in trees]
    for turn in range(ROUNDS):
        commands: list[tuple[Repo, tuple[str, ...]]] = []
        for number, tree in enumerate(trees):
            tree.write("env/tree", f"{number} {turn}")
            commands += [
                (tree, (*CAPTURE, f"turn {turn}")),
                (tree, ("git-envlog", "name", f"name-{turn}", taken[number][0])),
                (tree, ("git-envlog", "note", taken[number][0], "-m", f"remark {turn}")),
            ]
        ended = at_once(commands)
        assert [status for status, _, _ in ended] == [0] * len(commands), ended
        for number in range(len(trees)):
            taken[number].append(ended[3 * number][1])
    for number, tree in enumerate(trees):
        assert listed(tree) == taken[number][::-1]
        for turn, commit in enumerate(taken[number][1:]):
            assert tree.git("show", f"{commit}:env/tree") == f"{number} {turn}"
        card = tree.run("envlog", "show", taken[number][0], check=True).out
        assert all(f"name-{turn}" in card and f"remark {turn}" in card for turn in range(ROUNDS))
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").splitlines()
    assert len(refs) == len(trees)
    assert git_fsck(repo.path) == ""
