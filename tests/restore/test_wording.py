"""Wording of messages about restores."""

from __future__ import annotations

import json
import re

import pytest

from git_envhist.api import EnvHistory
from git_envhist.cli.views.restore import problems
from git_envhist.model import EnvPath, RestorePlan, RestoreResult, SkippedPath
from tests.crash.faults import needs_strace
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo

KILLED_AT_SWAP = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=renameat2:signal=KILL:when=1")
NOTHING_YET = "hint: nothing was captured here yet: git envlog capture\n"


def capture(repo: Repo, intent: str, *words: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, *words, check=True).out.strip()


def test_missing_snapshots_are_reported_in_one_wording(repo: Repo) -> None:
    for words in (["envlog"], ["envrestore"]):
        done = repo.run(*words, check=True)
        assert (done.out, done.err) == ("", NOTHING_YET)
    for words in (["envrestore", "@"], ["envdiff"], ["envlog", "show"], ["envlog", "fork", "../there"]):
        done = repo.run(*words)
        told = "error: nothing was captured here yet\nhint: git envlog capture\n"
        assert (done.status, done.err) == (4, told)
    done = repo.run("envrestore", "--undo")
    assert (done.status, done.err.endswith("\n" + NOTHING_YET)) == (4, True)


def test_moving_name_prints_its_target(repo: Repo) -> None:
    first = capture(repo, "one")
    repo.run("envlog", "name", "release", check=True)
    second = capture(repo, "two")
    done = repo.run("envlog", "name", "release", check=True)
    assert done.out == f"{second[:7]} is named 'release' (moved from {first[:7]}): two\n"
    assert repo.run("envlog", "name", "release", check=True).out == f"{second[:7]} is named 'release': two\n"
    output = json.loads(repo.run("envlog", "name", "--json", "release", first, check=True).out)
    assert output["moved_from"] == second


def first_word(repo: Repo) -> str:
    return repo.run("envlog", "-1", "--format=%s", check=True).out.strip()


@pytest.mark.parametrize("words", [["--", "a"], ["--only=files"], ["--keep-new"], ["--keep-tracked"]])
def test_partial_restore_has_its_own_intent(repo: Repo, words: list[str]) -> None:
    for name in ("a", "b"):
        repo.write(name, "1")
    clean = capture(repo, "clean")
    for name in ("a", "b"):
        repo.write(name, "2")
    repo.run("envrestore", clean, *words, check=True)
    assert re.fullmatch(rf"restore of {clean[:7]} \([12] paths?\)", first_word(repo))
    # The intent names the restored snapshot, not the one it was restored from.
    part = repo.run("envlog", "show", "--json", "@", check=True).out
    repo.write("c", "3")
    repo.run("envrestore", json.loads(part)["id"], check=True)
    assert first_word(repo) == f"restore of {json.loads(part)['id'][:7]}"


@needs_strace
def test_interrupted_partial_restore_is_partial_when_continued(repo: Repo) -> None:
    for name in ("a", "b"):
        repo.write(name, "1")
    clean = capture(repo, "clean")
    for name in ("a", "b"):
        repo.write(name, "2")
    repo.run("envrestore", clean, "--", "a", prefix=KILLED_AT_SWAP)
    repo.run("envrestore", "--continue", check=True)
    assert (repo.read("a"), repo.read("b")) == (b"1", b"2")
    assert first_word(repo) == f"restore of {clean[:7]} (in part)"


def test_two_snapshots_of_one_intent_are_both_listed(repo: Repo) -> None:
    first, second = capture(repo, "tests pass"), capture(repo, "tests pass")
    refused = repo.run("envrestore", ":/tests pass")
    assert refused.status == 4
    assert first[:7] in refused.err
    assert second[:7] in refused.err
    # Text that is only a part of an intent selects the newest match.
    assert repo.run("envrestore", "-n", ":/tests pa", check=True).out.startswith("nothing to restore")
    assert json.loads(repo.run("envlog", "show", "--json", ":/tests pa", check=True).out)["id"] == second


