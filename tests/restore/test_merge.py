"""A merge joins what changed in another timeline with what changed here; overlaps are conflicts."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import UsageError
from git_envhist.git.current_actor import current_actor
from git_envhist.lazy import replace
from git_envhist.model import RestoreResult, Snapshot, Trigger
from git_envhist.restore import execute
from git_envhist.restore.merge_pairs import MergeConflicts
from git_envhist.restore.merge_sources import find_merge
from tests.cli.test_json import validate
from tests.crash.faults import needs_strace, traced
from tests.remote.conftest import make_remote
from tests.restore.test_revert import FILES, differences, random_edit, start
from tests.restore.unsigned import make_stranger
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo

LINES = b"".join(b"%d\n" % number for number in range(1, 31))


def opened(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def state(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


def forked(repo: Repo, name: str = "two") -> Repo:
    """Fork the newest snapshot into a directory beside the repository."""
    opened(repo).fork("@", repo.path.parent / name)
    return Repo(repo.path.parent / name, repo.env)


@pytest.fixture
def pair(repo: Repo) -> tuple[Repo, Repo]:
    """Two working trees with disjoint changes since their common snapshot `start`."""
    repo.write("lines", LINES)
    repo.write("old", b"old")
    repo.write("dir/file", b"file", mode=0o644)
    opened(repo).capture("start")
    other = forked(repo)
    other.write("lines", LINES.replace(b"\n3\n", b"\nthree\n"))
    other.write("page/index.html", b"<p>")
    (other.path / "dir/file").chmod(0o600)
    opened(other).capture("a page")
    repo.write("lines", LINES.replace(b"\n25\n", b"\ntwenty-five\n"))
    (repo.path / "old").unlink()
    repo.write("dir/file", b"edited", mode=0o644)
    return repo, other


def timeline(repo: Repo) -> str:
    found = opened(repo).timeline
    assert found is not None
    return found


def newest(repo: Repo) -> Snapshot:
    return opened(repo).resolve("@")


def test_merge_joins_disjoint_changes_of_a_fork_and_undo_takes_them_back(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    before = state(repo)
    shown = repo.run("envlog", "merge", timeline(other), check=True).out
    assert repo.read("lines") == LINES.replace(b"\n3\n", b"\nthree\n").replace(b"\n25\n", b"\ntwenty-five\n")
    assert repo.read("page/index.html") == b"<p>"
    assert not (repo.path / "old").exists()
    assert (repo.read("dir/file"), (repo.path / "dir/file").stat().st_mode & 0o777) == (b"edited", 0o600)
    merged = newest(repo)
    theirs = newest(other)
    assert merged.intent == f"merge of {theirs.id[:7]} of {theirs.timeline}"
    assert (merged.merged, merged.restored_from) == (theirs.id, None)
    assert shown.startswith(f"  merge {theirs.id[:7]} of {theirs.timeline} (since ")
    assert "--keep-tracked" not in shown
    assert shown.endswith("to undo: git envrestore --undo\n")
    repo.run("envrestore", "--undo", check=True)
    assert state(repo) == before


def test_merging_in_either_direction_gives_the_same_tree(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    opened(repo).capture("here")
    there, here = newest(other).id, newest(repo).id
    opened(repo).merge(there)
    opened(other).merge(here)
    assert differences(repo.path, other.path) == ""


def test_dry_run_of_a_merge_names_both_sides_and_changes_nothing(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    before, tip = state(repo), newest(repo).id
    told = json.loads(repo.run("envlog", "merge", "-n", "--json", timeline(other), check=True).out)
    validate("restored", told)
    assert told["merged"] == f"{newest(other).id[:7]} of {timeline(other)}"
    assert (told["base"], told["conflicts"]) == (tip, [])
    assert (state(repo), newest(repo).id) == (before, tip)
    done = repo.run("envlog", "merge", f"--plan={told['plan_id']}", timeline(other))
    assert done.status == 0
    stale = repo.run("envlog", "merge", f"--plan={told['plan_id']}", timeline(other))
    assert (stale.status, "git envlog merge -n --json" in stale.err) == (3, True)


def test_second_merge_begins_at_the_first_unless_that_was_undone(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    opened(repo).capture("here")
    first, base = newest(other), newest(repo)
    start_of_both = opened(repo).resolve(":/start")
    assert opened(repo).merge(timeline(other)).base == start_of_both
    other.write("more", b"more")
    opened(other).capture("more")
    again = opened(repo).merge(timeline(other), dry_run=True)
    assert again.base is not None
    assert (again.base.id, [step.path for step in again.plan.steps]) == (first.id, [b"more"])
    back = opened(other).merge(timeline(repo), dry_run=True)
    assert back.base is not None
    assert back.base.id == first.id
    opened(repo).undo()
    undone = opened(repo).merge(timeline(other), dry_run=True)
    assert undone.base is not None
    assert (undone.base.id, newest(repo).merged) == (start_of_both.id, None)
    assert base.timeline == timeline(repo)


def test_forks_of_different_snapshots_have_the_older_one_in_common(repo: Repo) -> None:
    opened(repo).capture("first")
    one = forked(repo, "one")
    repo.write("later", b"later")
    opened(repo).capture("second")
    two = forked(repo, "two")
    two.write("two", b"2")
    opened(two).capture("work")
    joined = opened(one).merge(timeline(two))
    assert joined.base is not None
    assert joined.base.intent == "first"
    assert (one.read("later"), one.read("two")) == (b"later", b"2")


def test_base_makes_a_merge_of_one_step(repo: Repo) -> None:
    repo.write("lines", LINES)
    history = opened(repo)
    history.capture("one")
    repo.write("lines", LINES.replace(b"\n3\n", b"\nthree\n"))
    repo.write("new", b"new")
    history.capture("two")
    history.restore(":/one")
    repo.write("lines", LINES.replace(b"\n25\n", b"\ntwenty-five\n"))
    shown = repo.run("envlog", "merge", ":/two", check=True).out
    assert shown.splitlines()[1].startswith("it is part of this timeline; ")
    repo.run("envlog", "merge", "--base", ":/one", ":/two", check=True)
    assert repo.read("new") == b"new"
    assert b"three" in repo.read("lines")
    assert b"twenty-five" in repo.read("lines")
    # The rest of the merged timeline is not part of this one.
    assert newest(repo).merged is None


def test_timelines_without_a_common_snapshot_need_a_base(repo: Repo, tmp_path: Path) -> None:
    opened(repo).capture("one")
    repo.git("worktree", "add", "-q", "--detach", "../alone")
    alone = Repo(repo.path.parent / "alone", repo.env)
    alone.write("more", b"more")
    opened(alone).capture("other")
    refused = repo.run("envlog", "merge", timeline(alone))
    assert (refused.status, "have no snapshot in common" in refused.err) == (3, True)
    assert "git envlog merge --base <rev>" in refused.err


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 129),
        (("now",), 129),
        (("--ours", "--skip-conflicts", "@"), 129),
        (("--resolve", "ours", "@"), 129),
        (("--resolve", "mine=lines", "@"), 129),
        (("--resolve", "ours=class:none", "@"), 129),
        (("no-such-timeline",), 4),
    ],
)
def test_merge_of_nothing_or_with_wrong_sides_is_an_error(
    pair: tuple[Repo, Repo], words: tuple[str, ...], status: int
) -> None:
    assert pair[0].run("envlog", "merge", *words).status == status


# Conflicts.


@pytest.fixture
def overlapping(pair: tuple[Repo, Repo]) -> tuple[Repo, Repo]:
    """The two working trees with changes of the same lines, and of the same variable."""
    repo, other = pair
    repo.write("lines", repo.read("lines").replace(b"\n3\n", b"\nIII\n"))
    repo.write("binary", b"\0here")
    other.write("binary", b"\0there")
    repo.write("src/app", b"here")
    other.write("src/app", b"there")
    opened(other).capture("overlap")
    return repo, other


def test_every_overlap_of_a_merge_is_listed_and_nothing_changes(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    before = state(repo)
    refused = repo.run("envlog", "merge", timeline(other))
    assert refused.status == 3
    assert [line.split(": ")[1] for line in refused.out.splitlines()] == ["binary", "lines", "src/app"]
    assert f"git envlog merge -n {newest(other).id[:7]}" in refused.err
    assert state(repo) == before


def test_conflict_of_a_path_that_a_side_lacks_names_what_each_side_did(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    other.write("old", b"edited there")
    (other.path / "dir/file").unlink()
    for one in pair:
        one.write("new", str(one.path))
    opened(other).capture("more")
    found = opened(repo).merge(timeline(other), dry_run=True).conflicts
    assert {(one.path, one.why) for one in found} == {
        (b"dir/file", "changed here, removed there"),
        (b"new", "created on both sides"),
        (b"old", "changed there, removed here"),
    }


def test_markers_are_written_into_a_text_that_both_sides_created(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    for one, text in ((repo, "here\n"), (other, "there\n")):
        one.write("new", text)
        one.write("image", b"\0" + text.encode())
    opened(other).capture("more")
    refused = opened(repo).merge(timeline(other), conflict="markers", dry_run=True)
    assert [(one.path, one.why) for one in refused.conflicts] == [(b"image", "created on both sides")]
    opened(repo).merge(timeline(other), conflict="markers", resolve={"image": "ours"})
    name = timeline(other).rpartition("/")[2]
    assert repo.read("new").decode() == f"<<<<<<< now\nhere\n=======\nthere\n>>>>>>> {name}\n"


def test_skipped_conflicts_leave_their_paths_and_the_rest_is_merged(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    lines = repo.read("lines")
    done = repo.run("envlog", "merge", "--skip-conflicts", timeline(other))
    assert done.status == 5
    assert "warning: not changed: 'lines': its contents changed on both sides" in done.err
    assert (repo.read("lines"), repo.read("binary")) == (lines, b"\0here")
    assert repo.read("page/index.html") == b"<p>"
    # The merge is not whole, so that a later one begins at the same snapshot.
    assert newest(repo).merged is None
    assert newest(repo).intent.endswith("paths)")


def test_both_versions_are_kept_side_by_side(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    name = timeline(other).rpartition("/")[2]
    repo.write(f"binary.{name}", b"in the way")
    repo.run("envlog", "merge", "--both", timeline(other), check=True)
    assert (repo.read("binary"), repo.read(f"binary.{name}-2")) == (b"\0here", b"\0there")
    assert repo.read(f"binary.{name}") == b"in the way"
    assert b"III" in repo.read("lines")
    assert b"three" in repo.read(f"lines.{name}")
    assert repo.read(f"src/app.{name}") == b"there"


def test_both_versions_of_a_chosen_path_are_kept(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    opened(repo).merge(timeline(other), conflict="both", paths=["binary"])
    name = timeline(other).rpartition("/")[2]
    assert (repo.read("binary"), repo.read(f"binary.{name}")) == (b"\0here", b"\0there")


def test_other_version_is_not_written_over_a_file_of_the_other_side(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    name = timeline(other).rpartition("/")[2]
    other.write(f"binary.{name}", b"their own")
    opened(other).capture("their own")
    opened(repo).merge(timeline(other), conflict="both")
    assert repo.read(f"binary.{name}") == b"their own"
    assert (repo.read("binary"), repo.read(f"binary.{name}-2")) == (b"\0here", b"\0there")


def test_conflicts_are_decided_by_path_and_class_and_the_last_rule_counts(
    overlapping: tuple[Repo, Repo],
) -> None:
    repo, other = overlapping
    history = opened(repo)
    planned = history.merge(timeline(other), resolve={"class:files": "theirs"}, dry_run=True)
    assert planned.conflicts == ()
    words = ("--resolve", "theirs=class:files", "--resolve", "ours=src", "--resolve", "both=bin*")
    repo.run("envlog", "merge", *words, timeline(other), check=True)
    assert (repo.read("src/app"), repo.read("binary")) == (b"here", b"\0here")
    assert b"three" in repo.read("lines")
    history.undo()
    with pytest.raises(MergeConflicts) as raised:
        history.merge(timeline(other), resolve={"lines": "ours"})
    assert [one.path for one in raised.value.conflicts] == [b"binary", b"src/app"]


@pytest.mark.parametrize(
    ("side", "line", "binary"), [("--ours", b"III", b"\0here"), ("--theirs", b"three", b"\0there")]
)
def test_one_side_decides_all_conflicts_of_a_merge(
    overlapping: tuple[Repo, Repo], side: str, line: bytes, binary: bytes
) -> None:
    repo, other = overlapping
    repo.run("envlog", "merge", side, timeline(other), check=True)
    assert repo.read("lines").splitlines()[2] == line
    assert b"twenty-five" in repo.read("lines")
    assert repo.read("binary") == binary
    assert newest(repo).merged == newest(other).id


def test_markers_name_the_timeline(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    opened(repo).merge(timeline(other), conflict="markers", resolve={"binary": "ours", "src": "ours"})
    text = repo.read("lines").decode()
    assert f"=======\nthree\n>>>>>>> {timeline(other).rpartition('/')[2]}\n" in text
    assert text.index("<<<<<<< now\nIII\n") < text.index("=======\n")


def test_revert_has_the_options_of_a_merge(repo: Repo) -> None:
    history = opened(repo)
    for text in ("one", "two"):
        repo.write("a", text)
        repo.write("b", text)
        history.capture(text, verify="true")
    repo.write("a", "three")
    repo.write("b", "three")
    words = ("envlog", "revert", "--resolve=theirs=a", "--both", ":/two")
    told = json.loads(repo.run(*words, "-n", "--json", check=True).out)
    done = repo.run(*words, f"--plan={told['plan_id']}", "--verify", check=True)
    assert "true" in done.out
    step = history.resolve(":/one").id[:7]
    assert (repo.read("a"), repo.read("b"), repo.read(f"b.{step}")) == (b"one", b"three", b"one")
    assert repo.run(*words, f"--plan={told['plan_id']}").status == 3
    history.undo()
    assert repo.run(*words, "--verify-with", "exit 1").status == 1


def test_rule_of_a_subdirectory_is_relative_to_it(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    words = ("merge", "-n", "--json", "--resolve", "ours=app", timeline(other))
    told = json.loads(repo.run("envlog", *words, cwd="src", check=True).out)
    assert [one["path"] for one in told["conflicts"]] == ["binary", "lines"]


def test_pathspecs_and_classes_choose_what_is_merged(overlapping: tuple[Repo, Repo]) -> None:
    repo, other = overlapping
    nothing = repo.run("envlog", "merge", "--only=packages", timeline(other), check=True).out
    assert nothing.startswith("nothing to merge: ")
    repo.run("envlog", "merge", timeline(other), "--", "page", check=True)
    assert repo.read("page/index.html") == b"<p>"
    assert newest(repo).merged is None


def test_forced_merge_changes_an_open_database(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    for one, rows in ((repo, 1), (other, 2)):
        with closing(sqlite3.connect(one.path / "data.db")) as database:
            database.executescript("create table t (n);" + "insert into t values (1);" * rows)
    opened(other).capture("data")
    with closing(sqlite3.connect(repo.path / "data.db")) as reader:
        reader.execute("begin")
        reader.execute("select * from t").fetchall()
        words = ("envlog", "merge", "--theirs", timeline(other))
        refused = repo.run(*words)
        assert (refused.status, "--force" in refused.err) == (3, True)
        repo.run(*words, "--force", check=True)
    with closing(sqlite3.connect(repo.path / "data.db")) as database:
        assert database.execute("select count(*) from t").fetchone() == (2,)


# Turns and sessions of agents.


class Agent:
    """Captures as the hooks of an agent do: before each tool and after each turn."""

    def __init__(self, repo: Repo, session: str) -> None:
        self.repo = repo
        self.session = session
        self.turn = 0

    def work(self, *changes: Callable[[], object]) -> None:
        """Do one turn of tools; each tool makes one change."""
        self.turn += 1
        for number, change in enumerate(changes, start=1):
            self._capture("before", *((("agent-first", "yes"),) if number == 1 else ()))
            change()
        self._capture("after")

    def _capture(self, moment: str, *more: tuple[str, str]) -> None:
        history = opened(self.repo)
        actor = replace(current_actor(history.settings, self.repo.env), agent="claude", session=self.session)
        meta = (("agent-moment", moment), ("agent-turn", str(self.turn)), *more)
        history.capture(f"turn {self.turn}", actor=actor, trigger=Trigger.AGENT, if_changed=True, meta=meta)


def change(repo: Repo, line: int, text: str) -> Callable[[], object]:
    """Return a change of one line of `lines`, and a new file."""

    def make() -> None:
        lines = repo.read("lines").splitlines(keepends=True)
        lines[line] = text.encode() + b"\n"
        repo.write("lines", b"".join(lines))
        repo.write(f"made/{text}", text)

    return make


@pytest.fixture
def sessions(repo: Repo) -> Repo:
    """Work of two sessions in turns, and of a person between them."""
    repo.write("lines", LINES)
    opened(repo).capture("start")
    first, second = Agent(repo, "aaaa-1"), Agent(repo, "bbbb-2")
    first.work(change(repo, 0, "a1"), change(repo, 4, "a2"))
    change(repo, 8, "person")()
    second.work(change(repo, 12, "b1"))
    change(repo, 16, "later")()
    first.work(change(repo, 20, "a3"))
    change(repo, 24, "now")()
    return repo


def made(repo: Repo) -> set[str]:
    return set(os.listdir(repo.path / "made"))


def test_turn_of_an_agent_is_reverted_whole_and_nothing_else(sessions: Repo) -> None:
    last = next(one for one in opened(sessions).log() if dict(one.meta).get("agent-turn") == "1")
    assert last.actor.session == "bbbb-2"
    first = next(one for one in reversed(opened(sessions).log()) if one.actor.session == "aaaa-1")
    sessions.run("envlog", "revert", "--turn", first.id, check=True)
    assert made(sessions) == {"person", "b1", "later", "a3", "now"}
    assert sessions.read("lines").splitlines()[:5] == [b"1", b"2", b"3", b"4", b"5"]
    assert newest(sessions).intent.startswith("revert of turn 1 of session aaaa-1: ")
    opened(sessions).undo()
    opened(sessions).revert(last, turn=True)
    # What a person changed before the turn stays.
    assert made(sessions) == {"person", "a1", "a2", "a3", "later", "now"}


def test_session_is_reverted_although_others_worked_in_between(sessions: Repo) -> None:
    before = state(sessions)
    sessions.run("envlog", "revert", "--session", "aaaa", check=True)
    assert made(sessions) == {"person", "b1", "later", "now"}
    lines = sessions.read("lines").splitlines()
    assert [lines[at] for at in (0, 4, 20)] == [b"1", b"5", b"21"]
    assert [lines[at] for at in (8, 12, 16, 24)] == [b"person", b"b1", b"later", b"now"]
    intent = newest(sessions).intent
    assert intent.startswith("revert of session aaaa-1: ")
    assert intent.count("..") + intent.count(", ") >= 1
    sessions.run("envrestore", "--undo", check=True)
    assert state(sessions) == before


def test_conflicts_of_a_session_name_the_command_that_lists_them(sessions: Repo) -> None:
    change(sessions, 20, "again")()
    refused = sessions.run("envlog", "revert", "--session", "aaaa")
    assert (refused.status, refused.out) == (3, "conflict: lines: its contents changed on both sides\n")
    assert "git envlog revert -n --session aaaa" in refused.err
    opened(sessions).revert(session="aaaa", conflict="skip")
    assert made(sessions) == {"person", "b1", "later", "now", "again"}


def test_both_versions_of_each_step_of_a_session_are_kept(repo: Repo) -> None:
    repo.write("binary", b"\0start")
    opened(repo).capture("start")
    agent = Agent(repo, "aaaa")
    agent.work(lambda: repo.write("binary", b"\0first"))
    repo.write("binary", b"\0person")
    agent.work(lambda: repo.write("binary", b"\0second"))
    repo.write("binary", b"\0now")
    opened(repo).revert(session="aaaa", conflict="both")
    found = {path.read_bytes() for path in repo.path.glob("binary.*")}
    assert (repo.read("binary"), found) == (b"\0now", {b"\0start", b"\0person"})


def test_later_step_of_a_session_that_changed_an_earlier_one_is_no_conflict(repo: Repo) -> None:
    repo.write("lines", LINES)
    opened(repo).capture("start")
    agent = Agent(repo, "aaaa")
    agent.work(change(repo, 3, "one"))
    change(repo, 20, "person")()
    agent.work(change(repo, 3, "two"), (repo.path / "made/one").unlink)
    opened(repo).revert(session="aaaa")
    assert made(repo) == {"person"}
    assert repo.read("lines") == LINES.replace(b"\n21\n", b"\nperson\n")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--session", "none"), 4),
        (("--session", ""), 4),
        (("--session", "aaaa", "@"), 129),
        (("--turn", ":/start"), 129),
        (("--turn",), 129),
    ],
)
def test_turn_or_session_that_does_not_exist_is_an_error(
    sessions: Repo, words: tuple[str, ...], status: int
) -> None:
    assert sessions.run("envlog", "revert", *words).status == status


def test_ambiguous_session_is_an_error(sessions: Repo) -> None:
    Agent(sessions, "aaaa-9").work(change(sessions, 28, "more"))
    with pytest.raises(UsageError, match="more than one session"):
        opened(sessions).revert(session="aaaa")


# Checks.


def test_check_that_passed_on_both_sides_and_fails_is_reported(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    check = "! (test -e page/index.html && grep -q twenty lines)"
    opened(other).verify("now", check)
    opened(repo).capture("here", verify=check)
    done = repo.run("envlog", "merge", "--verify-with", check, timeline(other))
    assert done.status == 1
    assert "but not in both together; to go back: git envrestore --undo" in done.err
    opened(repo).undo()
    merged = opened(repo).merge(timeline(other), verify=check)
    assert merged.checked is not None
    assert "but not in both together" in merged.warnings[-1]
    opened(repo).undo()
    passed = repo.run("envlog", "merge", "--verify-with", "true", timeline(other))
    assert (passed.status, "both together" in passed.err) == (0, False)


# Interruptions.


def die(*_: object, **__: object) -> None:
    os._exit(9)


def interrupt(repo: Repo, work: Callable[[EnvHistory], RestoreResult]) -> None:
    """Kill an operation when its files are about to be swapped."""
    process = os.fork()
    if not process:
        execute.apply = die  # type: ignore[assignment]
        work(opened(repo))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


def test_interrupted_merge_is_continued_or_aborted(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    before, name = state(repo), timeline(other)
    interrupt(repo, lambda history: history.merge(name))
    assert repo.run("envlog", "merge", name).status == 128
    repo.run("envrestore", "--abort", check=True)
    assert state(repo) == before
    interrupt(repo, lambda history: history.merge(name))
    repo.run("envrestore", "--continue", check=True)
    assert repo.read("page/index.html") == b"<p>"
    assert newest(repo).merged == newest(other).id
    repo.run("envrestore", "--undo", check=True)
    assert state(repo) == before


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "points"), [("rename", (6, 9, 12)), ("write", (60, 80)), ("unlink", (3, 9))]
)
def test_killed_merge_and_its_killed_recovery_end_at_a_known_state(
    pair: tuple[Repo, Repo], call: str, points: tuple[int, ...]
) -> None:
    repo, other = pair
    before, name = state(repo), timeline(other)
    repo.run("envlog", "merge", name, check=True)
    after = without_times(state(repo))
    repo.run("envlog", "undo", check=True)
    for when in points:
        repo.run("envlog", "merge", name, prefix=traced(call, "signal=KILL", str(when)))
        if repo.run("envlog", "capture", "--if-changed", "probe").status == 128:
            # Killed again in the recovery, and once more.
            for again in ("2", "1"):
                repo.run("envrestore", "--abort", prefix=traced("rename", "signal=KILL", again))
            assert repo.run("envrestore", "--abort").status in (0, 3)
        found = state(repo)
        assert found == before or without_times(found) == after, when
        if found != before:
            repo.run("envlog", "undo", check=True)
        assert state(repo) == before, when
    assert git_fsck(repo.path) == ""


def without_times(files: Listing) -> Listing:
    """Return a listing without times: a merged file gets the time at which it is written."""
    return {path: replace(one, mtime_ns=0) for path, one in files.items()}


@needs_strace
@pytest.mark.full
@pytest.mark.parametrize("call", ["write", "mkdir", "rename"])
def test_full_disk_changes_nothing_or_leaves_a_restore_to_continue(
    pair: tuple[Repo, Repo], call: str
) -> None:
    repo, other = pair
    before, name = state(repo), timeline(other)
    for when in (1, 4, 8):
        repo.run("envlog", "merge", name, prefix=traced(call, "error=ENOSPC", str(when)))
        if repo.run("envlog", "capture", "--if-changed", "probe").status == 128:
            repo.run("envrestore", "--abort", check=True)
        if state(repo) != before:
            repo.run("envlog", "undo", check=True)
        assert state(repo) == before, when
    repo.run("envlog", "merge", name, check=True)
    assert repo.read("page/index.html") == b"<p>"


def test_file_that_is_edited_during_a_merge_is_kept_and_reported(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    safe: list[Snapshot] = []

    def edit(saved: Snapshot) -> None:
        safe.append(saved)
        repo.write("lines", b"edited meanwhile")

    merged = opened(repo).merge(timeline(other), saved=edit)
    assert repo.read("lines") == b"edited meanwhile"
    assert [one.path for one in merged.kept] == [b"lines"]
    assert not merged.exact
    # A later merge brings what this one left.
    assert newest(repo).merged is None
    assert [one.path for one in opened(repo).merge(timeline(other), dry_run=True).conflicts] == [b"lines"]
    assert repo.read("page/index.html") == b"<p>"


def test_merge_that_skips_excluded_paths_leaves_them_to_a_later_one(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    repo.write(".envhistignore", b"page/\n")
    opened(repo).merge(timeline(other))
    assert (newest(repo).merged, (repo.path / "page").exists()) == (None, False)
    (repo.path / ".envhistignore").unlink()
    opened(repo).merge(timeline(other))
    assert (newest(repo).merged, repo.read("page/index.html")) == (newest(other).id, b"<p>")


# Random forks: both directions give the same tree, and each difference is a named conflict.


@pytest.mark.parametrize("seed", range(2))
def test_random_forks_merge_to_the_same_tree_in_both_directions(repo: Repo, seed: int) -> None:
    choose = random.Random(seed)
    (repo.path / "app.py").unlink(missing_ok=True)
    start(repo.path)
    opened(repo).capture("start")
    other = forked(repo)
    touched: list[set[str]] = [set(), set()]
    for number in range(1, 13):
        place = choose.randrange(2)
        edit = random_edit(choose, number)
        try:
            edit.make((repo, other)[place].path)
        except FileNotFoundError:
            continue
        touched[place].add(edit.path)
    for one in (repo, other):
        opened(one).capture("work")
    here, there = newest(repo).id, newest(other).id
    conflicts = [
        {one.path for one in opened(tree).merge(name, dry_run=True).conflicts}
        for tree, name in ((repo, there), (other, here))
    ]
    assert conflicts[0] == conflicts[1]
    assert {path.decode() for path in conflicts[0]} <= touched[0] & touched[1]
    opened(repo).merge(there, conflict="ours")
    opened(other).merge(here, conflict="theirs")
    assert differences(repo.path, other.path) == ""
    assert all((repo.path / name).exists() or name in touched[0] | touched[1] for name in FILES)


# Fetched and unsigned timelines.


def shared(repo: Repo, place: Path) -> Repo:
    """Push the timeline of a repository and return a clone that has fetched it."""
    bare = make_remote(place / "srv" / "remote.git")
    repo.git("remote", "add", "origin", str(bare.path))
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    repo.run("envlog", "push", "--yes", check=True)
    return shared_clone(bare, repo, place)


def shared_clone(bare: Repo, repo: Repo, place: Path) -> Repo:
    """Return a clone of a remote with other keys that has fetched all timelines."""
    repo.git("clone", "-q", str(bare.path), str(place / "theirs"))
    theirs = Repo(
        place / "theirs", {**repo.env, "HOME": str(place / "home"), "XDG_CONFIG_HOME": str(place / "c")}
    )
    (place / "home").mkdir()
    theirs.git("config", "user.name", "A colleague")
    theirs.git("config", "user.email", "colleague@example.com")
    theirs.run("envlog", "fetch", check=True)
    return theirs


def test_fetched_timeline_without_your_signature_needs_the_option(repo: Repo, tmp_path: Path) -> None:
    repo.write("lines", LINES)
    opened(repo).capture("start")
    repo.write("page", b"<p>")
    (repo.write("run", b"#!/bin/sh\n")).chmod(0o6755)
    (repo.path / "out").symlink_to("/etc/passwd")
    (repo.path / "src/.git/hooks").mkdir(parents=True)
    repo.git("init", "-q", "src")
    repo.write("src/.git/hooks/post-checkout", b"#!/bin/sh\n", mode=0o755)
    opened(repo).capture("work")
    theirs = shared(repo, tmp_path)
    base = next(one for one in opened(theirs).log(all_timelines=True) if one.intent == "start")
    theirs.write("own", b"mine", mode=0o4755)
    name = f"origin/{timeline(repo)}"
    before = state(theirs)
    refused = theirs.run("envlog", "merge", "--base", base.id, name)
    assert (refused.status, "is unsigned" in refused.err) == (3, True)
    assert state(theirs) == before
    done = theirs.run("envlog", "merge", "--base", base.id, "--allow-unsigned", name)
    assert done.status == 5
    assert "run restored files only if you trust the author" in done.err
    assert theirs.read("page") == b"<p>"
    assert (theirs.path / "run").stat().st_mode & 0o7777 == 0o755
    assert not os.path.lexists(theirs.path / "out")
    assert not (theirs.path / "src/.git/hooks/post-checkout").exists()
    # What the unsigned side did not change is as before.
    assert (theirs.path / "own").stat().st_mode & 0o7777 == 0o4755


def test_fork_point_that_only_an_unsigned_snapshot_names_is_reported(repo: Repo, tmp_path: Path) -> None:
    repo.write("lines", LINES)
    opened(repo).capture("start")
    other = forked(repo)
    other.write("page", b"<p>")
    opened(other).capture("page")
    bare = make_remote(tmp_path / "srv" / "remote.git")
    repo.git("remote", "add", "origin", str(bare.path))
    for one in (repo, other):
        one.run("envlog", "push", "--yes", check=True)
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    theirs = shared_clone(bare, repo, tmp_path)
    start = next(one for one in opened(theirs).log(all_timelines=True) if one.intent == "start")
    theirs.run("envrestore", "--allow-unsigned", start.id)
    name = f"origin/{timeline(other)}"
    planned = theirs.run("envlog", "merge", "-n", "--allow-unsigned", name)
    warning = f"only an unsigned snapshot says that both sides changed since '{start.id[:7]}'"
    assert warning in planned.err, planned.err
    told = theirs.run("envlog", "merge", "-n", "--allow-unsigned", "--base", start.id, name)
    assert warning not in told.err
    # The fork is signed here.
    assert warning not in repo.run("envlog", "merge", "-n", timeline(other), check=True).err


@pytest.mark.parametrize("is_changed_here", [True, False])
def test_unsigned_side_removes_no_setting_of_a_nested_repository(
    repo: Repo, tmp_path: Path, is_changed_here: bool
) -> None:
    config = b'[core]\n\trepositoryformatversion = 0\n[user]\n\tname = a\n[branch "m"]\n\tremote = o\n'
    repo.git("init", "-q", "nested")
    repo.write("nested/.git/config", config)
    opened(repo).capture("start")
    repo.write("nested/.git/config", config.replace(b"name = a", b"name = b"))
    opened(repo).capture("work")
    theirs = shared(repo, tmp_path)
    base = next(one for one in opened(theirs).log(all_timelines=True) if one.intent == "start")
    theirs.git("init", "-q", "nested")
    ours = config + (b'[remote "mine"]\n\turl = /precious\n' if is_changed_here else b"")
    theirs.write("nested/.git/config", ours)
    words = ("envlog", "merge", "--base", base.id, "--allow-unsigned", f"origin/{timeline(repo)}")
    done = theirs.run(*words)
    assert theirs.read("nested/.git/config") == ours
    assert "nested/.git/config: the present configuration of a repository stays" in done.out


def test_fetched_timeline_of_your_own_key_is_merged(repo: Repo, tmp_path: Path) -> None:
    repo.write("lines", LINES)
    opened(repo).capture("start")
    bare = make_remote(tmp_path / "srv" / "remote.git")
    repo.git("remote", "add", "origin", str(bare.path))
    repo.git("push", "-q", "origin", "HEAD:refs/heads/main")
    other = forked(repo)
    other.write("page", b"<p>")
    opened(other).capture("page")
    name = timeline(other)
    other.run("envlog", "push", "--yes", check=True)
    repo.git("worktree", "remove", "--force", str(other.path))
    repo.git("update-ref", "-d", f"refs/envhist/heads/{name}")
    repo.run("envlog", "fetch", check=True)
    repo.run("envlog", "merge", f"origin/{name}", check=True)
    assert repo.read("page") == b"<p>"


def test_unsigned_step_is_reverted_with_the_option(tmp_path: Path, hermetic: object) -> None:
    stranger = make_stranger(tmp_path)
    stranger.repo.write("planted", b"planted")
    opened(stranger.repo).capture("planted")
    tree = stranger.repo.git("rev-parse", f"{newest(stranger.repo).commit}^{{tree}}")
    commit = stranger.plant(tree)
    before = stranger.state()
    assert stranger.repo.run("envlog", "revert", commit).status == 3
    assert stranger.state() == before
    stranger.repo.run("envlog", "revert", "--allow-unsigned", commit, check=True)
    assert not (stranger.repo.path / "planted").exists()


def test_name_of_an_unsigned_timeline_is_made_printable_and_short(pair: tuple[Repo, Repo]) -> None:
    repo, other = pair
    theirs = replace(newest(other), timeline="host/a\0b\n" + 300 * "c")
    sources = find_merge(opened(repo), theirs)
    assert sources.words.isprintable()
    assert sources.label == "a?b?" + 96 * "c"


def test_relocation_of_a_fork_is_no_work_to_merge(repo: Repo) -> None:
    activate = f'VIRTUAL_ENV="{repo.path}/.venv"\n'
    repo.write(".venv/pyvenv.cfg", "home = /usr/bin\n")
    repo.write(".venv/bin/activate", activate)
    opened(repo).capture("start")
    opened(repo).fork("@", repo.path.parent / "two", relocate=True)
    other = Repo(repo.path.parent / "two", repo.env)
    assert str(other.path) in other.read(".venv/bin/activate").decode()
    other.write("page", b"<p>")
    other.write(".venv/bin/tool", f"#!{other.path}/.venv/bin/python\n", mode=0o755)
    opened(other).capture("page")
    repo.write("here", b"here")
    opened(repo).capture("here")
    shown = repo.run("envlog", "merge", "--relocate", timeline(other), check=True).out
    assert "write 2 " in shown
    assert repo.read(".venv/bin/activate").decode() == activate
    assert repo.read(".venv/bin/tool").decode() == f"#!{repo.path}/.venv/bin/python\n"
    opened(other).merge(timeline(repo))
    assert str(other.path) in other.read(".venv/bin/activate").decode()
    assert other.read("here") == b"here"
