"""Undo and redo step through states as in an editor, and new work replaces the states ahead."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.model import RestoreRole, Snapshot, SnapshotId
from git_envhist.restore.undo_stack import Difference, State, UndoStack, read_undo_stack
from tests.history.snapshots import snapshot


def compare(one: State, other: State) -> Difference:
    """Compare trees that are named `<owner>:<time>`."""
    if one.tree == other.tree:
        return Difference.NONE
    same_owner = one.tree.partition(":")[0] == other.tree.partition(":")[0]
    return Difference.TIMES if same_owner else Difference.MORE


class Person:
    """Capture, restore and undo; keep the chain of snapshots, and the undo states an editor would have."""

    def __init__(self) -> None:
        self.chain: list[Snapshot] = []
        self.content = "0"
        self.tree = ""
        """`<owner>:<time>`"""
        self.states: list[str] = []
        self.at = -1

    def work(self, content: str) -> None:
        self.content = content

    def capture(self) -> None:
        self._know_present()
        self._append(None, None)

    def restore(self, content: str) -> None:
        self._save()
        self.content = content
        self._know_present()
        self._append(RestoreRole.TO, self.chain[0].id)

    def undo(self, steps: int = 1) -> bool:
        stop = self.walk.back(steps, State(self.content, self.tree))
        expected = self._expected(-steps)
        assert (stop.content if stop else None) == expected
        return self._move(stop, RestoreRole.UNDO, -steps)

    def redo(self, steps: int = 1) -> bool:
        stop = self.walk.forward(steps, State(self.content, self.tree))
        known = self.at >= 0 and self.states[self.at] == self.content
        assert (stop.content if stop else None) == (self._expected(steps) if known else None)
        return self._move(stop, RestoreRole.REDO, steps)

    @property
    def walk(self) -> UndoStack:
        return read_undo_stack(self.chain, compare)

    def _expected(self, steps: int) -> str | None:
        states, at = list(self.states), self.at
        if not states or states[at] != self.content:
            states, at = [*states[: at + 1], self.content], at + 1
        return states[at + steps] if 0 <= at + steps < len(states) else None

    def _move(self, stop: Snapshot | None, part: RestoreRole, steps: int) -> bool:
        if stop is None:
            return False
        self._save()
        self.at += steps
        self.content = stop.content
        self._append(part, stop.id)
        return True

    def _save(self) -> None:
        self._know_present()
        self._append(RestoreRole.BEFORE, None)

    def _know_present(self) -> None:
        if self.at < 0 or self.states[self.at] != self.content:
            self.states[self.at + 1 :] = [self.content]
            self.at += 1

    def _append(self, part: RestoreRole | None, source: SnapshotId | None) -> None:
        one = snapshot(f"moment {len(self.chain)}")
        self.chain.append(
            replace(one, content=self.content, tree=self.tree, restore=part, restored_from=source)
        )


def test_undo_right_after_a_restore_reverts_it() -> None:
    person = Person()
    for content in "ab":
        person.work(content)
        person.capture()
    person.work("unsaved")
    person.restore("a")
    assert person.undo()
    assert person.content == "unsaved"


def test_undo_steps_through_captures_and_redo_returns_to_the_uncaptured_state() -> None:
    person = Person()
    for content in "abc":
        person.work(content)
        person.capture()
    person.work("unsaved")
    seen = []
    while person.undo():
        seen.append(person.content)
    while person.redo():
        seen.append(person.content)
    assert seen == ["c", "b", "a", "b", "c", "unsaved"]


def test_second_step_is_counted_from_the_state_after_the_first() -> None:
    person = Person()
    for content in ("a", "b"):
        person.work(content)
        person.capture()
    person.restore("c")
    person.work("b")
    # The first step leads to "c", the second to the earlier state that equals the present one.
    assert person.undo(2)
    assert person.content == "b"


def test_new_work_replaces_the_states_ahead_and_is_reported() -> None:
    person = Person()
    for content in "abc":
        person.work(content)
        person.capture()
    person.undo(2)
    person.work("new")
    assert not person.redo()
    assert not person.walk.cut_off
    person.capture()
    assert not person.redo()
    assert [stop.content for stop in person.walk.cut_off] == ["b", "c"]


def test_capture_without_a_change_keeps_the_states_ahead() -> None:
    person = Person()
    for content in "ab":
        person.work(content)
        person.capture()
    person.undo()
    person.capture()
    assert person.redo()
    assert person.content == "b"


def test_dropped_state_is_recognized_by_the_result_of_its_undo() -> None:
    person = Person()
    for content in "abc":
        person.work(content)
        person.capture()
    person.undo(2)
    kept = [one for one in person.chain if one.content != "a" or one.restore is not None]
    here = read_undo_stack(kept, compare).current
    assert here is not None
    assert here.content == "a"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["work", "capture", "restore", "undo", "redo"]),
        st.sampled_from("abcd"),
        st.integers(1, 3),
    ),
    max_size=30,
)


@given(STEPS)
def test_random_steps_equal_those_of_an_editor(steps: list[tuple[str, str, int]]) -> None:
    person = Person()
    person.capture()
    for verb, content, count in steps:
        if verb in ("work", "restore"):
            getattr(person, verb)(content)
        elif verb == "capture":
            person.capture()
        else:
            getattr(person, verb)(count)


class Chain:
    """Snapshots of equal content, each with an owner and a time."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def add(
        self, tree: str, restore: RestoreRole | None = None, source: SnapshotId | None = None
    ) -> SnapshotId:
        one = snapshot(f"moment {len(self.snapshots)}")
        self.snapshots.append(replace(one, content="a", tree=tree, restore=restore, restored_from=source))
        return one.id

    def back(self, tree: str) -> SnapshotId | None:
        stop = read_undo_stack(self.snapshots, compare).back(1, State("a", tree))
        return stop.id if stop else None

    def forward(self, tree: str) -> SnapshotId | None:
        stop = read_undo_stack(self.snapshots, compare).forward(1, State("a", tree))
        return stop.id if stop else None


