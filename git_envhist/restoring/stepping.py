"""The snapshot that undo or redo restores, chosen from the timeline and the environment now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from git_envhist.capturing.timelines import current_timeline
from git_envhist.errors import EnvhistError
from git_envhist.history.cursor import Difference, State, UndoStack, read_undo_stack
from git_envhist.history.hints import NOTHING_CAPTURED
from git_envhist.history.timeline import subject
from git_envhist.model import Snapshot, SnapshotId
from git_envhist.restoring.here import Now, RestoreContext
from git_envhist.restoring.states import States
from git_envhist.store.repository import TRASH

WithTrash = Callable[[str], tuple[list[Snapshot], frozenset[SnapshotId]]]
"""Return a timeline with its recently dropped snapshots, oldest first, and the ids of these."""


class NothingToUndo(EnvhistError):
    """There is no state in that direction."""

    exit_code = 4
    code = "nothing-to-undo"
    usual_hint = "'git envlog --graph' shows the states there are"


class Stepping:
    """Choose the snapshot for undo and redo."""

    def __init__(
        self, here: RestoreContext, log: Callable[[], list[Snapshot]], with_trash: WithTrash
    ) -> None:
        """`log`: the snapshots of the timeline, newest first."""
        self._here = here
        self._log = log
        self._with_trash = with_trash
        self.left: SnapshotId | None = None
        """The snapshot of the state that the last undo leaves; None if that state was new."""
        self.skipped = ""
        """A warning about a dropped state that the last choice passed over."""

    def back(self, steps: int, now: Now | None) -> Snapshot:
        """Return the state to undo to; `NothingToUndo` if there is none."""
        assert now is not None
        here, further = State(now.content, now.tree), steps + now.further
        self.skipped = ""
        with self._compared(now) as states:
            walk = read_undo_stack(reversed(self._log()), states)
            self.left = None if walk.here is None or walk.is_new(here) else walk.here.id
            stop, dropped = walk.back(further, here), self._dropped(further, here, states)
            if dropped is not None and not _is_as_good(stop, dropped, states):
                self._tell_dropped(dropped, stop)
            if stop is None:
                raise _why_none(walk, steps, here)
        return stop

    def forth(self, steps: int, now: Now | None) -> Snapshot:
        """Return the state to redo; `NothingToUndo` if there is none."""
        assert now is not None
        here = State(now.content, now.tree)
        with self._compared(now) as states:
            walk = read_undo_stack(reversed(self._log()), states)
            stop, is_new = walk.forward(steps, here), walk.is_new(here)
        if stop is not None:
            return stop
        ahead = walk.cut_off or (walk.stops[walk.cursor + 1 :] if is_new else ())
        if ahead:
            raise NothingToUndo(
                "there is new work since the last undo: nothing to redo",
                hint=f"what lay ahead is still there: git envrestore {ahead[-1].id[:7]}",
            )
        raise NothingToUndo("nothing was undone: there is nothing to redo")

    @contextmanager
    def _compared(self, now: Now) -> Iterator[States]:
        with closing(self._here.contents(now.git)) as contents:
            yield States(contents)

    def _dropped(self, steps: int, here: State, states: States) -> Snapshot | None:
        """Return the state that undo would lead to, had it not been dropped."""
        capturing = self._here.capturing
        timeline = current_timeline(capturing.repository, capturing.settings)
        if timeline is None or not capturing.repository.list_refs(TRASH):
            return None
        line, gone = self._with_trash(timeline)
        stop = read_undo_stack(line, states).back(steps, here) if line else None
        return stop if stop is not None and stop.id in gone else None

    def _tell_dropped(self, dropped: Snapshot, stop: Snapshot | None) -> None:
        state = f"the state before was dropped: {dropped.id[:7]} '{subject(dropped.intent)}'"
        again = f"git envlog undrop {dropped.id[:7]}"
        if stop is None:
            raise NothingToUndo(state, hint=f"bring it back: {again}")
        self.skipped = f"{state}; this is {stop.id[:7]} instead (bring it back: {again})"


def _is_as_good(stop: Snapshot | None, dropped: Snapshot, states: States) -> bool:
    """Whether one state differs from a dropped one in times at most."""
    if stop is None or stop.content != dropped.content:
        return False
    return states(State.of(stop), State.of(dropped)) is not Difference.MORE


def _why_none(walk: UndoStack, steps: int, here: State) -> NothingToUndo:
    far = next((n for n in range(min(steps, len(walk.stops)), 0, -1) if walk.back(n, here)), 0)
    if far and far < steps:
        return NothingToUndo(
            f"there are not {steps:,} earlier states",
            hint=f"as far back as it goes: git envrestore --undo {far}",
        )
    return NothingToUndo(
        "there is no earlier state to go back to",
        hint="'git envlog' lists every snapshot" if walk.stops else NOTHING_CAPTURED,
    )
