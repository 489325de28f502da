"""Typical commands of a new user and their output."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from git_envhist.cli.subcommands import SUBCOMMANDS, find_page, opened_at
from tests.cli.test_json import validate
from tests.support.needs import require
from tests.support.repository import Repo


def capture(repo: Repo, intent: str, *words: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, *words, check=True).out.strip()


def test_restore_of_paths_reports_other_differing_paths(repo: Repo) -> None:
    repo.write(".env", "A=1\n")
    repo.write("lib/x", "1\n")
    good = capture(repo, "good state")[:7]
    (repo.path / "lib/x").unlink()
    repo.write(".env", "A=2\n")
    rest = f"1 other path differs from {good}; to restore all: git envrestore {good}\n"
    assert rest in repo.run("envrestore", "@", "--", ".env", check=True).out
    again = repo.run("envrestore", "@", check=True).out
    assert again == f"nothing to restore: nothing changed since the last restore of paths\n{rest}"
    assert "beside differ" not in repo.run("envrestore", good, check=True).out
    assert (repo.path / "lib/x").exists()


def test_restore_names_removed_and_uncommitted_files(repo: Repo) -> None:
    good = capture(repo, "good state")
    repo.write("notes.txt", "mine\n")
    repo.write("app.py", "print('newer')\n")
    done = repo.run("envrestore", good, check=True).out
    saved = done.partition("saved your files as ")[2][:7]
    assert "  remove 1 · replace 1 · unchanged 0\n  removes notes.txt\n" in done
    assert f"uncommitted changes of app.py were replaced; they are saved in {saved} (to keep" in done
    for number in range(8):
        repo.write(f"new-{number}")
    assert "\n  removes new-0, new-1, new-2, new-3, 4 more\n" in repo.run("envrestore", good, check=True).out


def test_paths_after_a_revision_need_no_dashes(repo: Repo) -> None:
    repo.write(".env.local", "A=1\n")
    capture(repo, "one")
    (repo.path / ".env.local").unlink()
    assert "write 1" in repo.run("envrestore", "@", ".env.local", check=True).out
    assert repo.run("envlog", "show", "@", "app.py", check=True).out == "print('hello')\n"
    for words in (("envrestore", "@", "nowhere"), ("envlog", "show", "@", "app.py", "--", "app.py")):
        done = repo.run(*words)
        assert (done.status, "unexpected argument" in done.err) == (129, True)


def test_path_without_revision_is_answered_with_show(repo: Repo) -> None:
    capture(repo, "one")
    hint = "hint: it is a path; show its changes: git envlog -- app.py or git envdiff -- app.py"
    assert hint in repo.run("envdiff", "app.py").err
    assert repo.run("envlog", "app.py", check=True).out == repo.run("envlog", "--", "app.py", check=True).out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("checkout", "@~1"), "git envrestore"),
        (("commit", "-m", "x"), "git envlog capture"),
        (("add", "."), "git envlog capture"),
        (("rm", "@"), "git envlog drop"),
        (("pull",), "git envlog fetch"),
        (("search", "flask"), "git envlog --grep"),
    ],
)
def test_a_word_of_git_gets_did_you_mean(repo: Repo, words: tuple[str, ...], meant: str) -> None:
    done = repo.run("envlog", *words)
    assert done.status == 129
    assert done.err.splitlines()[1] == f"hint: did you mean '{meant}'?"


def test_synonym_can_be_the_name_of_a_snapshot(repo: Repo) -> None:
    made = capture(repo, "one", "--name", "clean")
    assert repo.run("envlog", "clean", "--format=%H", check=True).out.strip() == made


def test_name_without_arguments_lists_names(repo: Repo) -> None:
    assert repo.run("envlog", "name", check=True).out.startswith("no names")
    made = capture(repo, "one", "--name", "a b")
    assert repo.run("envlog", "name", check=True).out.startswith(f"a b  {made[:7]}  ")
    output = json.loads(repo.run("envlog", "name", "--json", check=True).out)
    validate("names", output)
    assert output["names"] == [{"name": "a b", "id": made}]
    repo.write("app.py", "2\n")
    # Printed commands can be typed unchanged.
    assert "    git envrestore 'a b'\n" in repo.run("envrestore", check=True).out
    planned = repo.run("envlog", "drop", "-n", "a b", check=True).out
    assert "the name is dropped too; to remove only the name: git envlog name -d 'a b'\n" in planned
    gone = repo.run("envlog", "drop", "a b", check=True).out
    assert "one (a b)\n" in gone
    assert "name -d" not in gone
    assert "was not dropped" not in repo.run("envlog", "undrop", made, check=True).err
    assert f"hint: {made[:7]} was not dropped" in repo.run("envlog", "undrop", made).err


def test_emptying_the_trash_frees_space(repo: Repo) -> None:
    capture(repo, "one")
    repo.write("large", bytes(range(256)) * 4096)
    gone = capture(repo, "by mistake")
    (repo.path / "large").unlink()
    repo.run("envlog", "drop", gone, check=True)
    output = repo.run("envlog", "du", check=True).out.splitlines()[1]
    assert re.fullmatch(r"deleting the dropped snapshots frees .*: git envlog gc --empty-trash", output)
    repo.run("envlog", "gc", "--empty-trash", check=True)
    assert repo.run_git("cat-file", "-e", gone, check=False).status != 0
    assert repo.run("envlog", "undrop", check=True).out == "no snapshots are dropped\n"
    assert repo.run("envlog", "gc", "--empty-trash", "--no-prune").status == 129


def test_exported_key_is_readable_by_its_owner_only(repo: Repo, tmp_path: Path) -> None:
    repo.write(".env", "A=1\n")
    capture(repo, "one")
    place = tmp_path / "key.txt"
    done = repo.run("envlog", "key", "export", "-o", str(place), check=True)
    assert "readable only by you" in done.out
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert place.read_text() == repo.run("envlog", "key", "export", check=True).out
    assert repo.run("envlog", "key", "export", "-o", str(place)).status == 3
    assert repo.run("envlog", "key", "show", "-o", str(place)).status == 129


def test_failed_command_is_shown_in_the_list(repo: Repo) -> None:
    repo.run("envlog", "run", "-m", "break", "--", "sh", "-c", "echo x > made; exit 3")
    assert repo.run("envlog", "-1", check=True).out.endswith("· break  +1 file · exit 3\n")


def test_labels_of_envdiff_select_a_class(repo: Repo) -> None:
    capture(repo, "one")
    assert repo.run("envdiff", "--only=pip", check=True).out == repo.run("envdiff", "--only=packages").out
    assert repo.run("envrestore", "-n", "@", "--only=db", check=True).status == 0
    assert repo.run("envdiff", "--only=odd").status == 129
    # Packages of npm are not part of `pip`, so nothing is restored.
    refused = repo.run("envrestore", "-n", "@", "--only=pip")
    assert (refused.status, "git envrestore <rev> -- .venv" in refused.err) == (129, True)


def test_file_of_a_snapshot_is_named_as_in_git(repo: Repo) -> None:
    repo.write("sub/.env", "A=1\n")
    capture(repo, "one", "--name", "one")
    repo.write("sub/.env", "A=2\n")
    inside = repo.path / "sub"
    for word in ("one:sub/.env", "one:./.env", "@:sub/.env"):
        assert repo.run("envlog", "show", word, cwd=inside, check=True).out == "A=1\n", word
    assert repo.run("envlog", "show", "one:nothing").err.startswith("error: not in this snapshot: 'nothing'")
    assert repo.run("envlog", "show", "none:sub/.env").status == 4
    assert repo.run("envlog", "show", ":/nothing:sub/.env").status == 4


def test_word_close_to_a_synonym_is_no_typing_error(repo: Repo) -> None:
    capture(repo, "one")
    assert [repo.run("envlog", word).status for word in ("cats", "hook", "cleaner", "ad")] == [4] * 4


def test_option_without_value_prints_its_help(repo: Repo) -> None:
    output = repo.run("envlog", "install", "--agent").err.splitlines()[1]
    assert output.startswith("hint: --agent <name>: claude-code, codex")


def test_a_man_page_opens_at_the_section_of_a_subcommand() -> None:
    page = find_page("git-envlog")
    assert page is not None
    assert opened_at(None) == dict(os.environb)
    require("man")
    output = subprocess.run(
        ["man", page], capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80"}
    )
    plain = re.sub("\x1b\\[[0-9;]*m|.\x08", "", output.stdout).splitlines()
    for name in SUBCOMMANDS:
        wanted = opened_at(name)[b"LESS"].decode().partition("+/^")[2]
        # less opens at the first line that matches.
        assert next(line for line in plain if line.startswith(wanted)) == f"   {name}"


def test_touched_file_is_not_counted_as_new(repo: Repo) -> None:
    repo.write("large", "x" * 5000)
    repo.write("sub/small", "1\n")
    capture(repo, "one")
    os.utime(repo.path / "large")
    repo.write("sub/new", "22\n")
    assert re.search(r"\n 4 files, 1 new \(3 B, \S+ \S+ stored\), ", repo.run("envlog", "capture", "two").out)
    repo.write("large", "y" * 5000)
    os.utime(repo.path / "sub/small")
    output = json.loads(repo.run("envlog", "capture", "three", "--json", check=True).out)
    assert (output["new_files"], output["new_bytes"]) == (1, 5000)
    for path in ("large", "sub/new", "sub/small", "app.py"):
        os.utime(repo.path / path)
    assert "\n 4 files, 0 new, " in repo.run("envlog", "capture", "four", check=True).out


def test_file_read_again_without_cache_is_not_counted_as_new(repo: Repo) -> None:
    repo.write("gone", "x\n")
    repo.write("stays", "y\n")
    capture(repo, "one")
    repo.run("envlog", "purge", "gone", check=True)
    (repo.path / "gone").unlink()
    assert re.search(r"\n \d+ files?, 0 new, ", repo.run("envlog", "capture", "two", check=True).out)
    shutil.rmtree(repo.path / ".git/envhist/cache")
    repo.write("app.py", "another\n")
    output = json.loads(repo.run("envlog", "capture", "three", "--json", check=True).out)
    assert (output["new_files"], output["files"]) == (1, 2)
