"""`git envlog why` and `git envlog blame`: paths, lines, facts and rows, also with hostile contents."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.test_json import validate
from tests.support.repository import Repo

ESC = "\x1b[2Jx\u202e"


@pytest.fixture
def told(repo: Repo) -> Repo:
    """Return a repository with an ignored file, variables, rows and a rename in four snapshots."""
    repo.write(".gitignore", "build/\n")
    repo.write("build/out", "one\ntwo\nthree\n")
    repo.write(".env", "KEY=hunter2hunter2\n")
    with sqlite3.connect(repo.path / "app.db") as base:
        base.execute("create table users (id integer primary key, name text)")
        base.execute("insert into users values (1, 'a'), (2, 'b')")
    repo.run("envlog", "capture", "-m", "first", check=True)
    repo.write("build/out", "one\nTWO\nthree\n")
    repo.write(".env", "KEY=hunter3hunter3\nMORE=hunter4hunter4\n")
    repo.run("envlog", "capture", "-m", f"second {ESC}", check=True)
    with sqlite3.connect(repo.path / "app.db") as base:
        base.execute("update users set name = 'c' where id = 2")
    (repo.path / "build/out").rename(repo.path / "build/moved")
    repo.run("envlog", "capture", "-m", "third", check=True)
    repo.write("unrelated", "x")
    repo.run("envlog", "capture", "-m", "fourth", check=True)
    return repo


def titles(repo: Repo, *words: str) -> list[tuple[str, str]]:
    """Return (title, change) of each step as JSON tells them."""
    value = json.loads(repo.run("envlog", "why", "--json", *words, check=True).out)
    validate("why", value)
    return [(step["title"].split(" ")[0], step["change"]) for step in value["steps"]]


def test_path_is_followed_across_a_rename_also_if_it_is_ignored(told: Repo) -> None:
    assert titles(told, "build/moved") == [
        ("third", "renamed from build/out"),
        ("second", "modified"),
        ("first", "present"),
    ]
    assert titles(told, "-n1", "build/moved") == [("third", "renamed from build/out")]
    assert titles(told, "--at", "@~2", "build/out")[0] == ("second", "modified")


def test_line_names_the_step_that_brought_it(told: Repo) -> None:
    assert titles(told, "-n1", "build/moved:2") == [("second", "line 2 of build/out added or changed")]
    assert titles(told, "-n1", "build/moved:3") == [("first", "line 3 of build/out present")]
    # Lines are counted in the working tree, also if it has more of them.
    told.write("build/moved", "new\none\nTWO\nthree\n")
    assert titles(told, "-n1", "build/moved:3") == [("second", "line 2 of build/out added or changed")]
    changed = told.run("envlog", "why", "build/moved:1")
    assert (changed.status, "changed after the newest snapshot" in changed.err) == (129, True)
    assert "no such lines" in told.run("envlog", "why", "--at", "@", "build/moved:99").err


def test_line_of_a_sealed_file_names_the_step_that_brought_it(told: Repo) -> None:
    told.write(".env", "KEY=hunter3hunter3\nMORE=hunter5hunter5\n")
    told.run("envlog", "capture", "-m", "fifth", check=True)
    assert titles(told, "-n1", ".env:1")[0][0] == "second"
    assert titles(told, "-n1", ".env:2")[0][0] == "fifth"
    assert "no such lines: '9,9'" in told.run("envlog", "why", "--at", "@", ".env:9").err


def test_file_in_chunks_has_no_lines(told: Repo) -> None:
    told.git("config", "envhist.bigFile", "1m")
    told.write("big", "".join(f"{number:09}\n" for number in range(200_000)))
    told.run("envlog", "capture", "-m", "big", check=True)
    done = told.run("envlog", "why", "big:2")
    assert (done.status, "too large to compare its lines" in done.err) == (128, True)


def test_directory_has_no_lines(told: Repo) -> None:
    assert told.run("envlog", "why", "build:1").status == 4


def test_facts_and_rows_name_the_step_that_changed_them(told: Repo) -> None:
    assert titles(told, "--var", "KEY") == [("second", "~ KEY"), ("first", "present")]
    assert titles(told, "--var", "MORE") == [("second", "+ MORE")]
    assert titles(told, "--table", "users") == [("first", "present")]
    assert titles(told, "--row", "users:2") == [("third", "row changed"), ("first", "row present")]
    assert titles(told, "--row", "app.db/users:1") == [("first", "row present")]
    assert titles(told, "--path-gone", "build/out")[0] == ("third", "removed")


def test_no_value_of_a_variable_is_shown(told: Repo) -> None:
    for words in (("--var", "KEY"), ("--var", "KEY", "--json"), (".env", "--all"), (".env", "--json")):
        assert "hunter" not in told.run("envlog", "why", *words, check=True).out
    assert "hunter" not in told.run("envlog", "blame", ".env").err
    assert "hunter3" in told.run("envlog", "blame", "--reveal", ".env", check=True).out


def test_answer_has_the_commands_to_look_and_to_go_back(told: Repo) -> None:
    told.run("envlog", "verify", "@~2", "--", "true", check=True)
    out = told.run("envlog", "why", "-n1", "--at", "@~2", "build/out", check=True).out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "Call:      uncertain, between " in out
    ids = told.run("envlog", "--format=%H", check=True).out.split()
    old, new = ids[3][:12], ids[2][:12]
    assert f"Look:      git envdiff {old} {new} -- build/out\n" in out
    assert f"Go back:   git envrestore {old} -- build/out\n" in out
    assert f"Take back: git envlog revert {new} -- build/out\n" in out
    assert told.run("envdiff", old, new, "--", "build/out", check=True).out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "name one subject"),
        (("nowhere",), "no snapshot of this timeline has it: 'nowhere'"),
        (("--package", "flask"), "no snapshot of this timeline has it: 'flask'"),
        (("--row", "users"), "not a row: 'users'"),
        (("--row", "nobody:1"), "no snapshot of this timeline has this table: 'nobody'"),
        (("--var", "KEY", "a"), "name one subject"),
        (("gone:" + "9" * 5000,), "no snapshot of this timeline has it: 'gone:999"),
        (("gone:\u00b2",), "no snapshot of this timeline has it: 'gone:\u00b2'"),
        ((".",), "the whole environment: '.'"),
        (("-n0", "a"), "not a number of steps: 0"),
    ],
)
def test_question_without_an_answer_says_why(told: Repo, words: tuple[str, ...], error: str) -> None:
    done = told.run("envlog", "why", *words)
    assert done.status != 0
    assert f"error: {error}" in done.err


def test_blame_prints_snapshot_and_intent_of_each_line(told: Repo) -> None:
    ids = told.run("envlog", "--format=%H", check=True).out.split()
    out = told.run("envlog", "blame", "build/moved", check=True).out
    assert [line[:7] for line in out.splitlines()] == [ids[3][:7], ids[2][:7], ids[3][:7]]
    assert out.splitlines()[1].endswith("2) TWO")
    assert "\x1b" not in out
    assert told.run("envlog", "blame", "-L2,2", "build/moved", check=True).out.endswith("2) TWO\n")
    value = json.loads(told.run("envlog", "blame", "--json", "@~2", "build/out", check=True).out)
    validate("blame", value)
    assert [line["snapshot"] for line in value["lines"]] == [ids[3], ids[2], ids[3]]


def test_porcelain_blame_has_the_lines_of_git_blame(told: Repo) -> None:
    commit = told.run("envlog", "--format=%H", check=True).out.split()[0]
    ours = told.run("envlog", "blame", "--porcelain", "build/moved", check=True).out.splitlines()
    gits = told.git("blame", "--porcelain", commit, "--", "build/moved").splitlines()
    for opening in ("\t", "filename ", "boundary", commit[:3]):
        assert [line for line in ours if line.startswith(opening)] == [
            line for line in gits if line.startswith(opening)
        ]


def test_sealed_and_binary_and_huge_lines_are_blamed_safely(told: Repo) -> None:
    told.write("binary", bytes(range(256)) + b"\n" + b"x" * 300_000 + b"\n")
    told.write(b"caf\xe9 \x1b", "a\n")
    told.run("envlog", "capture", "-m", "odd", check=True)
    out = told.run("envlog", "blame", "binary", check=True).out
    assert "\x1b" not in out
    assert "\0" not in out
    odd = told.run("envlog", "blame", b"caf\xe9 \x1b", check=True).out
    assert odd.endswith(") a\n")
    assert "\x1b" not in told.run("envlog", "why", b"caf\xe9 \x1b", check=True).out
    sealed = told.run("envlog", "blame", "--reveal", ".env", check=True).out.splitlines()
    ids = told.run("envlog", "--format=%H", check=True).out.split()
    assert [line[:7] for line in sealed] == [ids[3][:7]] * 2


def test_paths_are_of_the_current_directory(told: Repo) -> None:
    below = Path(told.path, "build")
    out = told.run("envlog", "-C", str(below), "why", "-n1", "moved", check=True).out
    assert "-- build/moved" in out


def test_date_style_is_that_of_git(told: Repo) -> None:
    day = told.run("envlog", "--format=%cs", "-n1", check=True).out.strip()
    for words in (("why", "build/moved"), ("blame", "build/moved")):
        assert day in told.run("envlog", *words, "--date=short", check=True).out


def test_service_names_the_step_that_changed_it(told: Repo) -> None:
    told.git("config", "envhist.service.state.dump", "cat build/moved")
    told.run("envlog", "capture", "-m", "with-state", check=True)
    assert titles(told, "--service", "state")[0][0] == "with-state"


def test_failed_check_names_its_step_and_the_likeliest_changes(told: Repo) -> None:
    check = "grep -q hunter3 .env || { echo 'cannot read unrelated/thing.cfg'; exit 1; }"
    none = told.run("envlog", "why", "--failed")
    assert (none.status, "no snapshot failed a check" in none.err) == (4, True)
    told.run("envlog", "verify", "--", check, check=True)
    told.write(".env", "KEY=hunter9hunter9\nMORE=hunter4hunter4\n")
    told.write("other", "y")
    (told.path / "unrelated").unlink()
    told.write("unrelated/thing.cfg", "x")
    told.run("envlog", "capture", "-m", "breaks it", check=True)
    assert told.run("envlog", "verify", "--", check).status == 1
    out = told.run("envlog", "why", "--failed", check=True).out
    assert out.index("named in the failing output:\n  D unrelated\n  A unrelated/thing.cfg") < out.index(
        "setting:"
    )
    assert "  ~ env KEY\n" in out
    assert out.index("setting:") < out.index("file:")
    assert "hunter9" not in out
    value = json.loads(told.run("envlog", "why", "--failed", "--json", "-n1", check, check=True).out)
    validate("why_failed", value)
    assert [one["rank"] for one in value["changes"]] == ["named in the failing output"]
    assert value["unchecked"] == 0
    other = told.run("envlog", "why", "--failed", "no such check")
    assert "no snapshot failed this check: 'no such check'" in other.err
    assert "--failed and --var exclude each other" in told.run("envlog", "why", "--failed", "--var", "X").err
