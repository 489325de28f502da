"""A restore from the locks to the moment that records it.

What is here now is captured once: the plan is made on it, and it becomes the moment to come back to. What that takes is
loaded while the workers look.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.request import CaptureOptions
from git_envhist.capturing.survey import refuse_home
from git_envhist.model import RestoreResult, RestoreRole, Snapshot
from git_envhist.restoring.here import Choose, RestoreContext
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.values import dataclass, replace

if TYPE_CHECKING:
    from git_envhist.restoring.carrying import ExecuteResult
    from git_envhist.restoring.course import ExtraSteps, RestoreOperation
    from git_envhist.store.repository import Repository


@dataclass(slots=True)
class RestoreRunner:
    """One working tree, and how it is brought back to a moment."""

    here: RestoreContext
    changed: Snapshot | None = None
    """Once something was changed: the moment that holds what was here."""

    def restore(self, wish: RestoreOptions, part: RestoreRole, choose: Choose) -> RestoreResult:
        """Go to a moment, chosen once it is known what is here now."""
        repository = self._stay_at_top()
        if not (wish.force or self.here.capturing.settings.named_only):
            refuse_home(repository.root, self.here.capturing.environ)
        capturing = self.here.unbounded()
        with capturing.locked(CaptureOptions(waiting=wish.waiting, dry_run=wish.dry_run)):
            capturing.refuse_broken_off()
            capturing.sweep_staged()
            return self.go(capturing, wish, part, choose)

    def go(
        self,
        capturing: CapturePipeline,
        wish: RestoreOptions,
        part: RestoreRole,
        choose: Choose,
        beside: ExtraSteps | None = None,
    ) -> RestoreResult:
        """The same under locks that are held. `beside`: what belongs to it that another restore began."""
        started = time.monotonic()
        courses: list[RestoreOperation] = []

        def meanwhile(tip: str | None) -> None:
            from git_envhist.restoring.course import RestoreOperation  # loaded late: while the workers look

            courses.append(RestoreOperation(self.here, capturing, wish, part, choose, beside))
            courses[0].foresee(tip)

        request = CaptureOptions(progress=wish.progress, dumps=wish.dumps, dry_run=wish.dry_run)
        with capturing.hold(request, meanwhile=meanwhile) as held:
            course = courses[0]
            decided = course.decide(held)
        if decided.saved is None:
            return decided.planned
        done = course.carry_out(decided.planned, decided.saved, decided.rest, self._note_change)
        return replace(done, seconds=time.monotonic() - started)

    def _stay_at_top(self) -> Repository:
        """Run git at the top of the working tree: a restore may remove the directory of this process."""
        repository = self.here.capturing.repository
        repository.git.directory = repository.root
        return repository

    def _note_change(self, saved: Snapshot) -> None:
        self.changed = saved

    def write_to(self, snapshot: Snapshot, directory: str, wish: RestoreOptions) -> RestoreResult:
        """Write a moment into a directory of its own."""
        from git_envhist.restoring.doubts import unstable_path_warnings  # loaded late: --to alone
        from git_envhist.restoring.elsewhere import Source, write_elsewhere  # loaded late: likewise
        from git_envhist.restoring.nearby import WorktreeReader  # loaded late: likewise
        from git_envhist.restoring.obeyedplaces import refuse_obeyed_place  # loaded late: likewise

        own = self.here.capturing.repository
        judged = self.here.judge(snapshot)
        if not judged.trusted:
            refuse_obeyed_place(directory, own.git, own.root)
        source = Source(own.git, own.state, partial(WorktreeReader.of, own, self.here.unseal), self.here.how)
        written = write_elsewhere(judged, directory, source, wish)
        return replace(written, warnings=(*written.warnings, *unstable_path_warnings(own.git, snapshot.tree)))

    def go_on(self) -> ExecuteResult:
        """Finish a restore that was broken off, and record it."""
        from git_envhist.restoring.endings import go_on  # loaded late: hardly any is broken off

        self._stay_at_top()
        return go_on(self)

    def take_back(self) -> ExecuteResult:
        """Bring back what stood here before a restore that was broken off."""
        from git_envhist.restoring.endings import take_back  # loaded late: likewise

        self._stay_at_top()
        return take_back(self)
