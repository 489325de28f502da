"""A list has one line for all captures of one turn of an agent, and with --no-fold one for each capture."""

from __future__ import annotations

import json

import pytest

from git_envhist.api import EnvHistory
from git_envhist.git.current_actor import current_actor
from git_envhist.lazy import replace
from git_envhist.model import IntentSource, Snapshot, Trigger
from tests.end_to_end.captures import capture
from tests.support.repository import Repo

FIRST, SECOND = "tidy the parser", "and the printer"


def by_agent(repo: Repo, turn: int, prompt: str, session: str = "s-1") -> Snapshot:
    """Capture like an agent's hook."""
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    person = current_actor(history.settings, repo.env)
    taken = history.capture(
        prompt,
        intent_source=IntentSource.AGENT,
        trigger=Trigger.AGENT,
        actor=replace(person, agent="claude-code", session=session),
        meta=(("agent-turn", str(turn)),),
    ).snapshot
    assert taken is not None
    return taken


@pytest.fixture
def turns(repo: Repo) -> tuple[Repo, list[str]]:
    """Capture once by hand, three times in one turn that changed one file twice and added others, and once in the
    next turn."""
    ids = [capture(repo, "by hand")]
    for text, new in ((b"1\n", "one"), (b"2\n", None), (b"3\n", "two")):
        repo.write("app.py", text)
        if new is not None:
            repo.write(new, b"new\n")
        ids.append(by_agent(repo, 1, FIRST).id)
    repo.write("app.py", b"4\n")
    ids.append(by_agent(repo, 2, SECOND).id)
    return repo, ids


def lines(repo: Repo, *words: str) -> list[str]:
    return repo.run("envlog", *words, check=True).out.splitlines()


def test_captures_of_a_turn_are_one_line(turns: tuple[Repo, list[str]]) -> None:
    repo, ids = turns
    second, first, by_hand = lines(repo)
    assert (second[:7], first[:7], by_hand[:7]) == (ids[4][:7], ids[3][:7], ids[0][:7])
    # The summary describes the whole turn: a file that changed twice counts once.
    assert first.endswith("+2 ~1 files · 3 captures")
    assert second.endswith("~1 file")
    output = repo.run("envdiff", "--stat", ids[0], ids[3], check=True).out
    assert all(name in output for name in ("app.py", "one", "two"))
    assert [line[:7] for line in lines(repo, "--no-fold")] == [one[:7] for one in reversed(ids)]
    assert len(lines(repo, "--oneline")) == 3


def test_number_limits_the_folded_lines(turns: tuple[Repo, list[str]]) -> None:
    repo, ids = turns
    assert [line[:7] for line in lines(repo, "-2")] == [ids[4][:7], ids[3][:7]]
    assert lines(repo, "-2")[1].endswith("3 captures")
    assert [line[:7] for line in lines(repo, "-2", "--reverse")] == [ids[3][:7], ids[4][:7]]
    assert lines(repo, "-0") == []


def test_machine_readable_lists_and_searches_have_every_capture(turns: tuple[Repo, list[str]]) -> None:
    repo, ids = turns
    newest_first = [*reversed(ids)]
    assert lines(repo, "--format=%H") == newest_first
    assert [one["id"] for one in json.loads("\n".join(lines(repo, "--json")))] == newest_first
    assert [line[:7] for line in lines(repo, "--", "one", "two")] == [ids[3][:7], ids[1][:7]]


def test_named_capture_has_its_own_line(turns: tuple[Repo, list[str]]) -> None:
    repo, ids = turns
    repo.run("envlog", "name", "half-way", ids[2], check=True)
    assert [line[:7] for line in lines(repo)] == [one[:7] for one in (ids[4], ids[3], ids[2], ids[0])]
    assert lines(repo)[2].endswith("2 captures")


def test_changes_of_a_turn_are_counted_from_the_first_snapshot(repo: Repo) -> None:
    repo.write("app.py", b"1\n")
    first = by_agent(repo, 1, FIRST).id
    for name in ("one", "two"):
        repo.write(name, b"new\n")
        newest = by_agent(repo, 1, FIRST).id
    turn, begun = lines(repo)
    assert (turn[:7], begun[:7]) == (newest[:7], first[:7])
    assert turn.endswith("+2 files · 2 captures")
    assert begun.endswith("  1 file in all")


def test_two_sessions_are_two_turns(repo: Repo) -> None:
    capture(repo, "by hand")
    for session in ("s-1", "s-2"):
        repo.write("app.py", session.encode())
        by_agent(repo, 1, FIRST, session)
    assert len(lines(repo)) == 3


def test_restore_and_its_safety_snapshot_are_one_line_if_the_state_was_known(repo: Repo) -> None:
    repo.write(".env", "A=1\n")
    goal = capture(repo, "all set up")
    repo.write(".env", "A=2\n")
    for words in (("envrestore", goal), ("envlog", "undo"), ("envlog", "redo")):
        repo.run(*words, check=True)
    told = [" ".join(line.split()[3:]) for line in lines(repo)]
    told_ids = [line.split()[0] for line in lines(repo)]
    assert told == [
        f"redo of {told_ids[2]} ~1 file · .env: ~1 variable",
        f"undo of {told_ids[2]} ~1 file · .env: ~1 variable",
        f"restore of {goal[:7]} ~1 file · .env: ~1 variable",
        # A state that no earlier snapshot has gets its own line.
        f"before the restore of {goal[:7]} ~1 file · .env: ~1 variable",
        told[-1],
    ]
    every = lines(repo, "--no-fold")
    assert [len(every), len(lines(repo, "--json=lines"))] == [7, 7]
    assert [one[:7] for one in lines(repo, "-3")] == [every[at][:7] for at in (0, 2, 4)]
    undone = [line.split()[0] for line in every if "undo of" in line]
    assert lines(repo, "--format=%h", ":/undo of", "-1") == undone
    # A safety snapshot with a name has its own line.
    repo.run("envlog", "name", "kept", every[1].split()[0], check=True)
    assert len(lines(repo)) == 6


def test_list_has_day_headings_and_folds_captures_of_hooks(repo: Repo) -> None:
    yesterday = {"GIT_COMMITTER_DATE": "2020-02-03 10:00:00 +0000"}
    repo.run("envlog", "capture", "old", env=yesterday, check=True)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for number in range(3):
        repo.write("app.py", f"{number}\n")
        history.capture(trigger=Trigger.COMMIT)
    today, run, gap, day, old = lines(repo)
    assert today.endswith(", today")
    assert run.endswith("commit: first commit  ~3 files · 3 snapshots")
    assert (gap, day) == ("", "2020-02-03 Monday")
    assert old.split()[1:] == ["10:00", "·", "old", "1", "file", "in", "all"]
    assert len(lines(repo, "--fold", "--format=%h")) == 2
    assert len(lines(repo, "--format=%h")) == 4
    assert "2020-02-03 10:00" in lines(repo, "--oneline", "--format=%(time)")[-1]
