"""`git envdiff` as a user types it: the compared snapshots, the output and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from git_envhist.cli.commands.diff import read_similarity
from git_envhist.errors import UsageError
from tests.support.repository import Repo
from tests.support.template import start_from

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "answers.json"


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


def diff(repo: Repo, *words: str) -> str:
    return repo.run("envdiff", *words, check=True).out


@pytest.fixture
def three(repo: Repo) -> tuple[str, str, str]:
    """Return the ids of three snapshots; the working tree differs from the last one."""
    return start_from(repo, three_snapshots)


def three_snapshots(repo: Repo) -> tuple[str, str, str]:
    """Take three snapshots, and change the working tree again."""
    repo.write(".gitignore", "build/\n")
    repo.write("build/out.o", "1")
    first = capture(repo, "first")
    repo.write("build/out.o", "2")
    repo.write("build/more.o", "x")
    second = capture(repo, "second")
    (repo.path / "build/more.o").unlink()
    repo.write("notes.txt", "n")
    third = capture(repo, "third")
    repo.write("here.txt", "h")
    return first, second, third


def test_revisions_are_read_as_git_diff_does(repo: Repo, three: tuple[str, str, str]) -> None:
    first, second, third = three
    names = ("--name-status",)
    assert diff(repo, *names) == "A\there.txt\n"
    assert diff(repo, *names, "@") == "A\there.txt\n"
    assert diff(repo, *names, "now", "@") == "D\there.txt\n"
    assert diff(repo, *names, second) == "D\tbuild/more.o\nA\there.txt\nA\tnotes.txt\n"
    assert diff(repo, *names, f"{first}..{second}") == "A\tbuild/more.o\nM\tbuild/out.o\n"
    assert diff(repo, *names, first, second) == "A\tbuild/more.o\nM\tbuild/out.o\n"
    assert diff(repo, *names, f"{second}..") == diff(repo, *names, second, third)
    assert diff(repo, *names, "@..now") == "A\there.txt\n"
    assert diff(repo, *names, "@~2..@~1") == diff(repo, *names, first, second)
    assert diff(repo, "now", "now") == ""


def test_default_output_is_the_summary(repo: Repo, three: tuple[str, str, str]) -> None:
    assert diff(repo, three[0], three[1]) == "files     + build/more.o  ~ build/out.o\n"


def test_diff_with_now_stores_nothing(repo: Repo, three: tuple[str, str, str]) -> None:
    refs, objects = repo.git("for-each-ref"), repo.git("count-objects", "-v")
    status = repo.git("status", "--porcelain")
    assert "here.txt" in diff(repo, "-p")
    assert (repo.git("for-each-ref"), repo.git("count-objects", "-v")) == (refs, objects)
    assert repo.git("status", "--porcelain") == status


def test_patch_with_now_shows_new_contents(repo: Repo, three: tuple[str, str, str]) -> None:
    repo.write("build/out.o", "3\n")
    patch = diff(repo, "-p", "--", "build")
    assert patch.startswith("diff --git a/build/out.o b/build/out.o\nindex ")
    assert patch.endswith("@@ -1 +1 @@\n-2\n\\ No newline at end of file\n+3\n")


def test_exit_code_is_1_for_differences(repo: Repo, three: tuple[str, str, str]) -> None:
    assert repo.run("envdiff", "--exit-code").status == 1
    assert repo.run("envdiff", "--exit-code", "--", "build").status == 0
    quiet = repo.run("envdiff", "--quiet")
    assert (quiet.status, quiet.out) == (1, "")
    assert repo.run("envdiff").status == 0


def test_pathspecs_are_relative_to_the_current_directory(repo: Repo, three: tuple[str, str, str]) -> None:
    first, second, _ = three
    inside = repo.path / "build"
    run = ("envdiff", "--name-only", first, second, "--")
    assert repo.run(*run, "m*", cwd=inside, check=True).out == "build/more.o\n"
    assert repo.run(*run, ":(exclude)m*", cwd=inside, check=True).out == "build/out.o\n"
    assert repo.run(*run, ":/notes.txt", cwd=inside, check=True).out == ""
    outside = repo.run(*run, "../../x", cwd=inside)
    assert outside.status == 129
    assert outside.err.startswith("error: '../../x' is outside the environment")


def test_a_wrong_revision_is_status_4_with_a_hint(repo: Repo, three: tuple[str, str, str]) -> None:
    for words in (("nonsense",), ("@", "nonsense"), ("nonsense..@",)):
        done = repo.run("envdiff", *words)
        assert done.status == 4
        assert done.err.count("\n") == 2
        assert "\nhint: " in done.err


def test_diff_without_a_snapshot_is_an_error(repo: Repo) -> None:
    assert repo.run("envdiff").status == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stat", "--raw"), "--stat and --raw exclude each other"),
        (("--only=packs",), "no such class of changes: 'packs'"),
        (("-Mmuch",), "not a percentage: 'much'"),
        (("a", "b", "c"), "more than two snapshots are given: 'c'"),
        (("--bogus",), "no such option: '--bogus'"),
    ],
)
def test_invalid_options_are_usage_errors(repo: Repo, words: tuple[str, ...], message: str) -> None:
    done = repo.run("envdiff", *words)
    assert done.status == 129
    assert done.err.startswith(f"error: {message}")


def test_renames_are_detected_with_the_option(repo: Repo) -> None:
    text = "".join(f"line {number}\n" for number in range(40))
    repo.write("old.txt", text)
    capture(repo, "before")
    (repo.path / "old.txt").unlink()
    repo.write("new.txt", text + "more\n")
    assert diff(repo, "--name-status") == "A\tnew.txt\nD\told.txt\n"
    for spelled in (("-M",), ("-M50%",), ("-M9",), ("--find-renames",), ("--find-renames=80%",), ("-M", "@")):
        shown = diff(repo, "--name-status", *spelled)
        assert shown.startswith("R09")
        assert shown.endswith("\told.txt\tnew.txt\n")
    assert diff(repo, "--name-status", "-M100%") == "A\tnew.txt\nD\told.txt\n"
    counts = ("added", "removed", "modified", "renamed")
    output = json.loads(diff(repo, "--json", "-M"))
    assert ([output[word] for word in counts], len(output["files"])) == ([0, 0, 0, 1], 1)
    apart = json.loads(diff(repo, "--json"))
    assert ([apart[word] for word in counts], len(apart["files"])) == ([1, 1, 0, 0], 2)


@pytest.mark.parametrize(
    ("spelled", "percent"),
    [("90%", 90), ("9", 90), ("05", 5), ("0.5", 50), (".5", 50), ("100%", 100), ("75", 75)],
)
def test_a_similarity_is_read_as_git_reads_it(spelled: str, percent: int) -> None:
    assert read_similarity(spelled) == percent


@pytest.mark.parametrize("spelled", ["", "x", "101%", "-5", "5 %"])
def test_invalid_similarity_is_refused(spelled: str) -> None:
    with pytest.raises(UsageError):
        read_similarity(spelled)


@pytest.fixture
def secret(repo: Repo) -> Repo:
    repo.write(".env.local", "API_URL=http://a\nOLD=1\n", mode=0o600)
    capture(repo, "before")
    repo.write(".env.local", "API_URL=http://b\nDEBUG=1\n", mode=0o600)
    repo.write("other", "x")
    return repo


def test_variables_of_sealed_files_are_shown_by_name(secret: Repo) -> None:
    assert diff(secret) == "env       .env.local     ~ API_URL   + DEBUG   - OLD\nfiles     + other\n"
    for form in ("-p", "--stat", "--raw", "--json"):
        assert "http" not in diff(secret, form)
    assert "~ API_URL=***\n+ DEBUG=***\n- OLD=***\n" in diff(secret, "-p")
    assert "-API_URL=http://a\n-OLD=1\n+API_URL=http://b\n" in diff(secret, "-p", "--reveal")
    assert "~ API_URL http://a → http://b" in diff(secret, "--reveal")


def test_sealed_file_without_key_is_marked(secret: Repo, hermetic: Path) -> None:
    before = capture(secret, "after")
    for keys in (secret.path / ".git/envhist/keys", hermetic / "config/git-envhist/keys"):
        for key in keys.iterdir():
            key.unlink()
    for words in ((), ("--reveal",), ("-p",), ("-p", "--reveal")):
        shown = diff(secret, *words, "@~1", before)
        assert "sealed" in shown
        assert "API_URL" not in shown


def test_only_chooses_classes(secret: Repo) -> None:
    assert diff(secret, "--only=env", "--name-only") == ".env.local\n"
    assert diff(secret, "--only=files", "--name-only") == "other\n"
    assert diff(secret, "--only=files,env", "--name-only") == ".env.local\nother\n"


def test_json_equals_the_text_and_matches_the_schema(secret: Repo) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    (secret.path / "empty").mkdir()
    (secret.path / "app.py").chmod(0o600)
    output = json.loads(diff(secret, "--json", "-M"))
    jsonschema.validate(output, json.loads(SCHEMA.read_text()))
    assert (output["after"], output["added"], output["modified"], output["removed"]) == ("now", 2, 2, 0)
    assert [(file["status"], file["path"]) for file in output["files"]] == [
        ("M", ".env.local"), ("M", "app.py"), ("A", "empty"), ("A", "other")
    ]  # fmt: skip
    assert output["files"][1]["attributes"] == ["mode"]
    assert {
        "probe": "env",
        "key": ".env.local/DEBUG",
        "before": None,
        "after": "***",
        "role": "direct",
    } in output["facts"]


def test_an_error_under_json_is_json(repo: Repo) -> None:
    done = repo.run("envdiff", "--json", "nonsense")
    assert done.status == 4
    assert json.loads(done.out)["error"]["code"] == "no-such-snapshot"


def test_counts_of_a_capture_equal_those_of_a_diff(repo: Repo) -> None:
    for number in range(5):
        repo.write(f"d/{number}", "x")
    (repo.path / "empty").mkdir()
    capture(repo, "before")
    repo.write("d/0", "y")
    (repo.path / "d/1").chmod(0o600)
    (repo.path / "d/2").unlink()
    (repo.path / "empty").rmdir()
    (repo.path / "new/deep").mkdir(parents=True)
    capture(repo, "after")
    output = json.loads(diff(repo, "--json", "@~1", "@"))
    shown = json.loads(repo.run("envlog", "show", "--json", check=True).out)["env_changed"]
    counts = ("added", "modified", "removed")
    assert [output[word] for word in counts] == [shown[word] for word in counts] == [1, 2, 2]


def test_unusual_names_are_quoted_as_configured_by_core_quotepath(repo: Repo) -> None:
    capture(repo, "before")
    repo.write("ümlaut", "x")
    assert diff(repo, "--name-only") == '"\\303\\274mlaut"\n'
    assert diff(repo, "--name-only", "-z") == "ümlaut\0"
    repo.git("config", "core.quotePath", "false")
    assert diff(repo, "--name-only") == "ümlaut\n"


def test_colour_follows_option_and_configuration(secret: Repo) -> None:
    assert "\x1b[" not in diff(secret, "-p")
    assert "\x1b[32m" in diff(secret, "-p", "--color")
    assert diff(secret, "--color=never") == diff(secret)