def test_undo_reverts_changes_after_a_restore_before_the_restore(repo: Repo) -> None:
    repo.write("file", b"one")
    first = capture(repo, "one")
    repo.write("file", b"two")
    repo.run("envrestore", first, check=True)
    repo.write("other", b"since")
    output = repo.run("envrestore", "-n", "--undo", check=True).out
    assert output.endswith(
        f"this goes back to the state after the restore of {first[:7]}; to undo that restore too: "
        "git envrestore --undo 2\n"
    )
    done = repo.run("envrestore", "--undo", check=True).out
    assert done.endswith(
        f"this is the state after the restore of {first[:7]}; to undo that restore too: git envrestore --undo\n"
    )
    assert (repo.read("file"), (repo.path / "other").exists()) == (b"one", False)
    again = repo.run("envrestore", "--undo", check=True).out
    assert again.endswith("to redo: git envrestore --redo\n")
    assert repo.read("file") == b"two"
    repo.run("envrestore", "--redo", "2", check=True)
    assert (repo.read("file"), repo.read("other")) == (b"one", b"since")


def test_command_in_another_directory_prints_the_environment(repo: Repo) -> None:
    capture(repo, "one")
    repo.write("sub/file", b"1")
    place = f" in '{repo.path}'\n"
    assert place not in repo.run("envrestore", "-n", "@", check=True).out
    assert place in repo.run("envrestore", "-n", "@", cwd="sub", check=True).out
    variables = {"GIT_DIR": str(repo.path / ".git"), "GIT_WORK_TREE": str(repo.path)}
    assert place in repo.run("envrestore", "-n", "@", cwd="..", env=variables, check=True).out
    assert place in repo.run("envrestore", "@", cwd="sub", check=True).out.splitlines(keepends=True)[0]


def test_unchanged_paths_are_counted_in_files(repo: Repo) -> None:
    repo.write("same", b"1")
    first = capture(repo, "one")
    repo.write("app.py", b"changed")
    for number in range(3):
        repo.write(f"came/deep/{number}", b"2")
    output = repo.run("envrestore", first, check=True).out.splitlines()
    assert output[1] == "  remove 5 · replace 1 · unchanged 1"


def test_unreadable_ignore_file_is_reported(repo: Repo) -> None:
    repo.write(".envhistignore", b"cache/\n", 0)
    repo.write("cache/a", b"1")
    done = repo.run("envlog", "capture", "x", check=True, prefix=as_ordinary_user())
    assert "'.envhistignore' cannot be read and is ignored: permission denied" in done.err


def test_first_capture_and_list_have_equal_counts(repo: Repo) -> None:
    (repo.path / "empty/deep").mkdir(parents=True)
    (repo.path / "link").symlink_to("app.py")
    printed = repo.run("envlog", "capture", "first", check=True).out
    assert printed.splitlines()[1].startswith(" 2 files, ")
    assert repo.run("envlog", check=True).out.endswith("first  2 files in all\n")


def test_count_of_hidden_losses_is_exact(repo: Repo) -> None:
    capture(repo, "one")
    snapshot = EnvHistory.open(str(repo.path), workers="here", one_command=True).resolve("@")
    few, many = (tuple(SkippedPath(EnvPath(b"%d" % n), "why") for n in range(count)) for count in (3, 25))
    for kept, losses in ((few, many), (many, few), (many, many)):
        *told, last = problems(RestoreResult(snapshot, RestorePlan((), ()), kept=kept, losses=losses))
        assert last.startswith(f"and {len(kept) + len(losses) - len(told)} more")
    assert len(list(problems(RestoreResult(snapshot, RestorePlan((), ()), kept=few, losses=few)))) == 6


@pytest.mark.full
def test_removed_paths_are_printed_in_ascii_in_a_pipe(repo: Repo) -> None:
    repo.write("a/x", b"1")
    capture(repo, "one")
    for number in range(20):
        repo.write(f"b/{number}", b"2")
    (repo.path / "a/x").unlink()
    capture(repo, "two")
    for words in (("-n", ":/one"), (), (":/one",), ("--undo",)):
        done = repo.run("envrestore", *words, check=True)
        assert "\u2212" not in done.out + done.err, words
    assert "b/ -20" in repo.run("envrestore", "-n", ":/one", check=True).out
