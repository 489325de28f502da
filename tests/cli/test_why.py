"""`git envlog why` and `git envlog blame`: paths, lines, facts and rows, also with hostile contents."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.capture.tool_calls import OpenCall, ToolCalls
from git_envhist.cli.views.blame import json_value
from git_envhist.cli.views.failure import failure_json
from git_envhist.model import EnvPath, ToolCall
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
    # As for git's pathspecs, `:/` is the top.
    assert out == told.run("envlog", "-C", str(below), "why", "-n1", ":/build/moved", check=True).out


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


def certain(repo: Repo, *words: str) -> tuple[str, str]:
    """Return the certainty of the newest step, and the line that says who made it."""
    value = json.loads(repo.run("envlog", "why", "-n1", "--json", *words, check=True).out)
    shown = repo.run("envlog", "why", "-n1", *words, check=True).out
    by = next((line for line in shown.splitlines() if line.startswith(("By:", "Call:"))), "")
    return value["steps"][0]["certainty"], by


def test_revert_is_named_for_what_it_took_back(told: Repo) -> None:
    step = told.run("envlog", "--format=%H", check=True).out.split()[1]
    # The test itself has the database open.
    told.run("envlog", "revert", "--force", step, check=True)
    assert certain(told, "build/out") == ("restore", f"By:        a revert of {step[:7]}")
    assert certain(told, "--path-gone", "build/moved") == ("restore", f"By:        a revert of {step[:7]}")
    assert certain(told, "--row", "users:2") == ("restore", f"By:        a revert of {step[:7]}")
    told.run("envlog", "undo", "--force", check=True)
    assert certain(told, "build/moved")[0] == "restore"


def test_path_alone_lists_the_snapshots_that_changed_it(told: Repo) -> None:
    listed = told.run("envlog", "--format=%H", "--", "build/moved", check=True).out
    assert told.run("envlog", "--format=%H", "build/moved", check=True).out == listed != ""
    assert told.run("envlog", "--format=%H", "@~2..", "build/moved", "app.py", check=True).out == listed
    wrong = told.run("envlog", "build/moved", "nothing")
    assert (wrong.status, wrong.err.splitlines()[0]) == (129, "error: no such path: 'nothing'")
    told.run("envlog", "name", "unrelated", check=True)
    both = told.run("envlog", "unrelated")
    assert (both.status, both.err.splitlines()) == (
        129,
        [
            "error: ambiguous argument 'unrelated': both a snapshot and a path",
            "hint: put '--' between them: git envlog unrelated -- or git envlog -- unrelated",
        ],
    )
    assert told.run("envlog", "--format=%s", "unrelated", "--", check=True).out.startswith("fourth\n")


def test_versions_of_a_file_are_printed_and_extracted(told: Repo, tmp_path: Path) -> None:
    out = told.run("envlog", "show", "--versions", "build/moved", check=True).out
    assert [line for line in out.splitlines() if line in ("two", "TWO")] == ["TWO", "TWO", "two"]
    value = json.loads(told.run("envlog", "show", "--versions", "--json", "build/moved", check=True).out)
    validate("versions", value)
    assert [one["text"] for one in value["versions"]] == ["one\nTWO\nthree\n"] * 2 + ["one\ntwo\nthree\n"]
    assert [one["path"] for one in value["versions"]] == ["build/moved", "build/out", "build/out"]
    place = tmp_path / "all"
    words = ("show", "--versions", "--to", str(place), "@~1", "build/moved")
    assert "wrote 3 versions to" in told.run("envlog", *words, check=True).out
    found = sorted(place.iterdir())
    assert [one.name[:2] + one.name[9:] for one in found] == ["1--out", "2--out", "3--moved"]
    assert found[0].read_text() == "one\ntwo\nthree\n"
    again = told.run("envlog", *words)
    assert (again.status, "the file exists" in again.err) == (3, True)


def test_lines_of_a_file_that_was_once_sealed_are_chosen(repo: Repo) -> None:
    repo.write(".env", "A=1\nB=2\n")
    repo.run("envlog", "capture", "-m", "sealed", check=True)
    repo.git("config", "--add", "envhist.secret", "!.env")
    repo.write(".env", "A=1\nB=3\n")
    repo.run("envlog", "capture", "-m", "plain", check=True)
    (line,) = repo.run("envlog", "blame", "-L2,2", ".env", check=True).out.splitlines()
    assert ("  plain  " in line, line.endswith(" 2) B=3")) == (True, True)


def test_versions_whose_key_is_missing_do_not_hide_the_others(repo: Repo, tmp_path: Path) -> None:
    repo.write("f", "1\n")
    repo.run("envlog", "capture", "-m", "one", check=True)
    repo.git("config", "--add", "envhist.secret", "f")
    repo.write("f", "2\n")
    repo.run("envlog", "capture", "-m", "two", check=True)
    for place in (repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        place.rename(f"{place}.gone")
    out = repo.run("envlog", "show", "--versions", "f", check=True).out
    assert (out.count("(sealed; key missing)\n"), out.endswith("1\n")) == (1, True)
    to = tmp_path / "to"
    assert "key missing" in repo.run("envlog", "show", "--versions", "--to", str(to), "f", check=True).out
    assert [one.read_text() for one in to.iterdir()] == ["1\n"]
    found = json.loads(repo.run("envlog", "show", "--versions", "--json", "f", check=True).out)["versions"]
    assert [(one["text"], one["omitted"]) for one in found] == [(None, "key"), ("1\n", None)]


def test_versions_of_a_sealed_file_are_masked_unless_revealed(told: Repo, tmp_path: Path) -> None:
    for words in ((), ("--json",)):
        out = told.run("envlog", "show", "--versions", *words, ".env", check=True).out
        assert "hunter" not in out
        assert "KEY=***" in out
        assert (
            "hunter2" in told.run("envlog", "show", "--versions", "--reveal", *words, ".env", check=True).out
        )
    told.run("envlog", "show", "--versions", "--to", str(tmp_path / "a"), ".env", check=True)
    assert {one.read_text() for one in (tmp_path / "a").iterdir()} == {"KEY=***\n", "KEY=***\nMORE=***\n"}
    told.run("envlog", "show", "--versions", "--reveal", "--to", str(tmp_path / "b"), ".env", check=True)
    assert {one.stat().st_mode & 0o777 for one in (tmp_path / "b").iterdir()} == {0o600}
    assert "hunter3" in "".join(one.read_text() for one in (tmp_path / "b").iterdir())


def test_versions_before_a_removal_are_listed_too(told: Repo) -> None:
    (told.path / "unrelated").unlink()
    told.run("envlog", "capture", "-m", "fifth", check=True)
    told.write("unrelated", "y")
    told.run("envlog", "capture", "-m", "sixth", check=True)
    value = json.loads(told.run("envlog", "show", "--versions", "--json", "unrelated", check=True).out)
    assert [one["text"] for one in value["versions"]] == ["y", "x"]
    assert told.run("envlog", "show", "--versions", "build").status == 129
    assert told.run("envlog", "show", "--versions", "never").status == 4
    assert told.run("envlog", "show", "--reveal", "unrelated").status == 129


def test_python_answers_are_those_of_the_commands(told: Repo) -> None:
    told.run("envlog", "verify", "--", "test ! -e broken", check=True)
    told.write("broken", "x")
    told.run("envlog", "capture", "-m", "breaks it", check=True)
    told.run("envlog", "verify", "--", "test ! -e broken")
    history = EnvHistory.open(str(told.path), workers="here")
    path = EnvPath(b"build/moved")
    lines = json_value(history.blame(path), history.resolve("@"), path)
    assert lines == json.loads(told.run("envlog", "blame", "--json", "build/moved", check=True).out)
    assert [line.number for line in history.blame(path, lines="2,3")] == [2, 3]
    first, *_ = history.blame(".env", reveal=True)
    assert first.text == b"KEY=hunter3hunter3"
    found = failure_json(history.why_failed())
    assert found == json.loads(told.run("envlog", "why", "--failed", "--json", check=True).out)
    assert found == failure_json(history.why_failed("test ! -e broken", limit=5))


def test_lines_of_a_file_that_was_sealed_before_are_compared_as_plain_text(repo: Repo) -> None:
    repo.git("config", "envhist.secret", "notes")
    for number, text in enumerate(("one\n", "one\ntwo\n", "one\ntwo\nthree\n")):
        if number == 2:
            repo.git("config", "--unset", "envhist.secret")
        repo.write("notes", text)
        repo.run("envlog", "capture", "-m", f"step {number}", check=True)
    ids = repo.run("envlog", "--format=%H", check=True).out.split()[::-1]
    value = json.loads(repo.run("envlog", "blame", "--json", "notes", check=True).out)
    assert [line["snapshot"] for line in value["lines"]] == ids
    out = repo.run("envlog", "blame", "--porcelain", "notes", check=True).out
    assert [line for line in out.splitlines() if line.startswith("\t")] == ["\tone", "\ttwo", "\tthree"]


HOSTILE = "\x1b]0;x\x07\x1b[2J\u202e\u2066%s {0} \r\x9b"


def commands(letter: str) -> bool:
    """Return whether a letter may command a terminal; bytes that are no UTF-8 do not."""
    return letter != "\n" and not letter.isprintable() and not 0xDC80 <= ord(letter) <= 0xDCFF


def test_hostile_text_in_any_field_commands_no_terminal(repo: Repo) -> None:
    odd = f"f{HOSTILE}".encode()
    calls = ToolCalls(EnvHistory.open(str(repo.path), workers="here").repository.state)
    site = ".venv/lib/python3.11/site-packages"
    repo.write(".venv/pyvenv.cfg", "version = 3.11\n")
    for number in range(3):
        call = ToolCall(
            f"Bash{HOSTILE}",
            HOSTILE,
            session=HOSTILE,
            id=f"{number}{HOSTILE}",
            subagent=HOSTILE,
            intent=HOSTILE,
            command=HOSTILE * 100,
            failed=True,
        )
        calls.announce(OpenCall(str(number), call, 1.0))
        calls.begin(HOSTILE, str(number), 1.0)
        repo.write(odd, f"{number}{HOSTILE}\n".encode() + b"\0\xff" * number + b"x" * 200_000)
        repo.write(
            f"{site}/p-{number}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: p\nVersion: {number}{HOSTILE}\n",
        )
        repo.write(".env", f"A{number}{HOSTILE}=1\nB={HOSTILE}{number}\n")
        with sqlite3.connect(repo.path / "app.db") as base:
            base.execute("create table if not exists t (id integer primary key, v text)")
            base.execute("insert into t (v) values (?)", (HOSTILE,))
        repo.run("envlog", "capture", "-m", f"{number} {HOSTILE}", "--name", f"n{number}", check=True)
        repo.run("envlog", "verify", "--", f"printf '%s' '{HOSTILE}'; test {number} = 0")
    questions: list[tuple[str | bytes, ...]] = [
        ("why", "--all", odd), ("why", odd + b":1"), ("why", "--all", "--package", "p"), ("why", "--var", "B"),
        ("why", "--all", "--row", "t:1"), ("why", "--failed"), ("why", "--path-gone", HOSTILE),
        ("why", "--package", HOSTILE), ("blame", odd), ("blame", HOSTILE), ("blame", "--reveal", ".env"),
        ("-S", HOSTILE), ("-S", "x", "--reveal"), ("-G", "x{0}", "--reveal"), ("--find", HOSTILE), ("--find", "p"),
        (odd,), (HOSTILE,), ("show", "--versions", ".env"), ("show", "--versions", HOSTILE),
        ("show", "--versions", "--to", "../out", odd), ("show", "--to", HOSTILE), ("why", "--json", odd),
        ("blame", "--json", odd), ("show", "--versions", "--json", odd), ("why", "--json", "--failed"),
    ]  # fmt: skip
    for words in questions:
        done = repo.run("envlog", *words)
        for text in (done.out, done.err):
            commanding = [
                one
                for one in text
                if one != "\n" and not one.isprintable() and not 0xDC80 <= ord(one) <= 0xDCFF
            ]
            assert not commanding, (words, commanding)
    heads = repo.run("envlog", "show", "--versions", odd, check=True).stdout.split(b"x" * 1000)
    assert sum(head.count(b"\x1b") for head in heads) == 3 * HOSTILE.count("\x1b")


def test_path_that_ends_like_a_line_is_a_path_from_the_top_and_in_the_past(repo: Repo) -> None:
    repo.write("log", "one\ntwo\nthree\n")
    repo.write("log:3", "x")
    repo.run("envlog", "capture", "-m", "first", check=True)
    assert json.loads(repo.run("envlog", "why", "--json", ":/log:3", check=True).out)["name"] == "log:3"
    (repo.path / "log:3").unlink()
    assert (
        json.loads(repo.run("envlog", "why", "--json", "--at", "@", "log:3", check=True).out)["name"]
        == "log:3"
    )
    assert json.loads(repo.run("envlog", "why", "--json", "log:2", check=True).out)["line"] == 2


def test_versions_of_a_directory_or_to_a_file_are_refused_with_a_reason(repo: Repo) -> None:
    repo.write("f", "x")
    (repo.path / "empty").mkdir()
    repo.run("envlog", "capture", "-m", "first", check=True)
    for path, name in ((".", "."), ("empty", "empty")):
        done = repo.run("envlog", "show", "--versions", path)
        assert (done.status, f"a directory has no versions: '{name}'" in done.err) == (129, True)
    for to in ("", "f"):
        done = repo.run("envlog", "show", "--versions", "--to", to, "f")
        assert (done.status, f"not a directory: '{to}'" in done.err) == (129, True)


@pytest.mark.parametrize("number", ["0", "-1"])
def test_failed_check_with_less_than_one_change_is_refused(repo: Repo, number: str) -> None:
    refused = repo.run("envlog", "why", "--failed", "-n", number)
    assert (refused.status, f"not a number of changes: {number}" in refused.err) == (129, True)


def test_negative_limit_of_changes_is_an_error(repo: Repo) -> None:
    with pytest.raises(ValueError, match="not a number of changes"):
        EnvHistory.open(str(repo.path), workers="here").why_failed(limit=-1)