def test_undo_returns_the_owner_that_a_restore_replaced() -> None:
    chain = Chain()
    first = chain.add("root:1")
    saved = chain.add("user:1", RestoreRole.BEFORE)
    chain.add("root:1", RestoreRole.TO, first)
    assert chain.back("root:1") == saved


def test_undo_returns_the_times_that_a_restore_replaced() -> None:
    chain = Chain()
    first = chain.add("root:1")
    saved = chain.add("root:2", RestoreRole.BEFORE)
    chain.add("root:1", RestoreRole.TO, first)
    assert chain.back("root:1") == saved


def test_undo_returns_an_owner_that_changed_since_the_last_snapshot() -> None:
    chain = Chain()
    first = chain.add("root:1")
    assert chain.back("user:1") == first


def test_undo_skips_captures_that_differ_only_in_times() -> None:
    chain = Chain()
    first = chain.add("user:1")
    chain.add("root:1")
    chain.add("root:2")
    assert chain.back("root:3") == first


def test_undo_returns_the_newest_snapshot_of_a_state() -> None:
    chain = Chain()
    chain.add("user:1")
    newest = chain.add("user:2")
    chain.add("root:2")
    assert chain.back("root:2") == newest


def test_redo_works_after_times_changed() -> None:
    chain = Chain()
    first, second = chain.add("user:1"), chain.add("root:1")
    chain.add("user:1", RestoreRole.UNDO, first)
    saved = chain.add("user:2")
    assert chain.forward("user:3") == second
    chain.add("root:1", RestoreRole.REDO, second)
    assert chain.back("root:1") == saved


def test_undo_continues_when_an_owner_could_not_be_set() -> None:
    chain = Chain()
    first, second = chain.add("other:1"), chain.add("user:1")
    third = chain.add("root:1")
    chain.add("root:2", RestoreRole.UNDO, second)
    assert chain.back("root:2") == first
    assert chain.forward("root:2") == third


def test_undo_continues_from_a_state_whose_newest_snapshot_is_another() -> None:
    chain = Chain()
    first, second = chain.add("other:1"), chain.add("user:1")
    chain.add("root:1")
    chain.add("user:1", RestoreRole.UNDO, second)
    chain.add("user:2")
    chain.add("root:1")
    chain.add("user:1", RestoreRole.UNDO, second)
    assert chain.back("user:1") == first


def test_state_before_a_restore_is_not_new_when_only_caches_differ() -> None:
    def caches_alone(one: State, other: State) -> bool:
        return one.content.partition("+")[0] == other.content.partition("+")[0]

    one, two = (replace(snapshot(word), content=word) for word in ("a", "b"))
    walk = read_undo_stack([one, two], compare, caches_alone)
    compiled = State("b+pyc", two.tree)
    assert not walk.is_new(compiled)
    assert walk.back(1, compiled) == one
    assert read_undo_stack([one, two], compare).back(1, compiled) == two
    before = replace(snapshot("before"), content="b+pyc", restore=RestoreRole.BEFORE)
    assert read_undo_stack([one, two, before], compare, caches_alone).stops == [one, before]
    # A manual capture is always a state, even if only caches differ.
    captured = replace(before, restore=None)
    assert read_undo_stack([one, two, captured], compare, caches_alone).stops == [one, two, captured]


def test_stop_of_an_equal_state_is_the_newest_capture() -> None:
    one = replace(snapshot("one"), content="a", head="1" * 40)
    two = replace(one, id=snapshot("two").id, intent="two")
    assert read_undo_stack([one, two], compare).stops == [two]
    before = replace(two, restore=RestoreRole.BEFORE)
    assert read_undo_stack([one, before], compare).stops == [one]
    moved = replace(before, head="2" * 40)
    assert read_undo_stack([one, moved], compare).stops == [moved]
