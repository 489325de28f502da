"""Bisect finds the first bad snapshot in the fewest tries, and prints its changes."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.checks.verify_and_bisect import candidates, next_to_try, tries_left
from tests.cli.test_json import validate
from tests.support.repository import Repo


@given(st.integers(2, 300), st.data())
def test_search_needs_no_more_tries_than_halving(count: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, count - 1))
    good, bad, tries = 0, count - 1, 0
    most = tries_left(good, bad)
    while (place := next_to_try(good, bad, ())) is not None:
        tries += 1
        good, bad = (good, place) if place >= first_bad else (place, bad)
    assert (bad, candidates(good, bad, ())) == (first_bad, (first_bad,))
    assert tries <= most


@given(st.integers(2, 60), st.data())
def test_inconclusive_snapshot_is_skipped_and_never_blamed_alone(count: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, count - 1))
    silent = data.draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    good, bad, skipped = 0, count - 1, set[int]()
    while (place := next_to_try(good, bad, skipped)) is not None:
        assert place not in skipped
        if place in silent:
            skipped.add(place)
        elif place >= first_bad:
            bad = place
        else:
            good = place
    assert first_bad in candidates(good, bad, skipped)


def forge_timeline(repo: Repo, count: int, change: dict[int, object]) -> None:
    """Capture `count` snapshots; `change` has functions to call before some of them."""
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for number in range(count):
        repo.write("number", f"{number}\n")
        step = change.get(number)
        if step is not None:
            step()  # type: ignore[operator]
        history.capture(f"m{number}")


def found(repo: Repo, *words: str) -> dict[str, object]:
    value = json.loads(repo.run("envlog", "bisect", "--json", *words).out)
    validate("bisected", value)
    assert isinstance(value, dict)
    return value


def id_of(repo: Repo, intent: str) -> object:
    return json.loads(repo.run("envlog", "show", "--json", f":/{intent}").out)["id"]


def test_package_is_found_among_sixty_snapshots_in_seven_tries(repo: Repo) -> None:
    repo.write(".gitignore", "node_modules/\nnumber\n")
    repo.commit("ignores")
    package = "node_modules/left-pad/package.json"
    repo.write(package, '{"version": "1.0.0"}\n')
    forge_timeline(repo, 60, {41: lambda: repo.write(package, '{"version": "1.3.0"}\n')})
    done = repo.run("envlog", "bisect", "--good", "@~59", "--", f"grep -q 1.0.0 {package}", check=True)
    assert done.out.splitlines()[1].endswith("m41")
    assert "node_modules" in done.out.partition("what it changed:")[2]
    tried = [line for line in done.err.splitlines() if line.startswith("  ")]
    assert 0 < len(tried) <= 7
    # Known results of the same check are not tried again.
    again = found(repo, "--good", "@~59", "--", f"grep -q 1.0.0 {package}")
    assert (again["bad"], again["suspects"], again["tried"]) == (id_of(repo, "m41"), [id_of(repo, "m41")], [])


def test_database_row_is_found_with_the_check_that_good_passed(repo: Repo) -> None:
    def add(name: str) -> None:
        with closing(sqlite3.connect(repo.path / "app.db")) as database, database:
            database.execute("create table if not exists users (name text not null)")
            database.execute("insert into users values (?)", (name,))
        database.close()

    rows = "select 1 from users where name = ''"
    repo.write(
        "../check.py", f"import sqlite3\nassert not list(sqlite3.connect('app.db').execute({rows!r}))\n"
    )
    check = f"{sys.executable} {repo.path.parent}/check.py"
    add("Ann")
    repo.run("envlog", "capture", "good", "--verify", check, "--exit-code", check=True)
    forge_timeline(repo, 6, {2: lambda: add("Bob"), 3: lambda: add(""), 5: lambda: add("Cyd")})
    done = repo.run("envlog", "bisect")
    assert done.status == 0, done.err
    assert done.out.splitlines()[1].endswith("m3")
    assert "app.db" in done.out.partition("what it changed:")[2]


def test_exit_status_125_skips_and_all_candidates_are_printed(repo: Repo) -> None:
    forge_timeline(repo, 6, {})
    check = 'n=$(cat number); case $n in 2|3) exit 125;; esac; test "$n" -lt 3'
    done = repo.run("envlog", "bisect", "--good", "@~5", "--", check)
    assert done.status == 125
    told = found(repo, "--good", "@~5", "--", check)
    assert told["suspects"] == [id_of(repo, f"m{number}") for number in (2, 3, 4)]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--", "true"), 4, "no snapshot matches 'good'"),
        (("--good", "@~2", "--", "true"), 1, "the check passes at.*git envlog bisect --bad <rev>"),
        (("--good", "@", "--", "true"), 129, "git envlog bisect --bad <rev>"),
        (("--good", "@~2", "--", "exit 127"), 125, "the check is inconclusive at"),
        (("--good", "@", "--bad", "@~1", "--", "false"), 129, "is not older than"),
        (("--good", "@~2"), 129, "no check given"),
    ],
)
def test_bisect_without_a_result_prints_the_reason(
    repo: Repo, words: tuple[str, ...], status: int, said: str
) -> None:
    forge_timeline(repo, 3, {})
    done = repo.run("envlog", "bisect", *words)
    assert done.status == status
    assert re.search(said, done.err, re.DOTALL), done.err
    assert Path(repo.path / "number").read_text() == "2\n"
