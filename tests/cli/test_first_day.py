"""What somebody types on the first day, and what it says to that."""

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


def test_after_a_part_was_restored_the_rest_is_told(repo: Repo) -> None:
    repo.write(".env", "A=1\n")
    repo.write("lib/x", "1\n")
    good = capture(repo, "good state")[:7]
    (repo.path / "lib/x").unlink()
    repo.write(".env", "A=2\n")
    rest = f"1 path beside differs from {good}; to bring all of it back: git envrestore {good}\n"
    assert rest in repo.run("envrestore", "@", "--", ".env", check=True).out
    again = repo.run("envrestore", "@", check=True).out
    assert again == f"nothing to restore: all is as the restore of a part has left it\n{rest}"
    assert "beside differ" not in repo.run("envrestore", good, check=True).out
    assert (repo.path / "lib/x").exists()


def test_what_goes_and_what_was_not_committed_is_named(repo: Repo) -> None:
    good = capture(repo, "good state")
    repo.write("notes.txt", "mine\n")
    repo.write("app.py", "print('newer')\n")
    done = repo.run("envrestore", good, check=True).out
    saved = done.partition("saved what was here as ")[2][:7]
    assert "  remove 1 · replace 1 · unchanged 0\n  removes notes.txt\n" in done
    assert f"uncommitted changes of app.py were replaced: they are in {saved} (to keep" in done
    for number in range(8):
        repo.write(f"new-{number}")
    assert "\n  removes new-0, new-1, new-2, new-3, 4 more\n" in repo.run("envrestore", good, check=True).out


def test_paths_behind_a_revision_need_no_dashes(repo: Repo) -> None:
    repo.write(".env.local", "A=1\n")
    capture(repo, "one")
    (repo.path / ".env.local").unlink()
    assert "write 1" in repo.run("envrestore", "@", ".env.local", check=True).out
    assert repo.run("envlog", "show", "@", "app.py", check=True).out == "print('hello')\n"
    for words in (("envrestore", "@", "nowhere"), ("envlog", "show", "@", "app.py", "--", "app.py")):
        done = repo.run(*words)
        assert (done.status, "one word too many" in done.err) == (129, True)


def test_who_wants_to_look_at_a_path_is_led_to_what_looks(repo: Repo) -> None:
    capture(repo, "one")
    for program in ("envlog", "envdiff"):
        assert (
            "hint: it is a path; show its changes: git envlog -- app.py or git envdiff -- app.py"
            in repo.run(program, "app.py").err
        )


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


def test_a_moment_may_bear_such_a_word_all_the_same(repo: Repo) -> None:
    made = capture(repo, "one", "--name", "clean")
    assert repo.run("envlog", "clean", "--format=%H", check=True).out.strip() == made


def test_a_name_alone_lists_them(repo: Repo) -> None:
    assert repo.run("envlog", "name", check=True).out.startswith("no moment bears a name")
    made = capture(repo, "one", "--name", "a b")
    assert repo.run("envlog", "name", check=True).out.startswith(f"a b  {made[:7]}  ")
    told = json.loads(repo.run("envlog", "name", "--json", check=True).out)
    validate("names", told)
    assert told["names"] == [{"name": "a b", "id": made}]
    repo.write("app.py", "2\n")
    # What is to be typed can be typed as it stands.
    assert "    git envrestore 'a b'\n" in repo.run("envrestore", check=True).out
    gone = repo.run("envlog", "drop", "a b", check=True).out
    assert "one (a b)\n" in gone
    assert "names go along; to take one alone: git envlog name -d 'a b'\n" in gone
    assert "was not dropped" not in repo.run("envlog", "undrop", made, check=True).err
    assert f"hint: {made[:7]} was not dropped" in repo.run("envlog", "undrop", made).err


def test_room_comes_back_when_somebody_wants_it(repo: Repo) -> None:
    capture(repo, "one")
    repo.write("large", bytes(range(256)) * 4096)
    gone = capture(repo, "by mistake")
    (repo.path / "large").unlink()
    repo.run("envlog", "drop", gone, check=True)
    assert (
        "when the trash is emptied: git envlog gc --empty-trash\n" in repo.run("envlog", "du", check=True).out
    )
    repo.run("envlog", "gc", "--empty-trash", check=True)
    assert repo.run_git("cat-file", "-e", gone, check=False).status != 0
    assert repo.run("envlog", "undrop", check=True).out == "nothing is in the trash\n"
    assert repo.run("envlog", "gc", "--empty-trash", "--no-prune").status == 129


