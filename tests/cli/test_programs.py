"""The programs as git starts them: dispatch, help, usage errors, and exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from git_envhist import __version__
from git_envhist.cli.subcommands import GROUPS, SUBCOMMANDS
from tests.support.repository import Repo

ONE_LINE_AND_HINT = 2


def test_git_finds_the_programs(repo: Repo) -> None:
    done = repo.execute("git", "envlog", "-h")
    assert done.out.startswith("usage: git envlog [<options>] [<range>] [[--] <pathspec>...]\n")
    assert "capture  " in done.out
    assert "--oneline" in done.out


@pytest.mark.parametrize("program", ["envlog", "envdiff", "envrestore", "envhist"])
def test_short_help_is_printed_to_standard_output(repo: Repo, program: str) -> None:
    done = repo.run(program, "-h")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"usage: git {program}")


@pytest.mark.parametrize("words", [("capture", "-h"), ("help", "capture"), ("-C", ".", "capture", "-h")])
def test_a_subcommand_has_its_own_short_help(repo: Repo, words: tuple[str, ...]) -> None:
    assert repo.run("envlog", *words, check=True).out.startswith("usage: git envlog capture")


def test_every_subcommand_is_in_one_group_of_the_help() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(SUBCOMMANDS)


def test_the_long_help_without_a_terminal_is_the_bundled_text(repo: Repo) -> None:
    assert repo.run("git-envlog", "--help", check=True).out == repo.run("envlog", "-h", check=True).out


@pytest.mark.parametrize("program", ["envlog", "envdiff", "envrestore", "envhist"])
def test_every_command_prints_its_version(repo: Repo, tmp_path: Path, program: str) -> None:
    expected = f"git-envhist {__version__}\n"
    assert repo.run(program, "--version", check=True, cwd=tmp_path).out == expected
    if program == "envlog":
        assert repo.run(program, "capture", "-m", "x", "--version", check=True).out == expected
        assert repo.git("for-each-ref", "refs/envhist") == ""


def test_help_needs_no_repository(tmp_path: Path, repo: Repo) -> None:
    assert repo.run("envlog", "-h", cwd=tmp_path).status == 0


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--onelin",), "error: no such option: '--onelin'", "hint: did you mean '--oneline'?"),
        # '--color' is similar only because of its dashes.
        (("--foo",), "error: no such option: '--foo'", "hint: 'git envlog -h' lists the options"),
        (
            ("capture", "--bogus"),
            "error: no such option: '--bogus'",
            "hint: 'git envlog capture -h' lists the options",
        ),
        (("-n",), "error: option '-n' requires an argument", "hint: -n <n>: list at most <n>; also -<n>"),
        (
            ("capture", "a", "-m", "b"),
            "error: two intents are given",
            "hint: give it as an argument or with -m",
        ),
        (
            ("capture", "a", "b"),
            "error: unexpected argument: 'b'",
            "hint: quote several words: git envlog capture 'before the upgrade'",
        ),
        (("status", "b"), "error: unexpected argument: 'b'", "hint: usage: git envlog status [--report]"),
        (("--stat", "-p"), "error: --stat and --patch exclude each other", "hint: -h lists the options"),
    ],
)
def test_usage_error_is_one_line_with_status_129(
    repo: Repo, words: tuple[str, ...], message: str, hint: str
) -> None:
    done = repo.run("envlog", *words)
    assert done.status == 129
    assert done.out == ""
    assert done.err.splitlines() == [message, hint]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("list", "git envlog"),
        ("ls", "git envlog"),
        ("save", "git envlog capture"),
        ("checkpoint", "git envlog capture"),
        ("captrue", "git envlog capture"),
        ("restore", "git envrestore"),
        ("diff", "git envdiff"),
        ("delete", "git envlog drop"),
        ("nmae", "git envlog name"),
    ],
)
@pytest.mark.parametrize("program", ["envlog", "envhist"])
def test_word_of_another_tool_gets_a_hint(repo: Repo, program: str, word: str, meant: str) -> None:
    done = repo.run(program, word)
    assert done.status == 129
    assert done.err == f"error: no such subcommand: '{word}'\nhint: did you mean '{meant}'?\n"


def test_error_with_json_is_an_object_on_standard_output(repo: Repo) -> None:
    done = repo.run("envlog", "--json", "--bogus")
    assert done.status == 129
    assert json.loads(done.out)["error"] == {
        "code": "usage",
        "message": "no such option: '--bogus'",
        "hint": "'git envlog -h' lists the options",
        "status": 129,
    }
    assert done.err == ""


def test_error_outside_a_repository_has_a_hint(repo: Repo, tmp_path: Path) -> None:
    done = repo.run("envlog", cwd=tmp_path)
    assert done.status == 128
    assert done.err.startswith("error: not a git repository")
    assert "hint: " in done.err


def test_missing_directory_is_an_error(repo: Repo) -> None:
    done = repo.run("envlog", "-C", "nowhere\x1b")
    assert done.status == 128
    said, hint = done.err.splitlines()
    assert said == "error: cannot change to 'nowhere\\x1b': No such file or directory"
    assert hint == "hint: -C takes an existing directory"


def test_unexpected_exception_is_one_line_and_a_report(repo: Repo, hermetic: Path) -> None:
    broken = repo.path / "broken"
    broken.mkdir()
    # A module `click` that cannot be imported stands for any unexpected failure.
    (broken / "click.py").write_text("raise ValueError('boom')\n")
    done = repo.run("envlog", "capture", "of my own", "-mmine", "-h", env={"PYTHONPATH": str(broken)})
    assert done.status == 128
    assert done.err.splitlines()[0] == "error: unexpected failure: 'ValueError: boom'"
    assert len(done.err.splitlines()) == ONE_LINE_AND_HINT
    (report,) = (hermetic / "state" / "git-envhist" / "reports").iterdir()
    said = report.read_text()
    assert "Traceback" in said
    for word in ("git-envlog capture … -m -h, git-envhist ", "Python 3.", "git version ", "Linux "):
        assert word in said
    assert report.stat().st_mode & 0o777 == 0o600
    assert f"last unexpected failure: {report}\n" in repo.run("envlog", "status", "--report", check=True).out
    traced = repo.run("envlog", "-h", env={"PYTHONPATH": str(broken), "GIT_ENVHIST_TRACE": "1"})
    assert "Traceback" in traced.err


def test_memory_error_is_no_defect(repo: Repo) -> None:
    broken = repo.path / "broken"
    broken.mkdir()
    (broken / "click.py").write_text("raise MemoryError\n")
    done = repo.run("envlog", "-h", env={"PYTHONPATH": str(broken)})
    assert done.status == 128
    assert done.err.splitlines() == [
        "error: the system refused: cannot allocate memory",
        "hint: close some programs, or raise the limit: ulimit -v",
    ]


def test_closed_pipe_is_no_error(repo: Repo) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            ["git-envlog", "-h"], cwd=repo.path, env=repo.env, stdout=gone, stderr=subprocess.PIPE
        )
    assert done.stderr == b""
    assert done.returncode == 141


def test_unwritable_output_is_an_error(repo: Repo) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            ["git-envlog", "-h"], cwd=repo.path, env=repo.env, stdout=full, stderr=subprocess.PIPE
        )
    said, hint = done.stderr.splitlines()
    assert said == b"error: cannot write the output: No space left on device"
    assert hint.startswith(b"hint: free some space")
    assert done.returncode == 128


def test_unwritable_output_names_completed_changes(repo: Repo) -> None:
    repo.run("envlog", "capture", "one", check=True)
    for words, told in (
        (("capture", "two"), "is captured"),
        (("capture", "--json", "three"), "is captured"),
        (("name", "here"), "the snapshot is named"),
        (("note", "-m", "seen"), "the note is added"),
        (("task", "add", "write"), "the task is stored"),
        (("drop", "@~1"), "the snapshots are dropped"),
        (("undrop", "--all"), "the snapshots are restored"),
        (("export", "../all.tar.zst"), "the file is written"),
        (("gc",), "the history is compacted"),
        (("fork", "../fork"), "the fork is created"),
        (("install",), "it is installed"),
        (("purge", "app.py"), "the paths are erased"),
        (("prune", "--keep-last", "9"), "the snapshots are dropped"),
    ):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                ["git-envlog", *words], cwd=repo.path, env=repo.env, stdout=full, stderr=subprocess.PIPE
            )
        printed = [line for line in done.stderr.decode().splitlines() if line.startswith("error: ")]
        assert [
            f"{told}, but cannot write the output: No space left on device" in line for line in printed
        ] == [True], done.stderr
        assert done.returncode == 5
    assert "here" in repo.run("envlog").out
