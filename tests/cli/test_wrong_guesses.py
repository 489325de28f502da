"""Guesses of a git user who has not read the manual, each answered with the right command."""

from __future__ import annotations

import pytest

from tests.support.repository import Repo

DAY = "2026-11-18"


def capture(repo: Repo, intent: str, *words: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, *words, check=True).out.strip()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("envlog", "history"), "did you mean 'git envlog'?"),
        (("envlog", "take"), "did you mean 'git envlog capture'?"),
        (("envlog", "back", "@~1"), "did you mean 'git envrestore'?"),
        (("envlog", "test"), "did you mean 'git envlog verify'?"),
        (("envlog", "--max", "3"), "did you mean '--max-count'?"),
        (("envlog", "--limit", "3"), "git envlog -n 3"),
        (("envlog", "-n", "x"), "-n <n>: list at most <n>; also -<n>"),
        (("envlog", "show", "--stat"), "git envlog -1 --stat <rev>"),
        (
            ("envlog", "capture", "-a", "-m", "x"),
            "a snapshot contains all files, tracked or not: git envlog capture '<intent>'",
        ),
        (("envdiff", "--cached"), "snapshots do not include git's index: git envdiff"),
        (("envrestore", "@", "--dry"), "did you mean '--dry-run'?"),
        (("envrestore", "--source=@", "x"), "the snapshot comes first: git envrestore <rev> -- <path>"),
        (("envrestore", "-s", "@", "x"), "the snapshot comes first: git envrestore <rev> -- <path>"),
        (
            ("envrestore", "-p", "@"),
            "whole files are restored: git envdiff -p <rev> -- <path> shows the changes",
        ),
        (("envlog", "name", "-l"), "git envlog name lists all names"),
        (("envlog", "export", "-o", "x", "@"), "the file comes first: git envlog export <file> [<rev>...]"),
        (("envdiff", "@~1...@"), "timelines have no branches; to compare the two ends: @~1..@"),
        (
            ("envrestore", "--hard"),
            "git envrestore @ restores the newest snapshot; your files are saved first",
        ),
    ],
)
def test_option_of_another_tool_gets_a_hint(repo: Repo, words: tuple[str, ...], hint: str) -> None:
    done = repo.run(*words)
    assert (done.status, done.err.splitlines()[1]) == (129, f"hint: {hint}")


def test_check_without_dashes_gets_a_hint(repo: Repo) -> None:
    capture(repo, "one")
    done = repo.run("envlog", "verify", "test -f app.py")
    assert done.err.splitlines()[1] == "hint: a check goes after '--': git envlog verify -- test -f app.py"
    assert "lists every snapshot" in repo.run("envlog", "verify", "no-such-program").err


@pytest.mark.parametrize("words", [("--to", "../there"), ("--only=env",), ("--keep-tracked",), ("--verify",)])
def test_restore_options_without_snapshot_are_a_usage_error(repo: Repo, words: tuple[str, ...]) -> None:
    capture(repo, "one")
    done = repo.run("envrestore", *words)
    assert (done.status, done.err.splitlines()[0]) == (129, "error: no snapshot given")
    assert not (repo.path / "../there").exists()


def test_restore_to_a_directory_names_it(repo: Repo) -> None:
    made = capture(repo, "one")
    done = repo.run("envrestore", "@", "--to", "../there", check=True)
    assert done.out.startswith(f"wrote {made[:7]} into '{repo.path.parent}/there' in ")


def test_restore_that_only_removes_verifies_nothing(repo: Repo) -> None:
    capture(repo, "one")
    repo.write("more", "1\n")
    done = repo.run("envrestore", "@", check=True)
    assert "\nrestored in " in done.out
    assert "verified" not in done.out


def test_failed_command_of_run_prints_its_status(repo: Repo) -> None:
    assert repo.run("envlog", "run", "--", "sh", "-c", "exit 3").err.endswith(
        "\n the command ended with status 3\n"
    )
    assert "exit" not in repo.run("envlog", "run", "--", "true", check=True).err


def test_snapshot_has_the_same_title_everywhere(repo: Repo) -> None:
    first = capture(repo, "clean")
    repo.write("app.py", "2\n")
    repo.run("envrestore", first, check=True)
    words = f"restore of {first[:7]}"
    assert f"· {words}" in repo.run("envlog", "-1", check=True).out
    assert words in repo.run("envlog", "name", "again", check=True).out
    assert words in repo.run("envlog", "name", check=True).out
    assert words in repo.run("envlog", "note", "-m", "x", check=True).out
    assert words in repo.run("envlog", "verify", "--", "true", check=True).out
    assert words in repo.run("envlog", "du", check=True).out
    repo.write("app.py", "3\n")
    assert f'"{words}" (' in repo.run("envrestore", "-n", "again", check=True).out
    assert words in repo.run("envlog", "drop", "-n", "again", check=True).out


def test_capture_prints_the_title_of_the_list(repo: Repo) -> None:
    repo.git("commit", "-q", "--allow-empty", "-m", "add a login")
    first = repo.run("envlog", "capture", check=True).out.splitlines()[0]
    assert first.endswith("] capture: add a login")
    assert "capture: add a login" in repo.run("envlog", "-1", check=True).out
    assert repo.run("envlog", "capture", "mine", check=True).out.splitlines()[0].endswith("] mine")


def test_symbol_in_the_list_is_of_the_snapshots_own_check(repo: Repo) -> None:
    capture(repo, "good", "--verify", "true")
    repo.run("envlog", "run", "--", "false")
    ran, checked = repo.run("envlog", check=True).out.splitlines()
    assert (ran.split()[2], checked.split()[2]) == ("·", "✓")
    assert "✓ as at " in ran
    assert ran.endswith(" exit 1")


def test_time_in_braces_ends_at_its_brace(repo: Repo) -> None:
    for minute, intent in (("10:02", "one"), ("10:10", "two"), ("10:20", "three")):
        repo.write("app.py", intent)
        repo.run(
            "envlog", "capture", intent, env={"GIT_COMMITTER_DATE": f"{DAY}T{minute}:00+00:00"}, check=True
        )
    now = {"GIT_COMMITTER_DATE": f"{DAY}T12:00:00+00:00"}
    listed = repo.run("envlog", "--format=%s", "@{10:02}..@{10:10}", env=now, check=True).out
    assert listed == "two\n"
    assert repo.run("envlog", "--format=%s", "@{10:02}..", env=now, check=True).out == "three\ntwo\n"
    assert repo.run("envlog", "show", "@{10:02}:app.py", env=now, check=True).out == "one"
    assert "not in this snapshot: 'none'" in repo.run("envlog", "show", "@{10:02}:none", env=now).err
