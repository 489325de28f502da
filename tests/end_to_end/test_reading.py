"""Each option of `git envlog`, `show`, `name` and `note`, as a user types it, on one small history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.support.repository import Repo, Result
from tests.support.template import start_from

FIRST, SECOND, THIRD = "2026-11-18T10:02:00+00:00", "2026-11-18T10:11:00+00:00", "2026-11-18T10:18:30+00:00"
NOW = "2026-11-18T10:30:00+00:00"


@pytest.fixture
def told(repo: Repo) -> tuple[Repo, list[str]]:
    """Return a repository with three snapshots, and their ids, oldest first."""
    return repo, list(start_from(repo, three_snapshots))


def three_snapshots(repo: Repo) -> list[str]:
    """Take three snapshots: a clone, a changed file, an install with a name."""
    repo.env["GIT_COMMITTER_DATE"] = FIRST
    ids = [capture(repo, "clean clone")]
    repo.env["GIT_COMMITTER_DATE"] = SECOND
    repo.write("app.py", b"print('changed')\n")
    ids.append(capture(repo, "before auth refactor\n\nthe body"))
    repo.env["GIT_COMMITTER_DATE"] = THIRD
    repo.write("lib/flask.py", b"1\n")
    ids.append(capture(repo, "after package install", "--name", "installed"))
    repo.env["GIT_COMMITTER_DATE"] = NOW
    return ids


Told = tuple[Repo, list[str]]


def subjects(done: Result) -> list[str]:
    """Return the first word of each intent in a list."""
    assert done.status == 0, done.err
    words = ("clean clone", "before auth refactor", "after package install")
    return [word.split()[0] for line in done.out.splitlines() for word in words if word in line]


LISTS = [
    ((), ["after", "before", "clean"]),
    (("-n", "2"), ["after", "before"]),
    (("-1",), ["after"]),
    (("--max-count=2",), ["after", "before"]),
    (("--reverse",), ["clean", "before", "after"]),
    (("--reverse", "-1"), ["after"]),
    (("--since=10:11",), ["after", "before"]),
    (("--until=10:11",), ["before", "clean"]),
    (("--since=10:05", "--until=10:15"), ["before"]),
    (("--grep=auth",), ["before"]),
    (("--grep=AUTH",), []),
    (("-i", "--grep=AUTH"), ["before"]),
    (("--grep=clean", "--grep=after"), ["after", "clean"]),
    (("--trigger=manual",), ["after", "before", "clean"]),
    (("--trigger=agent",), []),
    (("--verdict=none",), ["after", "before", "clean"]),
    (("--verdict=pass",), []),
    (("--oneline",), ["after", "before", "clean"]),
    (("--all",), ["after", "before", "clean"]),
    (("@~1",), ["before", "clean"]),
    (("@~2..@~1",), ["before"]),
    (("10:02..",), ["after", "before"]),
    (("..:/auth",), []),
    (("--", "app.py"), ["before", "clean"]),
    (("@~1", "--", "lib"), []),
    (("--", ":(glob)lib/*.py"), ["after"]),
]


@pytest.mark.parametrize(("words", "wanted"), LISTS, ids=lambda value: " ".join(value) or "nothing")
def test_list_shows_the_requested_snapshots(told: Told, words: tuple[str, ...], wanted: list[str]) -> None:
    repo, _ = told
    assert subjects(repo.run("envlog", *words)) == wanted


def test_oneline_is_id_and_intent(told: Told) -> None:
    repo, ids = told
    assert repo.run("envlog", "--oneline", "-1").out == f"{ids[2][:7]} after package install (installed)\n"


def test_format_has_placeholders_of_git_and_git_envhist(told: Told) -> None:
    repo, ids = told
    done = repo.run("envlog", "--reverse", "--format=%H|%s|%b|%(time)|%(trigger)|%(complete)|%(name)|%at")
    lines = done.out.splitlines()
    assert lines[0] == f"{ids[0]}|clean clone||10:02|manual|complete||1794996120"
    assert "|after package install||10:18|manual|complete|installed|" in done.out


def test_dates_have_gits_styles(told: Told) -> None:
    repo, _ = told
    done = repo.run("envlog", "-1", "--date=iso-strict", "--format=%ad")
    assert done.out.strip() in (THIRD, THIRD.replace("+00:00", "Z"))
    assert repo.run("envlog", "--date=bogus").status == 129


def test_z_ends_records_with_nul(told: Told) -> None:
    repo, ids = told
    assert repo.run("envlog", "-z", "--format=%H").out == "".join(f"{one}\0" for one in reversed(ids))


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("--stat", "app.py"),
        ("--name-status", "M\tapp.py"),
        ("--name-only", "app.py"),
        ("-p", "+print('changed')"),
        ("-p --full-index", "index {before}..{after} 100644"),
    ],
)
def test_changes_are_shown_below_each_snapshot(told: Told, option: str, wanted: str) -> None:
    repo, ids = told
    done = repo.run("envlog", *option.split(), "-1", "@~1")
    assert done.status == 0, done.err
    before, after = (repo.git("rev-parse", f"{one}:app.py") for one in ids[:2])
    assert any(wanted.format(before=before, after=after) in line for line in done.out.splitlines())
    assert (before in done.out) == ("full" in option)
    assert "lib/flask.py" not in done.out


def test_full_shows_the_details_of_each_snapshot(told: Told) -> None:
    repo, ids = told
    done = repo.run("envlog", "--full")
    assert all(one in done.out for one in ids)
    assert "the body" in done.out


def test_json_is_one_array_newest_first_or_lines(told: Told) -> None:
    repo, ids = told
    found = json.loads(repo.run("envlog", "--json").out)
    assert [one["id"] for one in found] == ids[::-1]
    assert {one["schema"] for one in found} == {1}
    assert (found[0]["names"], found[0]["trigger"], found[0]["at"]) == (["installed"], "manual", THIRD)
    lines = repo.run("envlog", "--json=lines").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids[::-1]


def test_changes_are_complete_in_details_and_limited_in_a_list(told: Told) -> None:
    repo, _ = told
    paths = [f"many/{number:03}" for number in range(230)]
    for path in paths:
        repo.write(path, path)
    repo.run("envlog", "capture", check=True)
    card = json.loads(repo.run("envlog", "show", "--json").out)["env_changed"]
    assert [one["path"] for one in card["paths"] if one["path"] in paths] == paths
    assert card["added"] + card["modified"] + card["removed"] == len(card["paths"])
    (listed,) = json.loads(repo.run("envlog", "-n1", "--json").out)
    assert len(listed["env_changed"]["paths"]) == 200
    assert listed["env_changed"]["added"] == card["added"]


def test_snapshot_is_found_by_id_time_name_and_intent(told: Told) -> None:
    repo, ids = told
    for words in ("installed", ids[2][:7], ids[2], "@", "10:18", "@{10:18}", "11m", ":/package install"):
        assert json.loads(repo.run("envlog", "show", "--json", words).out)["id"] == ids[2], words
    assert json.loads(repo.run("envlog", "show", "--json", "installed~2").out)["id"] == ids[0]
    assert json.loads(repo.run("envlog", "show", "--json", "HEAD").out)["id"] == ids[2]


def test_show_prints_details_and_with_a_path_the_stored_bytes(told: Told) -> None:
    repo, ids = told
    card = repo.run("envlog", "show", "@~1", "--date=iso").out
    assert ids[1] in card
    assert "the body" in card
    assert "2026-11-18 10:11:00 +0000" in card
    assert repo.run("envlog", "show", "@~2", "--", "app.py").stdout == b"print('hello')\n"
    (repo.path / "lib").mkdir(exist_ok=True)
    assert repo.run("envlog", "show", "@", "--", "flask.py", cwd="lib").stdout == b"1\n"
    assert repo.run("envlog", "show", "@", "--", "never").status == 4


def test_name_is_set_moved_and_removed(told: Told) -> None:
    repo, ids = told
    assert repo.run("envlog", "name", "start", "@~2").status == 0
    assert json.loads(repo.run("envlog", "show", "--json", "start").out)["id"] == ids[0]
    assert repo.run("envlog", "name", "-d", "start").status == 0
    assert repo.run("envlog", "show", "start").status == 4
    assert repo.run("envlog", "name", "-d", "start").status == 4
    assert repo.run("envlog", "name", "capture").status == 3


def test_latest_position_of_a_name_counts_within_one_second(told: Told) -> None:
    repo, ids = told
    for revision, number in (("@", 2), ("@~2", 0), ("@", 2), ("@~1", 1)):
        assert repo.run("envlog", "name", "here", revision).status == 0
        assert json.loads(repo.run("envlog", "show", "--json", "here").out)["id"] == ids[number]
    assert repo.run("envlog", "name", "-d", "here").out == f"{ids[1][:7]} is no longer named 'here'\n"
    assert repo.run("envlog", "show", "here").status == 4


def test_note_is_shown_with_its_snapshot(told: Told) -> None:
    repo, ids = told
    assert repo.run("envlog", "note", "@~1", "-m", "this one was slow").status == 0
    assert "this one was slow" in repo.run("envlog", "show", ids[1]).out
    assert "this one was slow" in repo.git("log", "-1", "--notes=envhist/*/*", ids[1])
    assert repo.run("envlog", "note").status == 129


def test_unknown_revision_is_status_4_with_a_hint(told: Told) -> None:
    repo, _ = told
    for words in ("nowhere-like-this", "good", "0123456789abcdef", ":/no such intent"):
        done = repo.run("envlog", "show", words)
        assert done.status == 4, (words, done.err)
        assert done.err.startswith("error: ")
        assert "\nhint: " in done.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("show", "2 years ago"), "the oldest snapshot is from 10:02"),
        (("show", ""), "the newest snapshot is '@'"),
        (("show", "--", "never"), "to list the snapshots that changed a path: git envlog -- <path>"),
        (("show", "--", "lib"), "'git ls-tree <id>:<path>' lists a directory"),
        (
            ("--grep=(",),
            "it is a regular expression: put a backslash before a character to match it literally",
        ),
    ],
)
def test_hint_fits_the_error(told: Told, words: tuple[str, ...], hint: str) -> None:
    done = told[0].run("envlog", *words)
    assert done.status in (4, 129)
    assert done.err.splitlines()[1] == f"hint: {hint}"


def test_list_before_the_first_capture_is_empty(repo: Repo) -> None:
    done = repo.run("envlog")
    assert (done.status, done.out) == (0, "")
    assert done.err == "hint: nothing was captured here yet: git envlog capture\n"
    repo.git("config", "envhist.timeline", "my/line")
    assert repo.run("envlog").err == done.err
    assert json.loads(repo.run("envlog", "--json").out) == []


def test_repository_is_found_by_option_and_by_gits_variables(told: Told) -> None:
    repo, ids = told
    elsewhere = repo.path.parent
    by_option = repo.run("envlog", "-C", str(repo.path), "--format=%H", "-1", cwd=elsewhere)
    by_git = repo.execute("git", "-C", str(repo.path), "envlog", "--format=%H", "-1", cwd=elsewhere)
    variables = {"GIT_DIR": str(repo.path / ".git"), "GIT_WORK_TREE": str(repo.path)}
    by_variables = repo.run("envlog", "--format=%H", "-1", cwd=elsewhere, env=variables)
    assert [done.out.strip() for done in (by_option, by_git, by_variables)] == [ids[2]] * 3


def test_colour_is_used_only_if_requested(told: Told) -> None:
    repo, _ = told
    assert "\x1b[" not in repo.run("envlog").out
    assert "\x1b[" in repo.run("envlog", "--color").out
    assert "\x1b[" in repo.run("envlog", "--color=always", env={"NO_COLOR": "1"}).out
    assert "\x1b[" not in repo.run("envlog", "--color=never", env={"FORCE_COLOR": "1"}).out
    assert "\x1b[" not in repo.run("envlog", "--json", "--color=always").out


def test_pager_is_not_used_without_a_terminal(told: Told) -> None:
    repo, _ = told
    pager = {"GIT_PAGER": "sed s/^/paged:/"}
    assert "paged:" not in repo.run("envlog", env=pager).out
    assert "paged:" not in repo.run("envlog", "--no-pager", env=pager).out


def test_first_snapshot_taken_during_a_list_is_no_error(repo: Repo, tmp_path: Path) -> None:
    capture(repo, "clean clone")
    (ref,) = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").splitlines()
    tip = repo.git("rev-parse", ref)
    repo.git("update-ref", "-d", ref)
    real = shutil.which("git", path=repo.env["PATH"])
    # The list and the query for the newest snapshot find none; then the first snapshot is added.
    found = f'"{real}" "$@"; s=$?; "{real}" update-ref {ref} {tip}; exit $s'
    script = f'case " $* " in *" rev-parse "*{ref}^*) {found} ;; esac; exec "{real}" "$@"'
    late = tmp_path / "late"
    late.mkdir()
    (late / "git").write_text(f"#!/bin/sh\n{script}\n")
    (late / "git").chmod(0o755)
    repo.env["PATH"] = f"{late}:{repo.env['PATH']}"
    assert subjects(repo.run("envlog")) == ["clean"]
