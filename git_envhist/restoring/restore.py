"""A restore from the locks to the moment that records it.

What is here now is captured once: on that the plan is made, and it is what is published as the moment to come back to.
Only when every byte that will be replaced has been read back from that moment is anything touched; what comes is
staged meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial

from git_envhist.capturing.capture import Capturing, restore_directory
from git_envhist.capturing.holding import Held
from git_envhist.capturing.request import Request
from git_envhist.capturing.survey import Survey, refuse_home
from git_envhist.errors import EnvhistError, Refused
from git_envhist.model import (
    TOP,
    EnvPath,
    LeftAlone,
    Pair,
    Plan,
    Restored,
    RestorePart,
    Snapshot,
    SnapshotId,
    Trigger,
)
from git_envhist.restore.journal import Journal
from git_envhist.restoring.carrying import Carried, Last, Place, carry_out
from git_envhist.restoring.damage import told_of_what_comes
from git_envhist.restoring.doubts import doubtful
from git_envhist.restoring.ending import SAFETY, TARGET, Notes, Way, end, forget_way, settle
from git_envhist.restoring.foreign import Findings
from git_envhist.restoring.foresight import changes_files, foreseen, is_idle
from git_envhist.restoring.guards import refuse_locked_repositories, refuse_open_databases, refuse_unsaved
from git_envhist.restoring.inspection import inspect, room_at
from git_envhist.restoring.names import refuse_names
from git_envhist.restoring.outside import outside_of
from git_envhist.restoring.planning import Guess, Planner, closed_paths, forbidden_places
from git_envhist.restoring.processes import Touched, still_running
from git_envhist.restoring.recording import publish_now
from git_envhist.restoring.rest import Rest, plan_rest
from git_envhist.restoring.room import refuse_without_room
from git_envhist.restoring.saved import Saved, prove_saved
from git_envhist.restoring.seen import landed
from git_envhist.restoring.trust import told, write_blobs
from git_envhist.restoring.wish import STOPPED, Wish
from git_envhist.store.contents import Contents
from git_envhist.store.git import Git
from git_envhist.values import dataclass, replace

UNLIMITED, PART = 1 << 62, "part"
NOT_RECORDED = "the restore is done, but could not be recorded"
Choose = Callable[[str], Snapshot]
"""The content of what is here now -> the moment to go to; where one was named it is that, whatever is here."""
UNKNOWN = ""
Judge = Callable[[Snapshot], Snapshot]
Find = Callable[[str], Snapshot]
Unseal = Callable[[EnvPath, bytes], bytes]


@dataclass(slots=True)
class Restoring:
    """One working tree, and how it is brought back to a moment."""

    capturing: Capturing
    judge: Judge
    unseal: Unseal
    find: Find
    changed: Snapshot | None = None
    """Once something was changed: the moment that holds what was here."""

    def restore(self, wish: Wish, part: RestorePart, choose: Choose) -> Restored:
        """Go to a moment, chosen once it is known what is here now."""
        if not wish.force:
            refuse_home(self.capturing.repository.root, self.capturing.environ)
        capturing = self._unbounded()
        with capturing.locked(Request(waiting=wish.waiting, dry_run=wish.dry_run)):
            capturing.refuse_broken_off()
            capturing.sweep_staged()
            return self._go(capturing, wish, part, choose)

    def _go(
        self,
        capturing: Capturing,
        wish: Wish,
        part: RestorePart,
        choose: Choose,
        way: Way | None = None,
        last: Last | None = None,
    ) -> Restored:
        started = time.monotonic()
        request = Request(progress=wish.progress, dumps=wish.dumps, dry_run=wish.dry_run)
        guess = Guess()

        def foresee(tip: str | None) -> None:
            if part is RestorePart.TO and (likely := self.judge(choose(UNKNOWN))).trusted is not False:
                guess.make(self._contents(capturing.repository.git), tip, likely.tree)

        with capturing.hold(request, meanwhile=foresee) as held:
            target = self.judge(choose(held.content))
            planned = self._plan(held, target, wish, guess)
            if part is RestorePart.UNDO and not changes_files(planned) and target.content != held.content:
                # What differs is nothing that a restore would touch: one is in that state, and means the one before.
                planned = self._plan(held, target := self.judge(choose(target.content)), wish, guess)
            refuse_names(planned.plan, held.taken.survey.bases)
            planned = replace(planned, outside=outside_of(held, target, wish))
            if wish.planned is not None:
                wish.planned(planned)
            if is_idle(planned, wish, capturing.repository):
                return planned
            if wish.dry_run:
                return foreseen(planned, wish, held, partial(self._guard, held, planned, wish))
            wished = self._guard(held, planned, wish)
            rest = wished if way is None else way.rest
            safety = self._save(held, target)
            if wish.saved is not None:
                wish.saved(safety)
            saved = Saved.of(held, safety, self._place(held.taken.survey), planned.plan)
        running: list[str] = []

        def meanwhile() -> None:
            prove_saved(planned.plan, saved.place.open_contents)
            running.extend(map(str, still_running(Touched.by(planned.plan, saved.place.bases))))

        relocated: list[EnvPath] = []
        last = last or (lambda _: relocated.extend(rest.do(capturing, planned.plan.steps)))
        links = wish.foreign and wish.force and wish.links
        notes = (way or Way(TARGET, target.id, safety.id, links, *rest)).notes
        stopped = ((STOPPED, " ".join(wish.stopped)),) if wish.stopped else ()
        told = (*notes, *stopped, (PART, part.value))
        carried = self._carry_out(planned.plan, saved, told, last, meanwhile)
        planned = replace(planned, safety=safety, head=rest.words, relocated=tuple(relocated))
        done = self._record(capturing, planned, carried, target.id, part, saved)
        return replace(done, seconds=time.monotonic() - started, running=tuple(running))

    def _carry_out(
        self, plan: Plan, saved: Saved, notes: Notes, last: Last, meanwhile: Callable[[], None]
    ) -> Carried:
        with told_of_what_comes(plan, saved.place.open_contents):
            carried = carry_out(saved.place, plan, notes, known=saved.known, last=last, meanwhile=meanwhile)
        self.changed = saved.safety
        return carried

    def write_to(self, snapshot: Snapshot, directory: str, wish: Wish) -> Restored:
        """Write a moment into a directory of its own."""
        from git_envhist.restoring.elsewhere import Source, write_elsewhere  # loaded late: --to alone
        from git_envhist.restoring.nearby import Nearby  # loaded late: likewise

        own = self.capturing.repository
        source = Source(own.git, own.state, partial(Nearby.of, own, self.unseal), self._how)
        written = write_elsewhere(self.judge(snapshot), directory, source, wish)
        return replace(written, warnings=(*written.warnings, *doubtful(own.git, snapshot.tree)))

    def go_on(self) -> Carried:
        """Finish a restore that was broken off, and record it."""
        return self._end(TARGET)

    def take_back(self) -> Carried:
        """Bring back what stood here before a restore that was broken off."""
        return self._end(SAFETY)

    def _end(self, goal: str) -> Carried:
        capturing = self._unbounded()
        with capturing.locked(Request()):
            place = self._place(capturing.survey(None))
            late: list[str] = []

            def last(journal: Journal) -> None:
                late.extend(settle(capturing, self.find, journal, goal))

            carried, way = end(place, goal, last)
            part = RestorePart.UNDO if goal == SAFETY else RestorePart.TO
            if way is not None:
                done = self._go(
                    capturing,
                    Wish(foreign=True, force=True, links=way.links),
                    part,
                    lambda _: self.find(way.source),
                    way,
                    last,
                )
                kept = (*(carried.kept if carried is not None else ()), *done.kept)
                carried = Carried(done.verified, kept, done.losses, goal == SAFETY, way.notes)
            else:
                assert carried is not None
                carried = carried._replace(undone=goal == SAFETY)
                late += self._record_end(carried, goal, part)
            forget_way(place.private)
        return carried._replace(kept=(*carried.kept, *(LeftAlone(TOP, why) for why in late)))

    def _record_end(self, carried: Carried, goal: str, part: RestorePart) -> Iterator[str]:
        """Record what is finished; what could not be had."""
        told = dict(carried.notes)
        if goal == TARGET:
            part = RestorePart(told.get(PART, part.value))
        source = SnapshotId(told[goal]) if told.get(goal) else None
        try:
            publish_now(self._unbounded(), source, part)
        except (EnvhistError, OSError) as error:
            yield f"{NOT_RECORDED}: {error}"

    def _unbounded(self) -> Capturing:
        # What a restore saves is saved whole, whatever a capture may add.
        mine = self.capturing
        settings = replace(mine.settings, budget=UNLIMITED)
        return Capturing(mine.repository, settings, mine.keys, mine.how, mine.environ)

    def _plan(self, held: Held, target: Snapshot, wish: Wish, guess: Guess) -> Restored:
        if target.trusted is False and not wish.foreign:
            raise Refused(
                f"no key that is here signed '{target.id[:7]}': what it holds is somebody else's word",
                hint="write it elsewhere: --to <directory>; --foreign, if you trust who made it; "
                "where it is your own: git envlog key import",
            )
        finished = held.finish()
        git = held.context.repository.git.with_objects(held.staging.path)
        planner = Planner(git, self._contents(git), held.taken, guess)
        warnings = tuple(held.warnings)
        if target.trusted is not False:
            plan = planner.plan(finished.tree, target.tree, wish)
            warnings += doubtful(git, target.tree, plan)
            return Restored(target, plan, held.taken.files, losses=closed_paths(plan), warnings=warnings)
        pairs, findings = self._inspect(target, wish)
        plan = planner.plan(finished.tree, target.tree, wish, findings)
        if not wish.dry_run:
            write_blobs(held.context.repository.git, findings.blobs)
        warnings += doubtful(git, target.tree, plan)
        return told(Restored(target, plan, files=held.taken.files, warnings=warnings), findings, pairs)

    def _inspect(self, target: Snapshot, wish: Wish) -> tuple[list[Pair], Findings]:
        repository = self.capturing.repository
        with closing(self._contents(repository.git)) as contents:
            room = room_at(repository.root)
            return inspect(
                repository.git, contents, target.tree, room=room, force=wish.force, links=wish.links
            )

    def _guard(self, held: Held, planned: Restored, wish: Wish) -> Rest:
        bases = held.taken.survey.bases
        refuse_unsaved(planned.plan, held.taken.gathered.missing)
        refuse_locked_repositories(planned.plan, bases)
        git = held.context.repository.git
        with closing(self._contents(git)) as contents:
            refuse_without_room(planned.plan, bases, git, contents)
        if not wish.force:
            refuse_open_databases(planned.plan, bases)
        return plan_rest(self.capturing, planned.target, held.view, wish)

    def _save(self, held: Held, target: Snapshot) -> Snapshot:
        # Without the words of the target: who looks for these does not mean this moment.
        words = f"before the restore of {target.id[:7]}"
        request = Request(os.fsencode(words), trigger=Trigger.RESTORE, restore=RestorePart.BEFORE)
        safety = held.publish(request).snapshot
        assert safety is not None
        return safety

    def _record(
        self,
        capturing: Capturing,
        planned: Restored,
        carried: Carried,
        target: SnapshotId,
        part: RestorePart,
        saved: Saved,
    ) -> Restored:
        done = replace(planned, verified=carried.verified, kept=carried.kept)
        done = replace(done, losses=(*planned.losses, *carried.losses))
        try:
            since = landed(saved.since, planned.plan, carried)
            moment, differing = publish_now(capturing, target, part, since, planned.target)
        except (EnvhistError, OSError) as error:
            warning = f"{NOT_RECORDED}: {error}"
            return replace(done, moment=planned.safety, warnings=(*done.warnings, warning))
        if differing is None:
            return replace(done, moment=moment)
        before = len(differing & saved.differed) if saved.differed is not None else None
        return replace(done, moment=moment, tracked_differing=len(differing), tracked_differed=before)

    def _place(self, extent: Survey) -> Place:
        repository = self.capturing.repository
        return Place(
            restore_directory(repository.state),
            extent.bases,
            forbidden_places(extent),
            lambda: self._contents(repository.git),
            self._how,
        )

    @property
    def _how(self) -> str:
        return "fork" if self.capturing.how == "fork" else "here"

    def _contents(self, git: Git, made: Mapping[bytes, bytes] | None = None) -> Contents:
        repository = self.capturing.repository
        return Contents(git, repository.pack_dir, repository.object_format, self.unseal, made=made)
