"""The exact output of the commands, with a fixed clock, identity, zone and timeline."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from git_envhist.worktree.read_file import CLOCK_GRANULARITY_NS
from tests.support.repository import Repo, Result

DAY = "2026-11-18T"
HASH = re.compile(r"\b[0-9a-f]{40}\b")


def capture(repo: Repo, clock: str, *words: str) -> str:
    """Take a snapshot at a time of that day; returns its id."""
    moment = {"GIT_COMMITTER_DATE": f"{DAY}{clock}:03+00:00"}
    return repo.run("envlog", "capture", "--porcelain", *words, env=moment, check=True).out.strip()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the history that all tests here share."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def ids(repo: Repo, shelf: Path) -> list[str]:
    """Return the ids of four snapshots, oldest first; the present is 10:30 of their day."""
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}10:30:00+00:00"
    if not (shelf / "ids").exists():
        made = make_history(repo)
        shutil.copytree(repo.path, shelf / "repo", symlinks=True)
        (shelf / "ids").write_text("\n".join(made))
        return made
    shutil.rmtree(repo.path)
    shutil.copytree(shelf / "repo", repo.path, symlinks=True)
    return (shelf / "ids").read_text().split()


def make_history(repo: Repo) -> list[str]:
    repo.git("config", "envhist.timeline", "laptop/app-4f2a91")
    made = [capture(repo, "10:02", "clean clone")]
    repo.write("app.py", "print('bye')\n")
    repo.write("notes.txt", "one\n")
    made.append(capture(repo, "10:11", "before auth refactor\n\nwith a body", "--name", "v1"))
    repo.write("node_modules/a/index.js", "1\n")
    repo.write("node_modules/b/index.js", "2\n")
    (repo.path / "notes.txt").unlink()
    made.append(capture(repo, "10:18", "after package install", "--meta", "ticket=42"))
    repo.write("app.py", "print('again')\n")
    made.append(capture(repo, "10:27", "the \x1b[2Jintent\u202e of\n\nsomebody"))
    return made


def shown(result: Result, ids: list[str]) -> str:
    """Return the output with ids, which depend on the local key, replaced: `<1>` is the oldest, `<1..>` its first
    digits."""
    text = result.out
    for number, one in enumerate(ids, start=1):
        text = text.replace(one, f"<{number}>").replace(one[:7], f"<{number}..>")
    return HASH.sub("<hash>", text)


LIST = """\
<4..>  10:27  · the \\x1b[2Jintent\\u202e of  ~1 file
<3..>  10:18  · after package install       +2 -1 files
<2..>  10:11  · before auth refactor (v1)   +1 ~1 files
<1..>  10:02  · clean clone                 1 file in all
"""


def test_list_has_one_line_per_snapshot(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog")
    assert (shown(done, ids), done.err, done.status) == (LIST, "", 0)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), "4321"),
        (("-2",), "43"),
        (("-n", "1"), "4"),
        (("-n1", "--reverse"), "4"),
        (("--max-count=0",), ""),
        (("--reverse",), "1234"),
        (("--all",), "4321"),
        (("--since", "10:11"), "432"),
        (("--after=10:12",), "43"),
        (("--until", "10:11"), "21"),
        (("--before=10:10",), "1"),
        (("--since=10:05", "--until=10:20"), "32"),
        (("--grep", "install"), "3"),
        (("--grep", "INSTALL", "-i"), "3"),
        (("--grep", "clean", "--grep", "auth"), "21"),
        (("--grep", "^v1$"), "2"),
        (("--trigger", "manual"), "4321"),
        (("--trigger=commit",), ""),
        (("--verdict", "none"), "4321"),
        (("--verdict=pass",), ""),
        (("v1",), "21"),
        (("v1..@",), "43"),
        (("v1..",), "43"),
        (("@~1",), "321"),
        (("..v1",), ""),
        (("--", "notes.txt"), "32"),
        (("--", "node_modules"), "3"),
        (("--", ":(glob)**/*.py"), "421"),
        (("-1", "--", "app.py"), "4"),
        (("v1..", "--", "app.py"), "4"),
    ],
)
def test_arguments_choose_the_listed_snapshots(
    repo: Repo, ids: list[str], words: tuple[str, ...], numbers: str
) -> None:
    done = repo.run("envlog", "--format=%H", *words, check=True)
    assert [ids.index(line) + 1 for line in done.out.splitlines()] == [int(number) for number in numbers]


def test_pathspec_is_relative_to_the_current_directory(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog", "--format=%H", "--", "a", cwd="node_modules", check=True)
    assert done.out.split() == [ids[2]]
    assert repo.run("envlog", "-C", "node_modules", "--format=%H", "--", "../app.py").out.split() == [
        ids[3], ids[1], ids[0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--oneline", "-2"), "<4..> the \\x1b[2Jintent\\u202e of\n<3..> after package install\n"),
        (("-1", "--format=%h|%an|%ae|%aI|%(trigger)", "v1"),
         "<2..>|Test User|test@example.com|2026-11-18T10:11:03+00:00|manual\n"),
        (("--reverse", "--format=%(time) %s%(, verdict)", "v1"), "10:02 clean clone\n10:11 before auth refactor\n"),
        (("-1", "--format=%s%n%b", "v1"), "before auth refactor\nwith a body\n"),
        (("-2", "-z", "--format=%(name)", "v1"), "v1\0\0"),
        (("-1", "--date=iso", "--format=%(time)|%ad"), "2026-11-18 10:27:03 +0000|2026-11-18 10:27:03 +0000\n"),
        (("-1", "--date=relative"), "<4..>  3 minutes ago  · the \\x1b[2Jintent\\u202e of  ~1 file\n"),
        (("-2", "--oneline", "--name-status", "@~1"),
         ("<3..> after package install\nA\tnode_modules/a/index.js\nA\tnode_modules/b/index.js\nD\tnotes.txt\n\n"
          "<2..> before auth refactor (v1)\nM\tapp.py\nA\tnotes.txt\n")),
        (("-1", "--oneline", "--name-only"), "<4..> the \\x1b[2Jintent\\u202e of\napp.py\n"),
        (("-1", "--oneline", "--stat", "@~1"),
         ("<3..> after package install\n node_modules/a/index.js | 1 +\n node_modules/b/index.js | 1 +\n"
          " notes.txt               | 1 -\n 3 files changed, 2 insertions(+), 1 deletion(-)\n")),
        (("-1", "--oneline", "--stat", "@~1", "--", "notes.txt"),
         "<3..> after package install\n notes.txt | 1 -\n 1 file changed, 1 deletion(-)\n"),
    ],
)  # fmt: skip
def test_options_choose_the_layout_of_a_list(
    repo: Repo, ids: list[str], words: tuple[str, ...], text: str
) -> None:
    assert shown(repo.run("envlog", *words, check=True), ids) == text


def test_patch_is_shown_below_each_snapshot(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog", "-p", "-1", check=True)
    assert shown(done, ids).splitlines()[0] == LIST.splitlines()[0]
    assert done.out.endswith("@@ -1 +1 @@\n-print('bye')\n+print('again')\n")


CARD = """\
snapshot <3>
Timeline:  laptop/app-4f2a91
Actor:     Test User <test@example.com>
Date:      Wed Nov 18 10:18:03 2026 +0000
Trigger:   manual
Head:      <hash> (main)
Meta:      ticket=42

    after package install

Summary:   +2 -1 files
"""


def test_show_prints_the_snapshot_in_full(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog", "show", "@~1")
    assert (shown(done, ids), done.err, done.status) == (CARD, "", 0)


def test_full_list_prints_each_snapshot_in_full(repo: Repo, ids: list[str]) -> None:
    assert shown(repo.run("envlog", "--full", "-1", "@~1"), ids) == CARD + "\n"


def test_show_prints_a_file_of_the_snapshot(repo: Repo, ids: list[str]) -> None:
    assert repo.run("envlog", "show", "v1", "--", "notes.txt", check=True).stdout == b"one\n"
    assert repo.run("envlog", "show", "@", "--", "index.js", cwd="node_modules/a").stdout == b"1\n"


def test_missing_file_of_a_snapshot_is_an_error(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog", "show", "@", "--", "notes.txt")
    assert (done.out, done.status) == ("", 4)
    assert "'notes.txt'" in done.err


NOW = """\
the working tree now
Timeline:  laptop/app-4f2a91
Date:      Wed Nov 18 10:30:00 2026 +0000
Newest:    <4> the \\x1b[2Jintent\\u202e of
Summary:   ~1 file
"""


def test_show_now_prints_the_working_tree(repo: Repo, ids: list[str]) -> None:
    repo.write("app.py", "changed\n")
    done = repo.run("envlog", "show", "now")
    assert (shown(done, ids), done.err, done.status) == (NOW, "", 0)
    assert repo.run("envlog", "show", "now", "--", "app.py").out == "changed\n"
    gone = repo.run("envlog", "show", "now", "--", "notes.txt")
    assert (gone.status, gone.out) == (4, "")


def test_show_of_two_paths_is_a_usage_error(repo: Repo, ids: list[str]) -> None:
    assert repo.run("envlog", "show", "@", "--", "a", "b").status == 129


def test_name_and_note_print_their_results(repo: Repo, ids: list[str]) -> None:
    for words, text in [
        (("name", "release", "@~1"), "<3..> is named 'release': after package install\n"),
        (("note", "release", "-m", "it was the proxy"), "added a note to <3..>: after package install\n"),
        (("--oneline", "-1", "release"), "<3..> after package install (release)\n"),
        (("name", "-d", "release"), "<3..> is no longer named 'release'\n"),
    ]:
        done = repo.run("envlog", *words)
        assert (shown(done, ids), done.err, done.status) == (text, "", 0)
    assert (
        "Note (Wed Nov 18 10:30:00 2026 +0000):\n    it was the proxy\n"
        in repo.run("envlog", "show", "@~1").out
    )
    again = repo.run("envlog", "name", "-d", "release")
    assert (again.status, again.err.splitlines()[0]) == (4, "error: no snapshot matches 'release'")


def test_name_moves_to_the_last_snapshot(repo: Repo, ids: list[str]) -> None:
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}10:31:00+00:00"
    repo.run("envlog", "name", "v1", "@", check=True)
    assert [line for line in shown(repo.run("envlog"), ids).splitlines() if "(v1)" in line] == [
        "<4..>  10:27  · the \\x1b[2Jintent\\u202e of (v1)  ~1 file"
    ]
    assert repo.run("envlog", "--format=%H", "-1", "v1").out.strip() == ids[3]


@pytest.mark.parametrize(
    "name", ["show", "capture", "bisect", "list", "good", "now", "@", "HEAD", "deadbeef", "a..b"]
)
def test_name_with_another_meaning_is_refused(repo: Repo, ids: list[str], name: str) -> None:
    for words in (("name", name), ("capture", "x", "--name", name)):
        done = repo.run("envlog", *words)
        assert done.status == 3
        assert done.err.startswith(f"error: not usable as a name: '{name}'")
    assert len(repo.run("envlog", "--oneline").out.splitlines()) == len(ids)


def test_every_word_of_a_line_names_its_snapshot(repo: Repo, ids: list[str]) -> None:
    for line, one in zip(repo.run("envlog").out.splitlines(), reversed(ids), strict=True):
        printed = line.split()
        for word in (printed[0], printed[1]):
            assert repo.run("envlog", "-1", "--format=%H", word).out.strip() == one
    for one in ids:
        subject = repo.git("log", "-1", "--format=%s", one)
        assert repo.run("envlog", "-1", "--format=%H", f":/{subject}").out.strip() == one


def test_capture_prints_its_result(repo: Repo) -> None:
    repo.git("config", "envhist.timeline", "laptop/app-4f2a91")
    repo.run("envlog", "capture", "first", check=True)
    repo.write("new.txt", "x" * 5000)
    done = repo.run("envlog", "capture", "the \x1bnew one")
    (made,) = repo.run("envlog", "-1", "--format=%h").out.splitlines()
    first, second = done.out.splitlines()
    assert first == f"[laptop/app-4f2a91 {made}] the \\x1bnew one"
    assert re.fullmatch(r" 2 files, 1 new \(4\.9 KiB, \S+ (B|KiB) stored\), \d\.\d+ s", second)
    assert (done.err, done.status) == ("", 0)


def test_first_capture_prints_directories_and_how_to_exclude_one(repo: Repo) -> None:
    repo.write("node_modules/a.js", "x" * 50)
    repo.write("data/a.bin", "x" * 100)
    done = repo.run("envlog", "capture", "first")
    assert "largest directories" in done.out
    assert "  100 B          1 file  data/\n" in done.out
    assert "echo /data/ >> .envhistignore\n" in done.out
    assert "echo /node_modules/" not in done.out


def test_capture_without_changes_is_reported(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog", "capture", "--if-changed")
    assert done.out.startswith("nothing changed since the newest snapshot (")
    assert repo.run("envlog", "capture", "--if-changed", "--porcelain").out == ids[3] + "\n"
    assert len(repo.run("envlog", "--oneline").out.splitlines()) == len(ids)


def test_a_dry_run_stores_nothing(repo: Repo) -> None:
    # A file as new as the resolution of the clock would be read once more.
    time.sleep(2 * CLOCK_GRANULARITY_NS / 1e9)
    repo.run("envlog", "capture", "first", check=True)
    repo.write("big/file", "x" * 3000)
    done = repo.run("envlog", "capture", "-n", "x")
    told = r"would read 1 file \(2\.9 KiB\) and store what is new, \d\.\d+ s\n +2\.9 KiB +1 file  big/\n"
    assert re.fullmatch(told, done.out)
    assert len(repo.run("envlog", "--oneline").out.splitlines()) == 1


def test_list_before_the_first_capture_is_empty(repo: Repo) -> None:
    done = repo.run("envlog")
    assert (done.out, done.status) == ("", 0)
    assert done.err == "hint: nothing was captured here yet: git envlog capture\n"


def test_word_is_a_path_if_it_exists(repo: Repo, ids: list[str]) -> None:
    done = repo.run("envlog", "notes.md")
    assert done.status == 4
    repo.write("notes.md")
    done = repo.run("envlog", "notes.md")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_git_envhist_prints_the_same(repo: Repo, ids: list[str]) -> None:
    assert repo.run("envhist", "show", "v1").out == repo.run("envlog", "show", "v1").out
    assert repo.run("envhist", "-C", ".", "show", "v1").out == repo.run("envlog", "-C", ".", "show", "v1").out


def test_an_alias_is_run_where_it_was_called(repo: Repo, ids: list[str]) -> None:
    repo.git("config", "alias.el", "!git-envlog")
    done = repo.execute("git", "el", "--format=%H", "--", "a", cwd="node_modules")
    assert done.out.split() == [ids[2]]


def test_git_dir_and_work_tree_are_respected(repo: Repo, ids: list[str], tmp_path: Path) -> None:
    done = repo.execute("git", "-C", str(repo.path), "envlog", "-1", "--format=%H", cwd=tmp_path)
    assert done.out.strip() == ids[3]
    apart = repo.execute(
        "git",
        f"--git-dir={repo.path}/.git",
        f"--work-tree={repo.path}",
        "envlog",
        "-1",
        "--format=%H",
        cwd=tmp_path,
    )
    assert apart.out.strip() == ids[3]


def test_colour_by_option_and_configuration(repo: Repo, ids: list[str]) -> None:
    assert repo.run("envlog", "-1", "--color").out.startswith(f"\x1b[33m{ids[3][:7]}\x1b[m")
    assert repo.run("envlog", "-1", "-C", ".", env={"FORCE_COLOR": "1"}).out.startswith("\x1b[33m")
    repo.git("config", "color.envhist", "always")
    repo.git("config", "color.envhist.id", "blue")
    assert repo.run("envlog", "-1").out.startswith("\x1b[34m")
    assert "\x1b" not in repo.run("envlog", "-1", "--no-color").out
    assert "\x1b" not in repo.run("envlog", "-1", env={"NO_COLOR": "1"}).out
    done = repo.execute("git", "-c", "color.envhist=false", "envlog", "-1")
    assert "\x1b" not in done.out
