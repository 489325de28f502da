"""Random sequences of commands: no snapshot changes, and undo steps as documented.

A model runs in parallel: copies made by `cp`, and a cursor. `ENVHIST_TEST_SEQUENCES=500` runs 500 sequences.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hygiene.user_data import belongings
from tests.support.depth import examples
from tests.support.oracle import git_fsck, listing, tree_differences
from tests.support.repository import Repo, Result, make_repo
from tests.support.strategies import edits, trees
from tests.support.trees import Edit, File, Put, Tree, apply, build

EXAMPLES = int(os.environ.get("ENVHIST_TEST_SEQUENCES") or examples(1, 2))
DONE, NOTHING_THERE = 0, 4
GIT = (
    ("add", "-A"), ("commit", "-qm", "a change"), ("stash", "-q", "-u"), ("stash", "pop", "-q"),
    ("checkout", "-q", "-B", "other"), ("checkout", "-q", "main"), ("reset", "-q", "--hard"), ("clean", "-qfdx"),
    ("gc", "-q", "--prune=now"),
)  # fmt: skip
"""Changes made between commands; git commands may be refused."""

Words = tuple[str, ...]
Step = tuple[str, object]
Look = object
"""The files of a state as undo compares them: with times and hard links only if a restore set them."""


@dataclass
class Day:
    """An environment, its copies by snapshot id, and the states for undo and redo."""

    repo: Repo
    place: Path
    copies: dict[str, Path] = field(default_factory=dict)
    states: list[tuple[Look, Path]] = field(default_factory=list)
    cursor: int = -1

    def step(self, what: str, how: object) -> None:
        getattr(self, what)(how)

    def edit(self, changes: tuple[Edit, ...]) -> None:
        apply(changes, self.repo.path)

    def git(self, words: Words) -> None:
        self.repo.execute("git", *words, check=False)

    def capture(self, intent: str) -> None:
        here = self.copy()
        self.ours("envlog", "capture", intent)
        self.learn(here, here)
        self.arrive(here)
        assert tree_differences(here, self.repo.path) == ()

    def restore(self, number: int) -> None:
        known = list(self.copies)
        if known:
            self.go(known[number % len(known)])

    def go(self, moment: str) -> None:
        before = self.copy()
        self.ours("envrestore", moment)
        assert tree_differences(self.copies[moment], self.repo.path) == ()
        if self.learn(before, after := self.copy()):
            self.arrive(before)
            # A restore that sets only times also creates a new state.
            self.arrive(after, is_led_to=tree_differences(before, after) != ())

    def undo(self, steps: int) -> None:
        look = self.list_files()
        is_new = self.cursor < 0 or self.states[self.cursor][0] != look
        self.walk("--undo", steps, None if self.cursor < 0 else self.reach(-1, steps - is_new))

    def redo(self, steps: int) -> None:
        is_there = self.cursor >= 0 and self.states[self.cursor][0] == self.list_files()
        self.walk("--redo", steps, self.reach(1, steps) if is_there else None)

    def reach(self, direction: int, steps: int) -> int | None:
        at = self.cursor + direction * steps
        return at if 0 <= at < len(self.states) else None

    def walk(self, option: str, steps: int, wanted: int | None) -> None:
        before = self.copy()
        done = self.ours(
            "envrestore", option, str(steps), status=DONE if wanted is not None else NOTHING_THERE
        )
        reached = before if wanted is None else self.states[wanted][1]
        assert tree_differences(reached, self.repo.path) == ()
        if self.learn(before, after := self.copy()) and wanted is not None:
            self.arrive(before)
            self.cursor = wanted
            assert self.states[wanted][0] == look_at(after), done.out

    def arrive(self, copy: Path, *, is_led_to: bool = False) -> None:
        """A new state replaces the states ahead; an equal one gets the newest times."""
        look = look_at(copy)
        if self.cursor < 0 or self.states[self.cursor][0] != look or is_led_to:
            self.states[self.cursor + 1 :] = [(look, copy)]
            self.cursor += 1
        else:
            self.states[self.cursor] = (look, copy)

    def learn(self, before: Path, after: Path) -> bool:
        """Add the new snapshots: the safety snapshot, and the state after it."""
        listed = json.loads(self.ours("envlog", "--json", "--no-fold").out)
        came = [one for one in listed if one["id"] not in self.copies]
        for one in came:
            saved = one["trigger"] == "restore" and one["restored_from"] is None
            self.copies[one["id"]] = before if saved else after
        return bool(came)

    def list_files(self) -> Look:
        return look_at(self.repo.path)

    def copy(self) -> Path:
        place = self.place / str(len(list(self.place.iterdir())))
        subprocess.run(["cp", "-a", f"{self.repo.path}/.", place], check=True)
        shutil.rmtree(place / ".git")
        os.utime(place, ns=(0, self.repo.path.stat().st_mtime_ns))
        return place

    def ours(self, *words: str, status: int = DONE) -> Result:
        """Run one of our programs and check that it did not change git's files."""
        theirs = self.of_git()
        done = self.repo.run(*words)
        assert done.status == status, (words, done.out, done.err)
        assert self.of_git() == theirs
        return done

    def of_git(self) -> object:
        """Return refs, HEAD, index, stash and configuration; not git status, which a restore changes."""
        theirs = belongings(self.repo)
        return theirs.git, theirs.answers[1:]

    def end(self) -> None:
        """Check that every copy can be read back from its snapshot."""
        assert git_fsck(self.repo.path) == ""
        for number, (moment, copy) in enumerate(self.copies.items()):
            there = self.place.parent / f"to-{number}"
            self.ours("envrestore", "--to", str(there), moment)
            assert tree_differences(copy, there) == ()


