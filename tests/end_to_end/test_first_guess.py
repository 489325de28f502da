"""Command lines as a new user types them."""

from __future__ import annotations

import json

from git_envhist.cli.parser import with_dashes
from tests.end_to_end.captures import capture
from tests.support.repository import Repo

VALUED = ("-m", "--message")


def test_command_begins_at_the_first_operand() -> None:
    assert with_dashes(["-m", "why", "npm", "i", "-D", "x"], VALUED) == [
        "-m",
        "why",
        "--",
        "npm",
        "i",
        "-D",
        "x",
    ]
    assert with_dashes(["--", "npm"], VALUED) == ["--", "npm"]
    assert with_dashes(["-q"], VALUED) == ["-q"]


def test_run_needs_no_dashes(repo: Repo) -> None:
    done = repo.run("envlog", "run", "-m", "why", "sh", "-c", "echo $0 >made; exit 3", "-m")
    assert (done.status, repo.read("made")) == (3, b"-m\n")
    assert repo.run("envlog", "-1", "--format=%s", check=True).out == "why\n"


def test_paths_without_revision_come_from_the_newest_snapshot(repo: Repo) -> None:
    repo.write("a", "1\n")
    repo.write("b", "1\n")
    capture(repo, "first")
    repo.write("a", "2\n")
    repo.write("b", "2\n")
    repo.run("envrestore", "--", "a", check=True)
    assert (repo.read("a"), repo.read("b")) == (b"1\n", b"2\n")
    assert repo.run("envrestore", "--keep-tracked").status == 129


def test_empty_directory_of_a_snapshot_is_a_path_without_dashes(repo: Repo) -> None:
    (repo.path / "empty").mkdir()
    capture(repo, "first")
    (repo.path / "empty").rmdir()
    repo.run("envrestore", "@", "empty", check=True)
    assert (repo.path / "empty").is_dir()
    assert repo.run("envrestore", "@", "nowhere").status == 129


def test_note_takes_words_and_a_snapshot_that_is_no_word(repo: Repo) -> None:
    first = capture(repo, "first")
    repo.write("b", "1")
    second = capture(repo, "second")

    def notes(snapshot: str) -> list[str]:
        shown = json.loads(repo.run("envlog", "show", "--json", snapshot, check=True).out)
        return [note["text"] for note in shown["notes"]]

    repo.run("envlog", "note", "good", "so", "far", check=True)
    repo.run("envlog", "note", "@~1", "not", "this", check=True)
    repo.run("envlog", "note", first[:7], "one word", check=True)
    repo.run("envlog", "note", "@~1", "-m", "as before", check=True)
    assert notes(second) == ["good so far"]
    assert notes(first) == ["not this", "one word", "as before"]
    for words in (["@"], [], ["a", "b", "-m", "c"]):
        assert repo.run("envlog", "note", *words).status == 129


def test_effects_are_listed(repo: Repo) -> None:
    capture(repo, "first")
    assert repo.run("envlog", "effect", "list", check=True).out == ""
    repo.run("envlog", "effect", "deployed", "--", "false")
    assert repo.run("envlog", "effect", "list", check=True).out.rstrip().endswith("deployed (exit 1)")
    output = json.loads(repo.run("envlog", "effect", "list", "--json", check=True).out)
    assert [one["text"] for one in output["effects"]] == ["deployed"]
