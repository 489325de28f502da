"""`git envlog browse` in a real terminal: each key, what it shows, what it does to the environment."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Trigger
from tests.support.needs import needs
from tests.support.oracle import listing
from tests.support.repository import Repo
from tests.tui.growing import grow_timeline
from tests.tui.screen import Screen, wait_until_gone

pytestmark = [pytest.mark.full, needs("tmux")]

SMALL, LARGE = (80, 24), (200, 60)
Open = Callable[..., Screen]


@pytest.fixture
def told(repo: Repo) -> Repo:
    repo.write(".env", "A=1\n")
    repo.run("envlog", "capture", "clean clone", "--verify", "true", check=True)
    repo.write("node_modules/left-pad/index.js", "pad\n")
    repo.run("envlog", "capture", "after package install", "--verify", "false", check=True)
    repo.write(".env", "A=1\nAPI_URL=http://localhost\n")
    repo.write("app.py", "print('works')\n")
    repo.run("envlog", "capture", "working version, app healthy", "--name", "works", check=True)
    return repo


@pytest.fixture
def browse(repo: Repo) -> Iterator[Open]:
    opened: list[Screen] = []

    def open_it(size: tuple[int, int] = SMALL, words: str = "git envlog browse") -> Screen:
        opened.append(Screen(repo.path, words, repo.env, *size, f"envhist-{uuid.uuid4().hex[:12]}"))
        return opened[-1]

    yield open_it
    for screen in opened:
        screen.close()


def cursor(shown: str) -> str:
    """Return the row that has the cursor."""
    return next(line for line in shown.split("\n") if line.startswith("›"))


def test_list_is_left_and_changes_are_right(told: Repo, browse: Open) -> None:
    screen = browse()
    shown = screen.see("repo · 3 snapshots", "env       .env", "+ API_URL", "~ app.py")
    assert "·" in cursor(shown)
    assert "working version" in cursor(shown)
    assert all(len(line) <= 80 for line in shown.split("\n"))
    rows = [line.split("│")[0] for line in shown.split("\n")[1:4]]
    assert [row[1] for row in rows] == ["·", "✗", "✓"]
    # The value of a variable is a secret and not shown.
    assert "localhost" not in shown


@pytest.mark.parametrize("columns", [80, 140, 200])
def test_row_that_is_cut_ends_with_an_ellipsis(repo: Repo, browse: Open, columns: int) -> None:
    for step in range(20):
        for name in "abcdefgh":
            repo.write(f".env.{name}", f"STEP_{step}=1\n")
        repo.run("envlog", "capture", "-m", f"a step with many settings and words, number {step}", check=True)
    shown = browse((columns, 24)).see("20 snapshots", "+ STEP_19")
    rows = [
        line.split("│")[0]
        for line in shown.split("\n")
        if ":" in line and ".env" in line and "· " in line[:3]
    ]
    assert len(rows) > 3
    # The scroll bar may follow.
    assert all(re.search("(…|variables).?$", row.rstrip()) for row in rows), "\n".join(rows)


def test_large_terminal_shows_summaries_in_rows(told: Repo, browse: Open) -> None:
    shown = browse(LARGE).see("3 snapshots", "Timeline:", "(works)")
    assert all(len(line) <= 200 for line in shown.split("\n"))
    assert ".env: +1 variable" in cursor(shown)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_keys_move_the_cursor(told: Repo, browse: Open, size: tuple[int, int]) -> None:
    screen = browse(size)
    screen.see("3 snapshots", "~ app.py")
    for key, wanted in (("j", "after package"), ("Down", "clean clone"), ("k", "after package"), ("G", "clean clone"),
                        ("g", "working version"), ("End", "clean clone"), ("Home", "working version"),
                        ("NPage", "clean clone"), ("PPage", "working version"), ("Up", "working version")):  # fmt: skip
        screen.type(key)
        screen.wait(lambda shown, wanted=wanted: wanted in cursor(shown))  # type: ignore[misc]
    screen.type("j", "j")
    screen.see("clean clone", "Check:")


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_search_narrows_and_escape_shows_all(told: Repo, browse: Open, size: tuple[int, int]) -> None:
    screen = browse(size)
    screen.see("3 snapshots")
    screen.type("/")
    screen.write("PACKAGE inst")
    shown = screen.see("1 of 3 snapshots")
    assert "after package" in cursor(shown)
    screen.type("Enter")
    screen.type("Escape")
    screen.see("· 3 snapshots")
    screen.type("/")
    screen.write("no such words")
    screen.see("0 of 3 snapshots", "no snapshot matches these words")
    screen.type("Escape")
    screen.see("· 3 snapshots")


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_two_marked_snapshots_are_compared(told: Repo, browse: Open, size: tuple[int, int]) -> None:
    screen = browse(size)
    screen.see("3 snapshots", "~ app.py")
    ids = told.run("envlog", "--format=%h", check=True).out.split()
    # Keys come faster than the screen is drawn: each acts on the state in which it was pressed.
    screen.type("d", "j", "j", "d")
    screen.see(f"from {ids[2]} to {ids[0]}", "left-pad", "+ API_URL")
    screen.type("d")
    screen.see(f"marked {ids[2]}")
    screen.type("Escape")
    screen.wait(lambda shown: "marked" not in shown)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_restore_is_planned_confirmed_and_undone(told: Repo, browse: Open, size: tuple[int, int]) -> None:
    screen = browse(size)
    screen.see("3 snapshots")
    screen.type("j", "r")
    shown = screen.see("replace 2", "Enter confirms")
    assert "app.py" in shown
    screen.type("Escape")
    screen.wait(lambda shown: "Enter confirms" not in shown)
    assert told.read("app.py") == b"print('works')\n"
    screen.type("r")
    screen.see("Enter confirms")
    screen.type("Enter")
    screen.see("restored in", "to go back: git envrestore --undo")
    assert told.read("app.py") == b"print('hello')\n"
    assert told.read(".env") == b"A=1\n"
    screen.type("Enter")
    # The snapshot before the restore is folded.
    screen.see("restore of ", "5 snapshots (1 folded)")
    screen.type("u")
    screen.see("undo the last restore", "Enter confirms")
    screen.type("Enter")
    screen.see("restored in")
    assert told.read("app.py") == b"print('works')\n"
    assert told.read(".env") == b"A=1\nAPI_URL=http://localhost\n"


def test_step_is_reverted_after_confirmation_and_its_conflicts_are_shown(told: Repo, browse: Open) -> None:
    told.write("later", "later")
    screen = browse()
    screen.see("3 snapshots")
    screen.type("v")
    screen.see("Enter confirms")
    screen.type("Enter")
    screen.see("reverted in", "to go back: git envrestore --undo")
    assert told.read("app.py") == b"print('hello')\n"
    assert told.read("later") == b"later"
    screen.type("Enter")
    screen.see("revert of ")
    screen.type("u")
    screen.see("Enter confirms")
    screen.type("Enter")
    screen.see("restored in")
    screen.type("Enter")
    told.write("app.py", "print('edited')\n")
    screen.type("End", "k", "k", "v")
    screen.see("1 conflict, nothing is changed", "› ?        app.py: its contents changed on both sides")
    screen.type("t", "Enter")
    screen.see("replace 2", "Enter confirms")
    screen.type("Enter")
    screen.see("reverted in")
    assert told.read("app.py") == b"print('hello')\n"


def test_timeline_is_merged_after_its_conflicts_are_decided(told: Repo, browse: Open) -> None:
    told.write("both", "\0start")
    history = EnvHistory.open(str(told.path), workers="here", one_command=True)
    history.capture("start of both")
    history.fork("@", str(told.path.parent / "two"))
    other = Repo(told.path.parent / "two", told.env)
    other.write("page", "<p>")
    for repo, words in ((other, "there"), (told, "here")):
        repo.write("app.py", f"print('{words}')\n")
        repo.write("both", f"\0{words}")
        repo.write("node_modules/left-pad/index.js", f"{words}\n")
    there = EnvHistory.open(str(other.path), workers="here", one_command=True)
    there.capture("work there")
    assert there.timeline is not None
    before = listing(told.path, top=True)
    screen = browse()
    screen.see("4 snapshots")
    screen.type("m")
    screen.see("Merge what changed in another timeline", f"› {there.timeline}")
    screen.type("Escape")
    screen.wait(lambda shown: "Merge what" not in shown)
    screen.type("m")
    screen.see(f"› {there.timeline}")
    screen.type("Enter")
    screen.see(
        "3 conflicts, nothing is changed", "› ?        app.py: its contents changed", "?        both: its"
    )
    # Enter needs a side for each conflict; the versions of a package are not mixed by any side but ours.
    screen.type("t", "Enter", "b", "t", "Enter")
    screen.see("1 conflict, nothing is changed", "› theirs?  node_modules/left-pad: the package")
    assert listing(told.path, top=True) == before
    screen.type("O", "Enter")
    screen.see("write 2", "replace 1", "Enter confirms")
    screen.type("Enter")
    screen.see("merged in", "to go back: git envrestore --undo")
    assert told.read("app.py") == b"print('there')\n"
    assert told.read("page") == b"<p>"
    assert told.read("node_modules/left-pad/index.js") == b"here\n"
    name = there.timeline.rpartition("/")[2]
    assert (told.read("both"), told.read(f"both.{name}")) == (b"\0here", b"\0there")
    screen.type("Enter")
    screen.see("merge of ")
    screen.type("u")
    screen.see("Enter confirms")
    screen.type("Enter")
    screen.see("restored in")
    assert listing(told.path, top=True) == before


def test_merge_without_another_timeline_names_the_command_that_makes_one(told: Repo, browse: Open) -> None:
    screen = browse()
    screen.see("3 snapshots")
    screen.type("m")
    screen.see("nothing to merge", "git envlog fork")


def test_stale_plan_is_not_carried_out(told: Repo, browse: Open) -> None:
    screen = browse()
    screen.see("3 snapshots")
    screen.type("j", "r")
    screen.see("Enter confirms")
    told.write("app.py", "print('edited meanwhile')\n")
    screen.type("Enter")
    screen.see("not done", "stale")
    assert told.read("app.py") == b"print('edited meanwhile')\n"


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_why_of_a_changed_variable_and_path_is_shown(told: Repo, browse: Open, size: tuple[int, int]) -> None:
    screen = browse(size)
    screen.see("3 snapshots", "~ app.py")
    screen.type("w")
    screen.see("why, at ", "env + API_URL", "app.py", "Enter shows why")
    screen.type("Enter")
    screen.see("why env + API_URL", "Change:", "+ API_URL", "uncertain")
    screen.type("w")
    screen.see("Enter shows why")
    screen.type("G", "End", "k", "j", "Enter")
    shown = screen.see("why ~ app.py", "Change:", "modified")
    assert "localhost" not in shown
    screen.type("w")
    screen.see("Enter shows why")
    screen.type("Escape")
    screen.wait(lambda shown: "Enter shows why" not in shown)
    screen.type("q")
    screen.see("ended with 0")


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_help_opens_and_q_quits(told: Repo, browse: Open, size: tuple[int, int]) -> None:
    screen = browse(size)
    screen.see("3 snapshots")
    screen.type("?")
    screen.see("mark this snapshot", "search intents")
    screen.type("Escape")
    screen.wait(lambda shown: "mark this snapshot" not in shown)
    screen.type("q")
    screen.see("ended with 0")


def test_browser_ends_with_its_terminal(told: Repo, browse: Open) -> None:
    screen = browse()
    screen.see("3 snapshots")
    program = screen.program()
    screen.close()
    wait_until_gone(program)


def test_signal_ends_it_and_restores_the_terminal(told: Repo, browse: Open) -> None:
    screen = browse()
    screen.see("3 snapshots", "~ app.py")
    os.kill(screen.program(), signal.SIGTERM)
    screen.see("ended with 143")


def test_layout_follows_the_terminal_size(told: Repo, browse: Open) -> None:
    screen = browse()
    screen.see("3 snapshots", "~ app.py")
    screen.resize(140, 40)
    screen.wait(lambda shown: "(works)" in cursor(shown))
    screen.resize(60, 16)
    # Wait for the whole screen: during drawing, only the footer may be there.
    shown = screen.wait(lambda shown: "quit" in shown.split("\n")[-1] and "\n›" in shown)
    assert len(shown.split("\n")) <= 16
    assert "working" in cursor(shown)


def test_hostile_text_is_escaped(repo: Repo, browse: Open) -> None:
    hostile, shown = "\x1b[2Jgone\u202e [bold]x[] [", r"\x1b[2Jgone\u202e [bold]x[] ["
    repo.write(hostile, "x")
    repo.write("check.sh", f"echo '{hostile}'; exit 1\n")
    words = ("-m", hostile, "--verify", "sh check.sh", "--name", "[red]x", "--meta", f"{hostile}={hostile}")
    repo.run("envlog", "capture", *words, check=True)
    repo.run("envlog", "note", "-m", hostile, check=True)
    screen = browse(LARGE)
    told = screen.see("1 snapshot", shown, "Timeline:", "Note:", "Names:     [red]x")
    # The row, the heading, the file, the check's output, the details, the note, the values given at the capture.
    assert told.count(shown) >= 8
    screen.type("r")
    screen.see("nothing to restore")
    screen.type("Enter")
    (repo.path / hostile).unlink()
    screen.type("r")
    screen.see("write 1", f"    {shown}", "Enter confirms")


def test_five_thousand_snapshots_can_be_browsed(repo: Repo, browse: Open) -> None:
    repo.run("envlog", "capture", "the first", check=True)
    grow_timeline(repo, 4_999)
    screen = browse()
    screen.see("5,000 snapshots")
    screen.type("G")
    screen.wait(lambda shown: "the first" in cursor(shown))
    screen.type("/")
    screen.write("moment-4321-")
    screen.see("1 of 5,000 snapshots")


def test_empty_history_shows_how_to_start(repo: Repo, browse: Open) -> None:
    browse(LARGE).see("nothing was captured here yet: git envlog capture")


def test_browse_without_a_terminal_is_an_error_with_a_hint(told: Repo, browse: Open) -> None:
    browse(LARGE, "TERM=dumb git envlog browse").see("needs a terminal", "ended with 128")
    refused = told.run("envlog", "browse")
    assert refused.status == 128
    assert "needs a terminal" in refused.err
    assert told.run("envlog", "browse", "--json").status == 129


@pytest.mark.full
def test_list_has_summaries_at_80_columns_and_folds_as_the_terminal_list(told: Repo, browse: Open) -> None:
    screen = browse((80, 24))
    shown = screen.see("3 snapshots")
    newest = next(line for line in shown.split("\n") if "›" in line)
    assert re.search(r"[+~−]\d", newest), shown


def test_head_counts_folded_snapshots(told: Repo, browse: Open) -> None:
    history = EnvHistory.open(str(told.path), workers="here", one_command=True)
    for number in range(3):
        told.write("app.py", f"{number}\n")
        history.capture(trigger=Trigger.COMMIT)
    screen = browse((80, 24))
    screen.see("· 6 snapshots (2 folded)")
    screen.type("/")
    screen.write("package inst")
    screen.see("1 of 6 snapshots (2 folded)")