def look_at(place: Path) -> Look:
    return {path: replace(found, mtime_ns=0, linked=()) for path, found in listing(place).items()}


@st.composite
def days(draw: st.DrawFn) -> tuple[Tree, list[Step]]:
    tree = draw(trees(max_entries=12))
    changed = st.tuples(st.just("edit"), edits(tree, max_edits=4).filter(bool))
    captured = st.tuples(st.just("capture"), st.sampled_from(("one", "a..b", "two~2")))
    gone = st.tuples(st.sampled_from(("undo", "undo", "redo")), st.integers(1, 3))
    back = st.tuples(st.just("restore"), st.integers(0, 30))
    # Start with two captures, so that undo has a state to return to.
    begun = [draw(captured), draw(changed), draw(captured)]
    steps = st.one_of(
        changed, changed, captured, back, gone, gone, st.tuples(st.just("git"), st.sampled_from(GIT))
    )
    return tree, [*begun, *draw(st.lists(steps, min_size=5, max_size=12))]


def written(text: bytes) -> Step:
    return "edit", (Put(b"file", File(text)),)


FORKED: list[Step] = [
    ("capture", "one"),
    *(step for text in (b"1", b"22") for step in (written(text), ("capture", "two~2"))),
    *(("undo", 1), written(b"333"), ("capture", "a..b"), ("undo", 1), ("undo", 1), ("redo", 2)),
    *(("restore", 0), written(b"4444"), ("undo", 2), ("redo", 2)),
]
"""New work after an undo or a restore removes the states ahead."""
EQUAL: list[Step] = [
    *(("capture", "one"), written(b"1"), ("capture", "two~2")),
    *(("restore", 0), ("undo", 2), ("undo", 3), ("undo", 1), ("undo", 1)),
]
"""The state two steps back equals the present one, so undo to it changes nothing."""


@given(days())
@example(({}, FORKED))
@example(({}, EQUAL))
@settings(max_examples=EXAMPLES)
def test_random_sequence_keeps_snapshots_and_undo_states(
    tmp_path_factory: pytest.TempPathFactory, told: tuple[Tree, list[Step]]
) -> None:
    tree, steps = told
    top = tmp_path_factory.mktemp("day")
    (top / "copies").mkdir()
    day = Day(make_repo(top / "repo"), top / "copies")
    build(tree, day.repo.path)
    for what, how in steps:
        day.step(what, how)
    day.end()