def test_a_key_can_be_written_for_oneself_alone(repo: Repo, tmp_path: Path) -> None:
    repo.write(".env", "A=1\n")
    capture(repo, "one")
    place = tmp_path / "key.txt"
    done = repo.run("envlog", "key", "export", "-o", str(place), check=True)
    assert "for you alone to read" in done.out
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert place.read_text() == repo.run("envlog", "key", "export", check=True).out
    assert repo.run("envlog", "key", "export", "-o", str(place)).status == 3
    assert repo.run("envlog", "key", "show", "-o", str(place)).status == 129


def test_a_command_that_failed_says_so_in_the_list(repo: Repo) -> None:
    repo.run("envlog", "run", "-m", "break", "--", "sh", "-c", "echo x > made; exit 3")
    assert repo.run("envlog", "-1", check=True).out.endswith("· break  +1 file · exit 3\n")


def test_the_words_of_envdiff_choose_a_class(repo: Repo) -> None:
    capture(repo, "one")
    assert repo.run("envdiff", "--only=pip", check=True).out == repo.run("envdiff", "--only=packages").out
    assert repo.run("envrestore", "-n", "@", "--only=db", check=True).status == 0
    assert repo.run("envdiff", "--only=odd").status == 129
    # A restore brings back nothing that was not asked for: npm's packages are none of pip's.
    refused = repo.run("envrestore", "-n", "@", "--only=pip")
    assert (refused.status, "git envrestore <rev> -- .venv" in refused.err) == (129, True)


def test_a_file_of_a_moment_is_spelled_as_git_spells_it(repo: Repo) -> None:
    repo.write("sub/.env", "A=1\n")
    capture(repo, "one", "--name", "one")
    repo.write("sub/.env", "A=2\n")
    inside = repo.path / "sub"
    for word in ("one:sub/.env", "one:./.env", "@:sub/.env"):
        assert repo.run("envlog", "show", word, cwd=inside, check=True).out == "A=1\n", word
    assert repo.run("envlog", "show", "one:nothing").err.startswith("error: not in this snapshot: 'nothing'")
    assert repo.run("envlog", "show", "none:sub/.env").status == 4
    assert repo.run("envlog", "show", ":/nothing:sub/.env").status == 4


def test_a_word_that_is_only_near_to_one_of_git_is_no_slip(repo: Repo) -> None:
    capture(repo, "one")
    assert [repo.run("envlog", word).status for word in ("cats", "hook", "cleaner", "ad")] == [4] * 4


def test_an_option_without_its_value_says_what_that_is(repo: Repo) -> None:
    told = repo.run("envlog", "install", "--agent").err.splitlines()[1]
    assert told.startswith("hint: --agent <name>: claude-code, codex")


def test_a_man_page_opens_at_the_section_of_a_subcommand() -> None:
    page = find_page("git-envlog")
    assert page is not None
    assert opened_at(None) == dict(os.environb)
    require("man")
    told = subprocess.run(["man", page], capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80"})
    plain = re.sub("\x1b\\[[0-9;]*m|.\x08", "", told.stdout).splitlines()
    for name in SUBCOMMANDS:
        wanted = opened_at(name)[b"LESS"].decode().partition("+/^")[2]
        # The first that less finds.
        assert next(line for line in plain if line.startswith(wanted)) == f"   {name}"


def test_new_is_what_has_other_bytes_and_not_what_was_only_touched(repo: Repo) -> None:
    repo.write("large", "x" * 5000)
    repo.write("sub/small", "1\n")
    capture(repo, "one")
    os.utime(repo.path / "large")
    repo.write("sub/new", "22\n")
    assert re.search(r"\n 4 files, 1 new \(3 B, \S+ \S+ stored\), ", repo.run("envlog", "capture", "two").out)
    repo.write("large", "y" * 5000)
    os.utime(repo.path / "sub/small")
    told = json.loads(repo.run("envlog", "capture", "three", "--json", check=True).out)
    assert (told["new_files"], told["new_bytes"]) == (1, 5000)
    for path in ("large", "sub/new", "sub/small", "app.py"):
        os.utime(repo.path / path)
    assert "\n 4 files, 0 new, " in repo.run("envlog", "capture", "four", check=True).out


def test_what_is_read_again_because_the_records_were_lost_is_not_new(repo: Repo) -> None:
    repo.write("gone", "x\n")
    repo.write("stays", "y\n")
    capture(repo, "one")
    repo.run("envlog", "purge", "gone", check=True)
    (repo.path / "gone").unlink()
    assert re.search(r"\n \d+ files?, 0 new, ", repo.run("envlog", "capture", "two", check=True).out)
    shutil.rmtree(repo.path / ".git/envhist/cache")
    repo.write("app.py", "another\n")
    told = json.loads(repo.run("envlog", "capture", "three", "--json", check=True).out)
    assert (told["new_files"], told["files"]) == (1, 2)
